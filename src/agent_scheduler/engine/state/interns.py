"""Small numbers for what many nodes share, by which columns compare in the place of texts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from .nodeinfo import Taints
from .podclass import PODS

#: Resources that every cluster has; others get the next free number when a node first offers them.
BASE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", PODS)

#: Nodes that may go or change, beside a quarter of those that there are, before numbers are given anew.
_DROPPED_AT_LEAST: Final = 256


class Interns:
    """Small numbers for resources, taint lists and label values, shared by ledger and snapshots.

    Those of taint lists and label values are given anew when many nodes have gone or changed: taints and labels come to
    bear names and times that no node will have again. While `generation` is the same, no number is given twice.
    """

    def __init__(self) -> None:
        self.resources: dict[str, int] = {name: index for index, name in enumerate(BASE_RESOURCES)}
        self.generation = 0
        #: Labels by which nodes are told apart that offer and have taken the same: all that anybody named.
        self.telling_labels: tuple[str, ...] = ()
        self._told_apart: dict[Hashable, frozenset[str]] = {}
        #: Nodes that have gone or have other taints or labels, since the numbers were given.
        self._dropped = 0
        self._forget()

    def tell_apart(self, who: Hashable, labels: frozenset[str]) -> None:
        """From now on nodes with other values of these labels are not alike in their room: in the place of what `who`
        said before."""
        if self._told_apart.get(who, frozenset()) != labels:
            self._told_apart[who] = labels
            self.telling_labels = tuple(sorted(frozenset().union(*self._told_apart.values())))

    def drop(self, nodes: int) -> None:
        """A node of so many has gone, or has other taints or labels: its numbers may be unused now."""
        self._dropped += 1
        if self._dropped > _DROPPED_AT_LEAST + nodes // 4:
            self.generation += 1
            self._forget()

    def _forget(self) -> None:
        self._dropped = 0
        self._taint_ids: dict[Taints, int] = {(): 0}
        #: taint list by id; id 0 is the empty list.
        self.taints: list[Taints] = [()]
        self._value_ids: dict[str, int] = {}
        #: label value by id - 1; id 0 means that the label is absent.
        self.values: list[str] = []

    def resource(self, name: str) -> int:
        return self.resources.setdefault(name, len(self.resources))

    def taint_id(self, taints: Taints) -> int:
        found = self._taint_ids.get(taints)
        if found is None:
            found = self._taint_ids[taints] = len(self.taints)
            self.taints.append(taints)
        return found

    def value_id(self, value: str) -> int:
        """The id of a label value, made if new."""
        found = self._value_ids.get(value)
        if found is None:
            self.values.append(value)
            found = self._value_ids[value] = len(self.values)
        return found

    def known_value(self, value: str) -> int:
        """The id of a label value, or -1 if no node has it in any column. To be asked when the column is there."""
        return self._value_ids.get(value, -1)
