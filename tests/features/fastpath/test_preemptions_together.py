"""Several preemptions at a time, and what an end of one means for other pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_scheduler.binding.preemption import Gate
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.config.load import load_text
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.fastpath.settings import FastPathSettings, settings_of
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling

from .test_preemption import HIGH, HIGHEST, TERMINATING, Refusing, end, full_node, leaving, object_of, settled

PATIENT = {"initial_backoff": 60.0, "max_backoff": 60.0, "pop_from_backoff": False}


def without_preemption() -> FastPathSettings:
    header = "apiVersion: agent-scheduler/v1\nkind: SchedulerConfiguration\n"
    off = "plugins: {postFilter: {disabled: [{name: DefaultPreemption}]}}"
    text = f"{header}profiles: [{{schedulerName: agent-scheduler, {off}}}]"
    return settings_of(load_text(text), identity="test")


def uid_of(running: Running, name: str) -> str:
    (uid,) = [uid for uid, pod in running.fast_path.cluster.pods.items() if pod.name == name]
    return uid


async def is_leaving(cluster: EmbeddedCluster) -> bool:
    return bool(await leaving(cluster))


async def _placed(cluster: EmbeddedCluster, name: str) -> bool:
    return name in await cluster.placed()


async def test_room_is_given_on_when_the_pod_that_it_was_kept_for_is_deleted() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport, **PATIENT) as running:
            await settled(running, 1)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: is_leaving(cluster))
            await end(cluster, "low-0")
            await settled(running, 0)
            await cluster.add_pod("low", cpu="1")
            await until(lambda: cluster.condition("low"))
            low = uid_of(running, "low")
            assert running.fast_path.queue.where(low) == "unschedulable"
            await cluster.ask("DELETE", f"{PODS}/high?gracePeriodSeconds=0")
            await until(lambda: running.fast_path.queue.where(low) == "backoff")


async def test_evictions_are_called_off_though_the_watch_tells_of_an_older_nomination() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport) as running:
            await settled(running, 1)
            preemption, free = running.fast_path.preemption, asyncio.Event()
            evict, outcomes = preemption._evict, {}

            async def slow(victim: Any, *, wanted: Any, **more: Any) -> Any:
                who = "higher" if outcomes else "high"
                outcomes[who] = None
                await free.wait()
                outcomes[who] = await evict(victim, wanted=wanted, **more)
                return outcomes[who]

            preemption._evict = slow  # type: ignore[method-assign, assignment]
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: "high" in outcomes)
            # What the nominator does when an earlier status comes late.
            running.fast_path.queue.nominator.delete(uid_of(running, "high"))
            await cluster.add_pod("higher", cpu="2", priorityClassName=HIGHEST)
            await until(lambda: "higher" in outcomes)
            free.set()
            await until(lambda: all(outcomes.values()))
            told = {who: outcome.value for who, (outcome, _) in outcomes.items()}
            assert told == {"high": "called off", "higher": "deleted"}


async def test_a_victim_of_two_counts_as_leaving_when_one_eviction_is_called_off(monkeypatch: Any) -> None:
    set_pod = Cluster.set_pod

    def late(self: Cluster, pod: PodInfo) -> None:
        if not pod.deleting and not pod.preempted:
            set_pod(self, pod)

    monkeypatch.setattr(Cluster, "set_pod", late)
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport) as running:
            await settled(running, 1)
            preemption, free, held = running.fast_path.preemption, asyncio.Event(), []
            evict = preemption._evict

            async def slow_at_first(victim: Any, **more: Any) -> Any:
                if not held:
                    held.append(victim)
                    await free.wait()
                return await evict(victim, **more)

            preemption._evict = slow_at_first  # type: ignore[method-assign, assignment]
            victim = uid_of(running, "low-0")
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: held)
            await cluster.add_pod("higher", cpu="2", priorityClassName=HIGHEST)
            await until(lambda: is_leaving(cluster))
            await until(lambda: uid_of(running, "higher") not in preemption._gate.gated)
            free.set()
            await until(lambda: not preemption._gate.gated)
            assert list(preemption._unseen()) == [victim]


async def test_a_profile_that_preempts_no_more_ends_the_nominations_of_its_pods() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport, initial_backoff=0.05, max_backoff=0.05) as running:
            await settled(running, 1)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: is_leaving(cluster))
            running.fast_path.reconfigure(without_preemption())
            await until(lambda: not running.fast_path.queue.nominator.nominated)

            async def is_told() -> bool:
                return "nominatedNodeName" not in (await object_of(cluster, "high"))["status"]

            await until(is_told)


async def test_failures_are_not_remembered_of_pods_that_found_room_since() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        transport = Refusing(cluster, 403)
        async with scheduling(transport, initial_backoff=0.05, max_backoff=0.05) as running:  # type: ignore[arg-type]
            await settled(running, 1)
            failed = running.fast_path.preemption._failed
            await cluster.add_pod("first", cpu="2", priorityClassName=HIGH)
            await until(lambda: failed)
            first = uid_of(running, "first")
            await cluster.add_node("n2", cpu="2")
            await until(lambda: _placed(cluster, "first"))
            await cluster.add_pod("second", cpu="2", priorityClassName=HIGHEST)
            second = await until(lambda: _uid(running, "second"))
            await until(lambda: second in failed)
            assert first not in failed


async def _uid(running: Running, name: str) -> str:
    found = [uid for uid, pod in running.fast_path.cluster.pods.items() if pod.name == name]
    return found[0] if found else ""


async def test_what_is_not_yet_evicted_is_not_when_the_profile_preempts_no_more() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport, initial_backoff=0.05, max_backoff=0.05) as running:
            await settled(running, 1)
            preemption, free, outcomes = running.fast_path.preemption, asyncio.Event(), []
            evict = preemption._evict

            async def slow(victim: Any, **more: Any) -> Any:
                await free.wait()
                outcomes.append(await evict(victim, **more))
                return outcomes[-1]

            preemption._evict = slow  # type: ignore[method-assign, assignment]
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: preemption._under_way)
            running.fast_path.reconfigure(without_preemption())
            await until(lambda: not running.fast_path.queue.nominator.nominated)
            free.set()
            await until(lambda: not preemption._gate.gated)
            assert [outcome.value for outcome, _ in outcomes] == ["called off"]
            assert not running.fast_path.queue.nominator.nominated
            assert await leaving(cluster) == set()


async def test_a_pod_that_waits_for_its_victims_is_tried_at_their_end_whatever_refused_it() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport, initial_backoff=0.05, max_backoff=0.05) as running:
            await settled(running, 1)
            ports = [{"containerPort": 80, "hostPort": 8080}]
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}, "ports": ports}
            await cluster.add_pod("high", containers=[container], priorityClassName=HIGH)
            await until(lambda: is_leaving(cluster))
            # Somebody else takes the port, so that the room alone is of no use.
            other = {**container, "resources": {}}
            await cluster.add_pod("other", containers=[other], priorityClassName=HIGHEST, scheduler="other")
            await cluster.bind("other", "n1")
            await settled(running, 2)
            await until(lambda: not running.fast_path.preemption._gate.gated)
            high = await until(lambda: _uid(running, "high"))
            running.fast_path.queue.activate((high,))
            await until(lambda: _waits_for_victims(cluster, "high"))
            await end(cluster, "low-0")
            await until(lambda: not running.fast_path.queue.nominator.nominated)


@pytest.mark.promise("L8")
async def test_a_nomination_ends_with_its_victims_if_others_took_the_room_beside_them() -> None:
    async with embedded_cluster() as cluster:
        await cluster.add_node("n1", cpu="2")
        await cluster.add_pod("low", cpu="1")
        await cluster.bind("low", "n1")
        async with scheduling(cluster.transport, initial_backoff=0.05, max_backoff=0.05) as running:
            await settled(running, 1)
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: is_leaving(cluster))
            # The half that was free goes to one who may take it, so that the other half is not enough, and nobody is
            # left who could be evicted.
            await cluster.add_pod("higher", cpu="1", priorityClassName=HIGHEST, scheduler="other")
            await cluster.bind("higher", "n1")
            await settled(running, 2)
            await until(lambda: not running.fast_path.preemption._gate.gated)
            await end(cluster, "low")
            await until(lambda: not running.fast_path.queue.nominator.nominated)
            assert await until(lambda: _is_nominated_no_more(cluster, "high"))


async def _is_nominated_no_more(cluster: EmbeddedCluster, name: str) -> bool:
    return not (await object_of(cluster, name))["status"].get("nominatedNodeName")


async def _waits_for_victims(cluster: EmbeddedCluster, name: str) -> bool:
    condition = await cluster.condition(name)
    return (
        condition is not None and "free ports" in condition["message"] and TERMINATING in condition["message"]
    )


async def test_pods_that_wait_for_victims_of_another_one_are_tried_when_these_stay() -> None:
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport, **PATIENT) as running:
            await settled(running, 1)
            fast_path, free, held = running.fast_path, asyncio.Event(), []
            evict = fast_path.preemption._evict

            async def slow_at_first(victim: Any, **more: Any) -> Any:
                if not held:
                    held.append(victim)
                    await free.wait()
                return await evict(victim, **more)

            fast_path.preemption._evict = slow_at_first  # type: ignore[method-assign, assignment]
            await cluster.add_pod("first", cpu="2", priorityClassName=HIGH)
            await until(lambda: held)
            # As a new leader finds it: nominated by the one before, which had somebody evicted for it.
            await cluster.add_pod("second", cpu="1", priorityClassName=HIGH)
            second = await until(lambda: _uid(running, "second"))
            await until(lambda: fast_path.queue.where(second) == "unschedulable")
            fast_path.queue.nominate(fast_path.cluster.pods[second], "n1")
            fast_path.queue.activate((second,))
            await until(lambda: _waits(cluster, "second"))
            await cluster.ask("DELETE", f"{PODS}/first?gracePeriodSeconds=0")
            await until(lambda: all(pod.name != "first" for pod in fast_path.cluster.pods.values()))
            attempts = running.reports.attempts["unschedulable"]
            free.set()
            await until(lambda: running.reports.attempts["unschedulable"] > attempts)
            await until(lambda: is_leaving(cluster))


async def _waits(cluster: EmbeddedCluster, name: str) -> bool:
    condition = await cluster.condition(name)
    return condition is not None and TERMINATING in condition["message"]


async def test_ends_of_others_are_not_put_to_pods_whose_victims_are_being_evicted(monkeypatch: Any) -> None:
    asked: list[str] = []
    pre_enqueue = Gate.pre_enqueue

    def counted(gate: Gate, pod: PodInfo) -> str | None:
        asked.append(pod.name)
        return pre_enqueue(gate, pod)

    monkeypatch.setattr(Gate, "pre_enqueue", counted)
    async with embedded_cluster() as cluster:
        await full_node(cluster, pods=1)
        async with scheduling(cluster.transport) as running:
            await settled(running, 1)
            preemption, free = running.fast_path.preemption, asyncio.Event()
            evict = preemption._evict

            async def slow(victim: Any, **more: Any) -> Any:
                await free.wait()
                return await evict(victim, **more)

            preemption._evict = slow  # type: ignore[method-assign, assignment]
            await cluster.add_pod("high", cpu="2", priorityClassName=HIGH)
            await until(lambda: preemption._under_way)
            await cluster.add_node("n2", cpu="1")
            for number in range(3):
                await cluster.add_pod(f"other-{number}", cpu="300m", scheduler="other")
                await cluster.bind(f"other-{number}", "n2")
            await settled(running, 4)
            asked.clear()
            for number in range(3):
                await end(cluster, f"other-{number}")
                await settled(running, 3 - number)
            # The first end finds it refused; then it is behind its gate.
            assert asked == ["high"]
            assert running.fast_path.queue.where(uid_of(running, "high")) is Place.GATED
            free.set()
            await until(lambda: is_leaving(cluster))
            await end(cluster, "low-0")
            assert await until(lambda: _placed(cluster, "high"))
