"""The HTTP transport that ships, in worlds: what was found there, and that worlds of it are played."""

from __future__ import annotations

import pytest

from .profiles import worlds
from .world import Options, run


def test_some_worlds_of_each_run_speak_http() -> None:
    assert sum(options.wired for options in worlds()) > 10


@pytest.mark.parametrize("scenario", ["churn", "replicas", "devices"])
def test_a_world_breaks_no_promise_whatever_befalls_its_bytes(scenario: str) -> None:
    verdict = run(Options(seed=0, scenario=scenario, faults=("mangled", "rotated", "lost_after")))
    assert verdict.violations == []
    assert verdict.fired["mangled"] and verdict.fired["rotated"]


def test_connections_that_are_idle_for_exactly_long_enough_are_closed() -> None:
    """A pool that looks when they are, and finds by a rounding that they are not yet, looks again at once for ever."""
    assert run(Options(seed=0, scenario="replicas", faults=("mangled",))).violations == []
