"""What becomes of a leader that cannot list all it watches when it takes over."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agent_scheduler.serving.health import examine
from embedded_kubernetes.fault_plan import plan_of
from embedded_kubernetes.faults import Injector
from embedded_kubernetes.requests import Disturbance, Request
from tests.support.embedded import until

from .test_runtime import ELECT, Process, embedded_cluster, running

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/one"


class Refusals:
    """Lists of these collections are answered 403, as if the role had lost the rule."""

    def __init__(self) -> None:
        self._injector: Injector | None = None

    def __call__(self, request: Request) -> Disturbance | None:
        return None if self._injector is None else self._injector(request)

    def of(self, *paths: str) -> None:
        rules: list[dict[str, Any]] = [
            {
                "match": {"verbs": ["list"], "path": path},
                "fault": {"error": {"status": 403, "reason": "Forbidden"}},
            }
            for path in paths
        ]
        self._injector = Injector(plan_of(orjson.dumps({"rules": rules}).decode())) if rules else None


def readiness(process: Process) -> str:
    return examine("readyz", process.runtime.sources().ready, verbose=True).text


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.cluster.informers.OTHERS_PATIENCE", 0.1)
    monkeypatch.setattr("agent_scheduler.cluster.informers.RENEWAL_PATIENCE", 0.1)


@pytest.mark.promise("L14")
async def test_a_leader_goes_without_a_fresh_list_of_what_it_cannot_list_and_says_so() -> None:
    refusals = Refusals()
    async with embedded_cluster(disturb=refusals) as cluster:
        await cluster.add_node("n1")
        async with running(cluster, ELECT) as first:
            await until(lambda: first.runtime.leases.names and first.runtime.leases.held)
            async with running(cluster, ELECT) as second:
                await until(lambda: second.runtime.fast_path and second.runtime.fast_path.is_synced)
                refusals.of("/apis/storage.k8s.io/v1/csistoragecapacities")
                first.runtime.stop()
                await until(lambda: second.runtime.leases.held)
                await cluster.add_pod("a")
                await until(cluster.placed)
                assert (
                    "[-]informer-renewal failed: not listed since this process leads: CSIStorageCapacity\n"
                    in readiness(second)
                )
                refusals.of()
                await until(lambda: "[+]informer-renewal ok" in readiness(second))


@pytest.mark.promise("L14")
@pytest.mark.parametrize("path", ["/api/v1/pods", "/api/v1/nodes", "/apis/resource.k8s.io/v1/resourceclaims"])
async def test_a_leader_that_cannot_list_what_safety_needs_gives_the_lease_back(path: str) -> None:
    refusals = Refusals()
    async with embedded_cluster(disturb=refusals) as cluster:
        await cluster.add_node("n1")
        async with running(cluster, ELECT) as first:
            await until(lambda: first.runtime.leases.names and first.runtime.leases.held)
            async with running(cluster, ELECT) as second:
                await until(lambda: second.runtime.fast_path and second.runtime.fast_path.is_synced)
                refusals.of(path)
                first.runtime.stop()
                await until(lambda: second.runtime.leases.held)
                await cluster.seen(LEASE, lambda lease: not lease["spec"].get("holderIdentity"))
                assert second.metrics()['leader_election_master_status{name="one"}'] == 0
                await cluster.add_pod("a")
                assert not second.ending.done()
                assert await cluster.placed() == {}
                refusals.of()
                # It stands back for as long as others need to try, and then leads.
                await until(cluster.placed)
