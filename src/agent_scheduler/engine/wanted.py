"""What the pods of a class want of some resources, found again in the columns of nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from .columns import Columns, Ints, Rows


class Wanted:
    """Resources, amounts and weights as columns: `indices` and `amounts` are [resource, 1].

    Resources get their columns when a node first offers them, so `resolve` looks again when there are more.
    """

    __slots__ = (
        "_elsewhere",
        "_known",
        "_names",
        "amounts",
        "each",
        "elsewhere",
        "indices",
        "missing",
        "resolved",
        "weights",
    )

    def __init__(self, wanted: Sequence[tuple[str, int, int]], *, elsewhere: Collection[str] = ()) -> None:
        """`wanted`: (resource, amount, weight). `elsewhere`: resources that a node need not offer."""
        self._names = tuple(wanted)
        self._elsewhere = frozenset(elsewhere)
        #: Their columns, as far as they have any.
        self.elsewhere: frozenset[int] = frozenset()
        self._known = -1
        #: Names behind the rows of `indices`, and names that no node offers and one would have to.
        self.resolved: tuple[str, ...] = ()
        self.missing: tuple[str, ...] = ()
        self.indices: Rows = np.zeros((0, 1), dtype=np.intp)
        self.amounts: Ints = np.zeros((0, 1), dtype=np.int64)
        self.weights: Ints = np.zeros((0, 1), dtype=np.int64)
        #: The same as plain numbers, (index, amount, weight), for one row at a time.
        self.each: tuple[tuple[int, int, int], ...] = ()

    def resolve(self, nodes: Columns) -> Wanted:
        columns = nodes.resources
        if columns != self._known:
            self._known = columns
            known = nodes.interns.resources
            there = [each for each in self._names if known.get(each[0], columns) < columns]
            self.resolved = tuple(name for name, _, _ in there)
            if len(there) < len(self._names):
                self.missing = tuple(
                    name
                    for name, _, _ in self._names
                    if name not in self.resolved and name not in self._elsewhere
                )
            else:
                self.missing = ()
            if self._elsewhere:
                self.elsewhere = frozenset(known[name] for name in self.resolved if name in self._elsewhere)
            self.each = tuple((known[name], amount, weight) for name, amount, weight in there)
            table = np.array(self.each, dtype=np.int64).reshape(-1, 3)
            self.indices = table[:, 0:1].astype(np.intp, copy=False)
            self.amounts = table[:, 1:2]
            self.weights = table[:, 2:3]
        return self
