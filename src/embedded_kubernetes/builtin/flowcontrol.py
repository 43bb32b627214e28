"""FlowSchemas and PriorityLevelConfigurations (flowcontrol.apiserver.k8s.io/v1).

Stored so that manifests apply. This server neither queues nor rejects by them, and has none of the objects that a
real server bootstraps, since they would describe what is not done.
"""

from __future__ import annotations

from ..errors import Cause
from ..resource import Object, Resource
from .causes import check_one_of, check_range, required
from .kind import builtin

_GROUP = "flowcontrol.apiserver.k8s.io"


def _default_schema(schema: Object) -> None:
    spec = schema.setdefault("spec", {})
    if not spec.get("matchingPrecedence"):
        spec["matchingPrecedence"] = 1000


def _check_schema(schema: Object, old: Object | None) -> list[Cause]:
    spec = schema.get("spec") or {}
    causes = check_range("spec.matchingPrecedence", spec.get("matchingPrecedence"), low=1, high=10_000)
    if not (spec.get("priorityLevelConfiguration") or {}).get("name"):
        detail = "must reference a priority level"
        causes.append(required("spec.priorityLevelConfiguration.name", detail))
    if (method := spec.get("distinguisherMethod")) is not None:
        allowed = ("ByNamespace", "ByUser")
        causes += check_one_of("spec.distinguisherMethod.type", method.get("type"), allowed)
    return causes


def _default_level(level: Object) -> None:
    spec = level.setdefault("spec", {})
    if (limited := spec.get("limited")) is not None:
        limited.setdefault("nominalConcurrencyShares", 30)
        limited.setdefault("lendablePercent", 0)
        response = limited.setdefault("limitResponse", {})
        if (queuing := response.get("queuing")) is not None:
            for field, value in (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)):
                if not queuing.get(field):
                    queuing[field] = value


def _check_level(level: Object, old: Object | None) -> list[Cause]:
    spec = level.get("spec") or {}
    causes = check_one_of("spec.type", spec.get("type"), ("Exempt", "Limited"))
    if spec.get("type") == "Limited":
        limited = spec.get("limited")
        if limited is None:
            return [*causes, required("spec.limited", "must not be empty when type is Limited")]
        kind = (limited.get("limitResponse") or {}).get("type")
        causes += check_one_of("spec.limited.limitResponse.type", kind, ("Queue", "Reject"))
    return causes


FLOW_CONTROL: tuple[Resource, ...] = (
    builtin(
        group=_GROUP,
        version="v1",
        kind="FlowSchema",
        rechecks="whole",
        plural="flowschemas",
        namespaced=False,
        default=_default_schema,
        check=_check_schema,
        generation=True,
        status=True,
        first_status={},
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="PriorityLevelConfiguration",
        rechecks="whole",
        plural="prioritylevelconfigurations",
        namespaced=False,
        default=_default_level,
        check=_check_level,
        generation=True,
        status=True,
        first_status={},
    ),
)
