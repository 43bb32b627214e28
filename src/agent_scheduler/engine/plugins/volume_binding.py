"""VolumeBinding: a pod goes where all its claims can be had. The rule is in `volumes.binding`.

What it promises for claims that wait for a consumer is kept by the binder, which reserves the volumes and has them
bound before the pod is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..columns import Bools, Columns, Rows
from ..framework import Depends, Filter, PodRejected
from ..handle import Handle
from ..podclass import PodClass
from ..queueing.hints import ClusterEventWithHint
from ..volumes import binding
from ..volumes.catalogue import Catalogue
from ..volumes.claims import Refused
from ..volumes.hints import binding_events, volumes_of
from .args import VolumeBindingArgs


class State(NamedTuple):
    plan: binding.Plan
    catalogue: Catalogue


class VolumeBinding(Filter):
    name = binding.NAME
    depends = Depends.NODE

    def __init__(self, args: VolumeBindingArgs | None = None) -> None:
        #: Seconds that a pod's claims may take to be bound once its node is chosen.
        self.bind_timeout = float((args or VolumeBindingArgs()).bind_timeout_seconds)

    def prepare(self, pod: PodClass, handle: Handle) -> State | None:
        if pod.volumes is None:
            return None
        catalogue = handle.catalogue
        found = binding.plan(pod.volumes, catalogue)
        if isinstance(found, Refused):
            raise PodRejected(found.message)
        return None if found is None else State(found, catalogue)

    def feasible(self, state: State, nodes: Columns, rows: Rows) -> Bools:
        return binding.feasible(state.plan, state.catalogue, nodes, rows)

    def reasons(self, state: State, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        return binding.reasons(state.plan, state.catalogue, nodes, rows)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return binding_events(volumes_of)
