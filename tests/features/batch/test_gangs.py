"""Installation from their objects to their binds, in a whole process on an embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agent_scheduler.binding.binder import Binder
from agent_scheduler.config.load import load_text
from kube_client.dispatch import Dispatcher
from kube_client.pace import Pace
from kube_client.transport import Response
from tests.support.batched import add_group
from tests.support.embedded import PODS, until
from tests.support.installation import CONFIGURATION, GROUP, faulty, installed, process
from tests.support.transports import Held, Send, failure


@pytest.mark.promise("S27")
async def test_a_gang_is_bound_whole_and_one_that_does_not_fit_waits_until_a_node_comes() -> None:
    async with installed() as world:
        cluster = world
        await cluster.add_node("a", cpu="4")
        await world.gang("fits", 3)
        await until(lambda: world.has_placed("fits", 3))
        await world.gang("large", 3, cpu="2")

        async def is_told() -> Any:
            conditions = (await world.group_status("large")).get("conditions") or []
            of_all = "3/3 tasks in gang unschedulable"
            return next(
                (each for each in conditions if each["type"] == "Unschedulable" and of_all in each["message"]), None
            )

        condition = await until(is_told)
        assert condition["reason"] == "NotEnoughResources"
        assert (await world.group_status("large"))["phase"] in ("Pending", "Inqueue")
        pod = await cluster.condition("large-0")
        assert pod is not None and (pod["status"], pod["reason"]) == ("False", "Unschedulable")
        sessions = await world.rest()
        assert await world.count_placed("large") == 0
        report = await world.fast_path.selfcheck.run()
        assert report.differences == () and not report.not_listed
        await asyncio.sleep(0.3)
        assert world.sessions == sessions, "a session was held though nothing had changed"

        await cluster.add_node("b", cpu="8")
        await until(lambda: world.has_placed("large", 3))

        async def is_held() -> bool:
            status = (await cluster.get(f"{GROUP}/queues/q"))["status"]
            return bool(status.get("allocated", {}).get("cpu") == "9" and status["state"] == "Open")

        await until(is_held)
        await until(lambda: world.is_in_phase("large", "Running"))


async def test_a_gang_that_nodes_refused_is_not_looked_at_again_for_the_sake_of_others() -> None:
    async with installed() as world:
        for name in ("a", "b", "c", "d"):
            await world.add_node(name, cpu="2")
        await world.gang("large", 2, cpu="3")
        await until(lambda: world.is_in_phase("large", "Inqueue"))
        await world.rest()
        await world.gang("small", 2)
        await until(lambda: world.has_placed("small", 2))
        await world.rest()
        batch = world.batch
        assert batch is not None and batch.last is not None
        session = batch.last.session
        assert {job.name for job in session.jobs.values()} == {"large", "small"}
        assert "large" not in {job.name for job in session.fresh}

        await world.add_node("e", cpu="6")
        await until(lambda: world.has_placed("large", 2))


@pytest.mark.promise("S28")
async def test_pods_of_both_schedulers_share_a_queue_and_it_is_never_above_its_capability() -> None:
    async with installed() as world:
        cluster = world
        await cluster.add_node("a", cpu="16")
        await world.queue("shared", capability={"cpu": "3"})
        await world.agent("agent", "shared")
        await until(lambda: world.has_placed("agent", 1))
        await world.gang("gang", 3, queue="shared")

        await until(lambda: cluster.condition("gang-0"))
        await world.rest()
        assert await world.count_placed("gang") == 0
        await cluster.end_pod("agent")
        await until(lambda: world.has_placed("gang", 3))
        await world.agent("late", "shared")

        await until(lambda: world.says("late", "QueueFull"))
        await cluster.end_pod("gang-1")
        await until(lambda: world.has_placed("late", 1))


async def test_what_one_process_has_begun_another_goes_on_with() -> None:
    async with installed() as world:
        await world.add_node("a", cpu="1")
        await world.gang("g", 2, minResources={"cpu": "1"})
        await until(lambda: world.is_in_phase("g", "Inqueue"))
        world.runtime.stop()
        async with process(world) as other:
            await world.add_node("b", cpu="1")
            await until(lambda: world.has_placed("g", 2))
            await until(lambda: world.is_in_phase("g", "Running"))
            assert other.batch is not None


async def test_one_write_reports_that_a_new_group_was_admitted_and_bound() -> None:
    async with faulty() as (world, transport):
        await world.add_node("a", cpu="8")
        for name in ("g", "h"):
            await world.gang(name, 3)
        await until(lambda: world.is_in_phase("g", "Running"))
        await until(lambda: world.is_in_phase("h", "Running"))
        await world.rest()
        written = [each for each in transport.sent if each.startswith("PATCH") and "/podgroups/" in each]
        assert len(written) == 2


async def test_the_admission_of_a_group_is_written_if_a_bind_fails() -> None:
    async with faulty() as (world, transport):
        held = Held()

        async def fails(_: Send) -> Response:
            await held(lambda: world.patch("/api/v1/nodes/a", {"spec": {"unschedulable": True}}))
            return failure(422, "Invalid")

        transport.ways["POST", "/pods/g-1/binding"] = [fails]
        await world.add_node("a")
        await world.gang("g", 2)
        await until(lambda: world.has_placed("g", 1))
        held.go.set()
        await until(lambda: world.is_in_phase("g", "Inqueue"))
        assert not await world.has_placed("g", 2)


async def test_the_admission_of_a_group_is_written_if_the_scheduler_stops() -> None:
    async with faulty() as (world, transport):
        held = Held()
        transport.ways["POST", "/pods/g-1/binding"] = [held]
        await world.add_node("a")
        await world.gang("g", 2)
        await held.came.wait()
        world.runtime.stop()
        held.go.set()
        await until(lambda: world.has_placed("g", 2))
        await until(lambda: world.is_in_phase("g", "Inqueue"))


@pytest.mark.parametrize("status", [{}, {"phase": "Pending"}], ids=["no status", "Pending"])
async def test_a_new_group_with_bound_members_was_admitted_by_an_earlier_process(status: dict[str, str]) -> None:
    """The queue has room for another member of the group, or for another group, which is before it in the order."""
    async with installed(full={"cpu": "2"}) as world:
        world.runtime.stop()
        await world.add_node("a")
        await add_group(world, "before", minMember=1, queue="full", minResources={"cpu": "1"})
        await world.member("before-0", "before")
        await world.gang("g", 2, queue="full", minResources={"cpu": "2"})
        await world.bind("g-0", "a")
        if status:
            await world.patch(f"{GROUP}/namespaces/default/podgroups/g", {"status": status})
        async with process(world):
            await until(lambda: world.has_placed("g", 2))
            await until(lambda: world.is_in_phase("g", "Running"))
            await until(lambda: world.says("before-0", "QueueFull"))


async def test_a_gang_has_a_claim_on_the_room_that_is_about_to_be_free_and_the_fast_path_leaves_it_alone() -> None:
    async with installed() as world:
        await world.add_node("a", cpu="2")
        await world.gang("old", 1, cpu="2")
        await until(lambda: world.has_placed("old", 1))
        await world.delete(f"{PODS}/old-0")
        await world.gang("g", 1, cpu="2")
        fast_path = world.fast_path
        nominated = fast_path.queue.nominator.nominated
        await until(lambda: list(nominated.values()) == ["a"])
        await world.add_pod("p", cpu="1")
        await until(lambda: world.condition("p"))
        await world.end_pod("old-0")
        await until(lambda: world.has_placed("g", 1))
        await until(lambda: not nominated)
        assert not await world.count_placed("p")


async def test_actions_are_others_from_the_next_session_on() -> None:
    without = CONFIGURATION.replace("schedulePeriod", 'actions: "enqueue, backfill", schedulePeriod')
    async with installed(without) as world:
        await world.add_node("a")
        await world.gang("g", 2)
        await world.rest()
        assert await world.count_placed("g") == 0
        world.runtime._apply(load_text(CONFIGURATION))
        await until(lambda: world.has_placed("g", 2))


async def test_all_that_is_written_of_gangs_asks_one_pace_which_knows_that_agents_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, bool] = {}
    paces = set()
    admits = Pace.admits

    def noted(self: Pace, go_on: Callable[[], object], waiting: int) -> bool:
        owner = getattr(go_on, "__self__", None)
        what = owner._send.__qualname__ if isinstance(owner, Dispatcher) else type(owner).__name__
        asked[what] = asked.get(what, False) or self.others_come
        paces.add(self)
        return admits(self, go_on, waiting)

    monkeypatch.setattr(Pace, "admits", noted)
    async with installed() as world:
        await world.add_node("a", cpu="8")
        await world.gang("large", 3, cpu="6")
        await until(lambda: "StatusWriter._write" in asked)
        assert not any(asked.values()), "there is no agent yet"
        await world.agent("agent", "q")
        await world.gang("fits", 3)
        await until(lambda: world.is_in_phase("fits", "Running"))
        fast_path = world.fast_path
        assert fast_path is not None and paces == {fast_path.binder.pace}
        kinds = {"GroupStatuses._write", "QueueStatuses._write", "EventRecorder._tell", "StatusWriter._write"}
        assert asked.keys() == {Binder.__name__, *kinds}
        assert asked[Binder.__name__] and asked["EventRecorder._tell"]
