"""Worlds in which a fault was found once, of the product or of who judges it, each with what it was."""

from __future__ import annotations

import pytest

from .world import Options, run

FOUND = [
    pytest.param(
        "preempting", 20831, id="a nomination outlives its victims when the answers to evictions are lost"
    ),
    pytest.param("devices", 45, id="the end of a nomination is not written when its patch is refused"),
    pytest.param("devices", 176, id="a nomination is seen after its pod was refused"),
    pytest.param("planned", 9500083, id="nodes are divided anew as pods are bound"),
    pytest.param(
        "planned", 9500227, id="a late deletion of a controller that is gone is judged by its successor"
    ),
]


@pytest.mark.parametrize(("scenario", "seed"), FOUND)
def test_a_world_that_failed_once_breaks_no_promise(scenario: str, seed: int) -> None:
    assert run(Options(seed=seed, scenario=scenario)).violations == []
