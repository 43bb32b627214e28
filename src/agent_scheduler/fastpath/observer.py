"""Everything that the fast path reports about itself."""

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
    """What each part reports, and the writers of conditions and events."""

    def status_write(self, what: str) -> None:
        """See `StatusWriter`."""

    def event_write(self, what: str) -> None:
        """See `EventRecorder`."""
