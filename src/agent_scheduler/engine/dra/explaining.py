"""What a node lacks for a pod's claims, in numbers; for people who ask why a pod waits."""

from __future__ import annotations

from ..state.nodeinfo import NodeInfo
from ..state.podclaims import Demand
from .allocator import CANNOT_ALLOCATE, Refused
from .catalogue import Devices
from .extended import met_by_devices
from .plans import Ask, Failed, plan_of
from .sites import Seat, site_of


def lacking(refused: Refused, demand: Demand, devices: Devices, node: NodeInfo) -> str:
    """The reason, and for each request how many devices match it and how many of these are free."""
    if refused.reason != CANNOT_ALLOCATE:
        return refused.reason
    seats = site_of(devices, node).seats
    plan = plan_of(demand, devices)
    claims = list(plan.claims)
    if demand.extended is not None and (met := met_by_devices(demand.extended.resources, devices, node)):
        claims.append(plan.extended(met, devices))
    asks = [ask for claim in claims for asks in claim.requests for ask in asks]
    return "; ".join((refused.reason, *(_said_of(ask, seats) for ask in asks)))


def _said_of(ask: Ask, seats: tuple[Seat, ...]) -> str:
    option = ask.option
    wants = "all" if option.takes_all else str(option.number)
    place = f"claim {ask.claim}, request {option.result_name}: wants {wants} of class {option.class_name}"
    try:
        matching = [seat for seat in seats if ask.selects(seat.facts)]
    except Failed as failed:
        return f"{place}, {failed}"
    free = [seat for seat in matching if seat.name not in seat.pool.exclusive]
    tainted = sum(not ask.tolerates(seat.device.taints) for seat in free)
    text = f"{place}, {len(matching)} match, {len(free)} of them free"
    return f"{text}, {tainted} of these tainted" if tainted else text
