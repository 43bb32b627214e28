"""Which of several processes a waiting pod is for: its home.

A pod's key is hashed to one of a fixed number of slots, and the slots are divided among the processes like nodes
(`division`): evenly, and so that a process which comes or goes moves no more pods than it has to. The hash is the same
in every process and at every time.

The key is the pod's UID; of a pod that says something of other pods (affinity, anti-affinity, spreading) it is its
namespace, so that those which speak of one another are mostly decided by one process, each seeing where the last went.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from zlib import crc32

from ..podinfo import PodInfo
from .division import divide

#: Sizes of homes differ by one slot at most: 0.1% of all pods.
SLOTS: Final = 1024

_NAMES: Final = [f"{slot:04}" for slot in range(SLOTS)]


class Homes:
    """Slot -> its process, by number; none at all: no pod has a home. Never changed."""

    __slots__ = ("slots",)

    def __init__(self, slots: tuple[int, ...] = ()) -> None:
        if len(slots) not in (0, SLOTS):
            raise ValueError(f"there are {SLOTS} slots, not {len(slots)}")
        self.slots = slots

    def among(self, processes: Iterable[int]) -> Homes:
        """These processes share them from now on; as few pods move as can be."""
        held: Mapping[str, int] = dict(zip(_NAMES, self.slots, strict=False))
        division = divide(_NAMES, sorted(processes), held)
        return Homes(tuple(division[name] for name in _NAMES) if division else ())

    def of(self, pod: PodInfo) -> int | None:
        """The number of the pod's process."""
        if not self.slots:
            return None
        # A class has a namespace where its rules make that matter, and no other.
        return self.slots[crc32((pod.cls.namespace or pod.uid).encode()) % SLOTS]
