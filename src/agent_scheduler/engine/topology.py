"""Sums over topology domains: what stands on the nodes that share a value of a label."""

from __future__ import annotations

import numpy as np

from .columns import Columns, Ints


class Domains:
    """The domains of one topology key. `of[row]` is the row's domain; 0 where the node lacks the label."""

    __slots__ = ("_span", "of")

    def __init__(self, nodes: Columns, key: str) -> None:
        self.of: Ints = nodes.label(key)[: nodes.size]
        self._span = int(self.of.max(initial=0)) + 1

    def sums(self, counts: Ints) -> Ints:
        """[domain] sum of a column of counts; 0 for domain 0, which is none."""
        # Floats are exact here: no sum of pods comes near 2**53.
        found: Ints = np.bincount(self.of, weights=counts[: self.of.shape[0]], minlength=self._span).astype(
            np.int64
        )
        found[0] = 0
        return found
