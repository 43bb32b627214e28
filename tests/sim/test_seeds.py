"""Some six hundred worlds in every run of the tests: no promise broken, every fault fired, every rare state reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .faults import KINDS
from .many import Summary, run_many
from .scenarios import SCENARIOS
from .states import WANTED_IN_ALL
from .world import Options, run, shrink

SEEDS = range(500)
#: Of worlds in which several schedulers share the nodes.
SHARED_SEEDS = range(100)
#: Of worlds in which a controller says who has which.
PLANNED_SEEDS = range(25)
#: Seconds that they may take together on a machine that does other things as well.
pytestmark = pytest.mark.timeout(900)
#: A fault that struck less often than this in all worlds together is as good as absent.
_AT_LEAST = 20


@pytest.fixture(scope="module")
def worlds() -> Summary:
    alone = [Options(seed=seed) for seed in SEEDS]
    shared = [Options(seed=seed, scenario="sharded") for seed in SHARED_SEEDS]
    planned = [Options(seed=seed, scenario="planned") for seed in PLANNED_SEEDS]
    return run_many(alone + shared + planned, jobs=os.cpu_count() or 1)


def test_no_world_breaks_a_promise(worlds: Summary) -> None:
    for verdict in worlds.failed[:1]:
        smaller = shrink(verdict, attempts=30)
        pytest.fail(
            f"{len(worlds.failed)} of {worlds.worlds} worlds failed, first seed {verdict.options.seed}: "
            f"{verdict.violations[0]}\nagain: {smaller.options.command()}"
        )
    assert worlds.worlds == len(SEEDS) + len(SHARED_SEEDS) + len(PLANNED_SEEDS)


def test_every_scenario_was_played(worlds: Summary) -> None:
    assert set(worlds.scenarios) == set(SCENARIOS)


def test_every_fault_fired_often_enough_to_prove_something(worlds: Summary) -> None:
    rare = {name: worlds.fired[name] for name in KINDS if worlds.fired[name] < _AT_LEAST}
    assert not rare


def test_every_rare_state_was_reached(worlds: Summary) -> None:
    assert [state for state in WANTED_IN_ALL if not worlds.states[state]] == []


def test_every_fault_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    missing = [
        name for name, kind in KINDS.items() if f"| {kind.number} | `{name}` | {kind.about} |" not in page
    ]
    assert not missing


@pytest.mark.parametrize(
    ("seed", "scenario"),
    [(2, ""), (12, ""), (8, "sharded"), (4, "planned")],
)
def test_a_seed_has_one_history_whatever_the_hashes(seed: int, scenario: str) -> None:
    digests = {run(Options(seed=seed, scenario=scenario)).digest}
    for hashes in ("1", "2"):
        code = (
            "from tests.sim.world import Options, run; "
            f"print(run(Options(seed={seed}, scenario={scenario!r})).digest)"
        )
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        answer = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(answer.stdout.strip())
    assert len(digests) == 1


def test_a_failing_world_shrinks_to_a_smaller_one_that_fails_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.engine.conflicts._passes", lambda *_args: True)
    found = next(
        verdict for seed in range(40) if (verdict := run(Options(seed=seed, scenario="tight"))).violations
    )
    smaller = shrink(found)
    assert smaller.violations[0].startswith(found.violations[0].partition(":")[0])
    assert smaller.pods <= found.pods and len(smaller.faults) <= len(found.faults)
    again = run(smaller.options)
    assert again.violations == smaller.violations and again.digest == smaller.digest
