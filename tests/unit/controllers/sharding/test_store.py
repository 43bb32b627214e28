"""What is known of NodeShards, told by the watch and by answers in any order."""

from __future__ import annotations

import pytest

from agent_scheduler.controllers.sharding.store import ShardInfo, ShardStore


def shard(version: int, *nodes: str, uid: str = "one") -> ShardInfo:
    return ShardInfo(name="a", uid=uid, resource_version=str(version), ours=True, desired=frozenset(nodes), used=False)


def test_the_end_of_an_object_says_nothing_of_the_one_that_has_its_name_by_now() -> None:
    store = ShardStore()
    assert store.set(shard(1, "n1"))
    # We were told by an answer that it was made again, and the watch is behind.
    store.set(shard(5, "n2", uid="two"))
    assert not store.delete(shard(3, "n1"))
    known = store.get("a")
    assert known is not None and (known.uid, known.desired) == ("two", {"n2"})
    assert store.delete(shard(6, uid="two")) and store.get("a") is None


def test_an_older_version_takes_no_place_of_a_newer_one() -> None:
    store = ShardStore()
    store.set(shard(5, "n2"))
    assert not store.set(shard(4, "n1"))
    known = store.get("a")
    assert known is not None and known.desired == {"n2"}


def test_what_several_writes_without_an_answer_may_do_is_doubted_together() -> None:
    store = ShardStore()
    store.set(shard(1))
    store.note_unconfirmed("a", "1", frozenset({"n1"}), until=60.0)
    store.note_unconfirmed("a", "1", frozenset({"n2"}), until=70.0)
    assert store.unconfirmed(69.9) == {"a": {"n1", "n2"}}
    # Each of them was for this version, and is refused now.
    store.set(shard(2))
    assert store.unconfirmed(69.9) == {}


@pytest.mark.parametrize(("known", "at", "doubted"), [(1, 69.9, {"a": {"n1"}}), (1, 70.0, {}), (2, 69.9, {})])
def test_what_no_write_can_do_any_more_is_not_doubted(known: int, at: float, doubted: object) -> None:
    """Its time is over, or the shard was changed by somebody else while an answer was waited for."""
    store = ShardStore()
    store.set(shard(known))
    store.note_unconfirmed("a", "1", frozenset({"n1"}), until=70.0)
    assert store.unconfirmed(at) == doubted


def test_a_request_to_make_a_shard_is_doubted_though_it_was_made_meanwhile_and_is_deleted() -> None:
    """It may be carried out then."""
    store = ShardStore()
    store.note_unconfirmed("a", "", frozenset({"n1"}), until=70.0)
    store.set(shard(2))
    assert store.unconfirmed(69.9) == {"a": {"n1"}}
    store.delete(shard(2))
    assert store.unconfirmed(69.9) == {"a": {"n1"}}
    assert store.unconfirmed(70.0) == {}
