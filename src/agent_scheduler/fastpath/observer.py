"""The observer of the whole fast path."""

from __future__ import annotations

from typing import Protocol

from agent_scheduler.binding.device_waits import WaitObserver
from agent_scheduler.binding.failure import AttemptObserver
from agent_scheduler.binding.preemption import PreemptionObserver
from agent_scheduler.binding.queue_admission import AdmissionObserver
from agent_scheduler.binding.result import BinderObserver
from agent_scheduler.cluster.cluster import ClusterObserver
from agent_scheduler.cluster.informers import InformerObserver

from .worker import WorkerObserver


class FastPathObserver(
    WorkerObserver,
    BinderObserver,
    AttemptObserver,
    ClusterObserver,
    PreemptionObserver,
    InformerObserver,
    WaitObserver,
    AdmissionObserver,
    Protocol,
):
    """The reports of each part, and of the writers of conditions and events."""

    def status_write(self, what: str) -> None:
        """Report the count of a `StatusWriter`."""

    def event_write(self, what: str) -> None:
        """Report the count of an `EventRecorder`."""
