"""What the book of all schedulers has left of a queue, as a session places, takes back, commits and evicts."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.quotas.book import QuotaBook, Standing
from agent_scheduler.engine.quotas.queues import QueueInfo
from tests.support.engine import node

from .scene import Scene, bound, claimed, conf, evicted, told

pytestmark = pytest.mark.promise("S28")

#: No plugin of these asks queues.
ACTIONS = "enqueue allocate backfill preempt"
PLAIN = conf("priority", "predicates", "gang", actions=ACTIONS)


def scene(cpu: int | None, **more: Any) -> tuple[Scene, QuotaBook]:
    """A large node, and a queue `q` that may hold so much, below `above`."""
    made = Scene(node("a", cpu="64"))
    made.more["priorities"] = {"high": 9}
    limit = None if cpu is None else {"cpu": cpu * 1000}
    made.queues += [QueueInfo(name="above", capability=limit), QueueInfo(name="q", parent="above", **more)]
    book = QuotaBook()
    for each in made.queues:
        book.set_queue(each)
    return made, book


@pytest.mark.parametrize(("limit", "fitting"), [(1, 1), (2, 2), (3, 3), (None, 4)])
def test_each_that_is_placed_counts_for_those_after_it(limit: int | None, fitting: int) -> None:
    made, book = scene(limit)
    for number in range(4):
        made.gang(f"g{number}", 1, queue="q")
    session, result = made.run(PLAIN, book=book)
    assert sorted(bound(session)) == [f"g{number}-0" for number in range(fitting)]
    assert {reason for reason, _ in told(result).values()} == ({"QueueFull"} if fitting < 4 else set())
    assert book.used("above")["cpu"] == fitting * 1000


def test_what_is_tried_for_a_gang_that_does_not_fit_whole_is_given_back() -> None:
    made, book = scene(4)
    made.gang("large", 5, queue="q")
    made.gang("small", 2, queue="q")
    made.gang("other", 2, queue="q")
    session, _ = made.run(PLAIN, book=book)
    assert sorted(bound(session)) == ["other-0", "other-1", "small-0", "small-1"]


def test_what_the_committer_refused_is_given_back() -> None:
    made, book = scene(2)
    made.cluster.refused = {"g-0", "g-1"}
    made.gang("g", 2, queue="q")
    made.gang("later", 2, queue="q")
    session, _ = made.run(PLAIN, book=book)
    assert sorted(bound(session)) == ["later-0", "later-1"]


def test_room_that_is_reserved_for_a_pod_is_its_own_alone() -> None:
    made, book = scene(2)
    made.gang("other", 2, queue="q")
    (mine,) = made.gang("mine", 1, queue="q")
    book.set(mine.uid, "q", {"cpu": 1000}, Standing.RESERVED)
    session, _ = made.run(PLAIN, book=book)
    assert sorted(bound(session)) == ["mine-0"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_those_hold_who_are_evicted_is_free_for_who_they_leave_for(number: int) -> None:
    made, book = scene(4)
    for pod in made.running("low", *["a"] * 4, queue="q"):
        book.set(pod.uid, "q", {"cpu": 1000}, Standing.BOUND)
    made.gang("high", number, queue="q", priorityClassName="high")
    session, _ = made.run(PLAIN, book=book)
    assert evicted(session) == ["low-3", "low-2", "low-1"][:number]
    assert len(claimed(session)) == number


def test_an_eviction_that_is_refused_leaves_the_queue_full() -> None:
    made, book = scene(2)
    made.cluster.refused = {"low-1"}
    for pod in made.running("low", "a", "a", queue="q"):
        book.set(pod.uid, "q", {"cpu": 1000}, Standing.BOUND)
    made.gang("high", 1, queue="q", priorityClassName="high")
    session, _ = made.run(PLAIN, book=book)
    (task,) = session.jobs["default/high"].tasks.values()
    session.unplace(task)
    assert not session.tiers.allocatable(session.queues["q"], task)


def test_a_queue_that_is_not_open_takes_nothing_and_a_book_without_queues_refuses_nothing() -> None:
    made, book = scene(None, state="Closed")
    made.gang("g", 1, queue="q")
    session, result = made.run(PLAIN, book=book)
    assert bound(session) == {} and set(told(result).values()) == {
        ("QueueFull", "queue q takes no pods: its state is Closed")
    }
    assert bound(made.run(PLAIN, book=QuotaBook())[0]) == {"g-0": "a"}
