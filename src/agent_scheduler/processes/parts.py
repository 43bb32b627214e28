"""Which process has which nodes, and how a node gets from one to another.

    nobody's ─> given ─> asked back ─> left ─> given to the next
                  └───────┴─ its process ended ─> fenced ─┘

Pure: it is told what happened and when, and says what is to be sent. A node is given only when nothing that anybody
sent there can still be under way: its last holder has said that it left it, or ended a fence period ago.

Invariant: a node is given to one process at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from agent_scheduler.engine.shards.division import divide

#: Seconds for which a node that has gone is known to have been used: longer than a watch may be half open. Its pods may
#: run on when it comes back under its name.
_REMEMBERED: Final = 900.0

Names = frozenset[str]


class Given(NamedTuple):
    """Whose a node is; `first`: whether as one of those that are used before all others."""

    part: int
    first: bool


class Fenced(NamedTuple):
    """A node whose process has ended: when it is free, and whose it was."""

    until: float
    was: Given


class Move(NamedTuple):
    """What to tell one process: to give nodes back, or that it has them from now on. In the order of their names."""

    part: int
    leave: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    #: Whether others may have bound pods to some of `add`, of which the process may not have heard yet.
    used_before: bool = False


class Parts:
    """Owner of the division. A process is known by its number."""

    def __init__(self, *, fence: float) -> None:
        """`fence`: seconds from the end of a process until its nodes are given to others."""
        self._fence = fence
        #: The nodes to divide, and whether each is among the first.
        self._wanted: dict[str, bool] = {}
        self._members: frozenset[int] = frozenset()
        self._target: dict[str, Given] = {}
        self._given: dict[str, Given] = {}
        #: Those given that were asked back.
        self._leaving: set[str] = set()
        self._fenced: dict[str, Fenced] = {}
        #: Those that some process has had, and when they were last seen to be there.
        self._used: dict[str, float] = {}
        #: The nodes whose state is not as it should be; None: it has to be worked out anew.
        self._open: set[str] | None = set()

    # ---- questions

    def holder(self, name: str) -> int | None:
        """The process that may use a node now, as far as it has heard of it."""
        given = self._given.get(name)
        return None if given is None or name in self._leaving else given.part

    def under_way(self, names: Iterable[str]) -> Names:
        """Those of the nodes to which, as one of the first, something may be under way."""
        return frozenset(name for name in names if self._is_first(name))

    def _is_first(self, name: str) -> bool:
        fenced = self._fenced.get(name)
        given = self._given.get(name) if fenced is None else fenced.was
        return given is not None and given.first

    def sizes(self) -> dict[int, int]:
        """How many nodes each process has, those included that it was asked for."""
        count = dict.fromkeys(sorted(self._members), 0)
        for given in self._given.values():
            count[given.part] += 1
        return count

    @property
    def settled(self) -> bool:
        """Whether every node is where it is to be."""
        return self._open is not None and not self._open

    def next_free(self) -> float | None:
        """When the next of the nodes whose process has ended is free, which may be over by now: then there are `moves`.
        None where there is none to wait for."""
        return min((each.until for each in self._fenced.values()), default=None)

    # ---- what happens

    def divide(self, first: Iterable[str], rest: Iterable[str] = ()) -> None:
        """These nodes are to be divided from now on, `first` and the `rest` each among all processes."""
        self._wanted = {**dict.fromkeys(rest, False), **dict.fromkeys(first, True)}
        self._open = None

    def join(self, part: int) -> None:
        """A process has come that has no nodes."""
        self._members |= {part}
        self._open = None

    def end(self, part: int, now: float) -> None:
        """A process has ended."""
        self._members -= {part}
        for name in [name for name, given in self._given.items() if given.part == part]:
            self._fenced[name] = Fenced(now + self._fence, self._given.pop(name))
            self._leaving.discard(name)
        self._open = None

    def left(self, part: int, names: Iterable[str]) -> None:
        """A process says that nothing of its own is under way to nodes that it was asked for."""
        for name in names:
            if name in self._leaving and self._given[name].part == part:
                self._leaving.discard(name)
                del self._given[name]

    # ---- what follows

    def moves(self, now: float) -> list[Move]:
        """What has to be said now, by number of the process; saying it is taken for granted."""
        if self._open is None:
            self._work_out(now)
        assert self._open is not None
        leave: dict[int, list[str]] = {}
        add: dict[int, list[str]] = {}
        for name in sorted(self._open):
            given, target = self._given.get(name), self._target.get(name)
            if given is not None and given == target and name not in self._leaving:
                self._open.discard(name)
            elif given is not None:
                if name not in self._leaving:
                    self._leaving.add(name)
                    leave.setdefault(given.part, []).append(name)
            elif (fenced := self._fenced.get(name)) is not None and now < fenced.until:
                continue
            else:
                self._fenced.pop(name, None)
                self._open.discard(name)
                if target is not None:
                    self._given[name] = target
                    add.setdefault(target.part, []).append(name)
        moves = []
        for part in sorted({*leave, *add}):
            names = tuple(add.get(part, ()))
            moves.append(
                Move(part, tuple(leave.get(part, ())), names, not self._used.keys().isdisjoint(names))
            )
            self._used.update(dict.fromkeys(names, now))
        return moves

    def _work_out(self, now: float) -> None:
        there = {*self._target, *self._given, *self._fenced}
        self._used |= dict.fromkeys(self._used.keys() & there, now)
        self._used = {name: seen for name, seen in self._used.items() if now < seen + _REMEMBERED}
        # Where a node is on its way is where it is: a second change does not call it back.
        held = dict(self._target)
        held |= {name: fenced.was for name, fenced in self._fenced.items()}
        held |= {name: given for name, given in self._given.items() if name not in self._leaving}
        members = sorted(self._members)
        target: dict[str, Given] = {}
        for first in (True, False):
            names = [name for name, is_first in self._wanted.items() if is_first is first]
            mine = {name: held[name].part for name in names if name in held}
            target |= {name: Given(part, first) for name, part in divide(names, members, mine).items()}
        self._target = target
        changed = {name for name in {*target, *self._given} if self._given.get(name) != target.get(name)}
        self._open = changed | self._leaving | self._fenced.keys()
