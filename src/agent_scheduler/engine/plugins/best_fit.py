"""BestFit: prefers the node on which the least is left, by the resources together.

Amounts are fractions of the most that any node offers, so that a small node is preferred to a large one that is as full
by its own measure: NodeResourcesFit's MostAllocated looks at that. The formula is that of the simulator of the ATC'23
paper on FGD (`best_fit_score.go`), whose resources are CPU and GPUs with equal weights.
"""

from __future__ import annotations

from ..rules.vectors import OfVectors


class BestFit(OfVectors):
    name = "BestFit"

    def _of(self, asked: float, weight: float) -> tuple[float, float]:
        return asked * weight, weight
