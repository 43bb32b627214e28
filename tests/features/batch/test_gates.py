"""Pods with the gate of their queue's capacity, in a whole process on an embedded cluster: when each loses its gate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.binding.queue_admission import Election
from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, queue_path
from agent_scheduler.serving.explanation import render
from embedded_kubernetes.auth.options import ADMIN
from embedded_kubernetes.requests import Request
from kube_client.testing.virtual import virtual_time
from kube_client.transport import OutcomeUnknown, Response, Transport
from tests.hostile.playing import counting_calls
from tests.support import objects
from tests.support.batched import add_group, install
from tests.support.client import MERGE
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.installation import (
    BOTH,
    CONFIGURATION,
    EACH,
    GROUP,
    NOWHERE,
    OTHER,
    Installation,
    faulty,
    gated,
    installed,
    process,
    samples,
)
from tests.support.transports import Faulty, Held, Send


@BOTH
@pytest.mark.promise("GATE-1", "S32")
async def test_only_one_at_a_time_is_let_past_in_a_queue_of_one(scheduler: str) -> None:
    """The example of Volcano's design document, with pod-1, pod-2 and pod-3."""
    async with gated() as world:
        await world.add_node("a", cpu="8")
        await world.pod("pod-1", scheduler=scheduler, queue="full")
        await until(lambda: world.is_bound("pod-1"))
        await world.pod("pod-2", scheduler=scheduler, queue="full", **NOWHERE)
        await world.stays_held("pod-2")
        await world.end_pod("pod-1")
        await until(lambda: world.is_let_past("pod-2"))
        await until(lambda: world.says("pod-2", "Unschedulable"))
        await world.stands("pod-2", Standing.RESERVED)
        await world.pod("pod-3", scheduler=scheduler, queue="full")
        await world.stays_held("pod-3")
        await world.add_node("b", cpu="8", labels={"not": "there"})
        await until(lambda: world.is_bound("pod-2"))
        await world.stands("pod-2", Standing.BOUND)
        await world.stays_held("pod-3")
        await world.end_pod("pod-2")
        await until(lambda: world.is_bound("pod-3"))


@BOTH
@pytest.mark.promise("GATE-8")
async def test_in_a_cluster_without_nodes_pods_are_let_past_and_ask_for_nodes(scheduler: str) -> None:
    async with gated(cpu="2", **{"nvidia.com/gpu": "8"}) as world:
        limits = {"nvidia.com/gpu": "1"}
        containers = [objects.container(requests={"cpu": "1", **limits}, limits=limits)]
        await world.pod("gpu", scheduler=scheduler, queue="full", containers=containers)
        await until(lambda: world.says("gpu", "Unschedulable"))


@pytest.mark.promise("S32")
async def test_a_gang_whose_minimum_its_queue_has_not_is_held_whole() -> None:
    async with gated(cpu="4") as world:
        await world.gated_gang("g", 5, queue="full")
        await world.stays_held(*(f"g-{number}" for number in range(5)))
        await world.gated_gang("small", 3, queue="full")
        await until(lambda: world.all_let_past("small", 3))
        await world.stays_held(*(f"g-{number}" for number in range(5)))


async def test_a_gang_that_lacks_one_of_its_roles_is_held_whole() -> None:
    async with gated(cpu="9") as world:
        await add_group(world, "g", minMember=3, minTaskMember={"head": 1, "worker": 2}, queue="full")
        for number in range(3):
            await world.pod(f"g-{number}", group="g", queue="full", role="worker")
        await world.stays_held("g-0", "g-1", "g-2")
        await world.pod("g-head", group="g", queue="full", role="head")
        await until(lambda: world.all_let_past("g", 4))


@pytest.mark.promise("GATE-10")
async def test_queues_below_one_do_not_let_past_more_than_it_holds() -> None:
    async with gated(cpu="2") as world:
        for name in ("left", "right"):
            await world.queue(name, parent="full")
            await world.gated_gang(name, 2, minimum=1, queue=name)
        await world.rest()
        assert await world.let_past("left") + await world.let_past("right") == 2


@BOTH
@pytest.mark.promise("GATE-2")
async def test_a_pod_with_another_gate_keeps_both(scheduler: str) -> None:
    async with gated() as world:
        await world.add_node("a", cpu="8")
        await world.pod("p", scheduler=scheduler, queue="full", gates=(OTHER, QUEUE_ALLOCATION_GATE))
        await world.stays_held("p")
        body = {"spec": {"schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}]}}
        await world.patch(f"{PODS}/p", body)
        await until(lambda: world.is_bound("p"))


@BOTH
@pytest.mark.promise("GATE-14")
async def test_a_pod_that_asks_for_nothing_is_let_past(scheduler: str) -> None:
    async with gated() as world:
        await world.add_node("a", cpu="8")
        await world.pod("p", scheduler=scheduler, queue="full", cpu="")
        await until(lambda: world.is_bound("p"))


@BOTH
@pytest.mark.parametrize(
    "annotation", ["True", *(pytest.param(each, marks=pytest.mark.wide) for each in ("1", "", "false"))]
)
@pytest.mark.promise("GATE-19")
async def test_without_the_exact_annotation_a_gate_is_left_alone(scheduler: str, annotation: str) -> None:
    async with gated() as world:
        await world.pod("p", scheduler=scheduler, queue="full", annotation=annotation)
        await world.stays_held("p")


@pytest.mark.promise("GATE-18")
async def test_a_queue_that_is_not_there_holds_its_pods_until_it_comes() -> None:
    async with gated() as world:
        await world.pod("p", queue="later")
        await world.stays_held("p")
        await world.queue("later")
        await until(lambda: world.is_let_past("p"))


@pytest.mark.promise("GATE-21", "S34")
async def test_who_was_let_past_is_reserved_after_a_restart() -> None:
    async with embedded_cluster() as cluster:
        await install(cluster)
        async with process(cluster) as runtime:
            first = Installation(cluster, runtime)
            await first.queue("full", capability={"cpu": "1"})
            await first.pod("p", queue="full", **NOWHERE)
            await until(lambda: first.says("p", "Unschedulable"))
        async with process(cluster) as runtime:
            again = Installation(cluster, runtime)
            await again.stands("p", Standing.RESERVED)
            await again.pod("late", queue="full")
            await again.stays_held("late")


@BOTH
@pytest.mark.promise("GATE-20")
async def test_with_the_feature_off_every_gate_of_queues_is_removed(scheduler: str) -> None:
    text = CONFIGURATION + "featureGates: {SchedulingGatesQueueAdmission: false}\n"
    async with gated(text) as world:
        for number in range(3):
            await world.pod(f"p-{number}", scheduler=scheduler, queue="full")
        gates = ("example.com/x", QUEUE_ALLOCATION_GATE, "example.com/y")
        await world.pod("q-other", scheduler=scheduler, queue="full", gates=gates)
        await until(lambda: world.all_let_past("p-", 3))
        await until(lambda: world.is_gated_by("q-other", "example.com/x", "example.com/y"))


@EACH
@pytest.mark.promise("S34", "GATE-5")
async def test_room_that_is_reserved_in_a_queue_is_nobody_elses(scheduler: str) -> None:
    """Nodes have room: a session that ignored the reservation would try again and again."""
    async with gated() as world:
        await world.add_node("a", cpu="8")
        await world.pod("waits", queue="full", **NOWHERE)
        await until(lambda: world.says("waits", "Unschedulable"))
        await world.ungated("ungated", scheduler=scheduler, queue="full")
        await until(lambda: world.says("ungated", "QueueFull"))
        await world.rest()
        await world.end_pod("waits")
        await until(lambda: world.is_bound("ungated"))


async def test_a_queue_that_is_made_smaller_keeps_what_it_has_reserved_and_holds_the_rest() -> None:
    async with gated(cpu="2") as world:
        for number in range(2):
            await world.pod(f"p-{number}", scheduler="agent-scheduler", queue="full", nodeSelector={"x": "y"})
            await until(lambda number=number: world.all_let_past("p-", number + 1))
        await world.set_capability("full", cpu="1")
        await world.pod("late", queue="full")
        await world.stays_held("late")
        await world.add_node("b", cpu="8", labels={"x": "y"})
        await until(lambda: world.is_bound("p-0"))
        await until(lambda: world.says("p-1", "QueueFull"))
        await world.end_pod("p-0")
        await until(lambda: world.is_bound("p-1"))
        await world.stays_held("late")


@pytest.mark.promise("GATE-17")
async def test_a_removal_that_comes_late_leaves_a_pod_of_the_same_name_its_gate() -> None:
    held = Held()
    async with faulty() as (world, transport):
        await world.queue("full", capability={"cpu": "1"})
        transport.ways["PATCH", "/pods/p"] = [held]
        await world.pod("p", queue="full")
        await held.came.wait()
        await world.end_pod("p")
        await world.pod("first", queue="full", **NOWHERE)
        await until(lambda: world.is_let_past("first"))
        await world.pod("p", queue="full")
        held.go.set()
        await world.stays_held("p")


class LateChanges(Faulty):
    """Withholds changes of pods in watches until `go`; pods that are added pass."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner, at_once=True)
        self.go = asyncio.Event()

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        async def passed(batches: AsyncIterator[list[bytes]]) -> AsyncIterator[list[bytes]]:
            async for lines in batches:
                if path.startswith("/api/v1/pods") and any(b'"MODIFIED"' in line[:20] for line in lines):
                    await self.go.wait()
                yield lines

        async with self.inner.stream(path, read_timeout=read_timeout) as batches:
            yield passed(batches)


async def sent(send: Send) -> Any:
    return await send()


@pytest.mark.promise("GATE-16")
async def test_a_gang_is_bound_once_all_its_gates_are_removed_and_before_the_watch_shows_that() -> None:
    late: list[LateChanges] = []

    def through(cluster: EmbeddedCluster) -> LateChanges:
        late.append(LateChanges(cluster.transport))
        return late[0]

    async with installed(through=through) as world:
        await world.queue("full", capability={"cpu": "8"})
        await world.add_node("a", cpu="8")
        held = Held()
        late[0].ways = {("PATCH", f"/pods/g-{number}"): [sent] for number in range(2)}
        late[0].ways["PATCH", "/pods/g-2"] = [held]
        await world.gated_gang("g", 3, queue="full")
        await held.came.wait()
        await until(lambda: world.all_let_past("g-", 2))
        await world.rest()
        assert [await world.is_bound(f"g-{number}") for number in range(3)] == [False] * 3
        held.go.set()
        for number in range(3):
            await until(lambda number=number: world.is_bound(f"g-{number}"))
        assert not late[0].go.is_set()
        late[0].go.set()


@pytest.mark.promise("L3")
async def test_held_pods_cost_nothing_when_nothing_changes() -> None:
    async with gated(cpu="1") as world:
        fast_path = world.fast_path
        asked = 0
        waiting = fast_path.ledger.usage.waiting
        fitting = waiting.fitting

        def counted(*arguments: Any) -> Any:
            nonlocal asked
            asked += 1
            return fitting(*arguments)

        for number in range(200):
            await world.pod(f"p-{number}", queue="full", cpu="2")
        sessions = await world.rest()
        waiting.fitting = counted  # type: ignore[method-assign]
        await asyncio.sleep(0.3)
        assert asked == 0 and await world.rest() == sessions


@virtual_time
async def test_queues_that_change_together_are_taken_in_one_by_one() -> None:
    """Each change concerns all waiting pods: a step for a hundred would last for seconds if thousands wait."""
    async with installed() as world:
        names = [f"c{number}" for number in range(100)]
        for name in names:
            await world.queue(name)
        pods = [f"p{number}" for number in range(50)]
        for name in pods:
            await world.pod(name, scheduler="agent-scheduler", **NOWHERE)
        await until(lambda: world.all_let_past("p", len(pods)))
        await world.rest()
        body, admin = json.dumps({"spec": {"capability": {"cpu": "1"}}}).encode(), f"Bearer {ADMIN.name}"
        with counting_calls() as longest:
            for name in names:
                path = queue_path(name)
                world.api.handle(Request("PATCH", path, body=body, content_type=MERGE, authorization=admin))
            await world.rest()
            calls, last = longest()
        book = world.fast_path.ledger.usage.book
        assert all(book.info(name).capability for name in names)
        assert calls < 20_000, last


@EACH
async def test_explain_says_by_which_queue_a_pod_is_held_how_much_is_missing_and_who_is_before_it(
    scheduler: str,
) -> None:
    async with gated(cpu="2") as world:
        await world.pod("first", scheduler=scheduler, queue="full", cpu="2", **NOWHERE)
        await until(lambda: world.says("first", "Unschedulable"))
        await world.pod("second", scheduler=scheduler, queue="full", cpu="1500m")
        await world.stays_held("second")
        await world.pod("third", scheduler=scheduler, queue="full")
        await world.stays_held("third")

        def page(name: str) -> Any:
            runtime = world.runtime
            assert runtime.fast_path is not None and runtime.batch is not None
            explainer = runtime.batch.explainer if scheduler == "volcano" else runtime.fast_path.explainer
            found = explainer.pod("default", name)
            assert found is not None
            return found

        assert page("first")["queue_gate"] == {"standing": "reserved", "queue": "full"}
        third = page("third")["queue_gate"]
        assert third["queue"] == "full" and third["before"] == ("default/second",)
        assert third["why"] == "queue full has too little capability left: 1 of cpu missing"
        text = render(page("third"))
        assert "present, queue full has too little capability left" in text and "1 before it: default/second" in text
        assert "reserved" in render(page("first"))


@EACH
async def test_room_that_is_held_for_too_long_without_a_node_is_given_back(scheduler: str) -> None:
    async with gated(CONFIGURATION + "queueReservationTimeout: 300ms\n") as world:
        await world.add_node("a")
        await world.pod("waits", scheduler=scheduler, queue="full", **NOWHERE)
        await until(lambda: world.says("waits", "Unschedulable"))
        # Before any other pod asks for the room: an autoscaler would go on adding nodes for it.
        await until(lambda: world.says("waits", "QueueFull"), seconds=2)
        await world.pod("late", scheduler=scheduler, queue="full")
        await until(lambda: world.is_bound("late"))
        await world.end_pod("late")
        await world.rest()
        condition = await world.condition("waits")
        assert condition is not None and condition["reason"] == "QueueFull"
        assert "its room in queue full (1 of cpu, " in condition["message"]


@BOTH
async def test_metrics_count_who_is_held_and_reserved_and_what_is_kept_for_them(scheduler: str) -> None:
    async with gated(cpu="2") as world:
        await world.pod("first", scheduler=scheduler, queue="full", cpu="1500m", **NOWHERE)
        await until(lambda: world.says("first", "Unschedulable"))
        for number in range(2):
            await world.pod(f"held-{number}", scheduler=scheduler, queue="full", cpu="1")
        await world.stays_held("held-0", "held-1")

        found = samples(world.runtime)
        assert found['agent_scheduler_queue_gated_pods{standing="held"}'] == 2
        assert found['agent_scheduler_queue_gated_pods{standing="reserved"}'] == 1
        kept = 'agent_scheduler_queue_reserved_resources{{queue_name="full",resource="{}"}}'
        amounts = {"cpu": 1.5, "memory": 16 << 20, "pods": 1}
        assert {name: found[kept.format(name)] for name in amounts} == amounts
        assert found['agent_scheduler_queue_gate_removals_total{result="removed"}'] == 1
        assert found["agent_scheduler_queue_gate_held_seconds_count"] == 1
        await world.add_node("a", cpu="8")
        await world.end_pod("first")
        await until(lambda: world.is_bound("held-0"))
        await world.stands("held-0", Standing.BOUND)
        assert kept.format("cpu") not in samples(world.runtime)


@BOTH
async def test_a_pod_that_comes_to_be_held_is_told_once_by_which_queue_and_how_much_is_missing(scheduler: str) -> None:
    async with gated(cpu="2") as world:
        await world.pod("first", scheduler=scheduler, queue="full", cpu="1500m", **NOWHERE)
        await until(lambda: world.says("first", "Unschedulable"))
        await world.pod("second", scheduler=scheduler, queue="full", cpu="1")
        await until(lambda: world.has_told("second", 1))
        missing = "queue full has too little capability left: 500m of cpu missing"
        assert await world.told("second") == [f"held by the gate of its queue: {missing}"]
        # Changes of other pods in the queue, and reports about the pod itself, start no new attempt.
        await world.pod("third", scheduler=scheduler, queue="full", cpu="2")
        await until(lambda: world.has_told("third", 1))
        body = {"metadata": {"labels": {"any": "thing"}}}
        await world.patch(f"{PODS}/second", body)
        body = {"spec": {"capability": {"cpu": "2200m"}}}
        await world.patch(f"{GROUP}/queues/full", body)
        await world.end_pod("third")
        await world.stays_held("second")
        assert await world.has_told("second", 1)
        # A pod that is admitted at once gets no report.
        assert await world.told("first") == []


async def test_a_held_pod_that_gets_a_group_is_not_told_again() -> None:
    """The controller of groups creates a group for a pod that names none."""
    async with gated(cpu="1") as world:
        await world.pod("p", queue="full", cpu="2")
        await until(lambda: world.has_told("p", 1))
        await add_group(world, "own", minMember=1, queue="full")
        body = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "own"}}}
        await world.patch(f"{PODS}/p", body)
        await world.stays_held("p")
        assert await world.has_told("p", 1)


async def test_a_held_pod_that_moves_to_another_queue_is_told_of_that_one() -> None:
    async with gated(cpu="1") as world:
        await world.queue("other", capability={"cpu": "500m"})
        await world.pod("p", queue="full", cpu="2")
        await until(lambda: world.has_told("p", 1))
        body = {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "other"}}}
        await world.patch(f"{PODS}/p", body)
        await until(lambda: world.has_told("p", 2))
        assert "queue other has" in (await world.told("p"))[1]


async def test_no_removal_is_sent_again_when_it_is_another_process_s_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    ends, turns = asyncio.Event(), iter((True,))

    class OneTurn(Election):
        async def run(self, lead: Callable[[], Awaitable[None]]) -> bool:
            if next(turns, False):
                leading = asyncio.ensure_future(lead())
                await ends.wait()
                leading.cancel()
                await asyncio.wait({leading})
            await asyncio.Event().wait()
            return False

    monkeypatch.setattr("agent_scheduler.process.scheduler.gates_turn", lambda *_, **__: OneTurn())
    sent, goes_on = asyncio.Event(), asyncio.Event()

    async def never_arrives(_: Send) -> Response:
        sent.set()
        await goes_on.wait()
        raise OutcomeUnknown("no answer")

    async with faulty() as (world, transport):
        transport.ways["PATCH", "/pods/p"] = [never_arrives]
        await world.pod("p")
        await sent.wait()
        ends.set()
        fast_path = world.fast_path
        gated_pods = fast_path.ledger.usage.gated
        await until(lambda: not gated_pods.admits)
        goes_on.set()
        # A request without an answer is followed by another within half a second.
        await asyncio.sleep(1)
        await world.stays_held("p")
        assert [each for each in transport.sent if each.endswith("/pods/p")] == [f"PATCH {PODS}/p"]
