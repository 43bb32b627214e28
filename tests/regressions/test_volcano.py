"""Faults of Volcano: what happened, under which conditions, and what this scheduler does."""

from __future__ import annotations

import pytest

from embedded_kubernetes.requests import Disturbance, Request
from kube_client.bind import BindOutcome
from tests.features.fastpath.test_runtime import ELECT
from tests.features.fastpath.test_runtime import running as process
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.tap import Tap, is_watch

from .links import watching
from .stages import HeldBinds, HeldResults, millicores, refusal, scheduled


async def test_room_is_taken_from_the_moment_a_bind_is_under_way() -> None:
    """Volcano #1383: capacity was not reserved before the bind had succeeded, so slow binds overcommitted nodes.

    What happened: binds ran beside the scheduling loop. Under load one took more than a second, the next session began
    with a cache that did not count the pods in flight, and kubelets rejected what it bound to the same capacity
    (OutOfcpu).

    Conditions: an API server that answers binds slowly.

    Here: capacity is reserved before the bind is sent and held until its outcome is known; a pod that finds none left
    waits, and is woken if the bind fails.
    """
    async with scheduled(workers=4) as (cluster, running):
        held = HeldBinds(running.fast_path)
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("slow", cpu="1")
        await until(lambda: held.nodes)
        await cluster.add_pod("next", cpu="1")
        assert await refusal(cluster, "next") == "0/1 nodes are available: 1 Insufficient cpu."
        assert await cluster.placed() == {}
        await cluster.delete(f"{PODS}/slow")
        await until(lambda: held.nodes.get("next"))
        held.release()
        await until(lambda: running.reports.outcomes[BindOutcome.BOUND.value])
        assert await cluster.placed() == {"next": "n1"}
        assert millicores(running.fast_path.ledger, "n1") == 1000


LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


async def test_two_replicas_that_both_create_the_lease_become_leader_and_standby() -> None:
    """Volcano #5074: of two replicas that started at the same time one panicked over an object that both created.

    What happened: each replica read the default queue before it had the lease, did not find it, and created it. The
    later one received AlreadyExists, treated that as fatal, and restarted.

    Conditions: two replicas start on a cluster that has none of their objects; both read before either creates.

    Here: replicas share only the lease. The one that loses the race to create it becomes a standby, and does not end.
    """
    tap = Tap()

    def creates(request: Request) -> bool:
        return request.method == "POST" and request.path == LEASES

    def reads(request: Request) -> bool:
        return request.method == "GET" and request.path == f"{LEASES}/one"

    def slow(request: Request) -> Disturbance | None:
        return Disturbance(delay=0.3) if creates(request) else None

    tap.harm = slow
    async with embedded_cluster(disturb=tap) as cluster:
        await cluster.add_node("n1")
        async with process(cluster, ELECT) as one, process(cluster, ELECT) as other:
            await until(lambda: tap.count(creates) == 2)
            await cluster.add_pod("a")
            await until(cluster.placed)
            leads = [each.metrics()['leader_election_master_status{name="one"}'] for each in (one, other)]
            assert sorted(leads) == [0, 1]
            (lease,) = (await cluster.ask("GET", LEASES))["items"]
            # The loser has observed the winner, and continues to read the lease.
            asked = tap.count(reads)
            await until(lambda: tap.count(reads) > asked + 1)
            leader = (one, other)[leads.index(1)]
            assert lease["spec"]["holderIdentity"] == leader.runtime._identity
            assert not one.ending.done() and not other.ending.done()
        assert (one.ending.result(), other.ending.result()) == (0, 0)


async def test_nothing_is_decided_on_a_part_of_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volcano #5174 (of the agent scheduler: #5167, #5819): scheduling began before all listed objects were known.

    What happened: a start waited until the informers had their lists, not until the handlers had applied them to the
    scheduler's own cache. The first decisions after a restart saw some of the pods and nodes, and overcommitted nodes
    whose pods had not been applied yet, or met incomplete entries and panicked.

    Conditions: a restart on a cluster with pods, and a list that takes more than a moment to apply.

    Here: nothing is decided before the last object of the first lists of nodes and of pods is in the ledger or the
    queue.
    """
    # Objects are applied one by one, with other work in between.
    monkeypatch.setattr("kube_client.reflector.PORTION", 1)
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="1")
        # Lists are in the order of names.
        await cluster.add_pod("a", cpu="1")
        for number in range(20):
            await cluster.add_pod(f"m{number}", scheduler="another")
        await cluster.add_pod("z", cpu="1", scheduler="another")
        await cluster.bind("z", "n1")
        async with process(cluster):
            assert await refusal(cluster, "a") == "0/1 nodes are available: 1 Insufficient cpu."
            assert await cluster.placed() == {"z": "n1"}


async def test_nobody_is_refused_before_the_nodes_are_known() -> None:
    tap = Tap()

    def late(request: Request) -> Disturbance | None:
        nodes = request.path == "/api/v1/nodes" and not is_watch(request)
        return Disturbance(delay=0.3) if nodes else None

    async with embedded_cluster(disturb=tap) as cluster:
        await cluster.add_node("n1")
        await cluster.add_pod("a")
        tap.harm = late
        async with process(cluster) as scheduler:
            await until(cluster.placed)
            refused = 'scheduler_schedule_attempts_total{result="unschedulable",profile="agent-scheduler"}'
            assert scheduler.metrics()[refused] == 0


async def test_a_pod_that_changed_after_its_decision_is_decided_anew() -> None:
    """Volcano #6010: a decision used an object that the API server already had in a newer version.

    What happened: a PodGroup was changed while the scheduler's cache still had its old policy. Pods that arrived in
    that window were bound by the old one, as a part of a gang that should have been complete.

    Conditions: an object changes at the server, the watch has not delivered it yet, and a decision is carried out.

    Here, without PodGroups: a decision is carried out only for the pod for which it was made, as it was then. What the
    watch has delivered by then (a change, a deletion) is checked before capacity is reserved, and a pod that is deleted
    while it loses a conflict is neither retried nor reported. What the watch has not delivered is left to the server's
    own checks, by UID.
    """
    async with scheduled() as (cluster, running):
        held = HeldResults(running.fast_path)
        await cluster.add_node("n1", cpu="1")
        uid = (await cluster.add_pod("a", cpu="1"))["metadata"]["uid"]
        await until(lambda: held.results)
        grown = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
        await cluster.ask("PATCH", f"{PODS}/a/resize", grown, content_type="application/strategic-merge-patch+json")
        await until(lambda: running.fast_path.cluster.pods[uid].cls is not held.results[0].pod.cls)
        held.release()
        assert await refusal(cluster, "a") == "0/1 nodes are available: 1 Insufficient cpu."
        assert await cluster.placed() == {}


async def test_a_deleted_pod_that_lost_its_nodes_is_not_retried() -> None:
    async with scheduled() as (cluster, running):
        held = HeldResults(running.fast_path)
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("a", cpu="1")
        await until(lambda: held.results)
        await cluster.add_pod("foreign", cpu="1", scheduler="another")
        await cluster.bind("foreign", "n1")
        await until(lambda: millicores(running.fast_path.ledger, "n1") == 1000)
        await cluster.delete(f"{PODS}/a")
        await until(lambda: len(running.fast_path.cluster.pods) == 1)
        held.release()
        await until(lambda: running.fast_path.binder.in_flight == 0)
        await running.stop()
        assert sum(running.fast_path.queue.pending()) == 0
        assert running.reports.urgent == {}
        assert running.reports.counts["status written"] == 0
        assert running.reports.counts["event recorded"] == 0


@pytest.mark.real_time
async def test_a_deleted_pod_of_which_the_watch_did_not_tell_is_not_reported_and_dropped_when_it_tells() -> None:
    async with watching() as (cluster, relay, running):
        held = HeldBinds(running.fast_path)
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("a", cpu="1")
        await until(lambda: held.nodes)
        relay.cut()
        await cluster.delete(f"{PODS}/a")
        held.release()
        await until(lambda: running.reports.outcomes["gone"])
        assert millicores(running.fast_path.ledger, "n1") == 0
        relay.restore()
        await until(lambda: not running.fast_path.cluster.pods)
        assert sum(running.fast_path.queue.pending()) == 0
        await running.stop()
        assert running.reports.counts["status written"] == 0
        assert running.reports.counts["event recorded"] == 0
