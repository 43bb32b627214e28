"""Writes of one shard against an embedded cluster: what is learnt where somebody was first, or nobody answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_scheduler.controllers.sharding.store import OWNER_LABEL, Shard, ShardStore, shard_of
from agent_scheduler.controllers.sharding.watching import read_shard
from agent_scheduler.controllers.sharding.writes import Result, Step, Writer, next_step
from agent_scheduler.kube.retry import Sleep, Timing
from agent_scheduler.kube.transport import Headers, OutcomeUnknown, Response
from agent_scheduler.objects.shard import NODE_SHARDS
from tests.support.embedded import EmbeddedCluster, embedded_cluster
from tests.support.sharded import ShardedCluster, shard_manifest


class Faulty:
    """The cluster's transport, on which requests of some methods get no answer, carried out or not."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._transport = cluster.transport
        self.lost: dict[str, bool] = {}
        self.refused: set[str] = set()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method in self.refused:
            return Response(
                403, b'{"kind":"Status","apiVersion":"v1","code":403,"reason":"Forbidden"}', Headers([])
            )
        carried_out = self.lost.get(method)
        if carried_out is not False:
            answer = await self._transport.request(method, path, **more)
        if carried_out is None:
            return answer
        raise OutcomeUnknown(f"{method}: no answer")


class World:
    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.faults = Faulty(cluster)
        self.store = ShardStore()
        self.now = 0.0
        self.writer = Writer(self.faults, self.store, fence=60.0, timing=self.timing(self.sleep))  # type: ignore[arg-type]

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def timing(self, sleep: Sleep) -> Timing:
        return Timing(clock=lambda: self.now, sleep=sleep)

    async def read(self, name: str) -> Shard:
        answer = await self.cluster.call("GET", f"{NODE_SHARDS}/{name}")
        assert answer.status == 200
        return shard_of(read_shard(answer.body))

    async def change(self, name: str, change: Any, *, status: bool = False) -> None:
        path = f"{NODE_SHARDS}/{name}" + ("/status" if status else "")
        await self.cluster.patch(path, change)


@pytest.fixture
async def it() -> AsyncIterator[World]:
    async with embedded_cluster() as cluster:
        await ShardedCluster(cluster.transport).prepare()
        yield World(cluster)


async def test_a_shard_is_made_changed_and_deleted_and_the_book_knows_at_once(it: World) -> None:
    assert (await it.writer.put("s", frozenset({"b", "a"}))).result is Result.CREATED
    made = it.store.get("s")
    assert made == await it.read("s")
    assert made is not None
    assert (made.ours, made.desired) == (True, {"a", "b"})
    assert (await it.writer.put("s", frozenset({"c"}))).result is Result.UPDATED
    changed = it.store.get("s")
    assert changed == await it.read("s")
    assert changed is not None
    assert (await it.writer.delete(changed)).result is Result.DELETED
    assert it.store.get("s") is None


async def test_names_are_written_in_their_order(it: World) -> None:
    await it.writer.put("s", frozenset(f"n{number}" for number in range(50)))
    found = await it.cluster.get(f"{NODE_SHARDS}/s")
    assert found["spec"]["nodesDesired"] == sorted(f"n{number}" for number in range(50))


async def test_a_write_that_was_overtaken_is_refused_and_shows_what_is_there(it: World) -> None:
    await it.writer.put("s", frozenset({"a"}))
    await it.change("s", {"spec": {"nodesDesired": ["x"]}})
    written = await it.writer.put("s", frozenset({"b"}))
    assert written.result is Result.CONFLICT
    assert it.store.get("s") == await it.read("s")
    assert (await it.writer.put("s", frozenset({"b"}))).result is Result.UPDATED
    assert (await it.read("s")).desired == {"b"}


async def test_a_shard_that_somebody_else_made_first_is_seen_and_not_written(it: World) -> None:
    await it.cluster.add(NODE_SHARDS, shard_manifest("s", ["x"], ours=False))
    written = await it.writer.put("s", frozenset({"a"}))
    assert written.result is Result.CONFLICT
    found = it.store.get("s")
    assert found is not None
    assert (found.ours, found.desired) == (False, {"x"})
    assert (await it.read("s")).desired == {"x"}


async def test_a_shard_whose_label_was_taken_off_is_not_written(it: World) -> None:
    await it.writer.put("s", frozenset({"a"}))
    await it.change("s", {"metadata": {"labels": {OWNER_LABEL: None}}})
    # Seen by nobody yet, and then known.
    for _ in range(2):
        assert (await it.writer.put("s", frozenset({"b"}))).result is Result.CONFLICT
    assert (await it.read("s")).desired == {"a"}


async def test_a_shard_that_has_changed_is_not_deleted(it: World) -> None:
    await it.writer.put("s", frozenset())
    seen = it.store.get("s")
    assert seen is not None
    await it.change("s", {"status": {"nodesInUse": ["n"]}}, status=True)
    assert (await it.writer.delete(seen)).result is Result.CONFLICT
    now = it.store.get("s")
    assert now == await it.read("s")
    assert now is not None
    assert now.used
    assert (await it.writer.delete(now)).result is Result.DELETED
    # Gone already is as good.
    assert (await it.writer.delete(now)).result is Result.DELETED


async def test_a_deletion_without_an_answer_is_left_for_later(it: World) -> None:
    await it.writer.put("s", frozenset())
    seen = it.store.get("s")
    assert seen is not None
    it.faults.lost["DELETE"] = False
    assert (await it.writer.delete(seen)).result is Result.FAILED
    assert it.store.get("s") == seen


async def test_a_shard_that_went_meanwhile_is_forgotten(it: World) -> None:
    await it.writer.put("s", frozenset({"a"}))
    await it.cluster.delete(f"{NODE_SHARDS}/s")
    written = await it.writer.put("s", frozenset({"b"}))
    assert written.result in (Result.CONFLICT, Result.FAILED)
    assert it.store.get("s") is None
    assert (await it.writer.put("s", frozenset({"b"}))).result is Result.CREATED


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_write_whose_answer_was_lost_is_looked_for_and_sent_again(
    it: World, carried_out: bool
) -> None:
    await it.writer.put("s", frozenset({"a"}))

    async def sleep(seconds: float) -> None:
        it.now += seconds
        it.faults.lost.clear()

    it.writer = Writer(it.faults, it.store, fence=60.0, timing=it.timing(sleep))  # type: ignore[arg-type]
    it.faults.lost["PATCH"] = carried_out
    assert (await it.writer.put("s", frozenset({"b"}))).result is Result.UPDATED
    assert it.store.get("s") == await it.read("s")
    assert (await it.read("s")).desired == {"b"}


async def test_what_others_changed_before_a_lost_answer_was_looked_for_is_learnt(it: World) -> None:
    await it.writer.put("s", frozenset({"a"}))

    async def sleep(seconds: float) -> None:
        it.now += seconds
        it.faults.lost.clear()
        await it.change("s", {"status": {"nodesInUse": ["a"]}}, status=True)

    it.writer = Writer(it.faults, it.store, fence=60.0, timing=it.timing(sleep))  # type: ignore[arg-type]
    it.faults.lost["PATCH"] = True
    assert (await it.writer.put("s", frozenset({"b"}))).result is Result.UPDATED
    found = it.store.get("s")
    assert found == await it.read("s")
    assert found is not None
    assert found.used


async def test_a_shard_given_away_before_a_lost_answer_was_looked_for_is_not_written(it: World) -> None:
    await it.writer.put("s", frozenset({"a"}))

    async def sleep(seconds: float) -> None:
        it.now += seconds
        it.faults.lost.clear()
        await it.change("s", {"metadata": {"labels": {OWNER_LABEL: None}}})

    it.writer = Writer(it.faults, it.store, fence=60.0, timing=it.timing(sleep))  # type: ignore[arg-type]
    it.faults.lost["PATCH"] = True
    for _ in range(2):
        assert (await it.writer.put("s", frozenset({"b"}))).result is Result.CONFLICT
    found = it.store.get("s")
    assert found == await it.read("s")
    assert found is not None
    assert not found.ours


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_nodes_of_a_write_that_may_still_be_carried_out_go_to_nobody_else(
    it: World, method: str
) -> None:
    if method == "PATCH":
        await it.writer.put("s", frozenset())
    it.faults.lost.update({method: False, "GET": False})
    written = await it.writer.put("s", frozenset({"n"}))
    assert written.result is Result.FAILED
    assert written.problem == "it did not succeed within 30 s"
    held = {shard.name: shard.desired for shard in it.store}
    assert next_step({"other": frozenset({"n"})}, held, it.store.unconfirmed(it.now)) == Step(
        "other", frozenset(), False
    )
    # Nor do they if what was asked for next got no answer, either.
    await it.writer.put("s", frozenset({"m"}))
    assert it.store.unconfirmed(it.now) == {"s": {"n", "m"}}
    # It is known again once the shard has been written, or has been seen to be another; but a request to make it may be
    # carried out when somebody has deleted it.
    it.faults.lost.clear()
    assert (await it.writer.put("s", frozenset({"m"}))).result.is_done
    if method == "POST":
        it.now += 60.0
    assert it.store.unconfirmed(it.now) == {}


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_nodes_of_a_write_that_got_no_answer_are_for_others_once_nothing_can_be_carried_out(
    it: World, method: str
) -> None:
    """Nobody may ever write that shard again: it may be to have what it has."""
    if method == "PATCH":
        await it.writer.put("s", frozenset())
    it.faults.lost.update({method: False, "GET": False})
    assert (await it.writer.put("s", frozenset({"n"}))).result is Result.FAILED
    it.now += 59.0
    assert it.store.unconfirmed(it.now) == {"s": {"n"}}
    it.now += 1.5
    assert it.store.unconfirmed(it.now) == {}


async def test_nodes_of_a_write_to_a_shard_that_another_has_taken_meanwhile_are_for_others(it: World) -> None:
    """Its version is known to be past by the time that the write is given up."""
    await it.writer.put("s", frozenset())

    async def sleep(seconds: float) -> None:
        it.now += seconds
        if not taken:
            taken.append(await it.change("s", {"metadata": {"labels": {OWNER_LABEL: None}}}))
            it.store.set(await it.read("s"))

    taken: list[object] = []
    it.writer = Writer(it.faults, it.store, fence=60.0, timing=it.timing(sleep))  # type: ignore[arg-type]
    it.faults.lost.update({"PATCH": False, "GET": False})
    assert (await it.writer.put("s", frozenset({"n"}))).result is Result.FAILED
    assert it.store.unconfirmed(it.now) == {}


async def test_nodes_of_a_shard_that_may_still_be_made_go_to_nobody_else_though_the_next_request_is_refused(
    it: World,
) -> None:
    async def sleep(seconds: float) -> None:
        it.now += seconds
        it.faults.lost.clear()
        it.faults.refused.add("POST")

    it.writer = Writer(it.faults, it.store, fence=60.0, timing=it.timing(sleep))  # type: ignore[arg-type]
    it.faults.lost["POST"] = False
    assert (await it.writer.put("s", frozenset({"n"}))).result is Result.FAILED
    assert it.store.unconfirmed(it.now) == {"s": {"n"}}
    # Refused at once: nothing of it can come.
    assert (await it.writer.put("t", frozenset({"m"}))).result is Result.FAILED
    assert it.store.unconfirmed(it.now) == {"s": {"n"}}


async def test_a_shard_may_come_again_while_a_request_to_make_it_may_be_carried_out(it: World) -> None:
    async def sleep(seconds: float) -> None:
        it.now += seconds
        it.faults.lost.clear()

    it.writer = Writer(it.faults, it.store, fence=60.0, timing=it.timing(sleep))  # type: ignore[arg-type]
    it.faults.lost["POST"] = False
    assert (await it.writer.put("s", frozenset({"n"}))).result is Result.CREATED
    assert (await it.writer.put("t", frozenset({"m"}))).result is Result.CREATED
    assert (it.writer.may_come_again("s"), it.writer.may_come_again("t")) == (True, False)
    it.now += 60.0
    assert not it.writer.may_come_again("s")


async def test_what_only_an_answer_has_told_of_is_looked_at_until_the_watch_tells_of_it(it: World) -> None:
    await it.writer.put("s", frozenset({"a"}))
    made = await it.read("s")
    assert it.store.unwatched == [made]
    it.store.set(made)
    assert it.store.unwatched == []
    # The watch tells of its end, and only then comes the answer to what was asked before.
    await it.cluster.delete(f"{NODE_SHARDS}/s")
    it.store.delete(made)
    it.store.observe(made)
    assert it.store.unwatched == [made]
    await it.writer.look(made)
    assert (it.store.get("s"), it.store.unwatched) == (None, [])


async def test_without_the_kind_a_write_says_so(it: World) -> None:
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeshards.shard.volcano.sh"
    await it.cluster.delete(crd)
    written = await it.writer.put("s", frozenset({"n"}))
    assert (written.result, written.is_absent) == (Result.FAILED, True)


async def test_a_shard_that_was_deleted_meanwhile_does_not_mean_that_there_is_no_such_kind(it: World) -> None:
    await it.writer.put("s", frozenset({"a"}))
    await it.cluster.delete(f"{NODE_SHARDS}/s")
    written = await it.writer.put("s", frozenset({"b"}))
    assert (written.result, written.is_absent) == (Result.CONFLICT, False)
    assert (await it.writer.put("s", frozenset({"b"}))).result is Result.CREATED


async def test_an_older_version_changes_nothing(it: World) -> None:
    await it.writer.put("s", frozenset({"a"}))
    old = it.store.get("s")
    assert old is not None
    await it.writer.put("s", frozenset({"b"}))
    new = it.store.get("s")
    assert not it.store.set(old)
    assert it.store.get("s") == new


async def test_a_new_status_is_no_news(it: World) -> None:
    await it.writer.put("s", frozenset({"a"}))
    await it.change("s", {"status": {"nodesInUse": ["a"]}}, status=True)
    assert not it.store.set(await it.read("s"))
    found = it.store.get("s")
    assert found is not None
    assert found.used
