"""What a decision reads of the objects that select pods: Service, ReplicationController, ReplicaSet, StatefulSet."""

from __future__ import annotations

from .wire import LabelSelector, Metadata, Wire


class MapSelectorSpec(Wire, frozen=True):
    selector: dict[str, str] | None = None


class SelectsByMap(Wire, frozen=True):
    """A Service or a ReplicationController (v1)."""

    metadata: Metadata
    spec: MapSelectorSpec = MapSelectorSpec()


class SelectorSpec(Wire, frozen=True):
    selector: LabelSelector | None = None


class SelectsByLabels(Wire, frozen=True):
    """A ReplicaSet or a StatefulSet (apps/v1)."""

    metadata: Metadata
    spec: SelectorSpec = SelectorSpec()
