"""Results that are computed from the observed times."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness.measure import Exposition, Reading, Usage, grown, longest
from bench.harness.model import Batch
from bench.harness.result import (
    Figures,
    Latency,
    Run,
    figures_of,
    per_pod,
    percentiles,
    rate,
    read_runs,
    waits,
    write_runs,
)
from bench.harness.watching import Track


def test_percentiles_are_of_milliseconds() -> None:
    latency = percentiles([number / 1000 for number in range(101)])
    assert (latency.p50, latency.p90, latency.p99, latency.most) == pytest.approx((50, 90, 99, 100))
    assert percentiles([]) == Latency()


def test_only_pods_with_both_moments_have_waited_and_none_less_than_nothing() -> None:
    assert waits([1.0, 0.0, 3.0, 5.0], [2.5, 9.0, 0.0, 4.9]) == [1.5, 0.0]


def test_a_rate_counts_from_the_first_create_or_between_binds() -> None:
    assert rate([11.0, 12.0, 15.0], since=10.0) == pytest.approx(3 / 5)
    assert rate([11.0, 0.0, 15.0], since=None) == pytest.approx(1 / 4)
    assert rate([11.0], since=None) is None
    assert rate([], since=10.0) is None


def test_cpu_of_all_pods_is_told_of_one() -> None:
    assert per_pod(2.0, 1000) == 2.0
    assert per_pod(None, 1000) is None
    assert per_pod(2.0, 0) is None


def test_runs_survive_their_file(tmp_path: Path) -> None:
    figures = Figures(pods=3, latency=Latency(1.0, 2.0, 3.0, 4.0), of_bare=0.5)
    runs = [
        Run(scenario="s", case="c", number=1, at=5.0, series="x", nodes=7, seconds=1.5, figures=figures),
        Run(scenario="s", case="c", number=2, refused=["why"]),
    ]
    write_runs(tmp_path / "runs", runs)
    assert read_runs(tmp_path / "runs") == runs


METRICS = """
pods_total{result="a"} %d
pods_total{result="b"} %d
lag_bucket{le="0.001"} %d
lag_bucket{le="0.1"} %d
lag_bucket{le="+Inf"} %d
"""


def test_counters_are_told_by_what_they_grew() -> None:
    before, after = Exposition(METRICS % (1, 2, 0, 0, 0)), Exposition(METRICS % (4, 2, 0, 0, 0))
    assert grown(before, after, "pods_total") == 3
    assert grown(before, after, "pods_total", result="b") == 0
    assert grown(Exposition(""), after, "pods_total") == 6
    assert grown(before, after, "others_total") is None


@pytest.mark.parametrize(
    ("counts", "bound"), [((5, 6, 6), 0.0), ((9, 10, 10), 0.001), ((9, 11, 11), 0.1), ((9, 11, 12), 0.1)]
)
def test_the_longest_stall_is_that_of_the_highest_bucket_that_grew(counts: tuple[int, int, int], bound: float) -> None:
    before = Exposition(METRICS % (0, 0, 5, 6, 6))
    assert longest(before, Exposition(METRICS % (0, 0, *counts)), "lag") == bound
    assert longest(before, Exposition(""), "lag") is None


@pytest.mark.parametrize(("began", "pods_per_second", "middle"), [(9.0, 2 / 4, 500.0), (None, 1.0, None)])
def test_pods_that_were_there_before_have_no_latency_and_are_counted_from_the_first_bind(
    began: float | None, pods_per_second: float, middle: float | None
) -> None:
    track = Track(Batch(name="b", count=2))
    track.bound_count = 2
    for number in range(2):
        track.answered[number], track.bound[number] = 11.5 + number, 12.0 + number
    counted = "agent_scheduler_conflicts_total 3\n"
    before = Reading(0.0, None, Usage(1.0, 1), 0.0, Exposition(""))
    after = Reading(1.0, Usage(0.01, 3 << 20), Usage(1.5, 1), 0.02, Exposition(counted))
    found = figures_of(track, before, after, began=began)
    assert (found.pods, found.pods_per_second, found.latency.p50) == (2, pods_per_second, middle)
    assert (found.cpu_ms, found.server_cpu_ms, found.driver_cpu_ms) == (5.0, 250.0, 10.0)
    assert (found.rss_mb, found.conflicts, found.stall_ms) == (3.0, 3.0, None)
