"""Faults that kube-scheduler had: what happened, on which conditions, and what is done here."""

from __future__ import annotations

import asyncio

import pytest

from agent_scheduler.binding.calls import RateLimit
from agent_scheduler.config.load import load_text
from agent_scheduler.engine.decide.decide import ConflictPolicy
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.process.scheduler import SchedulerProcess
from embedded_kubernetes.requests import Disturbance, Request
from tests.features.fastpath.test_runtime import ELECT, HEAD
from tests.features.fastpath.test_runtime import running as process
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.objects import container
from tests.support.running import Running, scheduling
from tests.support.tap import Tap

from .links import forget_history, watching, watching_through_a_relay
from .stages import HeldBinds, HeldResults, millicores, refusal, scheduled


@pytest.mark.real_time
async def test_a_pod_that_was_bound_and_deleted_unseen_leaves_nothing_behind() -> None:
    """kubernetes #106102 (and #85726, #124109): a pod deleted before its binding was seen stayed in the cache for ever.

    What happened: a pod was bound and deleted while the watch was away. The last state that the scheduler had
    seen was of a waiting pod, so the missed deletion was taken for that of a waiting pod: it left the queue, but
    the room that had been assumed for it on the node was never given back, and other pods could not be scheduled.

    Conditions: the watch breaks after a pod was popped; its bind succeeds; it is deleted; the watch cannot be
    resumed.

    Ours: a deletion frees whatever the pod holds, be it seen, assumed or confirmed by the answer to the bind
    alone.
    """
    async with watching() as (cluster, relay, running):
        held = HeldBinds(running.fast_path)
        await cluster.add_node("n1", cpu="1")
        pod = await cluster.add_pod("a", cpu="1")
        await until(lambda: held.nodes)
        relay.cut()
        held.release()
        await until(lambda: running.reports.outcomes["bound"])
        assert not running.fast_path.cluster.pods[pod["metadata"]["uid"]].node_name, (
            "the watch told after all"
        )
        await cluster.end_pod("a")
        forget_history(cluster)
        relay.restore()
        await until(lambda: not running.fast_path.cluster.pods)
        assert millicores(running.fast_path.ledger, "n1") == 0
        assert not running.fast_path.ledger.placements
        await cluster.add_pod("b", cpu="1")
        await until(cluster.placed)
        assert await cluster.placed() == {"b": "n1"}


REFUSED = 40


async def test_binds_do_not_wait_for_the_budgets_of_conditions_and_events() -> None:
    """kubernetes #135900 (see #141893, #142123): one client-side limit for all requests let status writes starve binds.

    What happened: conditions of pods that found no node are written with the same rate-limited client as binds.
    With many such pods the limit is spent on conditions, and pods that do have a node wait for it behind
    thousands of them.

    Conditions: many refused pods, few that fit, and a client whose requests are limited or a server that is slow.

    Ours: binds, conditions and events have budgets of their own, and the connections suffice for all of them at
    once, so conditions that crawl or hang delay neither a decision nor a bind.
    """
    crawling = RateLimit(qps=0.001, burst=1, concurrency=1)
    async with scheduled(status_writes=crawling, events=crawling) as (cluster, running):
        await cluster.add_node("n1", cpu="4")
        for number in range(REFUSED):
            await cluster.add_pod(f"large{number}", cpu="8")
        await until(lambda: running.reports.attempts["unschedulable"] == REFUSED)
        for number in range(4):
            await cluster.add_pod(f"p{number}", cpu="1")
        await until(lambda: running.reports.attempts["scheduled"] == 4)
        assert running.reports.counts["status written"] <= 1


async def test_binds_do_not_wait_for_the_connections_of_conditions() -> None:
    tap = Tap()

    def stuck(request: Request) -> Disturbance | None:
        return Disturbance(delay=60) if request.path.endswith("/status") else None

    async with embedded_cluster(disturb=tap) as cluster:
        await cluster.add_node("n1", cpu="4")
        async with process(cluster, "bindConcurrency: 2\nshutdownGracePeriod: 100ms\n") as scheduler:
            tap.harm = stuck
            written = scheduler.runtime._settings.status_writes.concurrency
            for number in range(REFUSED):
                await cluster.add_pod(f"large{number}", cpu="8")
            await until(lambda: tap.count(lambda request: request.path.endswith("/status")) == written)
            for number in range(4):
                await cluster.add_pod(f"p{number}", cpu="1")
            await until(lambda: cluster.all_placed(4))


BURST = 168
PODS_PER_NODE = 110


@pytest.mark.real_time
@pytest.mark.parametrize("policy", list(ConflictPolicy))
async def test_a_burst_stops_at_what_the_node_takes(policy: ConflictPolicy) -> None:
    """kubernetes #136782: 168 pods were bound within seconds to one node that takes 110, and 58 of them failed there.

    What happened: after nodes had been scaled, a burst met a node that was all but empty, and everything went
    there. Why is not settled upstream; decisions on a view that trailed the node's true count are the suspect.

    Conditions: many more pods than one new node can take, decided faster than their bindings come back over the
    watch.

    Ours: room is taken in the ledger before a bind is sent, by every worker in the same place, so no burst can
    outrun it. What a new leader knows of its predecessor's last binds is tested below (#137308).
    """
    settings = {"max_urgent_retries": 1000, "max_in_unschedulable": 1e6, "events": None}
    async with watching(workers=8, policy=policy, **settings) as (cluster, relay, running):
        await asyncio.gather(*(cluster.add_pod(f"p{number}", cpu="1m") for number in range(BURST)))
        await until(lambda: running.reports.attempts["unschedulable"] == BURST)
        await cluster.add_node("n1", cpu="64", pods=str(PODS_PER_NODE))
        await until(lambda: running.fast_path.ledger.rows)
        # No binding comes back over the watch.
        relay.cut()
        await until(lambda: running.fast_path.queue.pending().unschedulable == BURST - PODS_PER_NODE)
        await until(lambda: running.fast_path.binder.in_flight == 0)
        assert len(await cluster.placed()) == PODS_PER_NODE
        assert running.reports.outcomes == {"bound": PODS_PER_NODE}


@pytest.mark.real_time
async def test_a_new_leader_knows_what_the_old_one_did_last() -> None:
    """kubernetes #137308 (and #65257): a new leader decided on a picture that lacked its predecessor's last binds.

    What happened: a standby keeps its cache by watching. When it was given the lease it scheduled at once, on
    what its watch had brought so far, and sent pods to room that the old leader had filled in its last moments.

    Conditions: the watch of the standby trails, or has silently died, when the lease changes hands.

    Ours: a leader's first decision is made on a picture that was taken after it got the lease, when its
    predecessor writes no more.
    """
    async with embedded_cluster() as cluster, watching_through_a_relay(cluster) as (transport, relay):
        await cluster.add_node("n1", cpu="1")
        standby = SchedulerProcess(
            load_text(HEAD + ELECT), source=None, transport=transport, identity="standby"
        )
        async with process(cluster, ELECT) as leader:
            await until(lambda: leader.runtime.leases.names and leader.runtime.leases.held)
            following = asyncio.create_task(standby.run(signals=False))
            await until(lambda: standby.leases.leader)
            leading, waiting = leader.runtime.fast_path, standby.fast_path
            assert leading is not None and waiting is not None
            # Both know of this pod and of the room; the leader does not come to bind it.
            held = HeldResults(leading, only=lambda pod: pod.name == "second")
            await cluster.add_pod("second", cpu="1")
            await until(lambda: held.results and waiting.cluster.pods)
            relay.fall_silent()
            await cluster.add_pod("first", cpu="1")
            await until(cluster.placed)
            assert len(waiting.cluster.pods) == 1
        try:
            assert await refusal(cluster, "second") == "0/1 nodes are available: 1 Insufficient cpu."
            assert await cluster.placed() == {"first": "n1"}
        finally:
            standby.stop()
            assert await following == 0


async def test_a_pod_that_another_bound_elsewhere_is_where_the_server_has_it() -> None:
    """kubernetes #46347 (and #50916, fixed by #55262): it ended itself over a pod on another node than assumed.

    What happened: a pod was assumed on one node and then seen bound to another. The cache corrected its nodes,
    but not its own record of the pod; at the pod's next change it found the contradiction, called itself
    corrupted and exited. The restarted process met the same pod again.

    Conditions: another binds a pod while our bind of it is under way; later the pod changes and is deleted.

    Ours: what the API server says corrects what was assumed, in all places at once, and nothing of it ends the
    process.
    """
    async with scheduled() as (cluster, running):
        ledger = running.fast_path.ledger
        held = HeldBinds(running.fast_path, only=lambda pod: pod.name == "a")
        await cluster.add_node("n1", cpu="1")
        await cluster.add_node("n2", cpu="1")
        await until(lambda: len(ledger.rows) == 2)
        await cluster.add_pod("a", cpu="1")
        await until(lambda: held.nodes)
        assumed = held.nodes["a"]
        other = "n2" if assumed == "n1" else "n1"
        await cluster.bind("a", other)
        await until(lambda: millicores(ledger, other) == 1000)
        assert millicores(ledger, assumed) == 0
        held.release()
        await until(lambda: running.reports.outcomes["bound elsewhere"])
        assert (millicores(ledger, assumed), millicores(ledger, other)) == (0, 1000)
        labels = {"metadata": {"labels": {"changed": "yes"}}}
        await cluster.patch(f"{PODS}/a", labels)
        await cluster.end_pod("a")
        await until(lambda: millicores(ledger, other) == 0)
        for name in ("b", "c"):
            await cluster.add_pod(name, cpu="1")
        await until(lambda: running.reports.outcomes["bound"] == 2)
        assert set((await cluster.placed()).values()) == {"n1", "n2"}
        assert running.reports.failures == []


@pytest.mark.real_time
async def test_the_room_of_a_pod_whose_deletion_was_missed_goes_to_who_waits_for_it() -> None:
    """kubernetes #55587 (and #51313, #69926): a pod's deletion that the scheduler never heard of kept its room taken.

    What happened: the API server went away between the deletion of a bound pod and the event that tells of it.
    The list that followed lacked the pod, but the handlers did not understand how a missed deletion is told (a
    tombstone), so the node stayed full for the scheduler, and pods waited for room that was there, until a
    restart.

    Conditions: the watch breaks, a bound pod is deleted, and the server cannot resume the watch (410).

    Ours: the next list frees the room of every pod that it lacks, and wakes those who wait for it.
    """
    async with watching() as (cluster, relay, running):
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("first", cpu="1")
        await until(cluster.placed)
        await cluster.add_pod("second", cpu="1")
        await refusal(cluster, "second")
        relay.cut()
        await cluster.end_pod("first")
        forget_history(cluster)
        relay.restore()
        await until(cluster.placed)
        assert await cluster.placed() == {"second": "n1"}
        assert millicores(running.fast_path.ledger, "n1") == 1000
        assert running.reports.counts["after flush"] == 0


async def test_pods_of_other_schedulers_take_their_room() -> None:
    """kubernetes #60469 (caused by #52479, see #63002): a second scheduler filled nodes that were full already.

    What happened: the scheduler's watch asked for pods of its own schedulerName alone. Run beside the default
    scheduler, it never saw the pods that the other had placed, took nodes for empty, and kubelets failed what it
    sent there (OutOfmemory).

    Conditions: pods of several schedulers on the same nodes.

    Ours: every pod on a node is counted, whoever placed it and whatever scheduler it names; pods of others are
    only not queued.
    """
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("listed", cpu="300m", scheduler="default-scheduler")
        await cluster.bind("listed", "n1")
        async with scheduling(cluster.transport) as running:
            await cluster.add_pod("watched", cpu="300m", scheduler="default-scheduler")
            await cluster.bind("watched", "n1")
            await until(lambda: millicores(running.fast_path.ledger, "n1") == 600)
            await cluster.add_pod("ours", cpu="600m")
            assert await refusal(cluster, "ours") == "0/1 nodes are available: 1 Insufficient cpu."
            await cluster.end_pod("listed")
            await until(lambda: running.reports.attempts["scheduled"])
            assert await cluster.placed() == {"watched": "n1", "ours": "n1"}


async def _replace(cluster: EmbeddedCluster, running: Running, *, cpu: str) -> None:
    """Puts another node in n1's place and waits until the scheduler knows it."""
    await cluster.ask("DELETE", "/api/v1/nodes/n1")
    uid = (await cluster.add_node("n1", cpu=cpu))["metadata"]["uid"]

    def known() -> bool:
        node = running.fast_path.ledger.node("n1")
        return node is not None and node.uid == uid

    await until(known)


async def test_neither_a_decision_on_a_node_nor_a_snapshot_of_it_holds_for_its_namesake() -> None:
    """kubernetes #63262: the generation of a node that came back under its name collided with that of its predecessor.

    What happened: each node in the scheduler's cache counted its changes from zero. A node was deleted and added
    again, its new count happened to equal the one that a snapshot remembered, and the snapshot took its stale
    data for fresh.

    Conditions: a node is replaced under its name by one of another size, with as many changes since.

    Ours: versions are drawn from one counter and never given twice. A decision on the old node is seen as
    outdated by the binder, and the next decision sees the new node.
    """
    async with scheduled() as (cluster, running):
        await cluster.add_node("n1", cpu="4")
        await until(lambda: running.fast_path.ledger.rows)
        held = HeldResults(running.fast_path)
        await cluster.add_pod("a", cpu="2")
        await until(lambda: held.results)
        await _replace(cluster, running, cpu="1")
        held.release()
        assert await refusal(cluster, "a") == "0/1 nodes are available: 1 Insufficient cpu."
        assert await cluster.placed() == {}
        # Nor does the refusal hold for the next one, though the snapshot had its namesake.
        await _replace(cluster, running, cpu="2")
        await until(cluster.placed)
        assert await cluster.placed() == {"a": "n1"}
        assert running.reports.counts["after flush"] == 0


OTHER = build_profile(ProfileSpec(scheduler_name="other"))


async def test_room_that_another_took_since_the_decision_is_not_taken_again() -> None:
    """kubernetes #72043: two schedulers that fill the same nodes can both take the last room.

    What happened: the API server accepts a binding whatever the node's room is, so of two schedulers that decide
    at the same moment both succeed, and the kubelet fails one of the pods.

    Conditions: two schedulers on one node with room for one pod.

    Ours: room that another was seen to take before our bind is sent is not taken again, even if it was free when
    we decided. Two binds that are under way at the same moment cannot be told apart by anyone but the kubelet;
    then both pods are counted and nothing more is sent to the node. (Nodes that we alone own are never
    overcommitted.)
    """
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport) as ours,
        scheduling(cluster.transport, profiles=(OTHER,)),
    ):
        await cluster.add_node("n1", cpu="1")
        await until(lambda: ours.fast_path.ledger.rows)
        held = HeldResults(ours.fast_path)
        await cluster.add_pod("mine", cpu="1")
        await until(lambda: held.results)
        await cluster.add_pod("theirs", cpu="1", scheduler="other")
        await until(lambda: millicores(ours.fast_path.ledger, "n1") == 1000)
        held.release()
        await refusal(cluster, "mine")
        assert await cluster.placed() == {"theirs": "n1"}
        await cluster.end_pod("theirs")
        await until(lambda: ours.reports.attempts["scheduled"])
        assert await cluster.placed() == {"mine": "n1"}


async def test_two_binds_of_the_same_moment_are_both_counted_by_both() -> None:
    async with (
        embedded_cluster() as cluster,
        scheduling(cluster.transport) as ours,
        scheduling(cluster.transport, profiles=(OTHER,)) as others,
    ):
        both = (ours, others)
        held = [HeldBinds(each.fast_path) for each in both]
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("mine", cpu="1")
        await cluster.add_pod("theirs", cpu="1", scheduler="other")
        await until(lambda: all(each.nodes for each in held))
        for each in held:
            each.release()
        await until(lambda: all(millicores(each.fast_path.ledger, "n1") == 2000 for each in both))
        await cluster.add_pod("late", cpu="1m")
        await cluster.add_pod("later", cpu="1m", scheduler="other")
        for name in ("late", "later"):
            assert await refusal(cluster, name) == "0/1 nodes are available: 1 Insufficient cpu."
        assert await cluster.placed() == {"mine": "n1", "theirs": "n1"}


LARGE = [container(requests={"memory": "32Gi"})]


async def test_of_thirty_large_pods_as_many_are_bound_as_fit_and_hold_their_room_to_the_end() -> None:
    """kubernetes #76772 (see #106884): a node got more memory's worth of pods than it has, and kubelets failed them.

    What happened: thirty pods of 32Gi each were created at once, and all went to one node of 70Gi. The report
    ended in pods that were taken for finished by the scheduler while they still ran on the node, because
    something ended their phase early.

    Conditions: large pods in a burst; pods that terminate slowly.

    Ours: of a burst as many pods are bound as fit, and a pod that is being deleted holds its room until it is
    gone or its phase says that it has ended, be its grace period ever so long.
    """
    async with scheduled(workers=4) as (cluster, running):
        pods, queue = running.fast_path.cluster.pods, running.fast_path.queue
        for number in range(30):
            await cluster.add_pod(f"p{number}", containers=LARGE)
        await until(lambda: running.reports.attempts["unschedulable"] == 30)
        await cluster.add_node("n1", memory="70Gi")
        await until(lambda: queue.pending().unschedulable == 28)
        await until(lambda: running.fast_path.binder.in_flight == 0)
        gone, ended = bound = list(await cluster.placed())
        for name in bound:
            answer = await cluster.delete(f"{PODS}/{name}?gracePeriodSeconds=600")
            await until(lambda uid=answer["metadata"]["uid"]: pods[uid].deleting)
        await cluster.add_pod("late", containers=LARGE)
        await refusal(cluster, "late")
        assert list(await cluster.placed()) == bound
        await cluster.end_pod(gone)
        await until(lambda: running.reports.attempts["scheduled"] == 3)
        await until(lambda: queue.pending().unschedulable == 28)
        await cluster.patch(f"{PODS}/{ended}/status", {"status": {"phase": "Failed"}})
        await until(lambda: running.reports.attempts["scheduled"] == 4)
        await until(lambda: queue.pending().unschedulable == 27)
        assert len(await cluster.placed()) == 3


@pytest.mark.real_time
@pytest.mark.parametrize("history", ["kept", "lost"])
async def test_nothing_is_bound_to_a_node_whose_deletion_was_missed(history: str) -> None:
    """kubernetes #94437 (and #56261): a node's deletion that the scheduler never heard of kept the node alive for it.

    What happened: the watch lost the deletion of a node. The scheduler went on choosing the node for pods that
    could then never run, until it was restarted.

    Conditions: the connection of the watch breaks, and the node is deleted before it is back; the server still
    has the history to resume from, or has it no more (410).

    Ours: once the watch is back, resumed or taken anew, a node that no longer exists is forgotten and nothing is
    bound to it.
    """
    async with watching() as (cluster, relay, running):
        await cluster.add_node("gone")
        await until(lambda: running.fast_path.ledger.rows)
        relay.cut()
        await cluster.ask("DELETE", "/api/v1/nodes/gone")
        if history == "lost":
            forget_history(cluster)
        relay.restore()
        await until(lambda: "gone" not in running.fast_path.ledger.rows)
        await cluster.add_pod("a")
        assert await refusal(cluster, "a") == "no nodes available to schedule pods"
        await cluster.add_node("here")
        await until(lambda: running.reports.attempts["scheduled"])
        assert await cluster.placed() == {"a": "here"}
        assert running.reports.outcomes == {"bound": 1}
