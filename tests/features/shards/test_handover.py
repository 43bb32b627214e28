"""A node moves to another shard while a bind to it is under way, and with watches that lag."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agent_scheduler.fastpath.scheduler import FastPath
from agent_scheduler.objects.shard import NODE_SHARDS
from agent_scheduler.process.scheduler import SchedulerProcess
from apimachinery.times import time_text
from embedded_kubernetes.requests import Disturbance
from kube_client.bind import BindOutcome, BindResult, UnknownOutcome
from kube_client.retry import REAL
from tests.regressions.stages import HeldBinds, HeldResults
from tests.support.embedded import until
from tests.support.shared import decides_on, has_looked_again, scheduler, shared_cluster
from tests.support.tap import Tap


def path_of(runtime: SchedulerProcess) -> FastPath:
    assert runtime.fast_path is not None
    return runtime.fast_path


def binds_in_doubt(runtime: SchedulerProcess) -> list[str]:
    """Make the outcome of later binds unknown, and return the list of their nodes."""
    binder, nodes = path_of(runtime).binder, list[str]()

    async def unknown(_pod: object, node: str, **_more: object) -> BindResult:
        nodes.append(node)
        return BindResult(
            BindOutcome.UNKNOWN, unknown=UnknownOutcome(float("inf"), BindResult(BindOutcome.UNAVAILABLE))
        )

    binder._open.bind, binder._begin = unknown, lambda *_: False
    return nodes


async def test_a_node_with_a_bind_on_the_wire_is_given_back_only_after_the_answer() -> None:
    async with shared_cluster(2) as shared, scheduler(shared, "a", nodes="n0") as a, scheduler(shared, "b", nodes="n1"):
        held = HeldBinds(path_of(a))
        await shared.add_pod("p", scheduler="a")
        await until(lambda: held.nodes)
        await shared.desire("a", [])
        await shared.desire("b", ["n0", "n1"])
        await until(lambda: shared.is_removing("a", "n0"))
        assert decides_on(a), "no further pod is decided for it"
        await until(lambda: shared.is_adding("b", "n0"))
        assert await shared.in_use("b") == "n1"
        held.release()
        await until(lambda: shared.uses("b", "n0 n1"))
        assert await shared.placed() == {"p": "n0"}


async def test_a_node_with_a_bind_without_an_answer_is_not_given_back() -> None:
    tap = Tap()
    async with shared_cluster(1, disturb=tap) as shared, scheduler(shared, "a", nodes="n0") as a:
        asked = binds_in_doubt(a)
        pod = await shared.add_pod("p", scheduler="a")
        await until(lambda: asked)
        await shared.desire("a", [])
        await until(lambda: shared.is_removing("a", "n0"))
        await has_looked_again(shared, "a", tap)
        assert await shared.in_use("a") == "n0"
        # If the pod is gone, the bind can have no effect any more.
        await shared.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
        await until(lambda: shared.uses("a", ""))


async def test_who_ends_with_a_bind_in_doubt_keeps_its_node_and_gives_back_the_others() -> None:
    async with shared_cluster(2) as shared:
        async with scheduler(shared, "a", nodes="n0 n1") as a:
            asked = binds_in_doubt(a)
            await shared.add_pod("p", scheduler="a")
            (node,) = await until(lambda: asked)
        assert await shared.in_use("a") == node


async def test_what_was_decided_for_a_node_that_left_meanwhile_is_not_bound_there() -> None:
    async with shared_cluster(2) as shared, scheduler(shared, "a", nodes="n0") as a:
        held = HeldResults(path_of(a))
        await shared.add_pod("p", scheduler="a")
        await until(lambda: held.results)
        await shared.desire("a", ["n1"])
        await until(lambda: decides_on(a, "n1"))
        held.release()
        await until(shared.placed)
        assert await shared.placed() == {"p": "n1"}


@pytest.mark.promise("S19")
async def test_the_new_owner_knows_what_the_old_one_bound_though_its_watch_is_silent() -> None:
    async with (
        shared_cluster(1) as shared,
        scheduler(shared, "old", nodes="n0"),
        scheduler(shared, "new", transport=(transport := shared.another_transport())) as new,
    ):
        await shared.desire("new", [])
        await until(lambda: new.leases.held)
        await until(lambda: shared.uses("new", ""))
        # From now on the open watches deliver nothing.
        transport.fall_silent()
        await shared.add_pod("first", scheduler="old", cpu="4")
        await until(shared.placed)
        await shared.desire("old", [])
        await until(lambda: shared.uses("old", ""))
        await shared.desire("new", ["n0"])
        # The coordinator's own watch delivers nothing, either; it lists again in time.
        assert new.coordinator is not None
        new.coordinator._changed.set()
        await until(lambda: decides_on(new, "n0"))
        await shared.add_pod("second", scheduler="new", cpu="4")
        condition = await until(lambda: shared.condition("second"))
        assert "Insufficient cpu" in condition["message"]
        assert await shared.placed() == {"first": "n0"}


async def test_a_shard_that_is_deleted_while_pods_are_caught_up_with_ends_the_use_of_its_nodes() -> None:
    async with shared_cluster(2) as shared, scheduler(shared, "a", nodes="n0") as a:
        side = path_of(a).shard
        assert side is not None
        waiting = asyncio.Event()

        async def never(_version: str) -> None:
            waiting.set()
            await asyncio.Event().wait()

        side.catch_up = never  # type: ignore[method-assign]
        await shared.desire("a", ["n0", "n1"])
        await asyncio.wait_for(waiting.wait(), 10)
        await shared.delete_shard("a")
        await until(lambda: decides_on(a))
        assert not side.may_bind_to("n0")


async def test_a_node_that_is_desired_again_before_its_claim_was_given_back_stays() -> None:
    """Another shard whose name sorts first also desires the node."""
    tap = Tap()
    async with (
        shared_cluster(1, disturb=tap) as shared,
        scheduler(shared, "a"),
        scheduler(shared, "b", nodes="n0") as b,
    ):
        await shared.desire("a", [])
        await until(lambda: shared.uses("a", ""))
        # The write that releases the claim is refused, as the shard has changed meanwhile.
        tap.harm = lambda request: (
            Disturbance(delay=0.5) if request.method == "PATCH" and request.path.endswith("/b/status") else None
        )
        await shared.desire("b", [])
        await until(lambda: path_of(b).shard and decides_on(b))
        await shared.desire("b", ["n0"])
        await shared.desire("a", ["n0"])
        tap.harm = lambda _: None
        await until(lambda: decides_on(b, "n0"))
        assert await shared.in_use("b") == "n0" and await shared.in_use("a") == ""


async def test_in_a_soft_shard_pods_are_evicted_in_the_shard_before_they_are_elsewhere() -> None:
    async with shared_cluster(2) as shared:
        await shared.add_priorities(low=1, high=1000)
        async with scheduler(shared, "a", "soft", nodes="n1"):
            for number in range(2):
                low = {"priorityClassName": "low", "terminationGracePeriodSeconds": 0}
                await shared.add_pod(f"low{number}", scheduler="a", cpu="4", **low)
            await until(lambda: shared.has_placed("", 2))
            before = await shared.placed()
            await shared.add_pod("high", scheduler="a", cpu="4", priorityClassName="high")
            await until(lambda: shared.is_bound("high"))
            after = await shared.placed()
            assert after["high"] == "n1"
            assert [name for name in before if name not in after] == [
                name for name, node in before.items() if node == "n1"
            ]


@pytest.mark.promise("S20")
async def test_what_a_dead_scheduler_had_claimed_is_kept_by_its_successor_until_the_fence() -> None:
    async with shared_cluster(2) as shared:
        await shared.desire("a", ["n1"])
        await shared.desire("b", ["n0"])
        # The scheduler before had to release n0 and died: one of its binds may still arrive.
        await shared.write_status("a", nodesInUse=["n0"])
        async with scheduler(shared, "a", fence="1h") as a, scheduler(shared, "b") as b:
            await until(lambda: decides_on(a, "n1"))
            await until(lambda: shared.is_removing("a", "n0"))
            await until(lambda: shared.is_adding("b", "n0"))
            assert await shared.in_use("a") == "n0 n1"
            assert decides_on(b)
        # At its own end it does not release what is not its own.
        assert await shared.in_use("a") == "n0"


@pytest.mark.promise("L11")
async def test_what_a_dead_scheduler_had_claimed_is_given_back_after_the_fence() -> None:
    async with shared_cluster(2) as shared:
        await shared.desire("a", ["n1"])
        await shared.write_status("a", nodesInUse=["n0"])
        async with scheduler(shared, "a", fence="5s"):
            # Another shard may want the node: the release does not wait for the next full look a minute later.
            await until(lambda: shared.uses("a", "n1"), seconds=6)


@pytest.mark.parametrize("same_second", [True, False])
async def test_a_status_that_a_predecessor_has_on_its_way_is_not_carried_out_any_more(same_second: bool) -> None:
    async with shared_cluster(1) as shared:
        await shared.desire("a", ["n0"])
        now = datetime(2026, 1, 1, tzinfo=UTC)
        last = time_text(now) if same_second else "2025-12-31T23:00:00Z"
        await shared.write_status("a", nodesInUse=["n0"], nodesToAdd=[], nodesToRemove=[], lastUpdateTime=last)
        left = await shared.get(f"{NODE_SHARDS}/a")
        gives_back = {
            "metadata": {"resourceVersion": left["metadata"]["resourceVersion"]},
            "status": {"nodesInUse": []},
        }
        async with scheduler(shared, "a", timing=replace(REAL, now=lambda: now)) as a:
            await until(lambda: decides_on(a, "n0"))
            late = await shared.call(
                "PATCH", f"{NODE_SHARDS}/a/status", gives_back, content_type="application/merge-patch+json"
            )
            assert late.status == 409
            assert await shared.in_use("a") == "n0"


@pytest.mark.promise("S20")
async def test_a_decision_for_a_node_whose_claim_is_gone_is_not_sent() -> None:
    async with shared_cluster(1) as shared, scheduler(shared, "a", nodes="n0") as a:
        shard = path_of(a).shard
        assert shard is not None and shard.may_bind_to("n0")
        await shared.delete_shard("a")
        await until(lambda: not shard.may_bind_to("n0"))
        await shared.add_pod("p", scheduler="a")
        (pod,) = await until(lambda: list(path_of(a).cluster.pods.values()))
        answer = await path_of(a)._calls.binds.bind(pod, "n0")
        assert (answer.outcome, answer.attempts) == (BindOutcome.UNAVAILABLE, 0)
