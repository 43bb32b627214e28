"""The quota book: a pod counts once, in its queue and all above it; and pods that wait for a queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_scheduler.engine.queues.book import QuotaBook
from agent_scheduler.engine.queues.entries import QueueHeld, Standing
from agent_scheduler.engine.queues.waiting import QuotaWaitingPods
from agent_scheduler.engine.quotas.queues import QueueInfo, QueueTree
from agent_scheduler.engine.quotas.turns import turn
from agent_scheduler.engine.quotas.vector import Vector, add_to
from tests.support.engine import queue_of

pytestmark = pytest.mark.promise("S28")

GPU = "nvidia.com/gpu"
ROOT = queue_of("root")


def book(*queues: QueueInfo) -> QuotaBook:
    found = QuotaBook()
    for info in (ROOT, *queues):
        found.set_queue(info)
    return found


def test_without_queues_there_is_nothing_to_ask() -> None:
    assert not QuotaBook()
    assert book()


def test_the_first_queue_upwards_that_lacks_something_is_named_with_how_much() -> None:
    found = book(
        queue_of("p", capability={"cpu": 3000, GPU: 1000}), queue_of("a", "p", capability=2500), queue_of("b", "p")
    )
    found.set("u", "b", {"cpu": 1000, GPU: 1000}, Standing.ASSUMED)
    assert found.shortfall("a", {"cpu": 2000}) is None
    assert str(found.shortfall("a", {"cpu": 2600})) == "queue a has too little capability left: 100m of cpu missing"
    assert str(found.shortfall("a", {"cpu": 2500, GPU: 1000, "memory": 9})) == (
        "queue p has too little capability left: 500m of cpu, 1 of nvidia.com/gpu missing"
    )


def test_a_pod_is_not_counted_twice_when_it_is_asked_for_again() -> None:
    found = book(queue_of("a", capability=1000))
    found.set("u", "a", {"cpu": 1000}, Standing.RESERVED)
    assert found.shortfall("a", {"cpu": 1000}, "u") is None
    assert found.shortfall("a", {"cpu": 1000}, "other") is not None


def test_no_limit_is_what_says_nothing_or_0_of_cpu_and_memory_and_pods_are_not_limited() -> None:
    found = book(queue_of("a", capability={"cpu": 0, "pods": 0, GPU: 0}))
    assert found.shortfall("a", {"cpu": 10**9, "memory": 10**15, "pods": 1}) is None
    assert found.shortfall("a", {GPU: 1}) is not None


def test_a_queue_that_is_not_open_or_not_there_takes_no_pods() -> None:
    found = book(queue_of("a", state="Closed"), queue_of("b", state=""))
    assert str(found.shortfall("a", {})) == "queue a takes no pods: its state is Closed"
    assert str(found.shortfall("b", {})) == "queue b takes no pods: its state is not set"
    found.set("u", "named", {"cpu": 1}, Standing.BOUND)
    headroom = found.headroom()
    for name in ("gone", "named"):
        for ask in (found.shortfall, headroom.shortfall):
            assert str(ask(name, {})) == f"queue {name} does not exist"
    assert headroom.limits("named") and headroom.limits("a") and not headroom.limits("root")
    assert not found.is_kept("nobody") and not found.is_kept("u")


def test_where_more_is_reserved_than_there_is_the_first_goes_first() -> None:
    found = book(queue_of("above", capability=2000), queue_of("q", "above"), queue_of("beside", "above"))
    for name, of in (("first", "q"), ("second", "beside"), ("third", "q")):
        found.set(name, of, {"cpu": 1000}, Standing.RESERVED)
    assert found.shortfall("q", {"cpu": 1000}, "first") is None
    assert found.shortfall("beside", {"cpu": 1000}, "second") is None
    assert found.shortfall("q", {"cpu": 1000}, "third") is not None
    assert found.shortfall("q", {"cpu": 1000}) is not None
    headroom = found.headroom()
    assert headroom.shortfall("q", {"cpu": 1000}, ("first",)) is None
    assert headroom.shortfall("q", {"cpu": 2000}, ("first", "third")) is not None
    assert headroom.shortfall("q", {"cpu": 1500}, ("first",)) is not None
    assert headroom.take("beside", {"cpu": 1}) is not None
    headroom.give("q", {"cpu": 1000})
    assert headroom.shortfall("q", {"cpu": 1000}) is not None, "it holds more than it may without that, too"
    headroom.count("q", {"cpu": 1000})
    headroom.count("q", {"cpu": 5000})
    assert headroom.shortfall("q", {"cpu": 0, "memory": 1}) is None, "what is not wanted does not count"
    found.set("first", "q", {"cpu": 1000}, Standing.ASSUMED)
    assert found.shortfall("beside", {"cpu": 1000}, "second") is None
    found.set("second", "beside", {"cpu": 1000}, Standing.ASSUMED)
    assert found.shortfall("q", {"cpu": 1000}, "third") is not None


def test_what_is_promised_to_a_group_keeps_none_of_its_members_out_where_too_much_is_kept() -> None:
    """A session and the binder, which ask for one of several and for one pod, come to the same."""
    found = book(queue_of("above", capability=3000), queue_of("q", "above"), queue_of("beside", "above"))
    found.set("runs", "q", {"cpu": 1000}, Standing.BOUND)
    found.set("first", "beside", {"cpu": 1000}, Standing.RESERVED, turn(0, "1", "", ""))
    for name, standing in (("group", Standing.PROMISED), ("member", Standing.RESERVED)):
        found.set(name, "q", {"cpu": 1000}, standing, turn(0, "2", "", ""))
    assert found.headroom().shortfall("q", {"cpu": 1000}, ("member",), "group") is None
    assert found.shortfall("q", {"cpu": 1000}, "member", "group") is None
    assert found.shortfall("q", {"cpu": 1000}, "other") is not None


def test_queues_in_which_more_may_fit_are_told_of() -> None:
    found = book(queue_of("p"), queue_of("a", "p", capability=1), queue_of("b"))
    found.set("u", "a", {"cpu": 1}, Standing.ASSUMED)
    found.fallen.clear()
    found.set("u", "a", {"cpu": 1}, Standing.BOUND)
    assert not found.fallen
    found.remove("u")
    assert found.fallen == {"a", "p", "root"}
    found.fallen.clear()
    found.set_queue(queue_of("a", "p", capability=2))
    found.set_queue(queue_of("b"))
    assert found.fallen == {"a"}
    found.fallen.clear()
    found.set_queue(queue_of("a", "b", capability=2))
    assert found.fallen == {"a"}, "nothing is used in it"
    found.set("u", "a", {"cpu": 1}, Standing.BOUND)
    found.fallen.clear()
    found.set_queue(queue_of("a", "p", capability=2))
    assert found.fallen == {"a", "b", "p", "root"}, "it is elsewhere"


def test_a_limit_that_was_lowered_is_told_of_and_nothing_else_changes() -> None:
    found = book(queue_of("a", capability=5))
    found.set("u", "a", {"cpu": 5}, Standing.BOUND)
    found.set_queue(queue_of("a", capability=3))
    assert list(found.above_capability()) == [("a", "cpu", 2)]
    assert found.used("a") == {"cpu": 5}


@pytest.mark.parametrize("order", [1, -1, 7], ids=["upwards", "downwards", "mixed"])
def test_a_thousand_queues_in_a_circle_cost_what_a_thousand_queues_cost(
    order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of a queue takes at most a few steps for each queue; a step is one queue of a chain."""
    size, steps, chain = 1000, 0, QueueHeld.chain.fget

    def counted(queue: QueueHeld) -> Iterator[QueueHeld]:
        nonlocal steps
        for each in chain(queue):
            steps += 1
            yield each

    monkeypatch.setattr(QueueHeld, "chain", property(counted))
    found = book()
    for number in range(size):
        found.set(f"u{number}", f"q{number}", {"cpu": 1}, Standing.BOUND)
    for number in range(size):
        place = number * order % size
        found.set_queue(queue_of(f"q{place}", f"q{(place + 1) % size}", capability=1))
        assert steps <= 4 * size
        steps = 0
    assert all(found.is_in_cycle(f"q{number}") and found.used(f"q{number}") == {"cpu": 1} for number in range(size))
    assert (
        found.shortfall("q5", {"cpu": 1}) is not None
        and found.reaches("q5", {"q5"})
        and not found.reaches("q5", {"q6"})
    )
    steps = 0
    found.set_queue(queue_of("q0", capability=1))
    assert steps <= 4 * size and not found.is_in_cycle("q5")
    assert found.used("q0") == {"cpu": size} and found.used("q1") == {"cpu": 1}
    found.set_queue(queue_of("q0", "q1"))
    found.remove_queue("q500")
    assert not found.is_in_cycle("q5") and found.used("q499") == {"cpu": 999}


@pytest.mark.parametrize("order", [1, -1, 7], ids=["upwards", "downwards", "mixed"])
def test_unused_queues_in_a_chain_cost_little(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size, steps, chain = 1000, 0, QueueHeld.chain.fget

    def counted(queue: QueueHeld) -> Iterator[QueueHeld]:
        nonlocal steps
        for each in chain(queue):
            steps += 1
            yield each

    monkeypatch.setattr(QueueHeld, "chain", property(counted))
    found = book()
    for number in range(size):
        place = number * order % size
        found.set_queue(queue_of(f"q{place}", f"q{place - 1}"))
    assert steps <= 100 * size


NAMES = st.sampled_from(["root", "p", "a", "b", "gone"])
VECTORS = st.dictionaries(st.sampled_from(["cpu", "memory", GPU]), st.integers(0, 5))


class Book(RuleBasedStateMachine):
    """The book against a recount of all entries after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.book = QuotaBook()
        self.pods: dict[str, tuple[str, Vector, Standing]] = {}
        self.infos: dict[str, QueueInfo] = {}

    @rule(uid=st.sampled_from("xyz"), queue=NAMES, vector=VECTORS, standing=st.sampled_from(Standing))
    def set(self, uid: str, queue: str, vector: Vector, standing: Standing) -> None:
        self.book.set(uid, queue, vector, standing)
        self.pods[uid] = (queue, vector, standing)

    @rule(uid=st.sampled_from("xyz"))
    def remove(self, uid: str) -> None:
        self.book.remove(uid)
        self.pods.pop(uid, None)

    @rule(name=NAMES.filter(lambda name: name != "gone"), parent=NAMES | st.just(""), limit=st.none() | VECTORS)
    def set_queue(self, name: str, parent: str, limit: Vector | None) -> None:
        self.infos[name] = queue_of(name, parent, capability=limit)
        self.book.set_queue(self.infos[name])

    @rule(name=NAMES)
    def remove_queue(self, name: str) -> None:
        self.infos.pop(name, None)
        self.book.remove_queue(name)

    def _sum(self, pods: Iterable[tuple[str, Vector, Standing]]) -> dict[str, float]:
        total: dict[str, float] = {}
        for _, vector, _ in pods:
            add_to(total, vector)
        return {resource: amount for resource, amount in total.items() if amount}

    @invariant()
    def usage_is_the_sum_over_the_pods_of_a_queue_and_of_those_below_it(self) -> None:
        tree = QueueTree(self.infos.values())
        assert bool(self.book) == bool(self.infos)
        for name in ("root", "p", "a", "b", "gone"):
            above = {pod[0]: tree.ancestors(pod[0]) if pod[0] in self.infos else () for pod in self.pods.values()}
            below = [pod for pod in self.pods.values() if name == pod[0] or name in above[pod[0]]]
            assert {each: amount for each, amount in self.book.used(name).items() if amount} == self._sum(below)
            for standing in Standing:
                own = [pod for pod in self.pods.values() if pod[0] == name and pod[2] == standing]
                assert dict(self.book.own(name, standing)) == self._sum(own)

    @invariant()
    def nothing_is_kept_of_pods_and_queues_that_are_gone(self) -> None:
        assert {uid: entry[:3] for uid, entry in self.book.entries()} == self.pods
        assert set(self.book._queues) <= self.infos.keys() | {queue for queue, _, _ in self.pods.values()}


TestBook = Book.TestCase


def limits_of(**limits: int) -> QuotaBook:
    found = QuotaBook()
    infos = [queue_of(name, capability=limit, parent="p" * (name in "ab")) for name, limit in limits.items()]
    for info in (queue_of("root"), queue_of("p"), *infos):
        found.set_queue(info)
    return found


def waiting(*pods: tuple[str, str, int, int]) -> QuotaWaitingPods:
    """UID, queue, cpu, priority; created in this order."""
    found = QuotaWaitingPods()
    for number, (uid, queue, cpu, priority) in enumerate(pods):
        found.add(uid, {queue: {"cpu": cpu}}, turn(priority, f"{number:03}", uid, uid))
    return found


def test_who_was_called_and_refused_again_has_its_old_turn() -> None:
    found = waiting(("first", "a", 400, 0), ("second", "a", 400, 0))
    empty = limits_of(a=400)
    assert found.fitting(empty, {"a"}) == [("first", "a")]
    found.add("first", {"a": {"cpu": 400}}, turn(0, "000", "first", "first"))
    assert found.fitting(empty, {"a"}) == [("first", "a")]


def test_who_waits_for_several_queues_has_room_in_all_or_takes_none() -> None:
    found = waiting(("next", "a", 400, 0))
    found.add("both", {"a": {"cpu": 400}, "b": {"cpu": 400}}, turn(5, "000", "both", "both"))
    assert found.fitting(limits_of(a=400, b=300), {"a"}) == [("next", "a")]
    assert found.fitting(limits_of(a=400, b=400), {"c"}) == []
    assert found.fitting(limits_of(a=400, b=400), {"b"}) == [("both", "a")]


def test_room_in_two_queues_below_one_is_counted_once() -> None:
    found = waiting()
    found.add("both", {"a": {"cpu": 400}, "b": {"cpu": 400}}, turn(0, "000", "both", "both"))
    assert found.fitting(limits_of(p=700, a=900, b=900), {"p"}) == []
    assert found.fitting(limits_of(p=800, a=900, b=900), {"p"}) == [("both", "a")]


def test_a_pod_waits_for_one_queue_at_a_time() -> None:
    found = waiting(("u", "a", 400, 0))
    found.add("u", {"b": {"cpu": 400}}, turn(0, "000", "u", "u"))
    assert found.queue_of("u") == "b"
    assert found.fitting(limits_of(a=400), {"a"}) == []
    found.remove("u")
    found.remove("u")
    assert found.queue_of("u") == ""
    assert not len(found)


def test_those_come_before_one_that_wait_for_the_same_queue_or_one_below_it_in_their_turn() -> None:
    found = waiting(
        *(("old", "a", 400, 0), ("urgent", "a", 900, 5), ("late", "a", 400, 0)),
        *(("beside", "b", 400, 9), ("other", "c", 400, 9)),
    )
    there = limits_of(p=500, a=500, b=500, c=500)
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
    quotas, found = limits_of(p=above, a=limit, b=limit, c=limit), QuotaWaitingPods()
    kept: dict[str, tuple[int, str, str, int]] = {}
    for number, queue, cpu, priority, stays in changes:
        uid = str(number)
        if stays:
            found.add(uid, {queue: {"cpu": cpu}}, turn(priority, uid, uid, uid))
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
