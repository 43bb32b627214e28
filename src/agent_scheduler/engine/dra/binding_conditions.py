"""Binding conditions: devices that must become ready for a node before their pod may be bound (KEP-5007).

A device names conditions that its driver has to report as True once it is allocated, and others that report failure;
they are copied into the allocation. Until all are True the pod waits in PreBind. A claim whose devices failed, or took
longer than `bindingTimeout`, is unusable on every node; it is deallocated, so that it gets other devices.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from agent_scheduler.objects import dra

#: Seconds, unless a profile's `DynamicResourcesArgs` set another value.
BINDING_TIMEOUT: Final = 600.0


class BindingConditions(msgspec.Struct, frozen=True):
    """The progress of the devices of an allocated claim with binding conditions. Equal by content."""

    #: The drivers of devices with binding conditions.
    drivers: frozenset[str]
    is_ready: bool
    #: The message of the first failure condition; empty without one.
    failure: str
    #: The time of the allocation in Unix seconds; None if the allocation has none.
    since: float | None

    def timed_out(self, now: float, timeout: float) -> bool:
        return not self.is_ready and self.since is not None and self.since + timeout < now


def binding_conditions_of(status: dra.ResourceClaimStatus) -> BindingConditions | None:
    """Return the progress; None for a claim without an allocation or binding conditions.

    Devices are checked in the order of the results, and none after the first one that is not ready: a failure there is
    reported once that one is ready.
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
            kind in conditions and conditions[kind].status == "True" for kind in result.binding_conditions or ()
        )
        if not is_ready:
            break
    return BindingConditions(
        frozenset(each.driver for each in waited), is_ready, failure, _instant(allocation.allocation_timestamp)
    )


def failed(claim: str, failure: str) -> str:
    """Return kube-scheduler's message for a failure in PreBind."""
    return f"device binding failed: claim={claim}, {failure}"


def late(claim: str) -> str:
    return f"device binding timeout: claim={claim}"


def _conditions(
    reports: Sequence[dra.AllocatedDeviceStatus], result: dra.DeviceResult
) -> dict[str, dra.DeviceCondition]:
    """Return the driver's reported conditions of a device by type; empty without a report."""
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
