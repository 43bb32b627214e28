"""The reviews' view of the cluster: the queues, and the queue annotations and labels of namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_scheduler.cluster.groups import namespaces, queues
from agent_scheduler.objects.batch import QUEUE_NAME, Queue
from agent_scheduler.objects.wire import Namespace
from agent_scheduler.telemetry.process import ProcessMetrics
from kube_client.informers import Informers
from kube_client.reflector import WatchTimes
from kube_client.retry import Timing
from kube_client.transport import Transport
from kube_client.watch_events import Change


class Picture:
    """Owns the last seen queues and namespaces by name. Run `watch`."""

    def __init__(self, transport: Transport, *, metrics: ProcessMetrics, timing: Timing) -> None:
        self._metrics = metrics
        handling = metrics.handling
        self.applies, self.change_failed, self.unreadable = (
            handling.applies,
            handling.change_failed,
            handling.unreadable,
        )
        self._queues: dict[str, Queue] = {}
        #: The queue annotations, for namespaces that have them.
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._informers = Informers(
            [queues(self._set_queue, self._delete_queue), namespaces(self._set_namespace, self._delete_namespace)],
            transport=transport,
            times=WatchTimes(),
            timing=timing,
            observer=self,
        )

    @property
    def queues(self) -> Mapping[str, Queue]:
        return self._queues

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        return self._namespaces

    @property
    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of namespaces by name."""
        return self._labels

    @property
    def is_synced(self) -> bool:
        return self._informers.is_synced

    async def watch(self) -> None:
        """Keep the view up to date until cancelled."""
        await self._informers.run()

    def _set_queue(self, found: Queue) -> None:
        self._queues[found.name] = found

    def _delete_queue(self, gone: Queue) -> None:
        known = self._queues.get(gone.name)
        if known is not None and known.metadata.uid == gone.metadata.uid:
            del self._queues[gone.name]

    def _set_namespace(self, found: Namespace) -> None:
        self._labels[found.metadata.name] = found.metadata.labels or {}
        queue = (found.metadata.annotations or {}).get(QUEUE_NAME)
        if queue is None:
            self._namespaces.pop(found.metadata.name, None)
        else:
            self._namespaces[found.metadata.name] = {QUEUE_NAME: queue}

    def _delete_namespace(self, gone: Namespace) -> None:
        self._namespaces.pop(gone.metadata.name, None)
        self._labels.pop(gone.metadata.name, None)

    # ---- state of the watches

    def watched(self, kind: str, what: str) -> None:
        self._metrics.watched(kind, what)

    def received(self, kind: str, changes: Sequence[Change[Any]], began: float) -> None:
        for change in changes:
            self._metrics.watch_events_total.labels(kind, change.type.value).inc()
        self._metrics.handling.clear()
