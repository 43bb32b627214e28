"""The supervisor's side of sharing: it hears the children, keeps the books, and says what follows from them.

Synchronous: what a report asks for is said before the next one is heard, and whoever hears an order has heard all that
were said before. So a child that is told of a node knows what became of all pods that it lent to its last holder.

At the start nothing is divided before every child is there, or has ended: the first would get all, to give most of it
back at once.

Guarantees: a node is given to one child at a time (`parts`); a pod that was lent comes back to its home, once, whatever
happens to the child that was to bind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from agent_scheduler.engine.shards.homes import Homes
from agent_scheduler.engine.shards.membership import NOT_KNOWN
from agent_scheduler.fastpath.neighbours import Ending

from .parts import Names, Parts
from .wire import Claims, Given, Hold, Leave, Left, Lend, Lent, Order, Returned, Share, Split

_log = structlog.get_logger(__name__)

#: Seconds from the end of a child until its nodes are given to others. The kernel has closed its connections by then,
#: and what the API server had read of it is carried out, if it is not held up for longer (docs/reliability.md, S1).
FENCE: Final = 5.0

_NOBODY: Final[Names] = frozenset()


class Exchange:
    """Owner of who has what: nodes, pods and loans. Children are known by their numbers, from 0."""

    def __init__(
        self,
        children: int,
        *,
        say: Callable[[int, Order], None],
        clock: Callable[[], float],
        shared: bool,
    ) -> None:
        """`say`: to one child, which may be gone. `shared`: whether other schedulers use nodes of the cluster, of
        which these come and go; then all is caught up with before a node is used."""
        self._say = say
        self._clock = clock
        self._shared = shared
        self._parts = Parts(fence=FENCE)
        #: Children that were there, and those that are.
        self._expected = set(range(children))
        self._members: set[int] = set()
        self._homes = Homes()
        #: The NodeShard's nodes, as the children were told.
        self._share: Names = _NOBODY
        self._unready = NOT_KNOWN
        #: Those to which it has a claim.
        self._claims: Names = _NOBODY
        #: A version of the cluster that is older than now, and by which others had left the nodes that came last.
        self._version = ""
        self._is_divided = False
        self._is_begun = False
        self._is_closed = False
        #: A pod that is lent and its home -> the child that is to bind it.
        self._loans: dict[tuple[str, int], int] = {}

    # ---- questions

    @property
    def begun(self) -> bool:
        """Whether nodes and pods have been divided."""
        return self._is_begun

    @property
    def members(self) -> frozenset[int]:
        return frozenset(self._members)

    def under_way(self, nodes: Iterable[str]) -> Names:
        """Those of the shard's nodes that some child uses, or to which something may be under way."""
        return self._parts.under_way(nodes)

    def next_free(self) -> float | None:
        """When to `go_on`, even if nothing happens. It may be over by now."""
        return self._parts.next_free()

    # ---- what happens

    def learn(self, version: str) -> None:
        """Nodes that are given from now on were left by others before that version of the cluster."""
        self._version = version

    def divide(self, first: Iterable[str], rest: Iterable[str] = ()) -> None:
        """The nodes that may be used."""
        if self._is_closed:
            return
        self._parts.divide(first, rest)
        self._is_divided = True
        self.go_on()

    def close(self) -> None:
        """From now on no child is to use any node; what it has under way ends."""
        self.divide(())
        self._is_closed = True

    def share(self, nodes: Names, unready: str) -> None:
        """The NodeShard's nodes, for children to tell of them, before they are divided."""
        told = Share(
            tuple(sorted(nodes - self._share)), tuple(sorted(self._share - nodes)), "" if nodes else unready
        )
        changed = told.joined or told.left or told.unready != self._unready
        self._share, self._unready = nodes, told.unready
        if changed:
            for child in sorted(self._members):
                self._say(child, told)

    def claim(self, nodes: Names) -> None:
        """The nodes to which the NodeShard has a claim: to others nothing may be sent, where it is binding."""
        gained, lost = nodes - self._claims, self._claims - nodes
        self._claims = nodes
        if gained or lost:
            for child in sorted(self._members):
                self._say(child, Claims(tuple(sorted(gained)), tuple(sorted(lost))))

    def come(self, child: int) -> None:
        """A child is ready, and has nothing."""
        self._members.add(child)
        self._expected.discard(child)
        if self._shared:
            self._say(child, Claims(tuple(sorted(self._claims)), ()))
            self._say(child, Share(tuple(sorted(self._share)), (), self._unready))
        self._parts.join(child)
        if self._is_begun:
            self._split()
        self.go_on()

    def gone(self, child: int) -> None:
        """A child has ended, or was never ready."""
        self._expected.discard(child)
        if child in self._members:
            self._members.discard(child)
            self._parts.end(child, self._clock())
            for (uid, home), borrower in list(self._loans.items()):
                if borrower == child:
                    self._returned(uid, home, Ending.REFUSED, "")
                elif home == child:
                    del self._loans[uid, home]
            if self._is_begun:
                self._split()
        self.go_on()

    def heard(self, child: int, report: Left | Lend | Given) -> None:
        match report:
            case Left(nodes):
                self._parts.left(child, nodes)
                self.go_on()
            case Lend(uid, node):
                self._lend(uid, node, child)
            case Given(uid, home, ending, message):
                if self._loans.get((uid, home)) == child:
                    self._returned(uid, home, ending, message)

    def _lend(self, uid: str, node: str, home: int) -> None:
        holder = self._parts.holder(node)
        self._loans[uid, home] = home if holder is None else holder
        if holder is None or holder == home:
            # It is on its way from one to another, perhaps to the very child that asks.
            self._returned(uid, home, Ending.REFUSED, "")
        else:
            self._say(holder, Lent(uid, node, home))

    def _returned(self, uid: str, home: int, ending: Ending, message: str) -> None:
        del self._loans[uid, home]
        self._say(home, Returned(uid, ending, message))

    # ---- what follows

    def go_on(self) -> None:
        """Say what is to be said by now."""
        if not self._is_begun:
            if self._expected or not self._members or not self._is_divided:
                return
            self._is_begun = True
            self._move()
            self._split()
            return
        self._move()

    def _move(self) -> None:
        for move in self._parts.moves(self._clock()):
            if move.leave:
                self._say(move.part, Leave(move.leave))
            if move.add:
                self._say(move.part, Hold(move.add, move.used_before or self._shared, self._version))
            _log.info("nodes divided", child=move.part, asked=len(move.leave), given=len(move.add))

    def _split(self) -> None:
        """The pods, among the children that are there."""
        self._homes = self._homes.among(self._members)
        told = Split(self._homes.slots)
        for child in sorted(self._members):
            self._say(child, told)
