"""A plugin of a user's own that keeps something for pods which were let past the gate of their queue."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.framework.points import MULTI_POINT, Enabled, PluginSet
from agent_scheduler.engine.profiles.profiles import REGISTRY, ProfileSpec, build_profile
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, QUEUE_NAME
from agent_scheduler.plugin import CleanupReservations, PluginArgs, PodInfo, PreEnqueue, Registration
from tests.support.batched import add_queue, install
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.running import scheduling

PODS = "/api/v1/namespaces/default/pods"


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


def profile(plugin: Budget) -> Profile:
    registry = REGISTRY.with_plugins(
        Registration("Budget", {"preEnqueue": lambda _args: plugin}, origin="budget 1.0")
    )
    chosen = {MULTI_POINT: PluginSet((Enabled("Budget"),))}
    return build_profile(ProfileSpec(scheduler_name="agent-scheduler", plugins=chosen), registry)


async def gated_pod(cluster: EmbeddedCluster, name: str, **spec: Any) -> None:
    annotations = {QUEUE_ALLOCATION_GATE: "true", QUEUE_NAME: "q"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    body = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": "agent-scheduler",
            "containers": [container],
            "schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}],
            **spec,
        },
    }
    await cluster.ask("POST", PODS, body)


async def queue_of_one(cluster: EmbeddedCluster) -> None:
    await install(cluster)
    await add_queue(cluster, "q", capability={"cpu": "1"})
    await cluster.merge("/apis/scheduling.volcano.sh/v1beta1/queues/q/status", {"status": {"state": "Open"}})


async def test_a_plugin_is_told_once_that_a_reservation_has_ended_whatever_ends_it(plugin: Budget) -> None:
    async with embedded_cluster() as cluster:
        await queue_of_one(cluster)
        async with scheduling(cluster.transport, profiles=(profile(plugin),)):
            await gated_pod(cluster, "gone", nodeSelector={"not": "there"})
            await until(lambda: plugin.kept == {"gone"})
            await gated_pod(cluster, "held")
            await cluster.ask("DELETE", f"{PODS}/gone?gracePeriodSeconds=0")
            await until(lambda: plugin.kept == {"held"})
            assert plugin.ended == ["gone"]
            await cluster.add_node("n0")
            await until(lambda: plugin.ended == ["gone", "held"])
            assert not plugin.kept and "held" in await cluster.placed()
            await cluster.ask("DELETE", f"{PODS}/held?gracePeriodSeconds=0")

            await gated_pod(cluster, "last")
            await until(lambda: plugin.ended == ["gone", "held", "last"])


async def test_a_plugin_is_told_that_room_was_given_back_that_was_held_for_too_long(plugin: Budget) -> None:
    async with embedded_cluster() as cluster:
        await queue_of_one(cluster)
        async with scheduling(cluster.transport, profiles=(profile(plugin),), reservation_timeout=0.2):
            await gated_pod(cluster, "waits", nodeSelector={"not": "there"})
            await until(lambda: plugin.ended == ["waits"])
            await cluster.ask("DELETE", f"{PODS}/waits?gracePeriodSeconds=0")
            await gated_pod(cluster, "next", nodeSelector={"not": "there"})
            await until(lambda: plugin.ended == ["waits", "next"])


async def test_a_plugin_that_raises_then_keeps_nobody_from_the_room(plugin: Budget) -> None:
    plugin.fails = True
    async with embedded_cluster() as cluster:
        await queue_of_one(cluster)
        async with scheduling(cluster.transport, profiles=(profile(plugin),)) as running:
            await gated_pod(cluster, "gone", nodeSelector={"not": "there"})
            await until(lambda: plugin.kept == {"gone"})
            await gated_pod(cluster, "held", nodeSelector={"not": "there"})
            await cluster.ask("DELETE", f"{PODS}/gone?gracePeriodSeconds=0")
            await until(lambda: plugin.kept == {"held"})
            (failure,) = running.reports.failures
            assert "plugin Budget (from budget 1.0): cleanup_reservations raised LookupError" in str(failure)
