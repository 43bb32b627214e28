"""Holds a pod at one stage of the fast path, so that a test can change the cluster meanwhile.

The stages are those at which something awaits: a decision that waits for the binder (`HeldResults`), and a bind that
waits for its response (`HeldBinds`). The held value is the product's own, and what follows is its own code.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from agent_scheduler.binding.result import ScheduleResult
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.preemption.evaluator import NO_CLAIMS
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.fastpath.scheduler import FastPath
from embedded_kubernetes.requests import Disturb
from kube_client.bind import AlreadySent, BindResult, UnknownOutcome
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling


@asynccontextmanager
async def scheduled(
    *, disturb: Disturb | None = None, **settings: Any
) -> AsyncIterator[tuple[EmbeddedCluster, Running]]:
    """Yield a cluster, and a fast path with these settings that schedules on it.

    `disturb`: of the cluster's server.
    """
    async with embedded_cluster(disturb=disturb) as cluster, scheduling(cluster.transport, **settings) as running:
        yield cluster, running


class HeldResults:
    """Holds decisions between worker and binder, until `release`."""

    def __init__(self, fast_path: FastPath, *, only: Callable[[PodInfo], bool] = lambda _pod: True) -> None:
        binder = fast_path.binder
        self.results: list[ScheduleResult] = []
        self._only = only
        self._submit = binder.submit
        self._binder = binder
        self._holding = True
        binder.submit = self._take  # type: ignore[method-assign]

    def _take(self, result: ScheduleResult) -> None:
        if self._holding and self._only(result.pod):
            self.results.append(result)
        else:
            self._submit(result)

    def release(self) -> None:
        """Pass on the held decisions, and stop holding."""
        self._holding = False
        held, self.results = self.results, []
        for result in held:
            self._submit(result)
        self._binder.judge()
        self._binder.send()


class HeldBinds:
    """Holds binds on their way to the API server, until `release`; `nodes` has the node of each."""

    def __init__(self, fast_path: FastPath, *, only: Callable[[PodInfo], bool] = lambda _pod: True) -> None:
        binder = fast_path.binder
        self.nodes: dict[str, str] = {}
        self._only = only
        self._bind = binder._open.bind
        self._released = asyncio.Event()
        binder._open.bind = self
        binder._begin = lambda *_: False

    async def __call__(
        self,
        pod: PodInfo,
        node_name: str,
        *,
        already_sent: AlreadySent | None = None,
        unknown: UnknownOutcome | None = None,
    ) -> BindResult:
        if self._only(pod) and not self._released.is_set():
            self.nodes[pod.name] = node_name
            await self._released.wait()
        return await self._bind(pod, node_name, already_sent=already_sent, unknown=unknown)

    def release(self) -> None:
        self._released.set()


def millicores(ledger: Ledger, node: str) -> int:
    """Return the CPU that the ledger counts as used on a node; 0 for an unknown node."""
    row = ledger.rows.get(node)
    return 0 if row is None else int(ledger.columns.requested[0, row])


async def refusal(cluster: EmbeddedCluster, name: str) -> str:
    """Return the message of the pod's condition once it has one, without preemption's part."""
    condition = await until(lambda: cluster.condition(name))
    assert condition["status"] == "False", condition
    message: str = condition["message"]
    return message.partition(f" {NO_CLAIMS}")[0]
