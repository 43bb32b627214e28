"""The limit follows what the server can do, whatever that is."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_client.adaptive import AdaptiveConcurrency


class Server:
    """`places` requests are worked on at a time, for `seconds` each; more wait their turn, or are refused."""

    def __init__(self, places: int, seconds: float, *, way: float = 0.001, room: int = 1 << 30) -> None:
        self.places, self.seconds, self.way, self.room = places, seconds, way, room
        self.now = 0.0
        self.done = self.refused = 0

    def serve(self, limit: AdaptiveConcurrency, requests: int, *, at_most: int = 1 << 30) -> None:
        """As many requests as `limit` lets, one after the other, each taking the first place that is free."""
        free = [self.now] * self.places
        under_way: list[tuple[float, int, float, bool]] = []
        order = count()
        sent = 0
        while sent < requests or under_way:
            while sent < requests and len(under_way) < min(limit.now, at_most):
                arrives = self.now + self.way / 2
                waiting = sum(1 for begins in free if begins > arrives)
                if waiting >= self.places and len(under_way) >= self.room:
                    ends, fine = arrives, False
                else:
                    ends = max(heapq.heappop(free), arrives) + self.seconds
                    heapq.heappush(free, ends)
                    fine = True
                heapq.heappush(under_way, (ends + self.way / 2, next(order), self.now, fine))
                sent += 1
            ended, _, began, fine = heapq.heappop(under_way)
            self.now = ended
            if fine:
                self.done += 1
                limit.answered(ended - began, under_way=len(under_way) + 1)
            else:
                self.refused += 1
                limit.refused()


def test_a_server_that_works_on_one_at_a_time_is_not_kept_full_and_stays_as_fast() -> None:
    limit, server = AdaptiveConcurrency(256), Server(1, 0.001)
    server.serve(limit, 20_000)
    assert 8 <= limit.now <= 32
    assert server.done / server.now > 0.99 / 0.001


@pytest.mark.parametrize("places", [4, *(pytest.param(each, marks=pytest.mark.wide) for each in (20, 100))])
def test_the_limit_is_about_what_the_server_has_places_for(places: int) -> None:
    limit, server = AdaptiveConcurrency(512), Server(places, 0.01)
    server.serve(limit, 60_000)
    assert places <= limit.now <= places * 1.3 + 32
    before, began = server.done, server.now
    server.serve(limit, 20_000)
    assert (server.done - before) / (server.now - began) > 0.95 * places / 0.01


def test_refusals_lower_the_limit_and_it_recovers_when_they_end() -> None:
    limit, server = AdaptiveConcurrency(64), Server(200, 0.01)
    server.serve(limit, 5_000)
    server.places, server.room = 10, 20
    server.serve(limit, 5_000)
    assert limit.now <= 30
    before = server.refused
    server.serve(limit, 5_000)
    assert server.refused - before < 250
    server.places, server.room = 200, 1 << 30
    server.serve(limit, 10_000)
    assert limit.now == 64


def test_a_limit_that_is_not_used_up_is_not_raised() -> None:
    limit, server = AdaptiveConcurrency(512), Server(200, 0.01)
    before = limit.now
    server.serve(limit, 10_000, at_most=4)
    assert limit.now == before


def test_a_server_that_has_become_slower_is_believed_after_a_while() -> None:
    limit, server = AdaptiveConcurrency(64), Server(100, 0.005)
    server.serve(limit, 5_000)
    server.seconds = 0.02
    server.serve(limit, 40_000)
    assert limit.now == 64


@given(
    most=st.integers(1, 300),
    steps=st.lists(st.tuples(st.floats(0, 10), st.integers(0, 400), st.booleans()), max_size=300),
)
def test_the_limit_stays_within_its_bounds_whatever_happens(most: int, steps: list[tuple[float, int, bool]]) -> None:
    limit = AdaptiveConcurrency(most)
    for seconds, under_way, refused in steps:
        act: Callable[[], None] = (
            limit.refused if refused else lambda s=seconds, u=under_way: limit.answered(s, under_way=u)
        )
        act()
        assert min(8, most) <= limit.now <= most


def test_bounds_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        AdaptiveConcurrency(0)
