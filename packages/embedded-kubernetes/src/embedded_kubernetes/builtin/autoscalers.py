"""HorizontalPodAutoscalers: v2 is stored; v1 has a single target, a percentage of CPU.

Conversion follows pkg/apis/autoscaling/v1. Fields that v1 lacks are kept in annotations, in the form of v2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import nesting
from ..errors import Cause
from ..resource import Object, Shape
from . import names
from .causes import check_name, invalid
from .kind import Logic

_GROUP, _KIND = "autoscaling", "HorizontalPodAutoscaler"
#: The default target, in percent of the requested CPU.
_USUAL = 80
_PREFIX = "autoscaling.alpha.kubernetes.io/"
#: Fields of v2 in spec and status, with the annotations that keep them in v1.
_KEPT = {
    "spec": {"metrics": "metrics", "behavior": "behavior"},
    "status": {"currentMetrics": "current-metrics", "conditions": "conditions"},
}


def _cpu(percent: int) -> Object:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _percent(metric: Object) -> int | None:
    """Return the percentage by which v1 expresses this metric; None if v1 cannot."""
    resource = metric.get("resource") or {}
    found: int | None = (resource.get("target") or {}).get("averageUtilization")
    return found if resource.get("name") == "cpu" else None


def to_stored(scaler: Object) -> Object:
    metadata = scaler["metadata"]
    annotations: dict[str, Any] = dict(metadata.get("annotations") or {})
    stored: Object = {**scaler, "apiVersion": f"{_GROUP}/v2", "kind": _KIND, "metadata": dict(metadata)}
    for part, fields in _KEPT.items():
        stored[part] = dict(scaler.get(part) or {})
        for field, annotation in fields.items():
            kept = annotations.pop(_PREFIX + annotation, None)
            if kept is not None:
                stored[part][field] = nesting.loads(kept)
    percent = stored["spec"].pop("targetCPUUtilizationPercentage", None)
    if percent is not None:
        stored["spec"]["metrics"] = [*stored["spec"].get("metrics", ()), _cpu(percent)]
    stored["status"].pop("currentCPUUtilizationPercentage", None)
    stored["status"].setdefault("currentMetrics", None)
    if not stored["status"].get("currentReplicas"):
        stored["status"].pop("currentReplicas", None)
    _set_annotations(stored["metadata"], annotations)
    return stored


def from_stored(scaler: Object) -> Object:
    metadata = scaler["metadata"]
    annotations: dict[str, Any] = dict(metadata.get("annotations") or {})
    shown: Object = {**scaler, "apiVersion": f"{_GROUP}/v1", "kind": _KIND, "metadata": dict(metadata)}
    spec, status = dict(scaler.get("spec") or {}), dict(scaler.get("status") or {})
    shown["spec"], shown["status"] = spec, status
    metrics = spec.pop("metrics", None) or []
    percents = [percent for metric in metrics if (percent := _percent(metric)) is not None]
    if percents:
        spec["targetCPUUtilizationPercentage"] = percents[0]
    others = [metric for metric in metrics if _percent(metric) is None]
    for part, field, value in (
        ("spec", "metrics", others),
        ("spec", "behavior", spec.pop("behavior", None)),
        ("status", "currentMetrics", status.pop("currentMetrics", None)),
        ("status", "conditions", status.pop("conditions", None)),
    ):
        if value:
            annotations[_PREFIX + _KEPT[part][field]] = nesting.dumps(value).decode()
    status.setdefault("currentReplicas", 0)
    status.setdefault("desiredReplicas", 0)
    _set_annotations(shown["metadata"], annotations)
    return shown


def _set_annotations(metadata: Object, annotations: Object) -> None:
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)


def _default(scaler: Object) -> None:
    spec = scaler.setdefault("spec", {})
    if spec.get("minReplicas") is None:
        spec["minReplicas"] = 1
    if not spec.get("metrics"):
        spec["metrics"] = [_cpu(_USUAL)]


def _check(scaler: Object, old: Object | None) -> Iterator[Cause]:
    spec = scaler["spec"]
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if least < 1:
        yield invalid("spec.minReplicas", least, "must be greater than or equal to 1")
    if most < 1:
        yield invalid("spec.maxReplicas", most, "must be greater than 0")
    if least > most:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    target = spec.get("scaleTargetRef") or {}
    for field in ("kind", "name"):
        yield from check_name(f"spec.scaleTargetRef.{field}", target.get(field, ""), names.path_segment)


_SHAPE = Shape(stored=(_GROUP, "horizontalpodautoscalers"), to_stored=to_stored, from_stored=from_stored, version="v2")
LOGIC = {
    (_GROUP, _KIND): Logic(default=_default, check=_check),
    (f"{_GROUP}/v1", _KIND): Logic(default=_default, check=_check, shape=_SHAPE),
}
