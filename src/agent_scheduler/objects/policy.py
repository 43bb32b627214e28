"""What a decision reads of a PodDisruptionBudget (policy/v1)."""

from __future__ import annotations

from .wire import LabelSelector, Metadata, Wire


class PodDisruptionBudgetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    disruptions_allowed: int = 0
    #: Name of a pod whose eviction was granted and is not seen yet -> when.
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Wire, frozen=True):
    metadata: Metadata
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
