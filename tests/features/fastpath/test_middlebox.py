"""A burst and a preemption with a proxy that answers instead of the API server: no pod is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from embedded_kubernetes.fault_plan import plan_of
from embedded_kubernetes.faults import Injector
from kube_client.retry import Backoff
from kube_client.transport import Response
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import scheduling
from tests.support.transports import Through, failure

from .preempting import full

LIES: list[Any] = ["notFound", "loginPage", "empty"]
LIES += [pytest.param(each, marks=pytest.mark.wide) for each in ("forbidden", "badGateway", "redirect", "emptyObject")]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make retries immediate."""
    monkeypatch.setattr(Backoff, "delay", lambda *_, **__: 0.01)


class Lies:
    """Answers instead of the API server while it is `on`."""

    def __init__(self, *rules: dict[str, Any]) -> None:
        self._injector = Injector(plan_of(json.dumps({"rules": list(rules)})))
        self.on = False

    def __call__(self, request: Any) -> Any:
        return self._injector(request) if self.on else None

    @property
    def told(self) -> int:
        return sum(self._injector.fired.values())


@pytest.mark.promise("L1")
@pytest.mark.parametrize("says", LIES)
async def test_a_burst_survives_answers_that_are_not_the_api_servers(says: str) -> None:
    rule = {"match": {"path": f"{PODS}/*"}, "count": 60, "fault": {"middlebox": {"says": says}}}
    lies = Lies(rule)
    async with embedded_cluster(disturb=lies) as cluster:
        await cluster.add_node("n1")
        async with scheduling(cluster.transport, initial_backoff=0.05) as running:
            await until(lambda: running.fast_path.ledger.rows)
            lies.on = True
            for number in range(25):
                await cluster.add_pod(f"p-{number}")
            await until(lambda: lies.told >= 25)
            placed = await until(lambda: cluster.all_placed(25), seconds=30)
            assert set(placed.values()) == {"n1"}
            assert running.fast_path.ledger.assumed == 0
            assert sum(running.fast_path.queue.pending()) == 0
            assert not running.reports.outcomes["gone"]


@pytest.mark.promise("L8")
@pytest.mark.parametrize("says", LIES)
async def test_a_preemption_survives_answers_that_are_not_the_api_servers(says: str) -> None:
    evictions = {"path": f"{PODS}/low-*", "verbs": ["patch", "delete"]}
    lies = Lies({"match": evictions, "count": 12, "fault": {"middlebox": {"says": says}}})
    async with full(disturb=lies, initial_backoff=0.05) as world:
        lies.on = True
        await world.add("high")
        await world.victims()
        assert lies.told == 12
        await world.cluster.end_pod("low-0")
        await world.node_of("high")


class Wrong(Through):
    """An API server that answers once for each victim that it does not exist, although it does."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(cluster.transport)
        self.told: set[str] = set()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        name = path.rpartition("/")[2]
        if method == "DELETE" and name not in self.told:
            self.told.add(name)
            return failure(404, "NotFound", details={"name": name, "kind": "pods"})
        return await super().request(method, path, **more)


async def test_a_victim_that_is_not_seen_to_leave_is_evicted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.binding.preemption._SEEN_WITHIN", 0.05)
    async with full(through=Wrong, initial_backoff=0.05) as world:
        await world.add("high")
        assert await world.victims() == {"low-0"}
        assert world.transport.told == {"low-0"}
        await world.cluster.end_pod("low-0")
        await world.node_of("high")
        assert not world.preemption._leaving
