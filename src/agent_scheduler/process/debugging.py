"""The debug pages of a scheduler's process: the state of its parts as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from agent_scheduler.batch.scheduler import BatchScheduler
from agent_scheduler.fastpath.explaining import UNKNOWN
from agent_scheduler.fastpath.scheduler import FastPath
from agent_scheduler.fastpath.views import cache_summary, known_nodes, queue_summary, waiting_pods
from agent_scheduler.serving.sources import DebugPage, DebugQuery, NotReady
from kube_client.retry import Timing

from .pending import pending_pods

Known = tuple[bool, Mapping[str, Any]]


class DebugPages:
    """Provides debug pages without own state.

    `leading` returns whether this process decides now.
    """

    def __init__(
        self, fast_path: FastPath, batch: BatchScheduler | None, *, leading: Callable[[], bool], timing: Timing
    ) -> None:
        self._fast_path = fast_path
        self._batch = batch
        self._leading = leading
        self._clock = timing.clock
        self._now = timing.now

    def queue(self, query: DebugQuery) -> DebugPage:
        # One more than the limit tells the server that items were left out.
        queue = self._fast_path.queue
        pods = waiting_pods(queue, namespace=query.namespace, place=query.place, limit=query.limit + 1)
        return DebugPage(queue_summary(queue), pods)

    def pending(self, query: DebugQuery) -> DebugPage:
        pods = pending_pods(
            *(self._fast_path, self._batch), namespace=query.namespace, queue=query.queue, limit=query.limit + 1
        )
        return DebugPage({"time": self._now().isoformat()}, pods)

    def cache(self, query: DebugQuery) -> DebugPage:
        ledger = self._fast_path.ledger
        return DebugPage(cache_summary(ledger), known_nodes(ledger, limit=query.limit + 1))

    def explain(self, namespace: str, name: str) -> Known:
        self._need_lists()
        explained = None if self._batch is None else self._batch.explainer.pod(namespace, name)
        return self._known(explained or self._fast_path.explainer.pod(namespace, name))

    def explain_group(self, namespace: str, name: str) -> Known:
        """Explain a group. Needs a batch scheduler."""
        self._need_lists()
        assert self._batch is not None
        return self._known(self._batch.explainer.group(namespace, name))

    def _known(self, explained: Mapping[str, Any]) -> Known:
        return explained["place"] != UNKNOWN, {**explained, "leading": self._leading()}

    async def check(self) -> Mapping[str, Any]:
        self._need_lists()
        began = self._clock()
        report = await self._fast_path.selfcheck.run()
        head = {"leading": self._leading(), "seconds": round(self._clock() - began, 3)}
        return {**head, **msgspec.to_builtins(report)}

    def _need_lists(self) -> None:
        if not self._fast_path.is_synced:
            raise NotReady("pods and nodes have not been listed yet; try again soon")
