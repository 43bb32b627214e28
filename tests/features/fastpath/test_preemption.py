"""Preemption: the writes, their order, and their failures.

Then several preemptions at a time, and the effects of an end of one on other pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.binding.preemption import PreemptionGate
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.state.podinfo import PodInfo
from kube_client.transport import Response
from tests.support.embedded import PODS, EmbeddedCluster, until
from tests.support.objects import container
from tests.support.running import settings_from
from tests.support.transports import Through

from .preempting import HIGHEST, PATIENT, TERMINATING, HeldEvictions, Refusing, full, show_nobody_leaving

SHORT = {"initial_backoff": 0.01, "max_backoff": 0.01}


@pytest.mark.promise("S14", "S15")
async def test_victims_are_told_why_and_deleted_and_the_pod_takes_their_room() -> None:
    async with full(pods=2, initial_backoff=0.05) as world:
        cluster = world.cluster
        await world.add("high")
        await until(lambda: world.reports.counts["victims"] == 2)
        assert await world.victims(2) == {"low-0", "low-1"}
        for name in ("low-0", "low-1"):
            conditions = (await cluster.pod(name))["status"]["conditions"]
            (target,) = [each for each in conditions if each["type"] == "DisruptionTarget"]
            assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
            assert target["message"] == "agent-scheduler: preempting to accommodate a higher priority pod"
        assert await until(lambda: world.nominated("high")) == "n1"
        condition = await cluster.condition("high")
        assert condition is not None
        assert condition["message"] == "0/1 nodes are available: 1 Insufficient cpu."
        for name in ("low-0", "low-1"):
            await cluster.end_pod(name)
        assert await world.node_of("high") == "n1"
        events = await cluster.items("/apis/events.k8s.io/v1/namespaces/default/events")
        told = {
            (each["regarding"]["name"], each["type"], each["action"], each["note"])
            for each in events
            if each["reason"] == "Preempted"
        }
        uid = await world.uid("high")
        assert told == {
            (name, "Normal", "Preempting", f"Preempted by pod {uid} on node n1") for name in ("low-0", "low-1")
        }
        assert world.reports.failures == []


@pytest.mark.promise("S14")
async def test_nobody_else_is_evicted_while_victims_are_leaving() -> None:
    async with full("a", "b", pods=2, **SHORT) as world:
        await world.add("high")
        first, second = sorted(await world.victims(2))
        # One of two has ended: that is an event, and there is no room yet.
        await world.cluster.end_pod(first)
        await until(lambda: world.cluster.says_text("high", TERMINATING))
        assert await world.cluster.leaving() == {second}
        assert world.reports.counts["victims"] == 2
        await world.cluster.end_pod(second)
        assert await world.node_of("high")
        assert len(await world.cluster.placed()) == 3


@pytest.mark.promise("S16")
async def test_the_room_is_kept_from_pods_of_lower_priority_and_not_from_higher_ones() -> None:
    async with full(**PATIENT) as world:
        await world.add("high")
        await until(lambda: world.nominated("high"))
        await world.victims()
        await world.cluster.end_pod("low-0")
        await world.settled(0)
        # The room is free, and the pod for which it is reserved is in backoff.
        await world.cluster.add_pod("plain", cpu="1")
        await until(lambda: world.cluster.says_text("plain", "0/1 nodes are available: 1 Insufficient cpu."))
        await world.add("higher", cpu="1", priority=HIGHEST)
        assert await world.node_of("higher")


@pytest.mark.promise("L8")
async def test_an_eviction_that_is_refused_ends_the_nomination() -> None:
    async with full(through=Refusing, **PATIENT) as world:
        await world.add("high")
        await until(lambda: world.reports.problems)
        assert "default/low-0: 403" in world.reports.problems[0]
        queue = world.queue
        await until(lambda: queue.pending().unschedulable == 1 and not queue.nominator.nominated)
        await until(lambda: not len(world.running.fast_path._messages.status))
        assert await world.nominated("high") is None
        assert await world.cluster.leaving() == set()
        assert world.transport.deletions == 1


class Forestalling(Through):
    """Deletes each victim, like another client, just before its eviction."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(cluster.transport)
        self._cluster = cluster
        self.gone = ""

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if b"PreemptionByScheduler" in (more.get("body") or b"") and not self.gone:
            self.gone = path.removesuffix("/status").rpartition("/")[2]
            await self._cluster.end_pod(self.gone)
        return await super().request(method, path, **more)


async def test_of_a_victim_that_was_gone_before_its_eviction_nobody_says_that_it_was_preempted() -> None:
    async with full(through=Forestalling) as world:
        await world.add("high")
        assert await world.node_of("high") == "n1"
        assert world.transport.gone == "low-0"
        await world.running.stop(grace=5.0)
        events = await world.cluster.items("/apis/events.k8s.io/v1/namespaces/default/events")
        reasons = {(each["regarding"]["name"], each["reason"]) for each in events}
        assert ("high", "Scheduled") in reasons and ("low-0", "Preempted") not in reasons


class ThreeShortBackoffs:
    def delay(self, failed: int, _rng: Callable[[], float]) -> float:
        return 0.05 if failed <= 3 else 60.0


async def test_victims_are_tried_again_after_a_rest_in_which_the_pod_may_go_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_scheduler.binding.preemption._EVICTION_BACKOFF", ThreeShortBackoffs())
    async with full(through=Refusing, initial_backoff=0.05, max_backoff=0.05) as world:
        await world.add("high")
        await until(lambda: world.transport.deletions == 4 and world.preemption._backing_off)
        deletions, attempts = world.transport.deletions, world.reports.attempts["unschedulable"]
        await world.cluster.add_node("small", cpu="1")
        world.queue.activate(tuple(world.preemption._backing_off))
        await until(lambda: world.reports.attempts["unschedulable"] > attempts)
        assert world.transport.deletions == deletions
        await world.cluster.add_node("n2", cpu="2")
        assert await world.node_of("high") == "n2"
        assert world.reports.failures == []


async def test_victims_that_the_watch_has_not_shown_to_be_leaving_count_as_leaving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    show_nobody_leaving(monkeypatch)
    async with full("a", "b", **SHORT) as world:
        await world.add("high")
        await world.victims()
        await until(lambda: not world.preemption._gate.gated)
        world.queue.activate((await world.uid("high"),))
        await until(lambda: world.cluster.says_text("high", TERMINATING))
        assert world.reports.counts["victims"] == 1


class SilentAfterEviction(Through):
    """A transport whose watches of pods deliver nothing after an eviction, and do not end, either."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(cluster.transport)
        self.deletions = 0

    async def request(self, method: str, path: str, **more: Any) -> Response:
        # A watch that begins after the answer does not deliver its event.
        self.deletions += method == "DELETE"
        return await super().request(method, path, **more)

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[Any]:
        begun = self.deletions
        async with self.inner.stream(path, read_timeout=read_timeout) as batches:

            async def wait_for_change() -> AsyncIterator[Any]:
                async for lines in batches:
                    if "/pods" in path and self.deletions > begun:
                        await asyncio.Event().wait()
                    yield lines

            yield wait_for_change()


@pytest.mark.promise("S14")
async def test_nobody_else_is_evicted_while_the_watch_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.binding.preemption._SEEN_WITHIN", 0.05)
    async with full("a", "b", through=SilentAfterEviction, **SHORT) as world:
        await world.add("high")
        await until(lambda: world.transport.deletions)
        (victim,) = await world.victims()
        await world.cluster.end_pod(victim)
        await world.node_of("high")
        assert world.transport.deletions == 1
        assert world.reports.counts["victims"] == 1


@pytest.mark.promise("S15")
@pytest.mark.parametrize("late", [False, True], ids=["", "the watch delivers an older nomination"])
async def test_evictions_for_a_pod_whose_node_a_more_important_one_took_are_called_off(late: bool) -> None:
    async with full() as world:
        held = HeldEvictions(world)
        await world.add("high")
        await until(lambda: held.begun == 1)
        if late:
            # An earlier status that arrives late has this effect on the nominator.
            world.queue.nominator.delete(await world.uid("high"))
        await world.add("higher", priority=HIGHEST)
        await until(lambda: held.begun == 2)
        held.go.set()
        await until(lambda: held.results == {0: "called off", 1: "deleted"})


@pytest.mark.promise("S15")
async def test_a_pod_that_is_gone_has_nobody_evicted() -> None:
    async with full(pods=2) as world:
        held = HeldEvictions(world)
        await world.add("high", cpu="1")
        await until(lambda: held.begun)
        await world.cluster.ask("DELETE", f"{PODS}/high")
        pods = world.running.fast_path.cluster.pods
        await until(lambda: all(pod.name != "high" for pod in pods.values()))
        held.go.set()
        await until(lambda: held.results == {0: "called off"})
        assert await world.cluster.leaving() == set()


#: A profile without preemption.
WITHOUT = "profiles: [{plugins: {postFilter: {disabled: [{name: DefaultPreemption}]}}}]"


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
        # Another pod takes the port, so that the room alone does not help.
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
        # A pod of higher priority takes the free half, so that the other half is not enough, and no victim is
        # left.
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
        # A new leader finds a pod that the last leader nominated, with a pod evicted for it.
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
    pre_enqueue = PreemptionGate.pre_enqueue

    def counted(gate: PreemptionGate, pod: PodInfo) -> str | None:
        asked.append(pod.name)
        return pre_enqueue(gate, pod)

    monkeypatch.setattr(PreemptionGate, "pre_enqueue", counted)
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
        # After the first end it is refused; then it is behind its gate.
        assert asked == ["high"]
        assert world.queue.where(await world.uid("high")) is Place.GATED
        held.go.set()
        await world.victims()
        await world.cluster.end_pod("low-0")
        assert await world.node_of("high")
