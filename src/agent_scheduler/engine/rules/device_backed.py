"""Scores by utilization, for pods that request extended resources which devices provide (KEP-5004).

On a node that offers none of such a resource, its devices of the resource's class count as the offered and taken
amounts. Everything else is as in the inner score (`node_resources_fit`, `balanced_allocation`), which leaves these pods
to this one: its answers for a row are shared by rows with equal amounts, which do not determine devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from ..dra.catalogue import Devices
from ..dra.node_devices import totals
from ..framework.handle import Handle
from ..framework.plugin import Depends, Score
from ..state.columns import Columns, Ints, Rows
from ..state.extended import is_extended
from ..state.podclass import PodClass


class ByFullness(Score):
    """A score by the utilization of some resources, except for the pods that are left to `DeviceBacked`."""

    def __init__(self, resources: Iterable[str]) -> None:
        self.counted = tuple(resources)
        #: The resources that devices may provide.
        self.extended = tuple(each for each in self.counted if is_extended(each))

    def prepare(self, pod: PodClass, handle: Handle) -> Any:
        return None if self.extended and backed(self.extended, pod, handle) else self.state_of(pod)

    def state_of(self, pod: PodClass) -> Any:
        """Return the state as `prepare`, for any pod."""
        raise NotImplementedError


class DeviceBackedState(NamedTuple):
    #: The compiled state of the inner score.
    inner: Any
    #: Resources, in the order of the columns that are made of a row.
    resources: tuple[str, ...]
    #: The resources that devices provide.
    backed: frozenset[str]
    devices: Devices


def backed(resources: tuple[str, ...], pod: PodClass, handle: Handle) -> frozenset[str]:
    """Return those of the resources that devices provide and the pod requests."""
    if pod.claims is None or pod.claims.extended is None:
        return frozenset()
    devices = handle.devices
    return frozenset(
        each
        for each in resources
        if pod.requests.get(each) and is_extended(each) and devices.class_of_resource(each) is not None
    )


class DeviceBacked(Score):
    depends = Depends.USAGE
    normalize = None

    def __init__(self, inner: ByFullness) -> None:
        self.name = inner.name
        self._inner = inner

    def prepare(self, pod: PodClass, handle: Handle) -> DeviceBackedState | None:
        resources = self._inner.counted
        found = backed(self._inner.extended, pod, handle)
        inner = self._inner.state_of(pod) if found else None
        return None if inner is None else DeviceBackedState(inner, resources, found, handle.devices)

    def score(self, state: DeviceBackedState, nodes: Columns, rows: Rows) -> Ints:
        return np.fromiter(
            (self.score_row(state, nodes, row) for row in rows.tolist()), dtype=np.int64, count=rows.shape[0]
        )

    def score_row(self, state: DeviceBackedState, nodes: Columns, row: int) -> int:
        return self._inner.score_row(state.inner, _with_devices(state, nodes, row), 0)


def _with_devices(state: DeviceBackedState, nodes: Columns, row: int) -> Columns:
    """Return columns of the one row, with devices as the node's offer."""
    node, columns = nodes.nodes[row], nodes.resources
    offers, taken = nodes.offers[row], nodes.taken[row]
    offered, requested, scored = [], [], []
    for resource in state.resources:
        index = nodes.interns.resources.get(resource, columns)
        there = index < columns
        amounts = (offers[index], taken[index], taken[columns + index]) if there else (0, 0, 0)
        if not amounts[0] and resource in state.backed and node is not None:
            found = totals(resource, state.devices, node)
            amounts = (found.offered, found.taken, found.taken)
        offered.append(amounts[0])
        requested.append(amounts[1])
        scored.append(amounts[2])
    return cast(
        Columns,
        SimpleNamespace(
            resources=len(offered),
            interns=SimpleNamespace(resources={name: index for index, name in enumerate(state.resources)}),
            offers=[offered],
            taken=[[*requested, *scored]],
        ),
    )
