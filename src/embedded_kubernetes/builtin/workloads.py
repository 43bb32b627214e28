"""Controllers' kinds: Deployments, ReplicaSets, StatefulSets, DaemonSets and their revisions,
ReplicationControllers, PodTemplates.

They are stored, defaulted and checked as a real server does; no controller acts on them here. kubectl reads them
to drain a node and to describe a pod, and manifests that hold them apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ..errors import Cause
from ..resource import Object
from .causes import (
    check_int_or_percent,
    check_one_of,
    forbidden,
    immutable,
    invalid,
    required,
)
from .eviction import matches
from .kind import Check, Logic
from .metadata import check_annotations, check_labels
from .pod_defaults import default_pod_spec
from .pod_spec import check_pod_spec
from .selectors import check_label_selector

Spec = dict[str, Any]


def _default(obj: Object, strategy: str = "", rolling: dict[str, Any] | None = None) -> None:
    """A pod template's defaults, and those of a rolling update under the field `strategy`."""
    spec = obj["spec"]
    default_pod_spec(spec["template"]["spec"])
    if rolling is not None and spec[strategy]["type"] == "RollingUpdate":
        spec[strategy]["rollingUpdate"] = {**rolling, **(spec[strategy].get("rollingUpdate") or {})}


def _default_replication_controller(obj: Object) -> None:
    spec = obj["spec"]
    if spec.get("template") is not None:
        default_pod_spec(spec["template"]["spec"])
        labels = spec["template"]["metadata"].get("labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            if not obj["metadata"].get("labels"):
                obj["metadata"]["labels"] = dict(labels)


def check_template(
    template: dict[str, Any], path: str, *, restart: tuple[str, ...] = ("Always",), deadline: bool = True
) -> Iterator[Cause]:
    """A pod template; `restart` are the policies that its owner can live with, `deadline` whether it knows one."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    # The paths leave out `metadata`, as a real server's do.
    yield from check_labels(metadata.get("labels") or {}, f"{path}.labels")
    yield from check_annotations(metadata.get("annotations") or {}, f"{path}.annotations")
    yield from check_pod_spec(spec, f"{path}.spec", is_pod=False)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        yield forbidden(f"{path}.spec.ephemeralContainers", detail)
    if restart and spec.get("restartPolicy") not in restart:
        yield from check_one_of(f"{path}.spec.restartPolicy", spec.get("restartPolicy"), restart)
    if not deadline and spec.get("activeDeadlineSeconds") is not None:
        yield forbidden(f"{path}.spec.activeDeadlineSeconds", "is not supported here")


def _check_selector(spec: Spec, owner: str) -> Iterator[Cause]:
    selector = spec.get("selector")
    if selector is None:
        if owner != "daemonset":
            yield required("spec.selector")
        return
    yield from check_label_selector(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", selector, f"empty selector is invalid for {owner}")


def check_match(spec: Spec) -> Iterator[Cause]:
    """That the selector selects the template's pods; one that is missing selects nothing."""
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if matches(spec.get("selector"), labels):
        return
    yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _check_pods(spec: Spec, owner: str) -> Iterator[Cause]:
    yield from _check_selector(spec, owner)
    yield from check_match(spec)
    yield from _check_own_template(spec)


def _check_own_template(spec: Spec) -> Iterator[Cause]:
    return check_template(spec.get("template") or {}, "spec.template", deadline=False)


def _with_fixed_selector(
    check: Callable[[Spec], Iterable[Cause]], obj: Object, old: Object | None
) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    yield from check(spec)
    if old is not None and spec.get("selector") != (old.get("spec") or {}).get("selector"):
        yield immutable("spec.selector", spec.get("selector"))


def _check_strategy(spec: Spec, field: str, allowed: tuple[str, ...]) -> Iterator[Cause]:
    strategy = spec.get(field) or {}
    yield from check_one_of(f"spec.{field}.type", strategy.get("type"), allowed)
    rolling = strategy.get("rollingUpdate")
    if rolling is not None:
        if strategy.get("type") != "RollingUpdate":
            detail = f"may not be specified when strategy `type` is '{strategy.get('type')}'"
            yield forbidden(f"spec.{field}.rollingUpdate", detail)
        for name in ("maxUnavailable", "maxSurge"):
            if (value := rolling.get(name)) is not None:
                yield from check_int_or_percent(value, f"spec.{field}.rollingUpdate.{name}")
        if rolling.get("maxUnavailable") in (0, "0%") and rolling.get("maxSurge") in (0, "0%"):
            detail = "may not be 0 when `maxSurge` is 0"
            yield invalid(f"spec.{field}.rollingUpdate.maxUnavailable", rolling["maxUnavailable"], detail)


def _check_deployment(spec: Spec) -> Iterator[Cause]:
    yield from _check_pods(spec, "deployment")
    yield from _check_strategy(spec, "strategy", ("Recreate", "RollingUpdate"))
    deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if deadline is not None and deadline <= ready:
        yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


_MUTABLE = frozenset(
    {
        "minReadySeconds",
        "ordinals",
        "persistentVolumeClaimRetentionPolicy",
        "replicas",
        "revisionHistoryLimit",
        "template",
        "updateStrategy",
    }
)


def _check_stateful_set(obj: Object, old: Object | None) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    yield from _check_strategy(spec, "updateStrategy", ("OnDelete", "RollingUpdate"))
    yield from _check_pods(spec, "statefulset")
    if old is not None:
        before = old.get("spec") or {}
        if any(spec.get(key) != before.get(key) for key in (spec.keys() | before.keys()) - _MUTABLE):
            fields = "', '".join(sorted(_MUTABLE))
            detail = f"updates to statefulset spec for fields other than '{fields}' are forbidden"
            yield forbidden("spec", detail)


def _check_daemon_set(spec: Spec) -> Iterator[Cause]:
    yield from check_match(spec)
    yield from _check_selector(spec, "daemonset")
    yield from _check_own_template(spec)
    yield from _check_strategy(spec, "updateStrategy", ("OnDelete", "RollingUpdate"))


def _check_replication_controller(obj: Object, old: Object | None) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    selector, template = spec.get("selector") or {}, spec.get("template")
    if not selector:
        yield required("spec.selector")
    if template is None:
        yield required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector and any(labels.get(key) != value for key, value in selector.items()):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from check_template(template, "spec.template", deadline=False)


def _check_pod_template(obj: Object, old: Object | None) -> Iterator[Cause]:
    return check_template(obj.get("template") or {}, "template", restart=())


def _fixed(check: Callable[[Spec], Iterable[Cause]]) -> Check:
    return partial(_with_fixed_selector, check)


LOGIC = {
    ("apps", "Deployment"): Logic(
        default=partial(_default, strategy="strategy", rolling={"maxUnavailable": "25%", "maxSurge": "25%"}),
        check=_fixed(_check_deployment),
    ),
    ("apps", "ReplicaSet"): Logic(default=_default, check=_fixed(partial(_check_pods, owner="deployment"))),
    ("apps", "StatefulSet"): Logic(
        default=partial(_default, strategy="updateStrategy", rolling={"partition": 0}),
        check=_check_stateful_set,
    ),
    ("apps", "DaemonSet"): Logic(
        default=partial(_default, strategy="updateStrategy", rolling={"maxUnavailable": 1, "maxSurge": 0}),
        check=_fixed(_check_daemon_set),
    ),
    ("", "ReplicationController"): Logic(
        default=_default_replication_controller, check=_check_replication_controller
    ),
    ("", "PodTemplate"): Logic(
        default=lambda obj: default_pod_spec(obj["template"]["spec"]), check=_check_pod_template
    ),
}
