"""A burst, and a preemption, behind something that answers in the place of the API server: nothing is lost by it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.kube.retry import Backoff
from agent_scheduler.kube.transport import Response
from embedded_kubernetes.fault_plan import plan_of
from embedded_kubernetes.faults import Injector
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import scheduling

from .test_preemption import HIGH, end, full_node, has_node, leaving, settled

LIES = ["notFound", "forbidden", "loginPage", "badGateway", "redirect", "empty", "emptyObject"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is repeated is repeated at once."""
    monkeypatch.setattr(Backoff, "delay", lambda *_, **__: 0.01)


class Lies:
    """Answers in the API server's place while it is `on`."""

    def __init__(self, *rules: dict[str, Any]) -> None:
        self._injector = Injector(plan_of(json.dumps({"rules": list(rules)})))
        self.on = False

    def __call__(self, request: Any) -> Any:
        return self._injector(request) if self.on else None

    @property
    def told(self) -> int:
        return sum(self._injector.fired.values())


@asynccontextmanager
async def lying(*rules: dict[str, Any]) -> AsyncIterator[tuple[EmbeddedCluster, Lies]]:
    lies = Lies(*rules)
    async with embedded_cluster(disturb=lies) as cluster:
        yield cluster, lies


@pytest.mark.parametrize("says", LIES)
async def test_a_burst_survives_answers_that_are_not_the_api_servers(says: str) -> None:
    rule = {
        "match": {"path": f"{PODS}/*"},
        "count": 60,
        "fault": {"middlebox": {"says": says}},
    }
    async with lying(rule) as (cluster, lies):
        await cluster.add_node("n1")
        async with scheduling(cluster.transport, initial_backoff=0.05) as running:
            await until(lambda: running.fast_path.ledger.rows)
            lies.on = True
            for number in range(25):
                await cluster.add_pod(f"p-{number}")
            await until(lambda: lies.told >= 25)
            placed = await until(lambda: _all_placed(cluster, 25), seconds=30)
            assert set(placed.values()) == {"n1"}
            assert running.fast_path.ledger.assumed == 0
            assert sum(running.fast_path.queue.pending()) == 0
            assert not running.reports.outcomes["gone"]


async def _all_placed(cluster: EmbeddedCluster, number: int) -> dict[str, str] | None:
    placed = await cluster.placed()
    return placed if len(placed) == number else None


@pytest.mark.parametrize("says", LIES)
async def test_a_preemption_survives_answers_that_are_not_the_api_servers(
    says: str,
) -> None:
    evictions = {"path": f"{PODS}/low-*", "verbs": ["patch", "delete"]}
    rule = {"match": evictions, "count": 12, "fault": {"middlebox": {"says": says}}}
    async with lying(rule) as (cluster, lies):
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport, initial_backoff=0.05) as running:
            await settled(running, 1)
            lies.on = True
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: leaving(cluster))
            assert lies.told == 12
            await end(cluster, "low-0")
            await until(cluster.placed)
            await until(lambda: has_node(cluster, "high"))


class Wrong:
    """An API server that says once of each victim that it is not there, though it is."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._transport = cluster.transport
        self.told: set[str] = set()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        name = path.rpartition("/")[2]
        if method == "DELETE" and name not in self.told:
            self.told.add(name)
            details = {"name": name, "kind": "pods"}
            status = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "details": details}
            return Response(404, json.dumps(status).encode(), {})
        return await self._transport.request(method, path, **more)

    def __getattr__(self, name: str) -> Any:
        if name in ("start", "request_if"):
            raise AttributeError(name)
        return getattr(self._transport, name)


async def test_a_victim_that_is_not_seen_to_leave_is_evicted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.binding.preemption._SEEN_WITHIN", 0.05)
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        wrong = Wrong(cluster)
        async with scheduling(wrong, initial_backoff=0.05) as running:  # type: ignore[arg-type]
            await settled(running, 1)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            assert await until(lambda: leaving(cluster)) == {"low-0"}
            assert wrong.told == {"low-0"}
            await end(cluster, "low-0")
            await until(lambda: has_node(cluster, "high"))
            assert not running.fast_path.preemption._leaving
