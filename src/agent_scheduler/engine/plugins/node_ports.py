"""NodePorts: a host port can be used once per node, address and protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ByKeys, Key, PodIndex
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter
from ..state.columns import NO_PORTS, Bools, Columns, Rows
from ..state.podclass import HostPort, PodClass
from ..state.podinfo import PodInfo

REASON = "node(s) didn't have free ports for the requested pod ports"

#: The address that takes a port on every address of the node.
_EVERY = "0.0.0.0"  # noqa: S104 - compared with, never listened on


def conflict(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Return whether a wanted port is taken, on the same address or on all of them."""
    return any(
        port == other_port and protocol == other_protocol and (ip == other_ip or _EVERY in (ip, other_ip))
        for ip, protocol, port in wanted
        for other_ip, other_protocol, other_port in taken
    )


class NodePorts(Filter):
    name = "NodePorts"
    depends = Depends.USAGE
    reads_requests = False
    reason = REASON

    def prepare(self, pod: PodClass, handle: Handle) -> tuple[HostPort, ...] | None:
        return pod.host_ports or None

    def feasible(self, state: tuple[HostPort, ...], nodes: Columns, rows: Rows) -> Bools:
        mask = np.ones(rows.shape[0], dtype=np.bool_)
        if nodes.ports:
            for index, row in enumerate(rows.tolist()):
                taken = nodes.ports.get(row)
                if taken is not None and conflict(state, taken):
                    mask[index] = False
        return mask

    def feasible_row(self, state: tuple[HostPort, ...], nodes: Columns, row: int) -> bool:
        return not conflict(state, nodes.ports.get(row, NO_PORTS))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE),
                _ports_freed,
                ByKeys(_BY_PORT, _freed, once=True),
            ),
            ClusterEventWithHint(ClusterEvent(Resource.NODE, ActionType.ADD), None),
        )


def _ports_freed(pod: object, old: object | None, new: object | None) -> QueueingHint:
    assert isinstance(pod, PodInfo) and isinstance(old, PodInfo)
    return QueueingHint.QUEUE if conflict(pod.cls.host_ports, old.cls.host_ports) else QueueingHint.SKIP


def _freed(event: ClusterEvent, old: PodInfo, new: object) -> list[Key]:
    return [(protocol, port) for _, protocol, port in old.cls.host_ports]


#: Keyed by port and protocol: the hint compares addresses.
_BY_PORT = PodIndex(
    keys_of=lambda pod: [(protocol, port) for _, protocol, port in pod.cls.host_ports],
    shared=lambda pod: pod.cls.host_ports,
)
