"""A plugin of a user's own with Permit: it binds the pods of a group together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from agent_scheduler.plugin import (
    ActionType,
    Bools,
    ClusterEvent,
    ClusterEventWithHint,
    Columns,
    Depends,
    Filter,
    Handle,
    NodeInfo,
    Permit,
    PluginArgs,
    PodClass,
    PodInfo,
    Rejected,
    Reserve,
    Resource,
    Rows,
    Wait,
    WaitingPod,
    Writes,
)
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, profile_of, scheduling


class Together(Filter, Reserve, Permit):
    """Lets each pod wait until `least` pods wait. A pod reserves its name."""

    name = "Together"
    depends = Depends.NODE

    def __init__(self, _args: PluginArgs) -> None:
        self.least = 2
        self.timeout = 30.0
        self.reason = ""
        self.answer: Any = None
        self.reserved: set[str] = set()
        self.waiting: Mapping[str, WaitingPod] = {}

    def prepare(self, pod: PodClass, handle: Handle) -> object:
        return self

    def feasible(self, state: object, nodes: Columns, rows: Rows) -> Bools:
        return np.ones(len(rows), dtype=np.bool_)

    def reserve(self, state: object, pod: PodInfo, node: NodeInfo, at: str) -> str:
        self.reserved.add(pod.name)
        return pod.name

    def unreserve(self, pod: PodInfo, writes: Writes) -> None:
        self.reserved.discard(pod.name)

    def permit(self, pod: PodInfo, node: NodeInfo, waiting: Mapping[str, WaitingPod]) -> Rejected | Wait | None:
        self.waiting = waiting
        if self.answer is not None:
            found: Any = self.answer
            return found
        if self.reason:
            return Rejected(self.reason)
        if len(waiting) + 1 < self.least:
            return Wait(self.timeout)
        for each in waiting.values():
            each.allow(self.name)
        return None

    def events_to_register(self) -> tuple[ClusterEventWithHint, ...]:
        return (ClusterEventWithHint(ClusterEvent(Resource.NODE, ActionType.ADD)),)


@pytest.fixture
def plugin() -> Together:
    return Together(PluginArgs())


async def refused(cluster: EmbeddedCluster, pod: str) -> str:
    """Return the reason and message of a pod's condition."""
    found = await cluster.condition(pod)
    return "" if found is None or found["status"] != "False" else f"{found['reason']}: {found['message']}"


def nothing_is_left(running: Running, plugin: Together) -> bool:
    return not (plugin.waiting or plugin.reserved or running.fast_path.ledger.assumed)


@asynccontextmanager
async def one_node(*plugins: Together) -> AsyncIterator[tuple[EmbeddedCluster, Running]]:
    """Yield a node, a fast path with the plugins, and a pod."""
    profile = profile_of(*plugins, points=("filter", "reserve", "permit"), origin="together 1.0")
    async with embedded_cluster() as cluster:
        await cluster.add_node("n0")
        async with scheduling(cluster.transport, profiles=(profile,)) as running:
            await cluster.add_pod("p0")
            yield cluster, running


async def test_a_pod_that_waits_is_assumed_on_its_node_and_bound_once_it_is_allowed(plugin: Together) -> None:
    async with one_node(plugin) as (cluster, running):
        await until(lambda: plugin.waiting)
        (waiting,) = plugin.waiting.values()
        assert (waiting.pod.name, waiting.node_name, waiting.pending_plugins) == ("p0", "n0", ("Together",))
        assert running.fast_path.ledger.assumed == 1
        assert await cluster.placed() == {}
        await cluster.add_pod("p1")
        await until(lambda: cluster.all_placed(2))
        assert not plugin.waiting and plugin.reserved == {"p0", "p1"}


async def test_a_pod_that_is_rejected_gives_all_back_and_is_woken_by_the_plugins_events(plugin: Together) -> None:
    plugin.reason = "its group is full"
    async with one_node(plugin) as (cluster, running):
        said = await until(lambda: refused(cluster, "p0"))
        assert said == "Unschedulable: 0/1 nodes are available: 1 its group is full."
        await until(lambda: nothing_is_left(running, plugin))
        assert running.reports.attempts == {"unschedulable": 1} and running.reports.problems == []
        plugin.reason, plugin.least = "", 1
        await cluster.add_node("n1")
        await until(cluster.placed)


@pytest.mark.parametrize("how", ["rejected", "timed out"])
async def test_a_pod_that_waits_in_vain_gives_all_back_in_the_name_of_the_plugin(plugin: Together, how: str) -> None:
    plugin.timeout = 0.2 if how == "timed out" else 30.0
    async with one_node(plugin) as (cluster, running):
        if how == "rejected":
            await until(lambda: plugin.waiting)
            (waiting,) = plugin.waiting.values()
            waiting.reject(plugin.name, "the group was deleted")
            waiting.allow(plugin.name)
        said = await until(lambda: refused(cluster, "p0"))
        reason = (
            "the group was deleted"
            if how == "rejected"
            else "rejected due to timeout after waiting 0.2s at plugin Together"
        )
        assert said == f"Unschedulable: 0/1 nodes are available: 1 {reason}."
        await until(lambda: nothing_is_left(running, plugin))
        plugin.least = 1
        await cluster.add_node("n1")
        await until(cluster.placed)


async def test_a_pod_that_is_deleted_while_it_waits_gives_all_back(plugin: Together) -> None:
    async with one_node(plugin) as (cluster, running):
        await until(lambda: plugin.waiting)
        await cluster.ask("DELETE", "/api/v1/namespaces/default/pods/p0")
        await until(lambda: nothing_is_left(running, plugin))


async def test_nobody_waits_at_the_end_for_a_pod_that_waits(plugin: Together) -> None:
    async with one_node(plugin) as (_cluster, running):
        await until(lambda: plugin.waiting)
        await running.stop(grace=5.0)
        assert nothing_is_left(running, plugin)


async def test_an_answer_of_another_kind_fails_the_attempt_and_names_the_plugin(plugin: Together) -> None:
    plugin.answer = "no"
    async with one_node(plugin) as (_cluster, running):
        await until(lambda: running.reports.problems)
        assert "plugin Together (from together 1.0): permit answered 'no'" in running.reports.problems[0]
        await until(lambda: nothing_is_left(running, plugin))
