"""DotProduct: prefers the node whose free amounts are least like the request, as vectors.

The dot product of free and requested amounts is small where little is free of the resources that the pod requests most,
which leaves suitable nodes to other pods of its kind (after Tetris, SIGCOMM'14, as in the simulator of the ATC'23 paper
on FGD: `dot_product_score.go`, merged devices, norms by the largest node).
"""

from __future__ import annotations

from ..rules.vectors import VectorScore


class DotProduct(VectorScore):
    name = "DotProduct"

    def _of(self, asked: float, weight: float) -> tuple[float, float]:
        return 0.0, asked * weight
