"""GPUPacking: for pods that request GPUs, prefers devices that are in use, then nodes that are.

The steps are those of the simulator of the ATC'23 paper on FGD (`gpu_packing_score.go`): 90 to 100 if a device in use
has room, higher the less remains on it; up to 50 if idle devices have to be used, higher for fewer devices; up to 33 on
nodes with all devices idle, higher for fewer devices.
"""

from __future__ import annotations

import numpy as np

from ..framework.handle import Handle
from ..framework.plugin import MAX_NODE_SCORE, Depends, Score
from ..state.columns import Columns, Ints, Rows
from ..state.gpus import NO_GPUS, WHOLE
from ..state.podclass import PodClass


class GPUPacking(Score):
    name = "GPUPacking"
    depends = Depends.ROOM
    normalize = None

    def prepare(self, pod: PodClass, handle: Handle) -> int | None:
        """Return the requested thousandths, None without a request."""
        return pod.gpu or None

    def score(self, state: int, nodes: Columns, rows: Rows) -> Ints:
        return np.fromiter(
            (self.score_row(state, nodes, row) for row in rows.tolist()), dtype=np.int64, count=rows.shape[0]
        )

    def score_row(self, state: int, nodes: Columns, row: int) -> int:
        free = nodes.gpus.get(row, NO_GPUS)
        idle = free.count(WHOLE)
        if idle == len(free):
            return max(MAX_NODE_SCORE // 3 - idle, 0)
        if state < WHOLE:
            left = min((each for each in free if each >= state), default=0)
            if 0 < left < WHOLE:
                return MAX_NODE_SCORE - left * 100 // WHOLE // 10
        return max(MAX_NODE_SCORE // 2 - max(1, state // WHOLE), MAX_NODE_SCORE // 3)
