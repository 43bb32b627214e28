"""What the book of all schedulers has left of a queue, as a session places, takes back, commits and evicts."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.quotas.book import QuotaBook, Standing
from agent_scheduler.engine.session.session import Session
from tests.support.engine import queue_of

from .scene import Part, Scene, bound, claimed, conf, evicted, runs, sized, tasks_of, told, waits

pytestmark = pytest.mark.promise("S28")

#: No plugin of these asks queues.
ACTIONS = "enqueue allocate backfill preempt"
PLAIN = conf("priority", "predicates", "gang", actions=ACTIONS)


def scene(cpu: int | None, **more: Any) -> Scene:
    """A large node, and a queue `q` that may hold so much, below `above`."""
    made = sized(64)
    made.more["priorities"] = {"high": 9}
    limit = None if cpu is None else {"cpu": cpu * 1000}
    made.queues += [queue_of("above", capability=limit), queue_of("q", "above", **more)]
    return made


def ran(made: Scene, *parts: Part, book: QuotaBook | None = None) -> Session:
    """The session with these groups, and with those of their pods that have a node in the book."""
    made.holding(*parts)
    return made.run(PLAIN, book=book or made.book(bound=True))[0]


def of_q(name: str, number: int = 1, **more: Any) -> Part:
    return waits(name, number, queue="q", **more)


@pytest.mark.parametrize(("limit", "fitting"), [(1, 1), (2, 2), (3, 3), (None, 4)])
def test_each_that_is_placed_counts_for_those_after_it(limit: int | None, fitting: int) -> None:
    made = scene(limit).holding(*(of_q(f"g{number}") for number in range(4)))
    book = made.book()
    session, result = made.run(PLAIN, book=book)
    assert sorted(bound(session)) == [f"g{number}-0" for number in range(fitting)]
    assert {reason for reason, _ in told(result).values()} == ({"QueueFull"} if fitting < 4 else set())
    assert book.used("above")["cpu"] == fitting * 1000


def test_what_is_tried_for_a_gang_that_does_not_fit_whole_is_given_back() -> None:
    session = ran(scene(4), of_q("large", 5), of_q("small", 2), of_q("other", 2))
    assert sorted(bound(session)) == ["other-0", "other-1", "small-0", "small-1"]


def test_what_the_committer_refused_is_given_back() -> None:
    made = scene(2)
    made.cluster.refused = {"g-0", "g-1"}
    assert sorted(bound(ran(made, of_q("g", 2), of_q("later", 2)))) == ["later-0", "later-1"]


def test_room_that_is_reserved_for_a_pod_is_its_own_alone() -> None:
    made = scene(2).holding(of_q("other", 2))
    (mine,) = made.gang("mine", 1, queue="q")
    book = made.book()
    book.set(mine.uid, "q", {"cpu": 1000}, Standing.RESERVED)
    assert sorted(bound(ran(made, book=book))) == ["mine-0"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_those_hold_who_are_evicted_is_free_for_who_they_leave_for(number: int) -> None:
    session = ran(
        scene(4), runs("low", *["n0"] * 4, queue="q"), of_q("high", number, priorityClassName="high")
    )
    assert evicted(session) == ["low-3", "low-2", "low-1"][:number]
    assert len(claimed(session)) == number


def test_an_eviction_that_is_refused_leaves_the_queue_full() -> None:
    made = scene(2)
    made.cluster.refused = {"low-1"}
    session = ran(made, runs("low", "n0", "n0", queue="q"), of_q("high", priorityClassName="high"))
    (task,) = tasks_of(session, "high")
    session.unplace(task)
    assert not session.tiers.allocatable(session.queues["q"], task)


def test_a_queue_that_is_not_open_takes_nothing_and_a_book_without_queues_refuses_nothing() -> None:
    made = scene(None, state="Closed").holding(of_q("g"))
    session, result = made.run(PLAIN, book=made.book())
    assert bound(session) == {} and set(told(result).values()) == {
        ("QueueFull", "queue q takes no pods: its state is Closed")
    }
    assert bound(made.run(PLAIN, book=QuotaBook())[0]) == {"g-0": "n0"}
