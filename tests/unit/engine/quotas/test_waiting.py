"""Pods that wait for a queue: who may try again, in which order, and how many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.quotas.book import QuotaBook, Standing
from agent_scheduler.engine.quotas.waiting import WaitingPods
from tests.support.engine import queue_of


def book(**limits: int) -> QuotaBook:
    found = QuotaBook()
    infos = [queue_of(name, capability=limit, parent="p" * (name in "ab")) for name, limit in limits.items()]
    for info in (queue_of("root"), queue_of("p"), *infos):
        found.set_queue(info)
    return found


def waiting(*pods: tuple[str, str, int, int]) -> WaitingPods:
    """UID, queue, cpu, priority; created in this order."""
    found = WaitingPods()
    for number, (uid, queue, cpu, priority) in enumerate(pods):
        found.add(uid, {queue: {"cpu": cpu}}, priority=priority, created=f"{number:03}")
    return found


def test_who_was_called_and_refused_again_has_its_old_turn() -> None:
    found = waiting(("first", "a", 400, 0), ("second", "a", 400, 0))
    empty = book(a=400)
    assert found.fitting(empty, {"a"}) == [("first", "a")]
    found.add("first", {"a": {"cpu": 400}}, priority=0, created="000")
    assert found.fitting(empty, {"a"}) == [("first", "a")]


def test_who_waits_for_several_queues_has_room_in_all_or_takes_none() -> None:
    found = waiting(("next", "a", 400, 0))
    found.add("both", {"a": {"cpu": 400}, "b": {"cpu": 400}}, priority=5, created="000")
    assert found.fitting(book(a=400, b=300), {"a"}) == [("next", "a")]
    assert found.fitting(book(a=400, b=400), {"c"}) == []
    assert found.fitting(book(a=400, b=400), {"b"}) == [("both", "a")]


def test_room_in_two_queues_below_one_is_counted_once() -> None:
    found = waiting()
    found.add("both", {"a": {"cpu": 400}, "b": {"cpu": 400}}, priority=0, created="000")
    assert found.fitting(book(p=700, a=900, b=900), {"p"}) == []
    assert found.fitting(book(p=800, a=900, b=900), {"p"}) == [("both", "a")]


def test_a_pod_waits_for_one_queue_at_a_time() -> None:
    found = waiting(("u", "a", 400, 0))
    found.add("u", {"b": {"cpu": 400}}, priority=0, created="000")
    assert found.queue_of("u") == "b"
    assert found.fitting(book(a=400), {"a"}) == []
    found.remove("u")
    found.remove("u")
    assert found.queue_of("u") == ""
    assert not len(found)


def test_those_come_before_one_that_wait_for_the_same_queue_or_one_below_it_in_their_turn() -> None:
    found = waiting(
        *(("old", "a", 400, 0), ("urgent", "a", 900, 5), ("late", "a", 400, 0)),
        *(("beside", "b", 400, 9), ("other", "c", 400, 9)),
    )
    there = book(p=500, a=500, b=500, c=500)
    assert found.before("late", there, "a") == ["urgent", "old"]
    assert found.before("late", there, "p") == ["beside", "urgent", "old"]
    assert found.before("late", there, "root") == ["beside", "other", "urgent", "old"]
    assert found.before("beside", there, "root") == []
    assert sorted(found.all()) == ["beside", "late", "old", "other", "urgent"]
    assert not len(found) and found.fitting(there, {"root"}) == []


changes = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 2), st.booleans()),
    max_size=40,
)


@given(changes, st.integers(0, 12), st.integers(0, 12))
def test_those_that_may_try_again_fit_and_nobody_before_them_was_passed_over(
    changes: list[tuple[int, str, int, int, bool]], limit: int, above: int
) -> None:
    quotas, found = book(p=above, a=limit, b=limit, c=limit), WaitingPods()
    kept: dict[str, tuple[int, str, str, int]] = {}
    for number, queue, cpu, priority, stays in changes:
        uid = str(number)
        if stays:
            found.add(uid, {queue: {"cpu": cpu}}, priority=priority, created=uid)
            kept[uid] = (-priority, uid, queue, cpu)
        else:
            found.remove(uid)
            kept.pop(uid, None)
    expected = []
    for _, uid, queue, cpu in sorted(kept.values()):
        if quotas.shortfall(queue, {"cpu": cpu}) is None:
            quotas.set(uid, queue, {"cpu": cpu}, Standing.ASSUMED)
            expected.append(uid)
    for uid in expected:
        quotas.remove(uid)
    assert found.fitting(quotas, {"root"}) == [(uid, kept[uid][2]) for uid in expected]
    assert len(found) == len(kept) - len(expected)
