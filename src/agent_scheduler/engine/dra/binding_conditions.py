"""Binding conditions: devices that have to be made ready for a node before their pod may be bound (KEP-5007).

A device names conditions that its driver has to report as True once it is allocated, and others that say that this has
failed; they are copied into the allocation. Until all are True the pod waits in PreBind. A claim whose devices failed,
or took longer than `bindingTimeout`, can be used on no node; it is deallocated, so that it gets others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from agent_scheduler.objects import dra

#: Seconds, unless a profile's `DynamicResourcesArgs` say otherwise.
BINDING_TIMEOUT: Final = 600.0


class BindingConditions(msgspec.Struct, frozen=True):
    """How far the devices of an allocated claim are, of which some have binding conditions. Equal by content."""

    #: Of the devices with binding conditions.
    drivers: frozenset[str]
    is_ready: bool
    #: What the first condition that says so has to say of a failure; empty without one.
    failure: str
    #: When the claim was allocated, in Unix seconds; None if its allocation does not say.
    since: float | None

    def timed_out(self, now: float, timeout: float) -> bool:
        return not self.is_ready and self.since is not None and self.since + timeout < now


def binding_conditions_of(status: dra.ResourceClaimStatus) -> BindingConditions | None:
    """None for a claim without an allocation, or whose devices need not be waited for.

    Devices are looked at in the order of the results, and none behind the first one that is not ready: a failure there
    is seen when that one is.
    """
    allocation = status.allocation
    if allocation is None:
        return None
    waited = [each for each in allocation.devices.results or () if each.binding_conditions]
    if not waited:
        return None
    is_ready, failure = True, ""
    for result in waited:
        conditions = _conditions(status.devices or (), result)
        failed = next(
            (
                found
                for kind in result.binding_failure_conditions or ()
                if (found := conditions.get(kind)) is not None and found.status == "True"
            ),
            None,
        )
        if failed is not None:
            failure = f"reason={failed.reason}, message={json.dumps(failed.message, ensure_ascii=False)}"
        is_ready = failed is None and all(
            kind in conditions and conditions[kind].status == "True"
            for kind in result.binding_conditions or ()
        )
        if not is_ready:
            break
    return BindingConditions(
        frozenset(each.driver for each in waited),
        is_ready,
        failure,
        _instant(allocation.allocation_timestamp),
    )


def failed(claim: str, failure: str) -> str:
    """Why PreBind failed, as kube-scheduler has it."""
    return f"device binding failed: claim={claim}, {failure}"


def late(claim: str) -> str:
    return f"device binding timeout: claim={claim}"


def _conditions(
    reports: Sequence[dra.AllocatedDeviceStatus], result: dra.DeviceResult
) -> dict[str, dra.DeviceCondition]:
    """What the driver has reported of a device, by type; empty while it has not."""
    for each in reports:
        if (each.driver, each.pool, each.device) != (result.driver, result.pool, result.device):
            continue
        if (each.share_id or "") == (result.share_id or ""):
            return {condition.type: condition for condition in each.conditions or ()}
    return {}


def _instant(stamp: str | None) -> float | None:
    try:
        found = datetime.fromisoformat(stamp or "")
    except ValueError:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
