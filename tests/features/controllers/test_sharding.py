"""The sharding controller on an embedded cluster: NodeShards follow the changes of the cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_scheduler.controllers.sharding import retiring, writes
from agent_scheduler.controllers.sharding.store import OWNER, OWNER_LABEL
from agent_scheduler.objects.shard import NODE_SHARDS
from kube_client.transport import OutcomeUnknown, Response
from tests.support.embedded import until
from tests.support.sharded import MERGE, limits
from tests.support.sharding import Rounds, World, following, world
from tests.support.transports import Through

#: Two shards by CPU, of any size: below 60 %, and from 70 % on.
BY_CPU = "low:volcano:0.0:0.6:false:0:0,high:agent:0.7:1.0:false:0:0"


async def test_a_node_moves_with_its_utilisation_and_back() -> None:
    async with following(3, configs=BY_CPU) as it:
        await it.until_specs(low=["n000", "n001", "n002"], high=[])
        await it.load("n001", "9")
        await it.until_specs(low=["n000", "n002"], high=["n001"])
        await it.load("n001", "1")
        await it.until_specs(low=["n000", "n001", "n002"], high=[])
        # A pod that has ended does not count, even if it is not deleted.
        await it.load("n002", "9")
        await it.until_specs(low=["n000", "n001"], high=["n002"])
        done = {"status": {"phase": "Succeeded"}}
        await it.patch("/api/v1/namespaces/default/pods/on-n002/status", done)
        await it.until_specs(low=["n000", "n001", "n002"], high=[])


async def test_a_node_that_is_cordoned_or_not_ready_leaves_and_comes_back() -> None:
    async with following(3, configs=BY_CPU) as it:
        await it.until_specs(low=["n000", "n001", "n002"], high=[])
        await it.change_node("n001", {"spec": {"unschedulable": True}})
        await it.until_specs(low=["n000", "n002"], high=[])
        await it.change_node("n001", {"spec": {"unschedulable": None}})
        await it.until_specs(low=["n000", "n001", "n002"], high=[])
        await it.patch(
            "/api/v1/nodes/n002/status", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        )
        await it.until_specs(low=["n000", "n001"], high=[])


async def test_a_changed_label_is_acted_on() -> None:
    warm = {"name": "warmup", "weight": 1}
    config = {
        "schedulerConfigs": [
            {"name": "agents", "policies": [warm, {"name": "node-limit", "arguments": {"maxNodes": 1}}]},
            {"name": "rest"},
        ]
    }
    async with following(3, config=config) as it:
        await it.until_specs(agents=["n000"], rest=["n001", "n002"])
        await it.change_node("n002", {"metadata": {"labels": {"node.volcano.sh/warmup": "true"}}})
        await it.until_specs(agents=["n002"], rest=["n000", "n001"])


async def test_a_node_that_is_put_in_the_place_of_another_by_hand_does_not_stick() -> None:
    async with following(4, config=limits(a=1, b=1)) as it:
        await it.until_specs(a=["n000"], b=["n001"])
        await it.change_shard("a", {"spec": {"nodesDesired": ["n003"]}})
        await it.until_specs(a=["n000"], b=["n001"])
        # A new process takes the existing shards as its last plan.
        await it.stop(it.processes[0])
        await it.change_shard("a", {"spec": {"nodesDesired": ["n003"]}})
        it.start()
        await it.delete_node("n001")
        await it.until_specs(a=["n003"], b=["n000"])


@pytest.mark.promise("S23")
async def test_a_status_is_never_touched() -> None:
    async with following(2, configs=BY_CPU) as it:
        await it.until_counts(low=2, high=0)
        status = {"lastUpdateTime": "2026-01-01T00:00:00Z", "nodesInUse": ["n000", "n001"]}
        await it.change_shard("low", {"status": status}, status=True)
        await it.add_node("new")
        await it.until_counts(low=3, high=0)
        shard = await it.shard("low")
        assert shard is not None
        assert shard["status"] == status


async def test_without_the_trigger_changes_wait_for_the_period(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(monkeypatch)
    async with following(2, configs=BY_CPU, trigger=False, period=3600.0) as it:
        process = it.processes[0]
        await it.until_counts(low=2, high=0)
        queue = process._running[0]._running[0].queue

        def waits() -> bool:
            timer = queue._timers.get("plan")
            return timer is not None and timer.when() > asyncio.get_running_loop().time() + 1800.0

        # Its own writes are a reason to plan, too, until the watch has delivered them.
        await until(waits)
        before = rounds.begun
        await it.add_node("new")
        await until(lambda: it.metric("agent_scheduler_watch_events_total", kind="Node") == 3)
        # A change is a reason as soon as it is counted, and until the next round begins.
        assert waits() and rounds.begun == before
        # Any other reason to plan includes it.
        await it.delete(f"{NODE_SHARDS}/high")
        await it.until_counts(low=3, high=0)


# ---- shards of other controllers


@pytest.mark.promise("S23")
async def test_a_foreign_shard_is_left_alone_and_keeps_its_nodes() -> None:
    async with world() as it:
        await it.add_nodes(4)
        await it.add_shard("theirs", ["n001", "n002"], ours=False)
        before = await it.shard("theirs")
        it.start(configs=BY_CPU)
        await it.until_specs(low=["n000", "n003"], high=[], theirs=["n001", "n002"])
        await it.change_shard("theirs", {"spec": {"nodesDesired": ["n002", "n003"]}})
        await it.until_specs(low=["n000", "n001"], high=[], theirs=["n002", "n003"])
        await it.delete(f"{NODE_SHARDS}/theirs")
        await it.until_specs(low=["n000", "n001", "n002", "n003"], high=[])
        assert before is not None
        assert OWNER_LABEL not in (before["metadata"].get("labels") or {})


async def test_a_foreign_shard_with_a_configured_name_is_told_of_and_taken_over_with_the_label() -> None:
    async with world() as it:
        await it.add_nodes(3)
        await it.add_shard("low", ["n000"], ours=False)
        it.start(configs=BY_CPU)
        event = await it.until_event("ForeignShard")
        assert event["regarding"]["kind"] == "NodeShard"
        assert event["regarding"]["name"] == "low"
        assert event["type"] == "Warning"
        await it.until_specs(low=["n000"], high=[])
        await until(lambda: it.metric("agent_scheduler_sharding_foreign_shards") == 1)
        await it.change_shard("low", {"metadata": {"labels": {OWNER_LABEL: OWNER}}})
        await it.until_specs(low=["n000", "n001", "n002"], high=[])
        await until(lambda: it.metric("agent_scheduler_sharding_foreign_shards") == 0)


# ---- removed shards


async def test_a_shard_that_is_no_longer_configured_is_emptied_and_then_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retiring, "SETTLED", 0.05)
    async with following(4, config=limits(a=2, b=2)) as it:
        await it.until_counts(a=2, b=2)
        await it.configure(limits(a=2))
        await it.until_counts(a=2)
        states = [s["spec"]["nodesDesired"] for s in it.shards.history if s["metadata"]["name"] == "b"]
        assert states[-1] == []
        assert it.metric("agent_scheduler_sharding_writes_total", result="deleted") == 1


class Losing(Through):
    """A transport on which no request that creates `shard` arrives, as long as it `loses`."""

    def __init__(self, transport: Any, shard: str) -> None:
        super().__init__(transport)
        self._name = f'"name":"{shard}"'.encode()
        self.loses = True
        self.lost = 0

    async def request(self, method: str, path: str, *, body: bytes | None = None, **more: Any) -> Response:
        if self.loses and (method, path) == ("POST", NODE_SHARDS) and self._name in (body or b""):
            self.lost += 1
            raise OutcomeUnknown("lost")
        return await super().request(method, path, body=body, **more)


async def test_nodes_of_a_shard_that_was_never_made_and_is_no_longer_configured_are_free_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writes, "PATIENCE", 0.3)
    monkeypatch.setattr(retiring, "SETTLED", 0.05)
    async with world() as it:
        await it.add_nodes(2)
        await it.configure(limits(a=1, b=1))
        losing = Losing(it.transport, "b")
        it.start(fence=5.0, transport=losing)
        await until(lambda: it.metric("agent_scheduler_sharding_writes_total", result="failed"))
        await it.configure(limits(a=2))
        # As long as the request may still arrive, its node is in no other shard.
        await it.planned_again(5)
        assert await it.specs() == {"a": ["n000"]}
        losing.loses = False
        await it.until_specs(a=["n000", "n001"])


async def test_a_shard_is_not_deleted_while_a_request_to_make_it_may_be_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retiring, "SETTLED", 0.05)
    async with world() as it:
        await it.add_nodes(2)
        await it.configure(limits(a=1, b=1))
        losing = Losing(it.transport, "b")
        it.start(fence=2.0, transport=losing)
        await until(lambda: losing.lost)
        losing.loses = False
        await it.until_counts(a=1, b=1)
        await it.configure(limits(a=2))
        await it.until_counts(a=2, b=0)
        await it.planned_again(5)
        assert (await it.specs())["b"] == []
        await it.until_specs(a=["n000", "n001"])


class Late(Losing):
    """A transport on which the answer to the first creation of `shard` comes only when that is deleted again."""

    answered = False

    async def request(self, method: str, path: str, *, body: bytes | None = None, **more: Any) -> Response:
        self.loses = False
        answer = await super().request(method, path, body=body, **more)
        if not self.lost and method == "POST" and self._name in (body or b""):
            self.lost += 1
            await self.inner.request("DELETE", f"{NODE_SHARDS}/b", timeout=10)
            await asyncio.sleep(0.2)
            self.answered = True
        return answer


async def test_a_shard_that_went_before_the_answer_to_its_making_came_is_made_again() -> None:
    async with world() as it:
        await it.add_nodes(1)
        await it.configure(limits(a=1, b=1))
        late = Late(it.transport, "b")
        it.start(transport=late)
        await until(lambda: late.lost and late.answered)
        await it.until_specs(a=["n000"], b=[])


async def lease(it: World, shard: str, holder: str, *, seconds: int) -> None:
    body = {"metadata": {"name": f"nodeshard-{shard}"}, "spec": {"leaseDurationSeconds": seconds}}
    body["spec"]["holderIdentity"] = holder  # type: ignore[index]
    await it.add("/apis/coordination.k8s.io/v1/namespaces/default/leases", body)


async def test_a_shard_in_use_stays_while_its_scheduler_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retiring, "SETTLED", 0.05)
    monkeypatch.setattr(retiring, "HOLDERLESS", 0.05)
    async with world() as it:
        await it.add_nodes(2)
        for name in ("old", "dead", "silent"):
            await it.add_shard(name, [])
            await it.change_shard(name, {"status": {"nodesInUse": ["n000"]}}, status=True)
        await lease(it, "old", "somebody", seconds=3600)
        await lease(it, "dead", "", seconds=1)
        it.start(configs=BY_CPU)
        # There is no lease, or it was released: no scheduler has to leave its nodes.
        await it.until_counts(old=0, low=2, high=0)
        await it.change_shard("old", {"status": {"nodesInUse": []}}, status=True)
        await it.until_counts(low=2, high=0)


# ---- failing writes


async def test_a_shard_that_is_too_large_is_told_of_and_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "MAX_BYTES", 40)
    async with following(5, configs=BY_CPU) as it:
        await it.until_counts(low=5, high=0)
        await it.add_node("one-too-many")
        event = await it.until_event("ShardTooLarge")
        assert "the names of its 6 nodes take 51 bytes; allowed: 40" in event["note"]
        await it.until_counts(low=5, high=0)
        assert it.metric("agent_scheduler_sharding_writes_total", result="too_large") >= 1
        await it.delete_node("n000")
        await it.delete_node("n001")
        await it.until_counts(low=4, high=0)


async def test_a_cluster_without_the_kind_is_told_of_and_served_once_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = Rounds(monkeypatch)
    async with world() as it:
        crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        manifest = await it.get(f"{crd}/nodeshards.shard.volcano.sh")
        await it.delete(f"{crd}/nodeshards.shard.volcano.sh")
        await it.add_nodes(2)
        process = it.start(configs=BY_CPU)
        await until(lambda: any(each.missing == ["NodeShard"] for each in process._running))
        await rounds.go_on()
        fresh: dict[str, Any] = {key: manifest[key] for key in ("apiVersion", "kind", "spec")}
        await it.add(crd, {**fresh, "metadata": {"name": manifest["metadata"]["name"]}})
        await it.until_counts(low=2, high=0)
        assert not any(each.missing for each in process._running)


# ---- leadership


async def test_who_takes_over_lists_all_again_before_it_writes() -> None:
    """The watches may not have delivered the last writes of the leader before."""
    async with following(2, configs=BY_CPU, elect=True) as it:
        first = it.processes[0]
        await it.until_specs(low=["n000", "n001"], high=[])
        passing = Through(it.transport)
        second = it.start(configs=BY_CPU, elect=True, transport=passing)
        await until(lambda: second.is_synced)
        before = len(passing.asked)
        await it.stop(first)
        await it.add_node("n002")
        await it.until_specs(low=["n000", "n001", "n002"], high=[])
        since = passing.asked[before:]
        lists = since[: since.index(("PATCH", f"{NODE_SHARDS}/low"))]
        assert {("GET", path) for path in (NODE_SHARDS, "/api/v1/nodes", "/api/v1/pods")} <= set(lists)


class Overtaken(Through):
    """A transport on which the first change of `low` arrives just after its scheduler has written the status."""

    overtaken = False

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if (method, path) == ("PATCH", f"{NODE_SHARDS}/low") and not self.overtaken:
            self.overtaken = True
            status = b'{"status":{"nodesInUse":["n000"]}}'
            answer = await self.inner.request("PATCH", f"{path}/status", body=status, content_type=MERGE, timeout=10)
            assert answer.status == 200
        return await super().request(method, path, **more)


async def test_a_shard_that_was_changed_just_before_it_is_written_is_decided_anew_at_once() -> None:
    """The retry of failed changes is not enough: the watch delivers a status, which is no reason to plan."""
    async with world() as it:
        await it.add_nodes(1)
        overtaken = Overtaken(it.transport)
        overtaken.overtaken = True
        it.start(configs=BY_CPU, retry=60.0, transport=overtaken)
        await it.until_specs(low=["n000"], high=[])
        overtaken.overtaken = False
        await it.add_node("n001")
        await it.until_specs(low=["n000", "n001"], high=[])
        assert it.metric("agent_scheduler_sharding_writes_total", result="conflict") == 1
