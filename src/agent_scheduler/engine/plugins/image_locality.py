"""ImageLocality: prefers nodes that already have the pod's images.

Each image, run or mounted, counts its size times the share of all nodes that have it, so that one node does not attract
every pod. The formula and its bounds are kube-scheduler's (`image_locality.go`); the upper one is per container,
whatever is mounted. An image has one size in the whole cluster: that on the first row that has it, where kube-scheduler
uses the size from the first node that reported it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from ..framework.handle import Handle
from ..framework.plugin import MAX_NODE_SCORE, Depends, Reads, Score
from ..state.columns import Columns, Ints, Rows
from ..state.podclass import PodClass

_MIB: Final = 2**20
_LEAST: Final = 23 * _MIB
_MOST_A_CONTAINER: Final = 1000 * _MIB


class ImageLocalityState(NamedTuple):
    """The images of a class with their numbers of uses, and the sum with the best score."""

    counted: tuple[tuple[str, int], ...]
    most: int


class ImageLocality(Score):
    name = "ImageLocality"
    depends = Depends.NODES
    reads_requests = False
    reads = frozenset({Reads.IMAGES})
    normalize = None

    def prepare(self, pod: PodClass, handle: Handle) -> ImageLocalityState | None:
        run, mounted = pod.images
        if not run:
            return None
        counted = Counter(with_tag(image) for image in (*run, *mounted))
        return ImageLocalityState(tuple(counted.items()), _MOST_A_CONTAINER * len(run))

    def score(self, state: ImageLocalityState, nodes: Columns, rows: Rows) -> Ints:
        held: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        for image, containers in state.counted:
            sizes = nodes.image(image)[: nodes.size]
            has = sizes != 0
            holders = int(np.count_nonzero(has))
            if holders:
                share = holders / np.count_nonzero(nodes.present[: nodes.size])
                held += has[rows] * (containers * int(sizes[has.argmax()] * share))
        bounded = np.clip(held, _LEAST, state.most)
        score: Ints = MAX_NODE_SCORE * (bounded - _LEAST) // (state.most - _LEAST)
        return score


def with_tag(image: str) -> str:
    """Return the name that a runtime reports: with the default tag if there is neither tag nor digest."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
