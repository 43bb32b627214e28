"""Which devices the claims of a pod get on a node: complete, deterministic, and bounded in time."""

from __future__ import annotations

from typing import NamedTuple

from ..nodeinfo import NodeInfo
from .allocation import Allocation
from .catalogue import Devices
from .demand import Demand


class Refused(NamedTuple):
    """`reason` is in kube-scheduler's words."""

    reason: str


def allocate(demand: Demand, devices: Devices, node: NodeInfo) -> tuple[Allocation, ...] | Refused:
    """An allocation for each of `demand.wanted`, in their order (and one more, at the end, for extended resources that
    devices stand for on this node). Pure: it takes nothing, see `Devices.assume`."""
    raise NotImplementedError
