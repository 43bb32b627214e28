"""A plugin of a user's own that keeps something for pods which were let past the gate of their queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, QUEUE_NAME, queue_path
from agent_scheduler.plugin import CleanupReservations, PluginArgs, PodInfo, PreEnqueue
from tests.support.batched import add_queue, install
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.objects import pod
from tests.support.running import Running, profile_of, scheduling


class Budget(PreEnqueue, CleanupReservations):
    """As docs/plugins.md has it."""

    name = "Budget"

    def __init__(self, _args: PluginArgs) -> None:
        self.kept: set[str] = set()
        self.ended: list[str] = []
        self.fails = False

    def concerns(self, pod: PodInfo) -> bool:
        return pod.batch is not None and pod.batch.gate_managed

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        if not pod.gates:
            self.kept.add(pod.name)
        return None

    def cleanup_reservations(self, pod: PodInfo) -> None:
        self.kept.discard(pod.name)
        self.ended.append(pod.name)
        if self.fails:
            raise LookupError(pod.name)


@pytest.fixture
def plugin() -> Budget:
    return Budget(PluginArgs())


@asynccontextmanager
async def queue_of_one(plugin: Budget, **settings: Any) -> AsyncIterator[tuple[EmbeddedCluster, Running]]:
    """A queue with room for one pod, and a fast path with the plugin."""
    profile = profile_of(plugin, points=("preEnqueue",), origin="budget 1.0")
    async with embedded_cluster() as cluster:
        await install(cluster)
        await add_queue(cluster, "q", capability={"cpu": "1"})
        await cluster.merge(f"{queue_path('q')}/status", {"status": {"state": "Open"}})
        async with scheduling(cluster.transport, profiles=(profile,), **settings) as running:
            yield cluster, running


async def gated_pod(cluster: EmbeddedCluster, name: str, **spec: Any) -> None:
    annotations = {QUEUE_ALLOCATION_GATE: "true", QUEUE_NAME: "q"}
    await cluster.ask(
        "POST", PODS, pod(name, cpu="1", annotations=annotations, gates=[QUEUE_ALLOCATION_GATE], **spec)
    )


async def test_a_plugin_is_told_once_that_a_reservation_has_ended_whatever_ends_it(plugin: Budget) -> None:
    async with queue_of_one(plugin) as (cluster, _running):
        await gated_pod(cluster, "gone", nodeSelector={"not": "there"})
        await until(lambda: plugin.kept == {"gone"})
        await gated_pod(cluster, "held")
        await cluster.end_pod("gone")
        await until(lambda: plugin.kept == {"held"})
        assert plugin.ended == ["gone"]
        await cluster.add_node("n0")
        await until(lambda: plugin.ended == ["gone", "held"])
        assert not plugin.kept and "held" in await cluster.placed()
        await cluster.end_pod("held")

        await gated_pod(cluster, "last")
        await until(lambda: plugin.ended == ["gone", "held", "last"])


async def test_a_plugin_is_told_that_room_was_given_back_that_was_held_for_too_long(plugin: Budget) -> None:
    async with queue_of_one(plugin, reservation_timeout=0.2) as (cluster, _running):
        await gated_pod(cluster, "waits", nodeSelector={"not": "there"})
        await until(lambda: plugin.ended == ["waits"])
        await cluster.end_pod("waits")
        await gated_pod(cluster, "next", nodeSelector={"not": "there"})
        await until(lambda: plugin.ended == ["waits", "next"])


async def test_a_plugin_that_raises_then_keeps_nobody_from_the_room(plugin: Budget) -> None:
    plugin.fails = True
    async with queue_of_one(plugin) as (cluster, running):
        await gated_pod(cluster, "gone", nodeSelector={"not": "there"})
        await until(lambda: plugin.kept == {"gone"})
        await gated_pod(cluster, "held", nodeSelector={"not": "there"})
        await cluster.end_pod("gone")
        await until(lambda: plugin.kept == {"held"})
        (failure,) = running.reports.failures
        assert "plugin Budget (from budget 1.0): cleanup_reservations raised LookupError" in str(failure)
