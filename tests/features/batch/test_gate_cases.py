"""Gates of queues' capacity together with nodes, other gates, gangs, evictions and other clients' requests.

A pod is given to no scheduler before the watch shows it without gates, so that no bind has to remove one first.
"""

from __future__ import annotations

import pytest

from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from kube_client.transport import Response
from tests.support.batched import add_group, install
from tests.support.embedded import MERGE, PODS, STRATEGIC, embedded_cluster, until
from tests.support.installation import (
    BOTH,
    CONFIGURATION,
    EACH,
    GROUP,
    NOWHERE,
    OTHER,
    PREEMPTING,
    Installation,
    faulty,
    gated,
    process,
)
from tests.support.transports import Faulty, Held, Send, Way, lost, refused

OFF = CONFIGURATION + "featureGates: {SchedulingGatesQueueAdmission: false}\n"


@EACH
@pytest.mark.promise("GATE-7")
async def test_in_a_full_cluster_a_pod_is_let_past_and_asks_for_nodes(scheduler: str) -> None:
    async with gated(cpu="3") as world:
        await world.add_node("a", cpu="2")
        await world.pod("fills", scheduler=scheduler, queue="full", cpu="2")
        await until(lambda: world.is_bound("fills"))
        await world.pod("next", scheduler=scheduler, queue="full")
        await until(lambda: world.says("next", "Unschedulable"))
        assert await world.is_let_past("next")
        await world.stands("next", Standing.RESERVED)


@EACH
@pytest.mark.promise("GATE-9", "S33")
async def test_in_a_full_queue_a_pod_never_says_that_nodes_are_missing_whatever_else_happens(scheduler: str) -> None:
    async with gated(cpu="1") as world:
        await world.add_node("n", cpu="8")
        await world.pod("first", scheduler=scheduler, queue="full")
        await until(lambda: world.is_bound("first"))
        if scheduler == "volcano":
            await world.gated_gang("g", 2, queue="full")
            held = ("g-0", "g-1")
        else:
            await world.pod("p", scheduler=scheduler, queue="full")
            held = ("p",)
        await until(lambda: world.has_told(held[-1], 1))
        said = set()
        sessions = world.sessions
        for number in range(10):
            # Each change starts a session and retries pods.
            await world.add_node(f"n{number}", cpu="8")
            await world.pod(f"other-{number}", queue="q")
            await until(lambda number=number: world.is_bound(f"other-{number}"))
            for name in held:
                condition = await world.condition(name)
                assert condition is not None
                said.add(condition["reason"])
        # The last session may not have ended yet.
        await until(lambda: world.sessions >= sessions + 10)
        assert said == {"SchedulingGated"}
        await world.stays_held(*held)
        if scheduler == "volcano":
            # The pod's group reports why it waits.
            conditions = (await world.group_status("g")).get("conditions") or []
            (told,) = [each for each in conditions if each["type"] == "Unschedulable"]
            assert told["reason"] == "SchedulingGated"
            assert told["message"].startswith("2/2 tasks in gang have scheduling gates: ")


@pytest.mark.promise("GATE-12", "S34")
async def test_a_gang_that_gives_up_its_nodes_keeps_its_room_and_nobody_else_gets_it() -> None:
    """A node has room for one of two members: a session places that one, and withdraws it."""
    async with gated(cpu="2") as world:
        await world.add_node("a", cpu="1")
        await world.gated_gang("g", 2, queue="full")
        await until(lambda: world.all_let_past("g", 2))
        await until(lambda: world.says("g-0", "Unschedulable"))
        for scheduler in ("volcano", "agent-scheduler"):
            rival = f"rival-of-{scheduler}"
            await world.ungated(rival, scheduler=scheduler, queue="full")
            await until(lambda rival=rival: world.says(rival, "QueueFull"))
            await world.pod(f"held-{scheduler}", scheduler=scheduler, queue="full")
        await world.stays_held("held-volcano", "held-agent-scheduler")
        for member in ("g-0", "g-1"):
            await world.stands(member, Standing.RESERVED)
        await world.add_node("b", cpu="4")
        await until(lambda: world.has_placed("g", 2))
        assert await world.count_placed("rival") == await world.count_placed("held") == 0


@EACH
async def test_a_bind_that_is_refused_gives_the_reserved_room_to_nobody(scheduler: str) -> None:
    async with faulty() as (world, transport):
        await world.queue("full", capability={"cpu": "1"})
        transport.ways["POST", "/pods/p/binding"] = [refused(422, "Invalid")]
        await world.pod("p", scheduler=scheduler, queue="full")
        await until(lambda: world.says("p", "Unschedulable"))
        await world.pod("held", scheduler=scheduler, queue="full")
        await world.stays_held("held")
        await world.add_node("a", cpu="8")
        await until(lambda: world.is_bound("p"))
        assert not transport.ways["POST", "/pods/p/binding"]
        await world.stays_held("held")


@pytest.mark.promise("GATE-13")
async def test_the_room_of_a_pod_that_was_let_past_and_is_evicted_is_the_evicting_ones() -> None:
    async with embedded_cluster(kubelets=True) as cluster:
        await install(cluster)
        await cluster.add_priorities(low=1, high=100)
        async with process(cluster, PREEMPTING) as runtime:
            world = Installation(cluster, runtime)
            await world.queue("full", capability={"cpu": "2"})
            await cluster.add_node("a", cpu="2")
            low = {"priorityClassName": "low"}
            await add_group(cluster, "low", minMember=1, queue="full", **low)
            for number in range(2):
                await world.pod(f"low-{number}", group="low", queue="full", **low)
            await until(lambda: world.has_placed("low", 2))
            await world.stands("low-1", Standing.BOUND)
            high = {"priorityClassName": "high"}
            await add_group(cluster, "high", minMember=1, queue="full", **high)
            await world.ungated("high-0", group="high", queue="full", **high)
            await until(lambda: world.is_bound("high-0"))


@BOTH
@pytest.mark.promise("GATE-22")
async def test_one_of_higher_priority_waits_for_what_is_reserved_and_then_comes_first(scheduler: str) -> None:
    async with gated(cpu="1") as world:
        await world.add_priorities(low=1, high=100)
        low = {"priorityClassName": "low"}
        await world.pod("waits", scheduler=scheduler, queue="full", **NOWHERE, **low)
        await until(lambda: world.says("waits", "Unschedulable"))
        await world.pod("earlier", scheduler=scheduler, queue="full", **low)
        await world.pod("higher", scheduler=scheduler, queue="full", priorityClassName="high")
        await world.stays_held("earlier", "higher")
        await world.add_node("a", cpu="8")
        await world.stays_held("earlier", "higher")
        await world.end_pod("waits")
        await until(lambda: world.is_bound("higher"))
        await world.stays_held("earlier")


async def test_more_removals_than_are_sent_at_a_time_are_all_carried_out() -> None:
    async with gated(CONFIGURATION + "gateRemovalWorkerNum: 1\n", cpu="100") as world:
        for number in range(60):
            await world.pod(f"p-{number}", scheduler="agent-scheduler", queue="full")
        await until(lambda: world.all_let_past("p-", 60))


async def test_a_gang_whose_minimum_is_raised_keeps_the_room_that_it_has() -> None:
    async with gated(cpu="4") as world:
        await world.gated_gang("g", 2, queue="full")
        await until(lambda: world.all_let_past("g", 2))
        body = {"spec": {"minMember": 5}}
        await world.patch(f"{GROUP}/namespaces/default/podgroups/g", body)
        await world.pod("late", scheduler="agent-scheduler", queue="full", cpu="4")
        await world.stays_held("late")
        # With a third and fourth member it needs one more; with all five its queue is too small for the rest of them.
        for number in range(2, 5):
            await world.pod(f"g-{number}", group="g", queue="full")
        await world.stays_held("late", "g-2", "g-3", "g-4")
        for number in range(2):
            await world.stands(f"g-{number}", Standing.RESERVED)
        await world.set_capability("full", cpu="5")
        await until(lambda: world.all_let_past("g", 5))
        await world.stays_held("late")
        await world.add_node("a", cpu="8")
        await until(lambda: world.has_placed("g", 5))


async def test_a_gang_has_the_room_that_a_pod_of_the_fast_path_had_reserved_and_leaves_without_a_node() -> None:
    async with gated() as world:
        await world.add_node("a", cpu="8")
        await world.pod("first", scheduler="agent-scheduler", queue="full", **NOWHERE)
        await until(lambda: world.is_let_past("first"))
        await world.ungated("next", queue="full")
        await until(lambda: world.says("next", "QueueFull"))
        await world.rest()
        await world.end_pod("first")
        await until(lambda: world.is_bound("next"))


TAKE_AWAY = {"spec": {"schedulingGates": [{"name": QUEUE_ALLOCATION_GATE, "$patch": "delete"}]}}


def removals(transport: Faulty) -> int:
    return sum(each.startswith("PATCH ") and each.endswith("/pods/p") for each in transport.sent)


def binds(transport: Faulty) -> int:
    return sum(each.endswith("/pods/p/binding") for each in transport.sent)


@BOTH
@pytest.mark.promise("GATE-16", "S3")
async def test_no_bind_is_sent_for_a_pod_whose_gate_is_still_there(scheduler: str) -> None:
    async with faulty() as (world, transport):
        await world.add_node("a")
        transport.ways["PATCH", "/pods/p"] = [held := Held()]
        await world.pod("p", scheduler=scheduler)
        await held.came.wait()
        await world.stands("p", Standing.RESERVED)
        await world.rest()
        assert not binds(transport)
        held.go.set()
        await until(lambda: world.is_bound("p"))
        assert binds(transport) == 1 and removals(transport) == 1


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "in a task"])
@pytest.mark.parametrize(
    ("way", "sent"),
    [
        (refused(403, "Forbidden"), 2),
        (refused(409, "Conflict"), 2),
        (refused(422, "Invalid"), 2),
        (refused(500, "InternalError"), 2),
        (lost, 1),
    ],
)
@pytest.mark.promise("GATE-15")
async def test_a_removal_that_goes_wrong_is_sent_again_unless_it_was_carried_out(
    way: Way, sent: int, at_once: bool
) -> None:
    async with faulty(at_once=at_once) as (world, transport):
        await world.add_node("a")
        transport.ways["PATCH", "/pods/p"] = [way]
        await world.pod("p")
        await until(lambda: world.is_bound("p"))
        assert removals(transport) == sent and binds(transport) == 1


@pytest.mark.parametrize("status", [409, 422, None])
@pytest.mark.promise("GATE-16")
async def test_a_removal_before_which_others_have_removed_the_gate_is_the_last(status: int | None) -> None:
    """The request is refused, or carried out without effect."""
    async with faulty() as (world, transport):

        async def others_were_faster(send: Send) -> Response:
            await world.patch(f"{PODS}/p", TAKE_AWAY, STRATEGIC)
            answer: Response = await (send() if status is None else refused(status, "")(send))
            return answer

        await world.add_node("a")
        transport.ways["PATCH", "/pods/p"] = [others_were_faster]
        await world.pod("p")
        await until(lambda: world.is_bound("p"))
        assert removals(transport) == 1 and binds(transport) == 1


async def test_a_removal_for_a_pod_that_is_gone_ends_and_its_room_is_the_next_ones() -> None:
    async with faulty() as (world, transport):

        async def gone(send: Send) -> Response:
            await world.end_pod("p")
            answer: Response = await send()
            assert answer.status == 404
            return answer

        await world.add_node("a")
        await world.queue("full", capability={"cpu": "1"})
        transport.ways["PATCH", "/pods/p"] = [gone]
        await world.pod("p", queue="full")
        await until(lambda: not transport.ways["PATCH", "/pods/p"])
        await world.pod("next", queue="full")
        await until(lambda: world.is_bound("next"))
        assert removals(transport) == 1 and not binds(transport)


async def test_no_gate_of_others_can_come_between_and_one_that_is_there_before_keeps_ours() -> None:
    """The API server allows only the removal of gates."""
    async with faulty() as (world, transport):

        async def add_another(send: Send) -> Response:
            both = {"spec": {"schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}, {"name": OTHER}]}}
            answer = await world.call("PATCH", f"{PODS}/p", both, content_type=MERGE)
            assert answer.status == 422
            sent: Response = await send()
            return sent

        await world.add_node("a")
        transport.ways["PATCH", "/pods/p"] = [add_another]
        await world.pod("p")
        await until(lambda: world.is_bound("p"))
        await world.pod("both", gates=(OTHER, QUEUE_ALLOCATION_GATE))
        await world.stays_held("both")
        assert await world.is_gated_by("both", OTHER, QUEUE_ALLOCATION_GATE)
