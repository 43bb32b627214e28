"""DotProduct: prefers the node whose free amounts are least like what is asked for, as vectors.

The dot product of what is free and what is asked for is small where little is free of what the pod wants much of, which
leaves nodes that are good for it to others of its kind (after Tetris, SIGCOMM'14, as the simulator of the ATC'23 paper
on FGD uses it: `dot_product_score.go`, merged devices, norms by the largest node).
"""

from __future__ import annotations

from ..rules.vectors import OfVectors


class DotProduct(OfVectors):
    name = "DotProduct"

    def _of(self, asked: float, weight: float) -> tuple[float, float]:
        return 0.0, asked * weight
