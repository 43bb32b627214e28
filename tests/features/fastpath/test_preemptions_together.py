"""Several preemptions at a time, and what an end of one means for other pods."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.binding.preemption import Gate
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.embedded import until
from tests.support.objects import container
from tests.support.running import settings_from

from .preempting import HIGHEST, PATIENT, TERMINATING, HeldEvictions, Refusing, full, show_nobody_leaving

#: A profile without preemption.
WITHOUT = "profiles: [{plugins: {postFilter: {disabled: [{name: DefaultPreemption}]}}}]"
SHORT = {"initial_backoff": 0.05, "max_backoff": 0.05}


@pytest.mark.promise("L8")
async def test_room_is_given_on_when_the_pod_that_it_was_kept_for_is_deleted() -> None:
    async with full(**PATIENT) as world:
        await world.add("high")
        await world.victims()
        await world.cluster.end_pod("low-0")
        await world.settled(0)
        await world.cluster.add_pod("low", cpu="1")
        await until(lambda: world.cluster.condition("low"))
        low = await world.uid("low")
        assert world.queue.where(low) == "unschedulable"
        await world.cluster.end_pod("high")
        await until(lambda: world.queue.where(low) == "backoff")


async def test_a_victim_of_two_counts_as_leaving_when_one_eviction_is_called_off(monkeypatch: Any) -> None:
    show_nobody_leaving(monkeypatch)
    async with full() as world:
        preemption, held = world.preemption, HeldEvictions(world, first=True)
        victim = await world.uid("low-0")
        await world.add("high")
        await until(lambda: held.begun)
        await world.add("higher", priority=HIGHEST)
        await world.victims()
        higher = await world.uid("higher")
        await until(lambda: higher not in preemption._gate.gated)
        held.go.set()
        await until(lambda: not preemption._gate.gated)
        assert list(preemption._unseen()) == [victim]


@pytest.mark.promise("L8")
async def test_a_profile_that_preempts_no_more_ends_the_nominations_of_its_pods() -> None:
    async with full(**SHORT) as world:
        await world.add("high")
        await world.victims()
        world.running.fast_path.reconfigure(settings_from(WITHOUT))
        await until(lambda: not world.queue.nominator.nominated)
        await until(lambda: world.is_not_nominated("high"))


async def test_failures_are_not_remembered_of_pods_that_found_room_since() -> None:
    async with full(through=Refusing, **SHORT) as world:
        failed = world.preemption._failed
        await world.add("first")
        await until(lambda: failed)
        first = await world.uid("first")
        await world.cluster.add_node("n2", cpu="2")
        await world.node_of("first")
        await world.add("second", priority=HIGHEST)
        second = await world.uid("second")
        await until(lambda: second in failed)
        assert first not in failed


@pytest.mark.promise("S15")
async def test_what_is_not_yet_evicted_is_not_when_the_profile_preempts_no_more() -> None:
    async with full(**SHORT) as world:
        held = HeldEvictions(world)
        await world.add("high")
        await until(lambda: world.preemption._under_way)
        world.running.fast_path.reconfigure(settings_from(WITHOUT))
        await until(lambda: not world.queue.nominator.nominated)
        held.go.set()
        await until(lambda: not world.preemption._gate.gated)
        assert held.results == {0: "called off"}
        assert not world.queue.nominator.nominated
        assert await world.cluster.leaving() == set()


async def test_a_pod_that_waits_for_its_victims_is_tried_at_their_end_whatever_refused_it() -> None:
    port = {"containerPort": 80, "hostPort": 8080}
    async with full(**SHORT) as world:
        await world.add("high", containers=[container(requests={"cpu": "2"}, ports=[port])])
        await world.victims()
        # Somebody else takes the port, so that the room alone is of no use.
        await world.run("other", "n1", containers=[container(ports=[port])], priorityClassName=HIGHEST)
        await until(lambda: not world.preemption._gate.gated)
        world.queue.activate((await world.uid("high"),))
        await until(lambda: world.cluster.says_text("high", "free ports", TERMINATING))
        await world.cluster.end_pod("low-0")
        await until(lambda: not world.queue.nominator.nominated)


@pytest.mark.promise("L8")
async def test_a_nomination_ends_with_its_victims_if_others_took_the_room_beside_them() -> None:
    async with full(pods=0, **SHORT) as world:
        await world.run("low", "n1", cpu="1")
        await world.add("high")
        await world.victims()
        # The half that was free goes to one who may take it, so that the other half is not enough, and nobody is
        # left who could be evicted.
        await world.run("higher", "n1", cpu="1", priorityClassName=HIGHEST)
        await until(lambda: not world.preemption._gate.gated)
        await world.cluster.end_pod("low")
        await until(lambda: not world.queue.nominator.nominated)
        await until(lambda: world.is_not_nominated("high"))


@pytest.mark.promise("L8")
async def test_pods_that_wait_for_victims_of_another_one_are_tried_when_these_stay() -> None:
    async with full(**PATIENT) as world:
        fast_path, queue, held = world.running.fast_path, world.queue, HeldEvictions(world, first=True)
        await world.add("first")
        await until(lambda: held.begun)
        # As a new leader finds it: nominated by the one before, which had somebody evicted for it.
        await world.add("second", cpu="1")
        second = await world.uid("second")
        await until(lambda: queue.where(second) == "unschedulable")
        queue.nominate(fast_path.cluster.pods[second], "n1")
        queue.activate((second,))
        await until(lambda: world.cluster.says_text("second", TERMINATING))
        await world.cluster.end_pod("first")
        await until(lambda: all(pod.name != "first" for pod in fast_path.cluster.pods.values()))
        attempts = world.reports.attempts["unschedulable"]
        held.go.set()
        await until(lambda: world.reports.attempts["unschedulable"] > attempts)
        await world.victims()


async def test_ends_of_others_are_not_put_to_pods_whose_victims_are_being_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    pre_enqueue = Gate.pre_enqueue

    def counted(gate: Gate, pod: PodInfo) -> str | None:
        asked.append(pod.name)
        return pre_enqueue(gate, pod)

    monkeypatch.setattr(Gate, "pre_enqueue", counted)
    async with full() as world:
        held = HeldEvictions(world)
        await world.add("high")
        await until(lambda: world.preemption._under_way)
        await world.cluster.add_node("n2", cpu="1")
        for number in range(3):
            await world.run(f"other-{number}", "n2", cpu="300m")
        asked.clear()
        for number in range(3):
            await world.cluster.end_pod(f"other-{number}")
            await world.settled(3 - number)
        # The first end finds it refused; then it is behind its gate.
        assert asked == ["high"]
        assert world.queue.where(await world.uid("high")) is Place.GATED
        held.go.set()
        await world.victims()
        await world.cluster.end_pod("low-0")
        assert await world.node_of("high")
