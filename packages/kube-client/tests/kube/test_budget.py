from __future__ import annotations

import asyncio

import pytest

from kube_client.budget import Budget, TokenBucket
from kube_client.testing.scripted import FakeTime


async def take(bucket: TokenBucket, times: int) -> None:
    for _ in range(times):
        await bucket.take()


def slept(time: FakeTime) -> float:
    """The seconds since this was asked last."""
    seconds = sum(time.slept)
    time.slept.clear()
    return round(seconds, 6)


async def test_a_burst_is_free_and_what_follows_has_the_rate() -> None:
    time = FakeTime()
    bucket = TokenBucket(10, 5, timing=time.timing)
    for count, seconds in ((5, 0), (20, 2.0)):
        await take(bucket, count)
        assert slept(time) == seconds
    # At most the burst is saved up.
    time.now += 1000
    await take(bucket, 6)
    assert slept(time) == 0.1


@pytest.mark.parametrize("qps", [None, 0])
async def test_a_rate_of_zero_or_none_is_no_limit(qps: float | None) -> None:
    time = FakeTime()
    await take(TokenBucket(qps, timing=time.timing), 10_000)
    assert time.slept == []


async def test_waiters_are_served_in_the_order_they_came() -> None:
    bucket = TokenBucket(2, 1, timing=FakeTime().timing)
    order: list[tuple[int, float]] = []
    began = asyncio.get_running_loop().time()

    async def waiter(number: int) -> None:
        await bucket.take()
        order.append((number, asyncio.get_running_loop().time() - began))

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(waiter(number))
    assert order == [(number, pytest.approx(number / 2)) for number in range(6)]


async def test_a_cancelled_waiter_gives_its_token_and_its_place_back() -> None:
    budget = Budget(qps=0.1, burst=1, concurrency=1, timing=FakeTime().timing)

    async def one() -> None:
        async with budget.request():
            pass

    await one()
    waiter = asyncio.create_task(one())
    await asyncio.sleep(5)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    async with asyncio.timeout(5.1):
        await one()


async def test_only_so_many_requests_are_under_way() -> None:
    budget = Budget(concurrency=3)
    now = most = 0

    async def one() -> None:
        nonlocal now, most
        async with budget.request():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1

    await asyncio.gather(*(one() for _ in range(20)))
    assert most == 3


async def test_a_request_that_fails_gives_its_place_back() -> None:
    budget = Budget(concurrency=1)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            async with asyncio.timeout(1), budget.request():
                raise RuntimeError


@pytest.mark.parametrize(
    ("options", "words"), [({"qps": -1}, "qps"), ({"qps": 1, "burst": 0}, "burst"), ({"concurrency": 0}, "concurrency")]
)
def test_impossible_budgets_are_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Budget(**options)


@pytest.mark.parametrize(
    ("before", "taken", "after", "then", "seconds"),
    [
        ((10, 5), 5, (2, 1), 4, 2.0),
        # A smaller burst takes what was saved up beyond it, a larger one has to be saved up.
        ((10, 100), 0, (10, 2), 3, 0.1),
        ((10, 1), 0, (10, 100), 2, 0.1),
    ],
)
async def test_a_new_rate_holds_for_those_who_come_after_it(
    before: tuple[float, int], taken: int, after: tuple[float, int], then: int, seconds: float
) -> None:
    time = FakeTime()
    bucket = TokenBucket(*before, timing=time.timing)
    await take(bucket, taken)
    bucket.set_rate(*after)
    await take(bucket, then)
    assert slept(time) == seconds


async def test_a_limit_can_be_lifted_and_set() -> None:
    time = FakeTime()
    budget = Budget(qps=1, burst=1, timing=time.timing)
    assert not budget.is_unlimited
    budget.set_rate(None)
    assert budget.is_unlimited
    for _ in range(100):
        async with budget.request():
            pass
    assert time.slept == []
    budget.set_rate(1, 3)
    assert not budget.is_unlimited
    for _ in range(4):
        async with budget.request():
            pass
    assert slept(time) == 1.0


def test_what_has_a_bound_on_requests_under_way_is_not_unlimited_and_sends_nothing_at_once() -> None:
    budget = Budget(concurrency=1)
    assert not budget.is_unlimited
    budget.set_rate(None)
    assert not budget.is_unlimited
    assert not budget.at_once(lambda: True)


@pytest.mark.parametrize("qps", [None, 10.0])
async def test_what_need_not_wait_is_sent_at_once_and_counted_once_it_was(qps: float | None) -> None:
    time = FakeTime()
    budget = Budget(qps=qps, burst=1, timing=time.timing)
    assert not budget.at_once(lambda: False)
    assert budget.at_once(lambda: True)
    assert budget.at_once(lambda: True) is (qps is None)
    async with budget.request():
        pass
    assert slept(time) == (0.0 if qps is None else 0.1)


async def test_an_impossible_rate_changes_nothing() -> None:
    time = FakeTime()
    bucket = TokenBucket(10, 5, timing=time.timing)
    for qps, burst in ((-1, None), (1, 0)):
        with pytest.raises(ValueError):
            bucket.set_rate(qps, burst)
    await take(bucket, 6)
    assert slept(time) == 0.1


async def test_time_that_has_passed_counts_at_the_rate_that_it_passed_at() -> None:
    time = FakeTime()
    bucket = TokenBucket(1, 100, timing=time.timing)
    await take(bucket, 100)
    await time.sleep(10)
    time.slept.clear()
    bucket.set_rate(10, 100)
    await take(bucket, 11)
    assert slept(time) == 0.1
