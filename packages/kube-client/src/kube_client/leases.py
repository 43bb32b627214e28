"""Several leases held at once, nested: the work runs only while all of them are held."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from kube_client.lease import LeaderElector
from kube_client.recorder import ObjectReference

#: Seconds for which a lease may have ended; kube-scheduler's.
_TOLERANCE: Final = 20.0


class LeaseLost(RuntimeError):
    """Another process may lead now; this one has stopped writing and has to start over."""


class Leases:
    """Leases by name in the order in which they are acquired; released in reverse order. May be empty."""

    def __init__(self, electors: Mapping[str, LeaderElector], *, identity: str) -> None:
        self._electors = dict(electors)
        self.identity = identity

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._electors)

    @property
    def held(self) -> bool:
        """Whether this process may begin a write now."""
        return all(elector.is_leader for elector in self._electors.values())

    @property
    def references(self) -> Sequence[ObjectReference]:
        """The object references for events about the leases."""
        return tuple(elector.reference for elector in self._electors.values())

    def problem(self) -> str | None:
        """Return why the process should be restarted: it holds a lease that ended long ago without noticing."""
        late = [name for name, elector in self._electors.items() if elector.expired_for > _TOLERANCE]
        return f"failed election to renew leadership on lease {', '.join(late)}" if late else None

    @property
    def leader(self) -> str:
        """The holder of the first lease that this process does not hold; "" for none, or if it holds all."""
        return next((each.leader for each in self._electors.values() if not each.is_leader), "")

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run `lead()` while all leases are held, as `LeaderElector.run` does. Raises LeaseLost."""
        await self._run(tuple(self._electors.items()), lead)

    async def _run(self, electors: Sequence[tuple[str, LeaderElector]], lead: Callable[[], Awaitable[None]]) -> None:
        if not electors:
            await lead()
            return
        (name, elector), rest = electors[0], electors[1:]
        if not await elector.run(partial(self._run, rest, lead)):
            holder = elector.leader
            why = "was not renewed in time" if holder == self.identity else f"is held by {holder or 'nobody'}"
            raise LeaseLost(f"lease {name} {why}")
