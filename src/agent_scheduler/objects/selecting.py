"""What a decision reads of the objects that select pods."""

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


class PodDisruptionBudgetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    disruptions_allowed: int = 0
    #: Name of a pod whose eviction was granted and is not seen yet -> when.
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Wire, frozen=True):
    """policy/v1."""

    metadata: Metadata
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
