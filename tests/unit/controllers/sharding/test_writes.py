"""Writes of one shard against an embedded cluster: what is learnt where somebody was first, or nobody answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from agent_scheduler.controllers.sharding.store import OWNER_LABEL, ShardInfo, ShardStore, shard_of
from agent_scheduler.controllers.sharding.watching import read_shard
from agent_scheduler.controllers.sharding.writes import ShardWrite, ShardWriter, WriteOutcome, next_step
from agent_scheduler.objects.shard import NODE_SHARDS
from kube_client.retry import Timing
from kube_client.transport import Headers, OutcomeUnknown, Response
from tests.support.embedded import EmbeddedCluster, embedded_cluster
from tests.support.sharded import CRDS, ShardedCluster, shard_manifest
from tests.support.transports import Through


class World(Through):
    """A writer whose requests of some methods get no answer, carried out or not, or are refused."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(cluster.transport)
        self.cluster = cluster
        self.lost: dict[str, bool] = {}
        self.refused: set[str] = set()
        self.store = ShardStore()
        self.now = 0.0
        #: What happens before a request is sent again.
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        timing = Timing(clock=lambda: self.now, sleep=self.sleep)
        #: Whether the watch has delivered the deletion of each shard in a response.
        self.is_gone = False
        self.writer = ShardWriter(self, self.store, learn=lambda _shard: not self.is_gone, fence=60.0, timing=timing)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.meanwhile is not None:
            await self.meanwhile()

    async def answers(self) -> None:
        self.lost.clear()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method in self.refused:
            return Response(403, b'{"kind":"Status","apiVersion":"v1","code":403,"reason":"Forbidden"}', Headers([]))
        carried_out = self.lost.get(method)
        if carried_out is not False:
            answer = await super().request(method, path, **more)
        if carried_out is None:
            return answer
        raise OutcomeUnknown(f"{method}: no answer")

    async def put(self, name: str, *nodes: str) -> WriteOutcome:
        return (await self.writer.put(name, frozenset(nodes))).result

    async def read(self, name: str = "s") -> ShardInfo:
        answer = await self.cluster.call("GET", f"{NODE_SHARDS}/{name}")
        assert answer.status == 200
        return shard_of(read_shard(answer.body))

    async def known(self) -> ShardInfo:
        """What is known of the shard `s`, which is what the API server has."""
        found = self.store.get("s")
        assert found is not None and found == await self.read()
        return found

    async def used(self, *nodes: str) -> None:
        await self.cluster.patch(f"{NODE_SHARDS}/s/status", {"status": {"nodesInUse": list(nodes)}})

    async def given_away(self) -> None:
        await self.cluster.patch(f"{NODE_SHARDS}/s", {"metadata": {"labels": {OWNER_LABEL: None}}})

    @property
    def doubted(self) -> dict[str, frozenset[str]]:
        return self.store.unconfirmed(self.now)


@pytest.fixture
async def it() -> AsyncIterator[World]:
    async with embedded_cluster() as cluster:
        await ShardedCluster(cluster.transport).prepare()
        yield World(cluster)


async def test_a_shard_is_made_changed_and_deleted_and_the_book_knows_at_once(it: World) -> None:
    assert await it.put("s", "b", "a") is WriteOutcome.CREATED
    made = await it.known()
    assert (made.ours, made.desired) == (True, {"a", "b"})
    assert await it.put("s", "c") is WriteOutcome.UPDATED
    assert (await it.writer.delete(await it.known())).result is WriteOutcome.DELETED
    assert it.store.get("s") is None


async def test_names_are_written_in_their_order(it: World) -> None:
    names = [f"n{number}" for number in range(50)]
    await it.put("s", *names)
    assert (await it.cluster.get(f"{NODE_SHARDS}/s"))["spec"]["nodesDesired"] == sorted(names)


async def test_a_write_that_was_overtaken_is_refused_and_shows_what_is_there(it: World) -> None:
    await it.put("s", "a")
    await it.cluster.patch(f"{NODE_SHARDS}/s", {"spec": {"nodesDesired": ["x"]}})
    assert await it.put("s", "b") is WriteOutcome.CONFLICT
    await it.known()
    assert await it.put("s", "b") is WriteOutcome.UPDATED
    assert (await it.read()).desired == {"b"}


async def test_a_shard_that_somebody_else_made_first_is_seen_and_not_written(it: World) -> None:
    await it.cluster.add(NODE_SHARDS, shard_manifest("s", ["x"], ours=False))
    assert await it.put("s", "a") is WriteOutcome.CONFLICT
    found = await it.known()
    assert (found.ours, found.desired) == (False, {"x"})


async def test_a_shard_whose_label_was_taken_off_is_not_written(it: World) -> None:
    await it.put("s", "a")
    await it.given_away()
    # Seen by nobody yet, and then known.
    for _ in range(2):
        assert await it.put("s", "b") is WriteOutcome.CONFLICT
    assert (await it.read()).desired == {"a"}


async def test_a_shard_that_has_changed_is_not_deleted(it: World) -> None:
    await it.put("s")
    seen = await it.known()
    await it.used("n")
    assert (await it.writer.delete(seen)).result is WriteOutcome.CONFLICT
    now = await it.known()
    assert now.used
    assert (await it.writer.delete(now)).result is WriteOutcome.DELETED
    # Gone already is as good.
    assert (await it.writer.delete(now)).result is WriteOutcome.DELETED


async def test_a_deletion_without_an_answer_is_left_for_later(it: World) -> None:
    await it.put("s")
    seen = await it.known()
    it.lost["DELETE"] = False
    assert (await it.writer.delete(seen)).result is WriteOutcome.FAILED
    assert it.store.get("s") == seen


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_write_whose_answer_is_lost_is_looked_for_and_repeated(it: World, carried_out: bool) -> None:
    await it.put("s", "a")
    it.meanwhile = it.answers
    it.lost["PATCH"] = carried_out
    assert await it.put("s", "b") is WriteOutcome.UPDATED
    assert (await it.known()).desired == {"b"}


async def test_what_others_changed_before_a_lost_answer_was_looked_for_is_learnt(it: World) -> None:
    await it.put("s", "a")

    async def meanwhile() -> None:
        it.lost.clear()
        await it.used("a")

    it.meanwhile = meanwhile
    it.lost["PATCH"] = True
    assert await it.put("s", "b") is WriteOutcome.UPDATED
    assert (await it.known()).used


async def test_a_shard_given_away_before_a_lost_answer_was_looked_for_is_not_written(it: World) -> None:
    await it.put("s", "a")

    async def meanwhile() -> None:
        it.lost.clear()
        await it.given_away()

    it.meanwhile = meanwhile
    it.lost["PATCH"] = True
    for _ in range(2):
        assert await it.put("s", "b") is WriteOutcome.CONFLICT
    assert not (await it.known()).ours


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_nodes_of_a_write_that_may_be_carried_out_go_to_nobody_else(it: World, method: str) -> None:
    if method == "PATCH":
        await it.put("s")
    it.lost.update({method: False, "GET": False})
    written = await it.writer.put("s", frozenset({"n"}))
    assert written.result is WriteOutcome.FAILED
    assert written.problem == "it did not succeed within 30 s"
    held = {shard.name: shard.desired for shard in it.store}
    assert next_step({"other": frozenset({"n"})}, held, it.doubted) == ShardWrite("other", frozenset(), False)
    # Nor do they if what was asked for next got no answer, either.
    await it.put("s", "m")
    assert it.doubted == {"s": {"n", "m"}}
    # It is known again once the shard has been written, or has been seen to be another; but a request to make it may be
    # carried out when somebody has deleted it.
    it.lost.clear()
    assert (await it.put("s", "m")).is_done
    if method == "POST":
        it.now += 60.0
    assert it.doubted == {}


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_nodes_of_a_write_without_answer_are_for_others_after_a_while(it: World, method: str) -> None:
    """Nobody may ever write that shard again: it may be to have what it has."""
    if method == "PATCH":
        await it.put("s")
    it.lost.update({method: False, "GET": False})
    assert await it.put("s", "n") is WriteOutcome.FAILED
    it.now += 59.0
    assert it.doubted == {"s": {"n"}}
    it.now += 1.5
    assert it.doubted == {}


async def test_nodes_of_a_write_to_a_shard_that_another_has_taken_meanwhile_are_for_others(it: World) -> None:
    """Its version is known to be past by the time that the write is given up."""
    await it.put("s")

    async def taken() -> None:
        it.meanwhile = None
        await it.given_away()
        it.store.set(await it.read())

    it.meanwhile = taken
    it.lost.update({"PATCH": False, "GET": False})
    assert await it.put("s", "n") is WriteOutcome.FAILED
    assert it.doubted == {}


async def test_nodes_of_a_shard_that_may_be_made_go_to_nobody_though_the_next_is_refused(it: World) -> None:
    async def meanwhile() -> None:
        it.lost.clear()
        it.refused.add("POST")

    it.meanwhile = meanwhile
    it.lost["POST"] = False
    assert await it.put("s", "n") is WriteOutcome.FAILED
    assert it.doubted == {"s": {"n"}}
    # Refused at once: nothing of it can come.
    assert await it.put("t", "m") is WriteOutcome.FAILED
    assert it.doubted == {"s": {"n"}}


async def test_a_shard_may_come_again_while_a_request_to_make_it_may_be_carried_out(it: World) -> None:
    it.meanwhile = it.answers
    it.lost["POST"] = False
    assert await it.put("s", "n") is WriteOutcome.CREATED
    assert await it.put("t", "m") is WriteOutcome.CREATED
    assert (it.writer.may_come_again("s"), it.writer.may_come_again("t")) == (True, False)
    it.now += 60.0
    assert not it.writer.may_come_again("s")


async def test_a_response_after_the_watch_delivered_the_deletion_of_its_shard_is_a_conflict(it: World) -> None:
    it.is_gone = True
    assert await it.put("s", "a") is WriteOutcome.CONFLICT
    assert it.store.get("s") is None
    it.is_gone = False
    await it.put("t", "a")
    made = it.store.get("t")
    assert made is not None
    it.is_gone = True
    await it.writer.look(made)
    assert it.store.get("t") is None


async def test_without_the_kind_a_write_says_so(it: World) -> None:
    await it.cluster.delete(f"{CRDS}/nodeshards.shard.volcano.sh")
    written = await it.writer.put("s", frozenset({"n"}))
    assert (written.result, written.is_absent) == (WriteOutcome.FAILED, True)


async def test_a_shard_that_was_deleted_meanwhile_is_forgotten_and_the_kind_is_there(it: World) -> None:
    await it.put("s", "a")
    await it.cluster.delete(f"{NODE_SHARDS}/s")
    written = await it.writer.put("s", frozenset({"b"}))
    assert (written.result, written.is_absent, it.store.get("s")) == (WriteOutcome.CONFLICT, False, None)
    assert await it.put("s", "b") is WriteOutcome.CREATED


async def test_a_new_status_is_no_news(it: World) -> None:
    await it.put("s", "a")
    await it.used("a")
    assert not it.store.set(await it.read())
    assert (await it.known()).used
