"""What is known of NodeShards, told by the watch and by answers in any order."""

from __future__ import annotations

import pytest

from agent_scheduler.controllers.sharding.book import Book, Shard


def shard(version: int, *nodes: str, uid: str = "one") -> Shard:
    return Shard(
        name="a", uid=uid, resource_version=str(version), ours=True, desired=frozenset(nodes), used=False
    )


def test_the_end_of_an_object_says_nothing_of_the_one_that_has_its_name_by_now() -> None:
    book = Book()
    assert book.set(shard(1, "n1"))
    # We were told by an answer that it was made again, and the watch is behind.
    book.learn(shard(5, "n2", uid="two"))
    assert not book.delete(shard(3, "n1"))
    known = book.get("a")
    assert known is not None and (known.uid, known.desired) == ("two", {"n2"})
    assert book.delete(shard(6, uid="two")) and book.get("a") is None


def test_an_older_version_takes_no_place_of_a_newer_one() -> None:
    book = Book()
    book.learn(shard(5, "n2"))
    assert not book.set(shard(4, "n1"))
    known = book.get("a")
    assert known is not None and known.desired == {"n2"}


def test_what_several_writes_without_an_answer_may_do_is_doubted_together() -> None:
    book = Book()
    book.set(shard(1))
    book.doubt("a", "1", frozenset({"n1"}), until=60.0)
    book.doubt("a", "1", frozenset({"n2"}), until=70.0)
    assert book.doubted(69.9) == {"a": {"n1", "n2"}}
    # Each of them was for this version, and is refused now.
    book.set(shard(2))
    assert book.doubted(69.9) == {}


@pytest.mark.parametrize("version", ["1", ""])
def test_a_write_for_a_version_that_is_no_more_is_not_doubted(version: str) -> None:
    """The shard was changed, or made, by somebody else while an answer was waited for."""
    book = Book()
    book.set(shard(2))
    book.doubt("a", version, frozenset({"n1"}), until=70.0)
    assert book.doubted(69.9) == {}


def test_what_no_write_can_do_any_more_is_not_doubted() -> None:
    book = Book()
    book.set(shard(1))
    book.doubt("a", "1", frozenset({"n1"}), until=60.0)
    assert book.doubted(59.9) == {"a": {"n1"}}
    assert book.doubted(60.0) == {}
