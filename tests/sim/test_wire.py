"""The HTTP transport that ships, in worlds: what was found there, and that worlds of it are played."""

from __future__ import annotations

import pytest

from .profiles import worlds
from .world import Options, run


def test_some_worlds_of_each_run_speak_http() -> None:
    assert sum(options.wired for options in worlds()) > 10


@pytest.mark.parametrize("scenario", ["churn", "replicas", "devices"])
def test_a_world_breaks_no_promise_whatever_befalls_its_bytes(scenario: str) -> None:
    faults = ("mangled", "lost_after", "slow_credentials")
    verdicts = [run(Options(seed=seed, scenario=scenario, faults=faults)) for seed in range(3)]
    assert [verdict.violations for verdict in verdicts] == [[]] * 3
    assert sum(verdict.fired["mangled"] for verdict in verdicts)


def test_credentials_that_are_replaced_are_no_trouble() -> None:
    verdicts = [run(Options(seed=seed, scenario="churn", faults=("rotated", "crash"))) for seed in range(6)]
    assert [verdict.violations for verdict in verdicts] == [[]] * 6
    for state in ("old token refused", "old certificate refused", "unknown authority"):
        assert sum(verdict.states[state] for verdict in verdicts), state


def test_the_sharding_controller_speaks_http_in_such_worlds_too() -> None:
    verdicts = [
        run(Options(seed=seed, scenario="planned", faults=("rotated", "mangled"))) for seed in range(2)
    ]
    assert [verdict.violations for verdict in verdicts] == [[]] * 2
    assert sum(verdict.checked["S24"] for verdict in verdicts)


def test_connections_that_are_idle_for_exactly_long_enough_are_closed() -> None:
    """A pool that looks when they are, and finds by a rounding that they are not yet, looks again at once for ever."""
    assert run(Options(seed=1, scenario="replicas", faults=("mangled",))).violations == []
