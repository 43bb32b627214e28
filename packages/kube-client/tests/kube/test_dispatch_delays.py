"""Work that is queued by key, with delays and retries."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_client.budget import Budget
from kube_client.dispatch import Dispatcher, Ended
from kube_client.pace import WithinBudget
from kube_client.retry import Backoff
from kube_client.testing.loop import SimLoop
from kube_client.testing.virtual import timing, virtual_time

NO_JITTER = Backoff(initial=1.0, cap=8.0, jitter=0.0)


class Worker:
    """Works on keys, each for `seconds`, and fails `failures` times at each."""

    def __init__(self, *, seconds: float = 0.0, failures: int = 0) -> None:
        self.seconds = seconds
        self.failures = failures
        self.began: list[tuple[float, str]] = []
        self.busy: Counter[str] = Counter()
        self.most = 0

    async def __call__(self, key: str, _: None) -> bool:
        self.began.append((asyncio.get_running_loop().time(), key))
        self.busy[key] += 1
        assert self.busy[key] == 1, "one at a time"
        self.most = max(self.most, self.busy.total())
        await asyncio.sleep(self.seconds)
        self.busy[key] -= 1
        return sum(1 for _, each in self.began if each == key) > self.failures

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.began]


class Queue(Dispatcher[str, None]):
    """Puts each key after `settle` seconds."""

    def __init__(self, work: Any, *, settle: float = 0.0, workers: int = 1, backoff: Backoff = NO_JITTER) -> None:
        super().__init__(work, concurrency=workers, backoff=backoff)
        self.settle = settle

    def put_key(self, key: str) -> None:
        self.put_later(key, None, self.settle)


async def running(it: Queue, seconds: float) -> None:
    task = asyncio.create_task(it.run())
    await asyncio.sleep(seconds)
    it.stop()
    await task


@virtual_time
async def test_a_key_that_is_put_again_before_its_turn_has_one_turn() -> None:
    worker = Worker()
    it = Queue(worker)
    for key in ("a", "b", "a"):
        it.put_key(key)
    assert it.unfinished == 2
    await running(it, 1)
    assert sorted(key for _, key in worker.began) == ["a", "b"]
    assert it.unfinished == 0


@pytest.mark.parametrize(
    ("worker", "more", "puts", "turns"),
    [
        ({"seconds": 1.5}, {"workers": 3}, [0, 1], [0, 1.5]),
        # Later ones do not put it off.
        ({}, {"settle": 2.5}, [0, 1, 2], [2.5]),
        ({"failures": 5}, {}, [0], [0, 1, 3, 7, 15, 23]),
        ({"failures": 2}, {}, [0, 1.5], [0, 1, 1.5]),
    ],
    ids=["put in its turn", "put together", "failed", "put while it waits after a failure"],
)
@virtual_time
async def test_the_turns_of_a_key(
    worker: dict[str, Any], more: dict[str, Any], puts: list[float], turns: list[float]
) -> None:
    """One at a time; a change is worked on at once or once it has settled, and what failed ever later up to a limit."""
    made = Worker(**worker)
    it = Queue(made, **more)
    loop = asyncio.get_running_loop()
    start = loop.time()
    for at in puts:
        loop.call_at(start + at, it.put_key, "a")
    await running(it, 40)
    assert [at - start for at in made.times] == turns


@given(
    qps=st.sampled_from([0.0, 3.0, 100.0]),
    burst=st.integers(1, 5),
    puts=st.lists(st.integers(0, 2000).map(lambda each: each / 1000), min_size=1, max_size=40, unique=True),
)
@virtual_time
async def test_calls_wait_for_the_rate_in_order_and_without_a_task(qps: float, burst: int, puts: list[float]) -> None:
    """They begin as if each took its token when it was put, or up to 20 ms later."""
    budget = Budget(qps=qps, burst=burst if qps else None, timing=timing())
    began: list[tuple[float, int]] = []
    loop = asyncio.get_running_loop()

    def start(key: int, _: None, ended: Ended) -> bool:
        assert budget.at_once(lambda: True)
        began.append((loop.time(), key))
        loop.call_soon(ended, None)
        return True

    async def send(key: int, _: None) -> None:
        raise AssertionError(f"{key} has a task")

    it = Dispatcher[int, None](send, concurrency=3, start=start, pace=WithinBudget(budget, None))
    task = asyncio.create_task(it.run())
    first = loop.time()
    for number, at in enumerate(sorted(puts)):
        loop.call_at(first + at, it.put, number, None)
    await asyncio.sleep(60)
    it.stop()
    await task
    assert [key for _, key in began] == list(range(len(puts)))
    due = -math.inf
    for (at, number), put in zip(began, sorted(puts), strict=True):
        # The theoretical arrival time of a token bucket.
        due = max(due, put - burst / qps if qps else put) + (1 / qps if qps else 0.0)
        assert due - 1e-6 <= at - first, f"{number} began before the rate allowed it"
        assert at - first <= max(put, due) + 0.02 + 1e-6, f"{number} began late"


@virtual_time
async def test_a_key_that_waits_behind_one_at_work_has_the_free_worker_when_it_is_due() -> None:
    worker = Worker(seconds=3)
    it = Queue(worker, workers=2)
    task = asyncio.create_task(it.run())
    it.put_key("a")
    await asyncio.sleep(1)
    it.put_key("a")
    it.put_later("b", None, 1)
    await asyncio.sleep(9)
    task.cancel()
    assert [(at - worker.times[0], key) for at, key in worker.began] == [(0, "a"), (2, "b"), (3, "a")]


@virtual_time
async def test_stop_lets_what_is_worked_on_end_and_begins_nothing() -> None:
    worker = Worker(seconds=5)
    it = Queue(worker)
    for key in "ab":
        it.put_key(key)
    await running(it, 1)
    assert [key for _, key in worker.began] == ["a"]
    assert worker.busy.total() == 0
    assert it.unfinished == 1


@virtual_time
async def test_an_error_of_the_work_concerns_its_key_only_which_is_tried_again() -> None:
    done: list[str] = []
    broken = ["a", "a"]

    async def work(key: str, _: None) -> bool:
        if key in broken:
            broken.remove(key)
            raise ZeroDivisionError
        done.append(key)
        return True

    it = Queue(work, workers=1)
    for key in "ab":
        it.put_key(key)
    await running(it, 60)
    assert done == ["b", "a"]


PUTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.5, 1.0, 3.0])), max_size=20)


@given(PUTS, st.integers(1, 3), st.sampled_from([0.0, 0.7]), st.integers(0, 2))
def test_every_change_is_seen_by_a_turn_that_begins_later(
    puts: list[tuple[str, float]], workers: int, settle: float, failures: int
) -> None:
    async def scenario() -> None:
        worker = Worker(seconds=0.4, failures=failures)
        it = Queue(worker, workers=workers, settle=settle)
        task = asyncio.create_task(it.run())
        last: dict[str, float] = {}
        for key, pause in puts:
            await asyncio.sleep(pause)
            last[key] = asyncio.get_running_loop().time()
            it.put_key(key)
        await asyncio.sleep(100)
        it.stop()
        await task
        assert it.unfinished == 0
        assert worker.most <= workers
        for key, at in last.items():
            assert max(time for time, each in worker.began if each == key) >= at

    _in_virtual_time(scenario())


def _in_virtual_time(scenario: Coroutine[Any, Any, None]) -> None:
    loop = SimLoop(0)
    try:
        loop.run_until_complete(scenario)
    finally:
        loop.close()


@virtual_time
async def test_the_newest_call_is_sent_when_the_first_was_due_unless_it_is_discarded() -> None:
    sent: list[tuple[float, str, int]] = []
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def send(key: str, call: int) -> None:
        sent.append((loop.time() - start, key, call))

    it = Dispatcher(send, concurrency=1)
    for key, call, seconds in (
        ("a", 1, 2.0),
        ("a", 2, 5.0),
        ("b", 1, 3.0),
        ("c", 1, 3.0),
        ("d", 1, 3.0),
        ("d", 2, 1.0),
    ):
        it.put_later(key, call, seconds)
    it.discard("b")
    it.put("c", 2)
    task = asyncio.create_task(it.run())
    await asyncio.sleep(10)
    # A call that is not due when `run` ends is dropped.
    it.put_later("e", 1, 5.0)
    task.cancel()
    await asyncio.sleep(10)
    assert sent == [(0.0, "c", 2), (1.0, "d", 2), (2.0, "a", 2)]
    assert it.unfinished == 0


@virtual_time
async def test_a_call_that_succeeds_without_a_task_ends_the_failures_of_its_key() -> None:
    loop = asyncio.get_running_loop()
    begin, times = loop.time(), list[float]()

    async def failing() -> bool:
        return False

    def start(_key: str, _call: None, ended: Ended) -> bool:
        times.append(loop.time() - begin)
        loop.call_soon(ended, failing if len(times) in (1, 2, 4) else None)
        return True

    it = Dispatcher(Worker(), concurrency=1, start=start, backoff=NO_JITTER)
    task = asyncio.create_task(it.run())
    for _ in range(2):
        it.put("a", None)
        await asyncio.sleep(5)
    task.cancel()
    assert times == [0, 1, 3, 5, 6]
