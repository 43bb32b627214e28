"""The collaborators of every part of a scheduler that reads or writes the cluster, waits, or reports."""

from __future__ import annotations

from dataclasses import dataclass

from agent_scheduler.telemetry.observers import MetricsObserver
from kube_client.retry import Timing
from kube_client.transport import Transport

from .messenger import KubeMessenger


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The ways in and out of a scheduler, the same for all its parts."""

    #: For all requests except watches, which have connections of their own in it.
    transport: Transport
    timing: Timing
    #: Receives reports for metrics, logs and traces.
    observer: MetricsObserver
    #: Reports to users: conditions and events.
    messenger: KubeMessenger
