"""Worlds in which a fault of the product or of its judges was found: `found.txt` describes each.

Each line is a scenario, a seed, the faults ("any": those that the seed draws), the configuration of sessions if it is
not the usual one, and, after a colon, the fault.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .gang_load import USUAL
from .world import Options, run

#: One world for each kind of fault, for `make test`: of all worlds with several schedulers, with falsified watches, and
#: so on.
_OF_EACH_KIND = {
    *("churn 1795379065434", "constrained 1795401599617", "claims 1795406031227", "preempting 20831"),
    *("devices 176", "devices 706109", "replicas 1795406031999", "sharded 1795404438025", "planned 9500083"),
    *("batch 1795595941275", "mixed-batch 5120", "batch-claims 1795705109854", "gates 83"),
    *("gates-native 139", "gates-shards 33", "gates-shards 53", "jobs 1248", "gpus 6000098", "gpus-batch 6000038"),
}


def _found() -> list[Any]:
    found = []
    for line in (Path(__file__).parent / "found.txt").read_text().splitlines():
        head, _, what = line.partition(": ")
        scenario, seed, faults, *set_up = head.split()
        drawn = None if faults == "any" else () if faults == "none" else tuple(faults.split(","))
        marks = [] if f"{scenario} {seed}" in _OF_EACH_KIND else [pytest.mark.wide]
        options = Options(seed=int(seed), scenario=scenario, faults=drawn, set_up="".join(set_up) or USUAL)
        found.append(pytest.param(options, id=what, marks=marks))
    return found


@pytest.mark.parametrize("options", _found())
def test_a_world_that_failed_once_breaks_no_promise(options: Options) -> None:
    assert run(options).violations == []


@pytest.mark.wide
def test_a_world_whose_processes_speak_http_is_the_same_each_time() -> None:
    """All connections of a process end at once when the store goes back, and each end has consequences."""
    options = Options(seed=700226, scenario="sharded")
    assert len({run(options).digest for _ in range(3)}) == 1
