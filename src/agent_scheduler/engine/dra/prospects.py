"""Whether a search can succeed at all: asked of those that take long, for most of these have no chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .plans import Ask, ClaimPlan, Failed
from .sites import Seat

#: What a request takes of a device's capacities; None if it cannot have the device.
WantedOf = Callable[[Ask, Seat], object | None]


def is_hopeless(claims: Sequence[ClaimPlan], seats: Sequence[Seat], wanted: WantedOf) -> bool:
    """Whether some request cannot be met by itself, or all together need more devices than there are. False says
    nothing."""
    free = [
        seat
        for seat in seats
        if seat.facts.shared or not (seat.name in seat.pool.exclusive or seat.name in seat.pool.shares)
    ]
    together = 0
    for claim in claims:
        for asks in claim.requests:
            if not any(_could_have(ask, free, wanted) for ask in asks):
                return True
            if not any(ask.option.admin or ask.option.takes_all for ask in asks):
                together += min(ask.option.number for ask in asks)
    return together > len(free) and not any(seat.facts.shared for seat in free)


def _could_have(ask: Ask, free: Sequence[Seat], wanted: WantedOf) -> bool:
    """Whether as many devices match as it asks for, whatever the others take. Errors are for the search to meet."""
    if ask.option.takes_all or ask.option.admin:
        return True
    found = 0
    for seat in free:
        try:
            matches = ask.selects(seat.facts)
        except Failed:
            return True
        found += matches and ask.tolerates(seat.device.taints) and wanted(ask, seat) is not None
    return found >= ask.option.number
