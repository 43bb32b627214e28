"""Schedulers and their coordinators on one cluster: the nodes that each uses, and the placement of pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from agent_scheduler.fastpath import outside
from agent_scheduler.objects.shard import NODE_SHARDS, NodeShard
from agent_scheduler.shards import coordinator
from embedded_kubernetes.errors import ApiError, conflict
from embedded_kubernetes.requests import Disturbance, Request
from kube_client.reflector import STALE_LISTS_REFUSED
from kube_client.retry import Backoff
from kube_client.watch_events import MODIFIED, Change
from tests.support.embedded import until
from tests.support.shared import SharedCluster, decides_on, has_looked_again, lists_shards, scheduler, shared_cluster
from tests.support.tap import Tap


@pytest.mark.promise("L18", "S33")
async def test_a_hard_shard_that_is_full_is_no_shortage_of_nodes_while_others_would_do() -> None:
    async with shared_cluster(2) as shared, scheduler(shared, "a", nodes="n1"):
        await shared.add_pod("p", scheduler="a", cpu="4")
        await shared.add_pod("q", scheduler="a", cpu="1")
        condition = await until(lambda: shared.condition("q"))
        assert condition["reason"] == "NodeShardFull"
        said, _, preemption = condition["message"].partition(" no new claims")
        assert said == ("0/2 nodes are available: 1 Insufficient cpu, 1 node isn't in scheduler node shard.")
        assert preemption.endswith(
            "1 Preemption is not helpful for scheduling. node shard a is full, and other nodes of the cluster would do."
        )


@pytest.mark.parametrize("node", [{"cpu": "2"}, {"unschedulable": True}, {"ready": False}], ids=str)
@pytest.mark.promise("L18")
async def test_where_no_node_of_the_cluster_would_do_a_full_shard_is_a_shortage(node: dict[str, Any]) -> None:
    async with shared_cluster(1) as shared, scheduler(shared, "a") as runtime:
        status = {"allocatable": {"cpu": node.get("cpu", "8"), "memory": "8Gi", "pods": "10"}}
        if "ready" in node:
            status["conditions"] = [{"type": "Ready", "status": "False"}]
        spec = {"unschedulable": True} if "unschedulable" in node else {}
        body = {"metadata": {"name": "other"}, "spec": spec, "status": status}
        await shared.add("/api/v1/nodes", body)
        await shared.desire("a", ["n0"])
        await until(lambda: decides_on(runtime, "n0"))
        await shared.add_pod("p", scheduler="a", cpu="4")
        await shared.add_pod("q", scheduler="a", cpu="3")
        await until(lambda: shared.says("q", "Unschedulable"))


async def test_what_a_full_shard_says_follows_the_nodes_outside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "_LOOK", 0.05)
    async with shared_cluster(2) as shared, scheduler(shared, "a", nodes="n0"):
        await shared.add_pod("p", scheduler="a", cpu="4")
        await shared.add_pod("q", scheduler="a", cpu="3")
        await until(lambda: shared.says("q", "NodeShardFull"))
        await shared.add_pod("other", scheduler="nobody", cpu="2", nodeName="n1")
        await until(lambda: shared.says("q", "Unschedulable"))
        await shared.end_pod("other")
        await until(lambda: shared.says("q", "NodeShardFull"))


async def test_without_the_kind_a_hard_scheduler_says_so_and_goes_on_when_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator, "_RESYNC", 0.1)
    async with shared_cluster(1, kind=False) as shared, scheduler(shared, "a"):
        await shared.add_pod("p", scheduler="a")
        condition = await until(lambda: shared.condition("p"))
        assert "the cluster does not serve NodeShards" in condition["message"]
        await shared.install()
        await shared.desire("a", ["n0"])
        assert await until(shared.placed) == {"p": "n0"}


async def test_a_soft_scheduler_that_starts_while_shards_change_waits_for_its_own() -> None:
    tap = Tap()
    async with shared_cluster(2, disturb=tap) as shared:
        await shared.desire("a", ["n0"])
        await shared.desire("volcano", [])
        await shared.add_pod("there", scheduler="nobody", cpu="2", nodeName="n1")
        # While its claim is being written another shard changes, so it lists again and gets the answer late.
        tap.harm = lambda request: Disturbance(
            late=0.3 if _status_writes(request) else 0.0,
            delay=0.3 if lists_shards(request) and tap.count(_status_writes) else 0.0,
        )
        async with scheduler(shared, "a", "soft") as runtime:
            await until(lambda: tap.count(_status_writes))
            await shared.desire("volcano", ["n1"])
            await shared.add_pod("p", scheduler="a")
            await until(lambda: decides_on(runtime, "n0"))
            await until(lambda: shared.has_placed("", 2))
            assert await shared.placed() == {"there": "n1", "p": "n0"}


async def test_a_node_that_another_uses_is_added_only_when_it_is_given_back() -> None:
    async with shared_cluster(3) as shared:
        await shared.desire("volcano", ["n0", "n1"])
        await shared.write_status("volcano", nodesInUse=["n0", "n1"])
        async with scheduler(shared, "a"):
            await shared.desire("a", ["n1", "n2"])
            await until(lambda: _is(shared, "a", "n2"))
            status = await shared.status("a")
            assert status["nodesToAdd"] == ["n1"] and status["nodesToRemove"] == []
            assert status["lastUpdateTime"].endswith("Z")
            await shared.write_status("volcano", nodesInUse=["n0"])
            await until(lambda: shared.uses("a", "n1 n2"))


@pytest.mark.promise("L11")
async def test_nodes_change_hands_between_two_schedulers_and_a_swap_ends() -> None:
    async with shared_cluster(4) as shared, scheduler(shared, "a"), scheduler(shared, "b"):
        await shared.desire("a", ["n0", "n1"])
        await shared.desire("b", ["n2", "n3"])
        await until(lambda: shared.uses("a", "n0 n1"))
        await until(lambda: shared.uses("b", "n2 n3"))
        await shared.desire("a", ["n1", "n2"])
        await shared.desire("b", ["n0", "n3"])
        await until(lambda: shared.uses("a", "n1 n2"))
        await until(lambda: shared.uses("b", "n0 n3"))


async def test_a_deleted_shard_ends_the_use_of_its_nodes_and_a_new_one_begins_it() -> None:
    async with shared_cluster(1) as shared, scheduler(shared, "a", nodes="n0") as runtime:
        await shared.delete_shard("a")
        await until(lambda: decides_on(runtime))
        await shared.add_pod("p", scheduler="a")
        condition = await until(lambda: shared.condition("p"))
        assert "node shard a does not exist" in condition["message"]
        await shared.desire("a", ["n0"])
        await until(lambda: shared.has_placed("", 1))


async def _is(shared: SharedCluster, shard: str, nodes: str) -> bool:
    return await shared.in_use(shard) == nodes


async def test_a_claim_that_another_made_at_the_same_time_is_withdrawn() -> None:
    tap = Tap()
    async with shared_cluster(2, disturb=tap) as shared, scheduler(shared, "a") as runtime:
        await shared.desire("volcano", [])
        await shared.desire("a", [])
        await until(lambda: shared.uses("a", ""))
        # Its own write is carried out, and its answer comes only after the other one.
        tap.harm = lambda request: Disturbance(late=0.5) if _status_writes(request) else None
        await shared.desire("a", ["n0", "n1"])
        await until(lambda: _is(shared, "a", "n0 n1"))
        await shared.write_status("volcano", nodesInUse=["n0"])
        await until(lambda: decides_on(runtime, "n1"))
        await until(lambda: _is(shared, "a", "n1"))
        assert decides_on(runtime, "n1")
        samples = runtime.metrics.exposition()[0].decode()
        assert 'agent_scheduler_shard_writes_total{result="withdrawn"} 1' in samples


# ---- failing servers


def _status_writes(request: Request) -> bool:
    return request.method == "PATCH" and request.path.endswith("/nodeshards/a/status")


@pytest.mark.parametrize(
    "fault",
    [
        Disturbance(error=conflict("nodeshards", "shard.volcano.sh", "a", "modified")),
        Disturbance(drop=True),
        Disturbance(lose=True),
        Disturbance(error=ApiError(500, "InternalError", "no"), commits=True),
    ],
    ids=["conflict", "lost before", "lost after", "failed after"],
)
async def test_a_status_is_written_again_until_it_is_known_to_stand(fault: Disturbance) -> None:
    tap = Tap()
    async with shared_cluster(2, disturb=tap) as shared, scheduler(shared, "a") as runtime:
        tap.harm = lambda request: fault if _status_writes(request) and tap.count(_status_writes) <= 2 else None
        await shared.desire("a", ["n0"])
        await until(lambda: decides_on(runtime, "n0"))
        await until(lambda: shared.uses("a", "n0"))


@pytest.mark.parametrize("mode", ["soft", "hard"])
async def test_who_may_not_read_the_shards_counts_as_having_none(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_UNSETTLED", 0.5)
    tap = Tap()
    tap.harm = lambda request: Disturbance(error=ApiError(403, "Forbidden", "no")) if lists_shards(request) else None
    async with shared_cluster(1, disturb=tap) as shared, scheduler(shared, "a", mode) as runtime:
        await shared.desire("a", ["n0"])
        await shared.add_pod("p", scheduler="a")
        if mode == "hard":
            condition = await until(lambda: shared.condition("p"))
            assert condition["reason"] == "NodeShardNotReady"
            assert condition["message"] == (
                "0/1 nodes are available: it is not known yet which nodes are in this scheduler's node shard."
            )
            # It continues as soon as requests succeed.
            tap.harm = lambda request: None
            await until(lambda: decides_on(runtime, "n0"))
        assert await until(shared.placed) == {"p": "n0"}


async def test_a_list_from_before_the_claim_was_written_does_not_confirm_it() -> None:
    tap = Tap()
    async with shared_cluster(2, disturb=tap) as shared, scheduler(shared, "a", nodes="n0") as runtime:
        tap.harm = lambda request: Disturbance(behind=1) if lists_shards(request) else None
        await shared.desire("a", ["n0", "n1"])
        before = tap.count(lists_shards)
        await until(lambda: tap.count(lists_shards) > before + 2)
        assert decides_on(runtime, "n0")
        tap.harm = lambda request: None
        await until(lambda: decides_on(runtime, "n0", "n1"))


async def test_a_store_that_is_older_than_the_last_list_of_the_shards_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator, "_RESYNC", 0.05)
    tap = Tap()
    with capture_logs() as logs:
        async with shared_cluster(1, disturb=tap) as shared, scheduler(shared, "a") as runtime:
            await shared.desire("a", ["n0"])
            await until(lambda: decides_on(runtime, "n0"))
            # The watch of the shards does not show these, and the next list has their version.
            for number in range(60):
                await shared.add_node(f"other-{number}")
            seen = tap.count(lists_shards)
            await until(lambda: tap.count(lists_shards) > seen + 1)
            tap.harm = lambda request: Disturbance(behind=50) if lists_shards(request) else None
            before = tap.count(lists_shards)
            (told,) = await until(lambda: [each for each in logs if each["event"] == "store went back"])
            # A replica of the store may lag for a while.
            assert tap.count(lists_shards) - before == STALE_LISTS_REFUSED + 1
    assert "the list of NodeShards is of version" in told["problem"]


async def test_while_a_shard_cannot_be_read_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes that the shard uses are unknown."""
    monkeypatch.setattr(coordinator, "_UNSETTLED", 0.5)
    monkeypatch.setattr(coordinator, "Backoff", lambda **_: Backoff(initial=0.1, cap=0.1))
    tap = Tap()
    async with shared_cluster(2, disturb=tap, schema=False) as shared, scheduler(shared, "a") as runtime:
        await shared.desire("volcano", [])
        await shared.write_status("volcano", nodesInUse="n0")  # type: ignore[arg-type]
        await shared.desire("a", ["n0", "n1"])
        await shared.add_pod("p", scheduler="a")
        condition = await until(lambda: shared.condition("p"))
        assert condition["reason"] == "NodeShardNotReady"
        seen = tap.count(lists_shards)
        await until(lambda: tap.count(lists_shards) > seen + 1)
        assert decides_on(runtime)
        assert await shared.in_use("a") == ""
        await shared.write_status("volcano", nodesInUse=["n0"])
        await until(lambda: decides_on(runtime, "n1"))


async def test_news_from_before_a_claim_was_written_do_not_count_as_its_erasure() -> None:
    """The watch may be slower than the answer to the write."""
    async with shared_cluster(1) as shared, scheduler(shared, "a") as runtime:
        await shared.desire("a", [])
        before = await shared.call("GET", f"{NODE_SHARDS}/a")
        await shared.desire("a", ["n0"])
        await until(lambda: decides_on(runtime, "n0"))
        assert runtime.coordinator is not None
        shard = msgspec.json.decode(before.body, type=NodeShard)
        runtime.coordinator._notice([Change(MODIFIED, shard, None)])
        assert decides_on(runtime, "n0")


async def test_a_problem_that_lasts_is_logged_once_and_once_again_after_it_was_over() -> None:
    tap = Tap()
    refused = Disturbance(error=ApiError(503, "ServiceUnavailable", "no"))
    with capture_logs() as logs:
        async with shared_cluster(1, disturb=tap) as shared, scheduler(shared, "a"):
            await shared.desire("a", ["n0"])
            for _ in range(2):
                await until(lambda: shared.uses("a", "n0"))
                tap.harm = lambda request: refused if lists_shards(request) else None
                seen = tap.count(lists_shards)
                await shared.desire("a", [])
                await until(lambda seen=seen: tap.count(lists_shards) > seen + 2)
                tap.harm = lambda _: None
                await shared.desire("a", ["n0"])
                await has_looked_again(shared, "a", tap)
    assert [each["event"] for each in logs].count("shard not followed") == 2
