"""What a node lacks for a pod's claims, in numbers; for people who ask why a pod waits."""

from __future__ import annotations

from ..state.nodeinfo import NodeInfo
from ..state.podclaims import Demand
from .allocator import CANNOT_ALLOCATE, Refused
from .catalogue import Devices
from .extended import met_by_devices
from .node_devices import DeviceSlot, devices_of
from .plans import Ask, Failed, plan_of


def lacking(refused: Refused, demand: Demand, devices: Devices, node: NodeInfo) -> str:
    """The reason, and for each request how many devices match it and how many of these are free."""
    if refused.reason != CANNOT_ALLOCATE:
        return refused.reason
    slots = devices_of(devices, node).slots
    plan = plan_of(demand, devices)
    claims = list(plan.claims)
    if demand.extended is not None and (met := met_by_devices(demand.extended.resources, devices, node)):
        claims.append(plan.extended(met, devices))
    asks = [ask for claim in claims for asks in claim.requests for ask in asks]
    return "; ".join((refused.reason, *(_said_of(ask, slots) for ask in asks)))


def _said_of(ask: Ask, slots: tuple[DeviceSlot, ...]) -> str:
    option = ask.option
    wants = "all" if option.takes_all else str(option.number)
    place = f"claim {ask.claim}, request {option.result_name}: wants {wants} of class {option.class_name}"
    try:
        matching = [slot for slot in slots if ask.selects(slot.facts)]
    except Failed as failed:
        return f"{place}, {failed}"
    free = [slot for slot in matching if slot.name not in slot.pool.exclusive]
    tainted = sum(not ask.tolerates(slot.device.taints) for slot in free)
    text = f"{place}, {len(matching)} match, {len(free)} of them free"
    return f"{text}, {tainted} of these tainted" if tainted else text
