"""A whole scheduler process: its start, its leadership, its end, and its reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from agent_scheduler.process.scheduler import SchedulerProcess
from agent_scheduler.serving.health import examine
from embedded_kubernetes.fault_plan import plan_of
from embedded_kubernetes.faults import Injector
from embedded_kubernetes.requests import Disturbance, Request
from kube_client.lease import LeaderElector, LeadershipOverrun
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.installation import samples, started

#: A configuration without leader election.
ALONE = "leaderElection: {leaderElect: false}\n"
HEAD = "apiVersion: agent-scheduler/v1\nkind: SchedulerConfiguration\nserving: {port: 0}\n"
ELECT = """leaderElection:
  leaderElect: true
  resourceName: one
  resourceNamespace: default
  leaseDuration: 2s
  renewDeadline: 1s
  retryPeriod: 100ms
"""


class Process:
    def __init__(self, runtime: SchedulerProcess, ending: asyncio.Task[int]) -> None:
        self.runtime = runtime
        self.ending = ending

    def metrics(self) -> dict[str, float]:
        return samples(self.runtime)


@asynccontextmanager
async def running(cluster: EmbeddedCluster, text: str = "", **more: Any) -> AsyncIterator[Process]:
    election = "" if "leaderElection" in text else ALONE
    async with started(cluster, HEAD + election + text, **more) as (runtime, ending):
        yield Process(runtime, ending)


@pytest.mark.promise("L5")
async def test_metrics_tell_the_truth() -> None:
    async with embedded_cluster() as cluster, running(cluster) as process:
        await cluster.add_node("n1", cpu="1")
        await cluster.add_node("n2", cpu="1")
        await until(lambda: process.metrics()['scheduler_cache_size{type="nodes"}'] == 2)
        for name in ("a", "b"):
            await cluster.add_pod(name, cpu="600m")
        await cluster.add_pod("large", cpu="2")
        await cluster.add_pod("gated", schedulingGates=[{"name": "example.com/g"}])
        await cluster.add_pod("foreign", scheduler="another")
        await until(lambda: cluster.condition("large"))

        await until(lambda: cluster.all_placed(2))
        assert await cluster.is_bound("a", "b")

        def settled() -> bool:
            sample = process.metrics()
            return sample['scheduler_cache_size{type="assumed_pods"}'] == 0 and all(
                sample[f'scheduler_queue_incoming_pods_total{{queue="{queue}",event="{event}"}}'] == number
                for queue, event, number in (
                    ("active", "UnscheduledPodAdd", 3),
                    ("unschedulable", "UnscheduledPodAdd", 1),
                    ("unschedulable", "ScheduleAttemptFailure", 1),
                )
            )

        await until(settled)
        sample = process.metrics()
        attempts = 'scheduler_schedule_attempts_total{{result="{}",profile="agent-scheduler"}}'
        assert sample[attempts.format("scheduled")] == 2
        assert sample[attempts.format("unschedulable")] == 1
        assert sample[attempts.format("error")] == 0
        assert {
            queue: sample[f'scheduler_pending_pods{{queue="{queue}"}}']
            for queue in ("active", "backoff", "unschedulable", "gated")
        } == {"active": 0, "backoff": 0, "unschedulable": 1, "gated": 1}
        assert sample["agent_scheduler_pods_in_flight"] == 0
        assert sample['scheduler_cache_size{type="nodes"}'] == 2
        assert sample['scheduler_cache_size{type="pods"}'] == 2
        assert sample["agent_scheduler_binds_in_flight"] == 0
        assert sample['agent_scheduler_bind_outcomes_total{outcome="bound"}'] == 2
        assert sample["scheduler_pod_scheduling_attempts_count"] == 2
        unfit = 'scheduler_unschedulable_pods{{plugin="{}",profile="agent-scheduler"}}'
        assert sample[unfit.format("NodeResourcesFit")] == 1
        assert sample[unfit.format("SchedulingGates")] == 1


@pytest.mark.promise("L6")
@pytest.mark.real_time
@pytest.mark.parametrize("text", ["", ELECT], ids=["alone", "elected"])
async def test_it_ends_in_order_before_it_is_synced(text: str) -> None:
    async with embedded_cluster() as cluster:
        await cluster.server.stop()
        async with running(cluster, text) as process:

            def failures() -> float:
                return process.metrics().get('agent_scheduler_watch_steps_total{kind="Pod",step="failure"}', 0.0)

            # It has failed to reach the server more than once, and continues.
            await until(lambda: failures() >= 2)
            assert not process.ending.done()
        assert process.ending.result() == 0


@pytest.mark.promise("L6")
@pytest.mark.parametrize("text", ["", ELECT], ids=["alone", "elected"])
async def test_binds_that_hang_end_with_the_grace(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way = asyncio.Event()

    async def hang(*_args: Any, **_more: Any) -> Any:
        under_way.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("kube_client.bind.Binds.bind", hang)
    monkeypatch.setattr("kube_client.bind.Binds.send_bind", lambda *_, **__: False)
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1")
        await cluster.add_pod("a")
        async with running(cluster, text + "shutdownGracePeriod: 200ms\n") as process:
            await asyncio.wait_for(under_way.wait(), 10)
        assert process.ending.result() == 0
        if text:
            # The lease is released, but only after the last possible write.
            lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/one"
            assert not (await cluster.ask("GET", lease))["spec"].get("holderIdentity")


async def test_a_standby_ends_in_order_and_leaves_the_lease_alone() -> None:
    async with embedded_cluster() as cluster, running(cluster, ELECT) as first:
        lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/one"
        key = 'leader_election_master_status{name="one"}'
        await until(lambda: first.metrics().get(key))
        async with running(cluster, ELECT) as second:
            await until(lambda: key in second.metrics())
            assert second.metrics()[key] == 0
        assert second.ending.result() == 0
        holder = (await cluster.ask("GET", lease))["spec"]["holderIdentity"]
        assert holder == first.runtime._identity


@pytest.mark.promise("S9")
async def test_a_process_that_may_not_lead_any_more_binds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1")
        async with running(cluster, ELECT) as process:
            await until(lambda: process.metrics().get('leader_election_master_status{name="one"}'))
            monkeypatch.setattr(LeaderElector, "is_leader", property(lambda _self: False))
            await cluster.add_pod("a")
            await until(process.ending.done)
            assert await cluster.placed() == {}
        assert process.ending.result() == 1


async def test_work_that_outlasts_its_lease_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def overrun(self: LeaderElector, lead: Any) -> bool:
        raise LeadershipOverrun("the work goes on")

    monkeypatch.setattr(LeaderElector, "run", overrun)
    aborted: list[int] = []
    async with embedded_cluster() as cluster, running(cluster, ELECT, abort=aborted.append) as process:
        await until(process.ending.done)
    assert aborted == [1]


LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/one"


class Refusals:
    """Answers lists of these collections with 403, as if the role had lost the rule."""

    def __init__(self) -> None:
        self._injector: Injector | None = None

    def __call__(self, request: Request) -> Disturbance | None:
        return None if self._injector is None else self._injector(request)

    def of(self, *paths: str) -> None:
        rules: list[dict[str, Any]] = [
            {"match": {"verbs": ["list"], "path": path}, "fault": {"error": {"status": 403, "reason": "Forbidden"}}}
            for path in paths
        ]
        self._injector = Injector(plan_of(orjson.dumps({"rules": rules}).decode())) if rules else None


def readiness(process: Process) -> str:
    return examine("readyz", process.runtime.sources().ready, verbose=True).text


@asynccontextmanager
async def taking_over(refused: str) -> AsyncIterator[tuple[EmbeddedCluster, Refusals, Process]]:
    """Yield a standby that has just got the lease of a leader that ended, and cannot list the path `refused`."""
    refusals = Refusals()
    async with embedded_cluster(disturb=refusals) as cluster:
        await cluster.add_node("n1")
        async with running(cluster, ELECT) as first:
            await until(lambda: first.runtime.leases.names and first.runtime.leases.held)
            async with running(cluster, ELECT) as second:
                await until(lambda: second.runtime.fast_path and second.runtime.fast_path.is_synced)
                refusals.of(refused)
                first.runtime.stop()
                await until(lambda: second.runtime.leases.held)
                yield cluster, refusals, second


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube_client.informers.OTHERS_PATIENCE", 0.1)
    monkeypatch.setattr("kube_client.informers.RENEWAL_PATIENCE", 0.1)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.promise("L14")
async def test_a_leader_goes_without_a_fresh_list_of_what_it_cannot_list_and_says_so() -> None:
    async with taking_over("/apis/storage.k8s.io/v1/csistoragecapacities") as (cluster, refusals, second):
        await cluster.add_pod("a")
        await until(cluster.placed)
        assert "[-]informer-renewal failed: not listed since this process leads: CSIStorageCapacity\n" in readiness(
            second
        )
        refusals.of()
        await until(lambda: "[+]informer-renewal ok" in readiness(second))


@pytest.mark.usefixtures("short_patience")
@pytest.mark.promise("L14")
@pytest.mark.parametrize("path", ["/api/v1/pods", "/api/v1/nodes", "/apis/resource.k8s.io/v1/resourceclaims"])
async def test_a_leader_that_cannot_list_what_safety_needs_gives_the_lease_back(path: str) -> None:
    async with taking_over(path) as (cluster, refusals, second):
        await cluster.seen(LEASE, lambda lease: not lease["spec"].get("holderIdentity"))
        assert second.metrics()['leader_election_master_status{name="one"}'] == 0
        await cluster.add_pod("a")
        assert not second.ending.done()
        assert await cluster.placed() == {}
        refusals.of()
        # It waits for as long as other replicas need to try, and then leads.
        await until(cluster.placed)
