"""What the pods of a class want of some resources, found again in the columns of nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..state.columns import Columns


class Wanted:
    """Resources, amounts and weights, with the columns in which nodes have them.

    Resources get their columns when a node first offers them, so `resolve` looks again when there are more.
    """

    __slots__ = ("_elsewhere", "_wanted", "each", "elsewhere", "known", "missing", "resolved")

    def __init__(self, wanted: Sequence[tuple[str, int, int]], *, elsewhere: Collection[str] = ()) -> None:
        """`wanted`: (resource, amount, weight). `elsewhere`: resources that a node need not offer."""
        self._wanted = tuple(wanted)
        self._elsewhere = elsewhere
        #: How many columns there were when they were last looked for.
        self.known = -1
        #: (column, amount, weight) of those that have a column.
        self.each: tuple[tuple[int, int, int], ...] = ()
        #: Their names.
        self.resolved: tuple[str, ...] = ()
        #: Names that no node offers and one would have to.
        self.missing: tuple[str, ...] = ()
        #: The columns of those that a node need not offer.
        self.elsewhere: frozenset[int] = frozenset()

    def resolve(self, nodes: Columns) -> Wanted:
        columns = nodes.resources
        if columns != self.known:
            self.known = columns
            known = nodes.interns.resources
            each, resolved = [], []
            for name, amount, weight in self._wanted:
                index = known.get(name, columns)
                if index < columns:
                    each.append((index, amount, weight))
                    resolved.append(name)
            self.each, self.resolved = tuple(each), tuple(resolved)
            if len(each) < len(self._wanted):
                there_or_elsewhere = {*self.resolved, *self._elsewhere}
                self.missing = tuple(name for name, _, _ in self._wanted if name not in there_or_elsewhere)
            else:
                self.missing = ()
            if self._elsewhere:
                self.elsewhere = frozenset(known[name] for name in self.resolved if name in self._elsewhere)
        return self
