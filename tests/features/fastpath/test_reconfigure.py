"""New settings while pods are being scheduled: no pod is lost, and refused ones are retried."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent_scheduler.engine.events.events import NODE_ADD
from agent_scheduler.engine.framework.plugin import Profile
from tests.support.embedded import embedded_cluster, until
from tests.support.running import scheduling
from tests.support.running import settings_from as settings


@pytest.mark.promise("L9")
async def test_a_pod_that_was_refused_is_tried_again_under_the_new_profile() -> None:
    relaxed = settings(
        "profiles: [{schedulerName: agent-scheduler, plugins: {filter: {disabled: [{name: NodeAffinity}]}}}]"
    )
    async with embedded_cluster() as cluster, scheduling(cluster.transport, settings()) as running:
        await cluster.add_node("n1")
        await cluster.add_pod("a", nodeSelector={"disk": "none"})
        await until(lambda: cluster.condition("a"))
        running.fast_path.reconfigure(relaxed)
        await until(cluster.placed)
        assert running.reports.counts["backoff RulesChanged"] == 1
        # The new profile is used from now on, whatever a view cached of the old one.
        await cluster.add_pod("b", nodeSelector={"disk": "none"})
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert running.reports.counts["after flush"] == 0


async def test_pods_of_a_profile_that_is_gone_are_let_go_and_those_of_a_new_one_taken_on() -> None:
    first, second = (settings(f"profiles: [{{schedulerName: {name}}}]") for name in ("first", "second"))
    async with embedded_cluster() as cluster, scheduling(cluster.transport, first) as running:
        await cluster.add_pod("a", scheduler="first")
        await cluster.add_pod("b", scheduler="second")
        await until(lambda: cluster.condition("a"))
        running.fast_path.reconfigure(second)
        await until(lambda: cluster.condition("b"))
        await cluster.add_node("n1")
        await until(cluster.placed)
        assert set(await cluster.placed()) == {"b"}
        assert running.fast_path.queue.pending() == (0, 0, 0, 0, 0)
        running.fast_path.reconfigure(first)
        await until(lambda: running.reports.attempts["scheduled"] == 2)
        assert set(await cluster.placed()) == {"a", "b"}


@pytest.mark.promise("L9")
async def test_no_pod_and_no_worker_is_lost_in_a_burst_of_changes() -> None:
    base = settings("workerCount: 4\nprofiles: [{schedulerName: agent-scheduler}, {schedulerName: other}]\n")
    fewer = settings("workerCount: 4\nconflictPolicy: strict\ncandidateNodeCount: 1\nmaxUrgentRetries: 0\n")
    async with embedded_cluster() as cluster, scheduling(cluster.transport, base) as running:
        for number in range(4):
            await cluster.add_node(f"n{number}", cpu="8")
        changing = True

        async def change() -> None:
            for turn in range(10_000):
                if not changing:
                    break
                running.fast_path.reconfigure(fewer if turn % 2 else base)
                running.fast_path.queue.check_invariants()
                await asyncio.sleep(0.002)

        changer = asyncio.create_task(change())
        names = [f"p{number}" for number in range(120)]
        for number, name in enumerate(names):
            await cluster.add_pod(name, scheduler="other" if number % 3 == 0 else "agent-scheduler")

        await until(lambda: running.reports.attempts["scheduled"] >= 80)
        changing = False
        await changer
        running.fast_path.reconfigure(base)
        await until(lambda: cluster.is_bound(*names))
        assert running.reports.failures == []
        workers = {name for name in running.reports.counts if name.startswith("worker ")}
        assert len(workers) == 4
        # Forty pods become ready at once: every remaining worker gets some.
        for number in range(40):
            await cluster.add_pod(f"after{number}", nodeSelector={"late": "yes"})
        await until(lambda: running.reports.attempts["unschedulable"] == 40)
        before = {name: running.reports.counts[name] for name in workers}
        await cluster.add_node("late", cpu="8", labels={"late": "yes"})
        await until(lambda: running.reports.attempts["scheduled"] == 160)
        assert all(running.reports.counts[name] > before[name] for name in workers)


class Broken:
    """A plugin whose events raise an error."""

    name = "Broken"

    def pre_enqueue(self, pod: object) -> str | None:
        return None

    def events_to_register(self) -> tuple[()]:
        raise RuntimeError("no events")


@pytest.mark.promise("L9")
async def test_settings_that_cannot_be_used_change_nothing() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport, settings()) as running:
        await cluster.add_pod("a")
        await until(lambda: cluster.condition("a"))
        profile: Profile = running.fast_path.settings.profiles[0]
        before = running.fast_path.settings
        broken = replace(before, profiles=(replace(profile, pre_enqueue=(Broken(),)),))
        with pytest.raises(RuntimeError, match="no events"):
            running.fast_path.reconfigure(broken)
        with pytest.raises(ValueError):
            running.fast_path.reconfigure(replace(before, initial_backoff=0.0, profiles=()))
        assert running.fast_path.settings is before
        assert running.fast_path.queue.pending().unschedulable == 1
        assert running.fast_path.queue.waker.hints.registered(NODE_ADD)
        await cluster.add_node("n1")
        await until(cluster.placed)


async def test_rates_follow_the_settings() -> None:
    async with embedded_cluster() as cluster, scheduling(cluster.transport, settings()) as running:
        await cluster.add_node("n1", cpu="64")
        running.fast_path.reconfigure(settings("clientConnection: {qps: 20, burst: 1}"))
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(11):
            await cluster.add_pod(f"p{number}")
        await until(lambda: running.reports.attempts["scheduled"] == 11)
        # Ten binds after the one of the burst; without the limit all would go at once.
        assert loop.time() - began >= 10 / 20 * 0.9
