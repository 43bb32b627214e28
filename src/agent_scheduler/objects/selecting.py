"""The objects that select pods, as far as decisions need them."""

from __future__ import annotations

from apimachinery.wire import Wire

from .wire import LabelSelector, Metadata


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
    #: The name of a pod with a granted eviction that is not observed yet -> the time.
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Wire, frozen=True):
    """A PodDisruptionBudget (policy/v1)."""

    metadata: Metadata
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
