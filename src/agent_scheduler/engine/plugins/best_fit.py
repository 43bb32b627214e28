"""BestFit: prefers the node with the least remaining amounts of all resources together.

Amounts are fractions of the largest that any node offers, so that a small node is preferred to a large one with equal
utilization, which is the measure of NodeResourcesFit's MostAllocated. The formula is that of the simulator of the
ATC'23 paper on FGD (`best_fit_score.go`), whose resources are CPU and GPUs with equal weights.
"""

from __future__ import annotations

from ..rules.vectors import VectorScore


class BestFit(VectorScore):
    name = "BestFit"

    def _of(self, asked: float, weight: float) -> tuple[float, float]:
        return asked * weight, weight
