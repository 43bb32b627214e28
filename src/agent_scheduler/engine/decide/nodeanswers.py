"""What filters and scores that read the nodes alone say of each row, shared by classes.

Two classes share their answers if the compiled states of these plugins are equal: answers are pure in state, columns
and rows (`framework.plugin`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np

from ..framework.plugin import Depends
from ..state.columns import Columns, Ints, Rows
from .compiled import Asked, CompiledFilter, CompiledScore, ScorePart
from .heads import REFUSED
from .snapshot import Snapshot

Part = TypeVar("Part", bound=ScorePart)


class NodeAnswers:
    """Of one snapshot. Invariant: after `refresh`, what the plugins would say about its nodes as they are."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_rejected",
        "_shape",
        "_specs_matter",
        "base",
        "base_view",
        "generation",
        "matters",
        "position",
        "scores",
        "varies",
    )

    def __init__(
        self, filters: Iterable[CompiledFilter], scores: Iterable[CompiledScore], *, rejected: bool = False
    ) -> None:
        """`rejected`: whether some filter has no node at all."""
        self.scores = tuple(each for each in scores if _reads_nodes(each))
        self._asked = Asked((each for each in filters if each.plugin.depends is Depends.NODE), self.scores)
        self._rejected = rejected
        self._specs_matter = any(each.plugin.depends is Depends.NODES for each in self.scores)
        self._shape = (-1, -1)
        #: How far it has read the changes of nodes.
        self.position = -1
        #: Rises whenever all rows were asked about anew.
        self.generation = 0
        #: [row] weighted sum of the scores that need no normalising; `REFUSED` where a filter refuses, or where there
        #: is no node. The same memory as `base_view`, which is read one by one.
        self.base: Ints = np.zeros(0, dtype=np.int64)
        self.base_view = self.base.data
        #: Whether a score that is normalised tells nodes apart.
        self.varies = False
        #: Whether any of the rows in use is refused, or its sum is not 0.
        self.matters = True

    def key(self) -> Hashable | None:
        """Equal for classes that share their answers; None for a class that shares with nobody."""
        states: tuple[CompiledFilter | CompiledScore, ...] = (*self._asked.filters, *self.scores)
        key = (self._rejected, *((id(each.plugin), each.state) for each in states))
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def with_own(self, scores: Iterable[Part]) -> tuple[Part | CompiledScore, ...]:
        """`scores`, each replaced by that of the same plugin whose raw scores are kept here."""
        own = {id(each.plugin): each for each in self.scores}
        return tuple(own.get(id(each.plugin), each) for each in scores)

    def refresh(self, snapshot: Snapshot) -> None:
        if snapshot.respecified.end == self.position and snapshot.shape == self._shape:
            return
        columns = snapshot.columns
        rows = snapshot.respecified.since(self.position)
        self.position = snapshot.respecified.end
        if rows is None or self._specs_matter or snapshot.shape != self._shape:
            self._shape = snapshot.shape
            self.generation += 1
            self.base = np.full(columns.capacity, REFUSED, dtype=np.int64)
            self.base_view = self.base.data
            for score in self.scores:
                score.forget(columns.capacity)
            self._ask(columns, columns.all_rows())
        else:
            self._ask(columns, np.asarray(rows, dtype=np.intp))
        self.varies = any(score.varies for score in self.scores)
        self.matters = bool(self.base[: columns.size].any())

    def _ask(self, columns: Columns, rows: Rows) -> None:
        total = self._asked.about(columns, rows)
        there = columns.present[rows]
        self.base[rows] = REFUSED if self._rejected else np.where(there, total, REFUSED)


def _reads_nodes(score: CompiledScore) -> bool:
    return score.plugin.depends in (Depends.NODE, Depends.NODES)


class SharedAnswers:
    """The answers of one profile on one snapshot. They live as long as a class holds them."""

    def __init__(self) -> None:
        self._kept: WeakValueDictionary[Hashable, NodeAnswers] = WeakValueDictionary()

    def like(self, answers: NodeAnswers) -> NodeAnswers:
        """Those that are there and say the same, or `answers`."""
        key = answers.key()
        return answers if key is None else self._kept.setdefault(key, answers)
