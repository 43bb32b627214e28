"""Plugins of a user's own that reserve something for pods.

One has Reserve and PreBind: it takes a license of a node for each pod, and notes it on the pod before the bind. The
other one is called for pods that their queue's gate has admitted.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, QUEUE_NAME, queue_path
from agent_scheduler.plugin import (
    Attempt,
    Bools,
    CleanupReservations,
    Columns,
    Depends,
    Filter,
    Handle,
    NodeInfo,
    PluginArgs,
    PodClass,
    PodInfo,
    PreBind,
    PreEnqueue,
    Reserve,
    Rows,
    Writes,
)
from tests.support.batched import add_queue, install
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.objects import pod
from tests.support.running import Running, profile_of, scheduling

NOTE = "example.com/license"


class Licenses(Filter, Reserve, PreBind):
    """One license for each node."""

    name = "Licenses"
    depends = Depends.NODE
    takes_back = True

    def __init__(self, _args: PluginArgs) -> None:
        self.taken: dict[str, str] = {}
        self.log: list[str] = []
        #: The problem that PreBind reports instead of writing.
        self.problem = ""

    def prepare(self, pod: PodClass, handle: Handle) -> object:
        return "a state of its own"

    def feasible(self, state: object, nodes: Columns, rows: Rows) -> Bools:
        return np.ones(len(rows), dtype=np.bool_)

    def reserve(self, state: object, pod: PodInfo, node: NodeInfo, at: str) -> str | None:
        assert state == "a state of its own"
        if node.name in self.taken.values():
            return None
        self.taken[pod.uid] = node.name
        return f"license of {node.name}"

    def unreserve(self, pod: PodInfo, writes: Writes) -> None:
        if self.taken.pop(pod.uid, None):
            self.log.append(f"unreserve {pod.name}")

    def pre_bind(self, attempt: Attempt) -> Awaitable[str]:
        return self._note(attempt)

    async def _note(self, attempt: Attempt) -> str:
        pod = attempt.pod
        self.log.append(f"pre_bind {pod.name}: {attempt.reservation}")
        if self.problem:
            return self.problem
        # The patch names no version: writing the same note twice does no harm.
        body = {"metadata": {"uid": pod.uid, "annotations": {NOTE: attempt.node_name}}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        return await attempt.writes.patch(path, json.dumps(body).encode(), wanted=attempt.wanted)

    async def _remove(self, attempt: Attempt) -> None:
        self.log.append(f"take_back {attempt.pod.name}")

    def take_back(self, attempt: Attempt) -> Awaitable[None]:
        return self._remove(attempt)


@pytest.fixture
def plugin() -> Licenses:
    return Licenses(PluginArgs())


def with_licenses(plugin: Licenses) -> Profile:
    return profile_of(plugin, points=("filter", "reserve", "preBind"), origin="licenses 1.0")


async def noted(cluster: EmbeddedCluster) -> dict[str, tuple[str, str]]:
    """Return pod -> its node and its note."""
    return {
        name: (pod["spec"].get("nodeName", ""), (pod["metadata"].get("annotations") or {}).get(NOTE, ""))
        for name, pod in (await cluster.pods()).items()
    }


async def all_bound(cluster: EmbeddedCluster) -> Any:
    found = await noted(cluster)
    return found if all(node for node, _ in found.values()) else None


async def test_what_it_takes_of_a_node_is_taken_once_and_written_before_the_bind(plugin: Licenses) -> None:
    async with embedded_cluster() as cluster:
        async with scheduling(cluster.transport, profiles=(with_licenses(plugin),)):
            for number in range(3):
                await cluster.add_node(f"n{number}")
            for number in range(3):
                await cluster.add_pod(f"p{number}", cpu="10m")
            found = await until(lambda: all_bound(cluster))
        # Packing would have put all of them on one node.
        assert sorted(node for node, _ in found.values()) == ["n0", "n1", "n2"]
        assert all(node == note for node, note in found.values())
        assert len(plugin.log) == 3 and all(line.startswith("pre_bind") for line in plugin.log)
        # The licenses of bound pods stay taken.
        assert sorted(plugin.taken.values()) == ["n0", "n1", "n2"]


async def test_an_attempt_whose_pre_bind_fails_gives_back_what_was_taken_and_what_was_written(plugin: Licenses) -> None:
    plugin.problem = "the license server says no"
    async with embedded_cluster() as cluster:
        await cluster.add_node("n0")
        async with scheduling(
            cluster.transport, profiles=(with_licenses(plugin),), initial_backoff=0.05, max_backoff=0.05
        ) as running:
            await cluster.add_pod("p")
            await until(lambda: running.reports.problems)
            assert running.reports.problems[0] == 'running PreBind plugin "Licenses": the license server says no'
            await until(lambda: "take_back p" in plugin.log)
            assert plugin.log[:3] == ["pre_bind p: license of n0", "unreserve p", "take_back p"]
            plugin.problem = ""
            assert await until(lambda: all_bound(cluster)) == {"p": ("n0", "n0")}


class Budget(PreEnqueue, CleanupReservations):
    """The plugin of docs/plugins.md."""

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
def budget() -> Budget:
    return Budget(PluginArgs())


@asynccontextmanager
async def queue_of_one(budget: Budget, **settings: Any) -> AsyncIterator[tuple[EmbeddedCluster, Running]]:
    """Yield a queue with room for one pod, and a fast path with the plugin."""
    profile = profile_of(budget, points=("preEnqueue",), origin="budget 1.0")
    async with embedded_cluster() as cluster:
        await install(cluster)
        await add_queue(cluster, "q", capability={"cpu": "1"})
        await cluster.merge(f"{queue_path('q')}/status", {"status": {"state": "Open"}})
        async with scheduling(cluster.transport, profiles=(profile,), **settings) as running:
            yield cluster, running


async def gated_pod(cluster: EmbeddedCluster, name: str, **spec: Any) -> None:
    annotations = {QUEUE_ALLOCATION_GATE: "true", QUEUE_NAME: "q"}
    await cluster.ask("POST", PODS, pod(name, cpu="1", annotations=annotations, gates=[QUEUE_ALLOCATION_GATE], **spec))


async def test_a_plugin_is_told_once_that_a_reservation_has_ended_whatever_ends_it(budget: Budget) -> None:
    async with queue_of_one(budget) as (cluster, _running):
        await gated_pod(cluster, "gone", nodeSelector={"not": "there"})
        await until(lambda: budget.kept == {"gone"})
        await gated_pod(cluster, "held")
        await cluster.end_pod("gone")
        await until(lambda: budget.kept == {"held"})
        assert budget.ended == ["gone"]
        await cluster.add_node("n0")
        await until(lambda: budget.ended == ["gone", "held"])
        assert not budget.kept and "held" in await cluster.placed()
        await cluster.end_pod("held")

        await gated_pod(cluster, "last")
        await until(lambda: budget.ended == ["gone", "held", "last"])


async def test_a_plugin_is_told_that_room_was_given_back_that_was_held_for_too_long(budget: Budget) -> None:
    async with queue_of_one(budget, reservation_timeout=0.2) as (cluster, _running):
        await gated_pod(cluster, "waits", nodeSelector={"not": "there"})
        await until(lambda: budget.ended == ["waits"])
        await cluster.end_pod("waits")
        await gated_pod(cluster, "next", nodeSelector={"not": "there"})
        await until(lambda: budget.ended == ["waits", "next"])


async def test_a_plugin_that_raises_then_keeps_nobody_from_the_room(budget: Budget) -> None:
    budget.fails = True
    async with queue_of_one(budget) as (cluster, running):
        await gated_pod(cluster, "gone", nodeSelector={"not": "there"})
        await until(lambda: budget.kept == {"gone"})
        await gated_pod(cluster, "held", nodeSelector={"not": "there"})
        await cluster.end_pod("gone")
        await until(lambda: budget.kept == {"held"})
        (failure,) = running.reports.failures
        assert "plugin Budget (from budget 1.0): cleanup_reservations raised LookupError" in str(failure)
