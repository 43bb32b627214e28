from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_client.retry import Attempts, Backoff
from kube_client.testing.scripted import FakeTime


def test_delays_double_up_to_the_cap() -> None:
    backoff = Backoff(initial=1, cap=10, jitter=0)
    assert [backoff.delay(n, lambda: 0.0) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_random_within_its_share_and_never_above_the_cap(attempt: int, chance: float) -> None:
    backoff = Backoff(initial=0.1, cap=5, jitter=0.5)
    full = backoff.delay(attempt, lambda: 0.0)
    assert full / 2 <= backoff.delay(attempt, lambda: chance) <= full <= 5


@given(st.floats(0, 100), st.floats(0, 1, exclude_max=True))
def test_a_server_that_says_when_is_never_asked_earlier(after: float, chance: float) -> None:
    delay = Backoff(initial=1, cap=2).delay(1, lambda: chance, at_least=after)
    assert after <= delay <= max(1, after * 1.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"initial": 0}, "0 < initial"),
        ({"initial": 5, "cap": 1}, "initial <= cap"),
        ({"factor": 0.5}, "factor"),
        ({"jitter": 2}, "jitter"),
    ],
)
def test_impossible_backoffs_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Backoff(**options)


async def test_no_attempt_starts_after_the_deadline() -> None:
    time = FakeTime()
    attempts = Attempts(Backoff(initial=1, cap=100, jitter=0), time.timing, 10)
    waited = 0
    while await attempts.wait():
        waited += 1
    assert time.slept == [1, 2, 4]
    assert waited == 3
    assert attempts.left == 3


async def test_an_attempt_that_would_start_at_the_deadline_or_is_one_too_many_is_not_made() -> None:
    time, backoff = FakeTime(), Backoff(initial=1, cap=100, jitter=0)
    late = Attempts(backoff, time.timing, 3)
    assert [await late.wait() for _ in range(2)] == [True, False]
    few = Attempts(backoff, time.timing, most=3)
    assert [await few.wait() for _ in range(3)] == [True, True, False]


async def test_attempts_without_a_deadline_go_on() -> None:
    time = FakeTime()
    attempts = Attempts(Backoff(initial=1, cap=1, jitter=0), time.timing)
    assert all([await attempts.wait() for _ in range(2000)])
    assert attempts.left == float("inf")
