"""Faults of Volcano's agent scheduler: what happened, under which conditions, and what this scheduler does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from agent_scheduler.binding.result import ScheduleResult
from agent_scheduler.engine.decide.decide import ConflictPolicy
from agent_scheduler.engine.framework.plugin import Depends, Profile
from agent_scheduler.engine.plugins.node_resources_fit import NodeResourcesFit
from agent_scheduler.engine.queueing.places import Place
from kube_client.bind import BindOutcome
from tests.support.embedded import PODS, embedded_cluster, until
from tests.support.running import AGENT, raising_for_some, scheduling
from tests.support.tap import Tap, denied

from .links import watching
from .stages import HeldBinds, millicores, refusal, scheduled

WORKERS = 3
#: The toleration for which `raising_for_some` raises.
TOLERATED = [{"key": "boom", "operator": "Exists"}]


async def test_no_worker_dies_with_a_pod() -> None:
    """Volcano #5146 and #5147 (agent scheduler): a failure in one pod's cycle ended every worker.

    What happened: workers shared one action, one framework and one cycle state. Two concurrent cycles wrote the same
    maps, which ends a Go process; a panic in a plugin, from which nothing recovered, did the same. Each restart met the
    same pods.

    Conditions: several workers; a pod on which a plugin raises.

    Here: an exception in a cycle is that pod's failure. It is reported and backs off; every worker continues.
    """
    profiles = (raising_for_some(Depends.NODE, lambda _: True),)
    async with scheduled(profiles=profiles, workers=WORKERS) as (cluster, running):
        await cluster.add_node("n1")
        await until(lambda: running.fast_path.ledger.rows)
        # More than there are workers, so that each of them meets one.
        for number in range(WORKERS * 2):
            await cluster.add_pod(f"bad{number}", tolerations=TOLERATED)
        for number in range(WORKERS * 2):
            await cluster.add_pod(f"good{number}")
        await until(lambda: running.reports.attempts["scheduled"] == WORKERS * 2)
        assert await refusal(cluster, "bad0") == "ZeroDivisionError: boom"
        assert set(await cluster.placed()) == {f"good{number}" for number in range(WORKERS * 2)}
        assert not running.scheduling.done()


@pytest.mark.parametrize("seen", ["listed", "watched"])
async def test_a_pod_on_an_unknown_node_harms_nobody_and_counts_when_the_node_appears(seen: str) -> None:
    """Volcano #5924 (agent scheduler; also #5167, #5179): a pod on an unknown node ended the process.

    What happened: a pod was bound to a node that the cache did not have, because the node was deleted under its pods,
    or was filtered out. The cache kept a placeholder without a node for it, the next incremental snapshot included the
    placeholder and dereferenced the missing node. Each restart met the same pod and panicked again.

    Conditions: one bound pod whose node does not exist, and one waiting pod.

    Here: such a pod is known without a node's row; it affects no decision, and uses its capacity if the node appears.
    """
    async with embedded_cluster() as cluster:
        if seen == "listed":
            await cluster.add_pod("orphan", cpu="1", scheduler="another", nodeName="later")
        async with scheduling(cluster.transport) as running:
            if seen == "watched":
                await cluster.add_pod("orphan", cpu="1", scheduler="another", nodeName="later")
            await until(lambda: running.fast_path.ledger.placements)
            await cluster.add_pod("a", cpu="1")
            await refusal(cluster, "a")
            await cluster.add_node("n1", cpu="1")
            await until(lambda: running.reports.attempts["scheduled"])
            await cluster.add_node("later", cpu="1")
            await until(lambda: millicores(running.fast_path.ledger, "later") == 1000)
            await cluster.add_pod("b", cpu="1")
            assert await refusal(cluster, "b") == "0/2 nodes are available: 2 Insufficient cpu."
            assert running.reports.failures == []


BURST = 100


async def test_a_node_with_room_for_all_costs_no_pod_a_second_attempt() -> None:
    """Volcano #5939 (agent scheduler): the faster the workers, the more of their decisions were discarded.

    What happened: the binder accepted one bind for each version of a node that a worker had seen. All other decisions
    on that version were conflicts, though the node had capacity for dozens, and were retried; six workers were slower
    than four.

    Conditions: a burst of small pods, few nodes, several workers.

    Here, with the default policy: a decision whose node has changed is checked again on the live ledger, and holds as
    long as the pod still fits. A conflict is lost only if capacity was lost. (`strict` keeps the agent scheduler's
    rule.)
    """
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="64")
        await asyncio.gather(*(cluster.add_pod(f"p{number}", cpu="10m") for number in range(BURST)))
        async with scheduling(cluster.transport, workers=6) as running:
            await until(lambda: running.reports.attempts["scheduled"] == BURST)
            decided = sum(running.reports.counts[f"worker {index}"] for index in range(6))
            assert decided == BURST
            assert (running.reports.conflicts, running.reports.urgent) == (0, {})
            # Without conflicts this would prove nothing.
            assert running.reports.revalidated > 0


@pytest.mark.real_time
@pytest.mark.parametrize("watch", ["tells", "is cut"])
async def test_a_bind_does_not_reach_the_successor(watch: str) -> None:
    """Volcano agent scheduler: a pod recreated under its name was treated as the one that was decided.

    What happened: tasks on a node are keyed by namespace and name. A pod that was deleted and recreated while its
    predecessor's bind was in flight got "already on node" at each attempt and was retried endlessly; a bind without the
    pod's UID would even have bound the successor by a decision for the predecessor.

    Conditions: for example a StatefulSet's pod: deleted and created again under its name, of another size, while a bind
    is in flight.

    Here: pods are identified by UID, and every bind contains it, so the server rejects a bind for the predecessor. The
    successor is decided separately and bound once.
    """
    async with watching() as (cluster, relay, running):
        pods = running.fast_path.cluster.pods
        held = HeldBinds(running.fast_path, only=lambda pod: pod.uid == first)
        await cluster.add_node("small", cpu="1")
        await until(lambda: running.fast_path.ledger.rows)
        first = (await cluster.add_pod("a", cpu="1"))["metadata"]["uid"]
        await until(lambda: held.nodes)
        if watch == "is cut":
            relay.cut()
        await cluster.delete(f"{PODS}/a")
        second = (await cluster.add_pod("a", cpu="2"))["metadata"]["uid"]
        if watch == "tells":
            await until(lambda: second in pods and first not in pods)
        held.release()
        await until(lambda: running.reports.outcomes[BindOutcome.RECREATED.value])
        assert await cluster.placed() == {}
        assert millicores(running.fast_path.ledger, "small") == 0
        relay.restore()
        await cluster.add_node("large", cpu="2")
        await until(lambda: running.reports.attempts["scheduled"])
        assert await cluster.placed() == {"a": "large"}
        assert set(running.fast_path.ledger.placements) == {second}
        # While no watch delivers the successor, the deleted pod is retried and rejected again.
        outcomes = running.reports.outcomes
        assert (outcomes["bound"], set(outcomes)) == (1, {"recreated", "bound"})


@pytest.mark.parametrize("policy", list(ConflictPolicy))
async def test_a_node_that_came_back_is_used_at_once(policy: ConflictPolicy) -> None:
    """Volcano agent scheduler: a node that was deleted and recreated under its name was unusable until a restart.

    What happened: the binder stores for each node the generation of its last bind, and accepts only newer ones. A
    result in flight when the node was deleted stored its large old generation for the new node, whose own count began
    at zero and grows only with binds: no bind could ever be newer. Deleted nodes also stayed in the list from which
    snapshots are made.

    Conditions: a busy node is replaced under its name while results and binds to it are in flight; the rule on versions
    (`strict`) applies.

    Here: versions only grow, also across a node's deletion, so everything in flight is outdated and the new node is
    usable at once.
    """
    async with scheduled(policy=policy, workers=2, max_urgent_retries=20) as (cluster, running):
        ledger = running.fast_path.ledger
        await cluster.add_node("n1", cpu="8")
        for number in range(20):
            await cluster.add_pod(f"old{number}", cpu="100m")
        await until(lambda: running.reports.attempts["scheduled"] == 20)
        held = HeldBinds(running.fast_path)
        await cluster.add_pod("underway", cpu="100m")
        await until(lambda: held.nodes)
        await cluster.ask("DELETE", "/api/v1/nodes/n1")
        for number in range(20):
            await cluster.delete(f"{PODS}/old{number}?gracePeriodSeconds=0")
        await cluster.add_node("n1", cpu="1")
        await until(lambda: (known := ledger.node("n1")) is not None and known.allocatable["cpu"] == 1000)
        await until(lambda: len(ledger.placements) == 1)
        held.release()
        for number in range(9):
            await cluster.add_pod(f"new{number}", cpu="100m")
        await until(lambda: running.reports.attempts["scheduled"] == 30)
        # The bind in flight counts on the new node: the server has the pod there.
        assert millicores(ledger, "n1") == 1000
        assert set((await cluster.placed()).values()) == {"n1"}


RETRIES = 3


async def test_a_pod_that_always_loses_backs_off_and_others_are_bound() -> None:
    """Volcano agent scheduler: a pod that always loses conflicts is retried at once, endlessly, before all others.

    What happened: a result without a usable candidate is queued again as urgent, which precedes every PriorityClass,
    has no backoff and no limit, and resets the pod's attempts. A permanent failure (an empty list of candidates, a name
    that is still taken on the node) becomes a loop that uses a whole CPU and starves all other pods.

    Conditions: a pod whose candidates are gone whenever the binder checks; one worker; a pod that waits behind it.

    Here: a limited number of urgent retries in a row; then an ordinary backoff as after an error. Other pods are
    scheduled.
    """
    slow = {"initial_backoff": 60, "max_backoff": 60}
    async with scheduled(workers=1, max_urgent_retries=RETRIES, **slow) as (cluster, running):
        submit = running.fast_path.binder.submit

        def outrun(result: ScheduleResult) -> None:
            if result.pod.name == "loser":
                stale = tuple(replace(each, node_name="gone") for each in result.placement.candidates)
                result = result._replace(placement=replace(result.placement, candidates=stale))
            submit(result)

        running.fast_path.binder.submit = outrun  # type: ignore[method-assign]
        await cluster.add_node("n1")
        await until(lambda: running.fast_path.ledger.rows)
        uid = (await cluster.add_pod("loser"))["metadata"]["uid"]
        await cluster.add_pod("other")
        await until(cluster.placed)
        await until(lambda: running.fast_path.queue.where(uid) is Place.BACKOFF)
        assert running.reports.urgent == {True: RETRIES, False: 1}
        assert await cluster.placed() == {"other": "n1"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_the_room_of_a_pod_that_ended_is_free_while_its_object_stays(phase: str) -> None:
    """Volcano agent scheduler: ended pods held their capacity until their objects were deleted.

    What happened: the binder changed the informer's pod, so the handlers did not notice that it left the queue; each
    later update restored the task as it was at its bind. A pod that succeeded or failed was never recognized as ended.

    Conditions: short-lived pods whose objects stay (Jobs keep theirs for long).

    Here: an ended pod holds nothing, though its object stays; a label that changes on a bound pod changes no capacity.
    """
    async with scheduled() as (cluster, running):
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("first", cpu="1")
        await until(cluster.placed)
        await cluster.add_pod("second", cpu="1")
        await refusal(cluster, "second")
        await cluster.patch(f"{PODS}/first", {"metadata": {"labels": {"a": "b"}}})
        await cluster.patch(f"{PODS}/first/status", {"status": {"phase": phase}})
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert await cluster.placed() == {"first": "n1", "second": "n1"}
        # Later changes of the object use and release nothing.
        await cluster.patch(f"{PODS}/first", {"metadata": {"labels": {"a": "c"}}})
        await cluster.add_pod("third", cpu="1")
        assert await refusal(cluster, "third") == "0/1 nodes are available: 1 Insufficient cpu."
        await cluster.end_pod("first")
        await cluster.add_pod("fourth", cpu="1")
        await refusal(cluster, "fourth")
        assert millicores(running.fast_path.ledger, "n1") == 1000
        assert running.reports.attempts["scheduled"] == 2


async def test_a_gated_pod_takes_nothing_from_others() -> None:
    """Volcano agent scheduler: gated pods were scheduled, used capacity, and were rejected by the server, repeatedly.

    What happened: schedulingGates are not checked before a pod is queued. A gated pod got a node and capacity, the API
    server rejected its bind, and the pod was retried as long as the gate existed, keeping other pods from the capacity
    each time.

    Conditions: a gated pod is first in the queue, and an ordinary pod needs the same capacity.

    Here: a gated pod is not tried, uses no capacity and costs no request; when its last gate is removed it is tried at
    once.
    """
    tap = Tap()
    async with scheduled(disturb=tap) as (cluster, running):
        await cluster.add_pod("gated", cpu="1", schedulingGates=[{"name": "example.com/quota"}])
        await cluster.add_pod("plain", cpu="1")
        await until(lambda: running.fast_path.queue.pending().gated == 1)
        await cluster.add_node("n1", cpu="1")
        await until(cluster.placed)
        assert await cluster.placed() == {"plain": "n1"}
        assert tap.binds("gated") == 0
        await cluster.end_pod("plain")
        lifted = [{"op": "remove", "path": "/spec/schedulingGates"}]
        await cluster.ask("PATCH", f"{PODS}/gated", lifted, content_type="application/json-patch+json")
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert await cluster.placed() == {"gated": "n1"}
        assert tap.binds("gated") == 1


async def test_the_room_of_a_refused_bind_goes_to_the_next_pod_at_once() -> None:
    """Volcano agent scheduler: the capacity of a failed bind stayed used in the workers' snapshots.

    What happened: a rejected bind removed its task from the cached node without raising the node's generation, so
    snapshots still counted it until something else changed the node. Pods that would have fitted were rejected.

    Conditions: the API server rejects a bind permanently (for example an admission webhook); nothing else happens on
    the node.

    Here: releasing capacity is a change of the node like using it. The next decision sees it, and it wakes waiting
    pods.
    """
    slow = {"initial_backoff": 60, "max_backoff": 60}
    async with scheduled(disturb=denied("denied/"), workers=4, **slow) as (cluster, running):
        await cluster.add_node("n1", cpu="1")
        await until(lambda: running.fast_path.ledger.rows)
        await cluster.add_pod("denied", cpu="1")
        await cluster.add_pod("waiting", cpu="1")
        await until(lambda: running.reports.outcomes["refused"])
        await cluster.add_pod("later", cpu="1")
        await until(cluster.placed)
        assert len(await cluster.placed()) == 1
        assert "denied" not in await cluster.placed()
        assert running.reports.counts["after flush"] == 0


async def test_room_that_becomes_free_while_a_pod_is_refused_is_not_missed() -> None:
    """Volcano agent scheduler: events between a pod's rejection and its return to the queue woke no pod.

    What happened: hints and wake-ups never reach rejected pods, because every rejection is stored as an error; an event
    that frees capacity changes nothing before the pod's backoff, up to ten seconds, has passed. (kube-scheduler keeps
    the events that arrive during a pod's attempt, for the same reason.)

    Conditions: capacity becomes free at the moment in which a pod is rejected for lack of it.

    Here: an event during a pod's attempt is checked for that pod when the attempt fails.
    """
    happens: list[Callable[[], None]] = []

    class Interrupted(NodeResourcesFit):
        """A filter during whose rejection something happens before the queue is notified."""

        def reasons(self, state: Any, nodes: Any, rows: Any) -> Mapping[str, int]:
            told = super().reasons(state, nodes, rows)
            while happens:
                happens.pop()()
            return told

    filters = tuple(Interrupted() if isinstance(each, NodeResourcesFit) else each for each in AGENT.filters)
    profile = Profile(AGENT.scheduler_name, filters, AGENT.scores, AGENT.pre_enqueue)
    async with scheduled(profiles=(profile,), initial_backoff=0.01) as (cluster, running):
        picture = running.fast_path.cluster
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("first", cpu="1")
        await until(lambda: running.reports.attempts["scheduled"])
        (first,) = picture.pods.values()
        await until(lambda: picture.pods[first.uid].node_name)
        happens.append(lambda: picture.delete_pod(first.uid))
        second = (await cluster.add_pod("second", cpu="1"))["metadata"]["uid"]
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert running.reports.attempts["unschedulable"] == 1
        assert running.reports.counts["after flush"] == 0
        assert running.fast_path.queue.where(second) is None


async def test_the_echo_of_our_own_condition_does_not_end_a_backoff() -> None:
    """Volcano agent scheduler: a pod whose bind failed was retried at once, and was in two queues.

    What happened: the failed bind put the pod into backoff, but the condition that was written about it returned over
    the watch as an update, and the handler also queued the pod as active. There was no backoff, and each pod counted
    twice.

    Conditions: a bind that the server rejects permanently; the watch delivers the condition that was written.

    Here: a pod is in one place, by UID. An update that does not change its requirements leaves it there, in its
    backoff.
    """
    tap = Tap()
    tap.harm = denied()
    async with scheduled(disturb=tap, initial_backoff=60, max_backoff=60) as (cluster, running):
        await cluster.add_node("n1")
        uid = (await cluster.add_pod("a"))["metadata"]["uid"]
        seen = running.fast_path.cluster.pods
        await until(lambda: uid in seen and seen[uid].condition)
        queue = running.fast_path.queue
        assert queue.where(uid) is Place.BACKOFF
        assert sum(queue.pending()) == 1
        # Another pod is bound: had the first been active, it would have come before it.
        tap.harm = lambda _request: None
        await cluster.add_pod("b")
        await until(cluster.placed)
        assert await cluster.placed() == {"b": "n1"}
        assert tap.binds("a") == 1


async def test_a_cycle_sees_one_state_and_the_binder_the_newest() -> None:
    """Volcano agent scheduler: a cycle's state changed during the cycle, or the cycle changed the cluster's own state.

    What happened: the binder wrote the node's name into the informer's own pod, which all handlers share, so deletions
    and ends of pods were no longer recognized; workers shared one cycle state; and a snapshot kept references to what
    the cache continued to change. Decisions were made on a state that never existed.

    Conditions: a bind is accounted for during a cycle.

    Here: workers share one snapshot, which does not change between the beginning and the end of a cycle, whatever
    happens to the ledger meanwhile. The binder detects what it missed, on the ledger itself.
    """
    seen: list[tuple[Any, Any]] = []

    def meddle(nodes: Any) -> bool:
        """Let the foreign pod use the node in the middle of the first cycle, and record what that cycle saw."""
        if not seen:
            ledger = running.fast_path.ledger
            assert nodes is not ledger.columns
            seen.append((nodes.usage.copy(), nodes.version.copy()))
            ledger.set_pod(foreign, "n1")
            seen.append((nodes.usage.copy(), nodes.version.copy()))
        return False

    profiles = (raising_for_some(Depends.USAGE, meddle),)
    async with scheduled(profiles=profiles, workers=2) as (cluster, running):
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("foreign", cpu="1", scheduler="another")
        await until(lambda: running.fast_path.ledger.rows and running.fast_path.cluster.pods)
        (foreign,) = running.fast_path.cluster.pods.values()
        await cluster.add_pod("a", cpu="1", tolerations=TOLERATED)
        await refusal(cluster, "a")
        for before, after in zip(*seen, strict=True):
            assert np.array_equal(before, after)
        assert millicores(running.fast_path.ledger, "n1") == 1000
        # The cycle accepted the pod; the binder did not, and the next cycle knew why.
        assert running.reports.conflicts == 1
        assert running.reports.outcomes == {}
        assert await cluster.placed() == {}


#: The agent scheduler's three annotations, as its own binder writes them.
BOUGHT = {
    "volcano.sh/scheduling-priority": "999999",
    "volcano.sh/scheduling-priority-reason": "BindingConflict",
    "volcano.sh/scheduling-priority-timestamp": "1",
}


async def test_the_pod_of_higher_priority_goes_first_whatever_the_other_claims() -> None:
    """Volcano agent scheduler: an annotation that any user may set puts a pod before every other.

    What happened: the urgency of a pod that lost a conflict is stored in an annotation of the pod
    (`volcano.sh/scheduling-priority`), and the queue reads it from there for every pod. A user who writes a large
    number into a pod's annotation precedes all PriorityClasses and real retries.

    Conditions: a pod with the annotation, and one of a higher PriorityClass, wait for the same capacity.

    Here: urgency is a field of the queue's own entry. Of a pod's own fields only its PriorityClass counts.
    """
    async with embedded_cluster() as cluster:
        await cluster.add_priorities(important=1000)
        await cluster.add_node("n1", pods="1")
        await cluster.add_pod("loud", annotations=BOUGHT, labels=BOUGHT)
        await cluster.add_pod("quiet", priorityClassName="important")
        async with scheduling(cluster.transport) as running:
            await until(lambda: sum(running.reports.attempts.values()) == 2)
            assert await cluster.placed() == {"quiet": "n1"}
