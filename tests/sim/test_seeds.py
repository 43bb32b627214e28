"""Some two hundred worlds in every run of the tests: no promise broken, every fault fired, every rare state reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.places import DOCS

from .faults import KINDS
from .profiles import kept, worlds
from .scenarios import SCENARIOS
from .states import SELDOM, WANTED_IN_ALL
from .world import Options, Verdict, run, shrink

#: Seconds for a world and, if it fails, for smaller ones, on a machine that does other things as well.
pytestmark = pytest.mark.timeout(600)
#: A fault that struck less often than this in all worlds together is as good as absent.
_AT_LEAST = 5

_WORLDS = worlds()
_KEPT = {(options.scenario, options.seed) for options in kept()}


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each world of this run has reached, a file each; one directory for all processes of the run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    found = shared / "worlds"
    found.mkdir(exist_ok=True)
    return found


@pytest.mark.parametrize(
    "options", _WORLDS, ids=[f"{options.scenario}-{options.seed}" for options in _WORLDS]
)
def test_a_world_breaks_no_promise(options: Options, told: Path) -> None:
    verdict = run(options)
    if verdict.violations:
        smaller = shrink(verdict, attempts=30)
        pytest.fail(f"{verdict.violations[0]}\nagain: {smaller.options.command()}", pytrace=False)
    if (options.scenario, options.seed) in _KEPT:
        _tell(told, verdict)
        _check_all_together(told)


def _tell(told: Path, verdict: Verdict) -> None:
    options = verdict.options
    text = json.dumps({"fired": verdict.fired, "states": verdict.states})
    being_written = told / f".{options.scenario}-{options.seed}"
    being_written.write_text(text)
    being_written.rename(told / f"{options.scenario}-{options.seed}.json")


def _check_all_together(told: Path) -> None:
    """By whichever is the last of the worlds that every run plays: what they have reached between them. With those of
    one commit alone counted in, what they reach by chance would decide."""
    files = list(told.glob("*.json"))
    if len(files) < len(_KEPT):
        return
    fired: Counter[str] = Counter()
    states: Counter[str] = Counter()
    for file in files:
        found = json.loads(file.read_text())
        fired.update(found["fired"])
        states.update(found["states"])
    assert {name: fired[name] for name in KINDS if fired[name] < _AT_LEAST} == {}
    assert [state for state in WANTED_IN_ALL if not states[state] and state not in SELDOM] == []


def test_every_scenario_is_played() -> None:
    assert {options.scenario for options in _WORLDS} == set(SCENARIOS)


def test_every_fault_is_in_the_documentation() -> None:
    page = (DOCS / "reliability.md").read_text()
    missing = [
        name for name, kind in KINDS.items() if f"| {kind.number} | `{name}` | {kind.about} |" not in page
    ]
    assert not missing


@pytest.mark.parametrize(
    ("seed", "scenario"),
    [
        (2, "preempting"),
        (12, "devices"),
        (8, "sharded"),
        (4, "planned"),
        (3, "batch"),
        (9, "mixed-batch"),
        (5, "gates"),
        (5, "gates-native"),
        (7, "gates-shards"),
        (8, "gpus"),
    ],
)
def test_a_seed_has_one_history_whatever_the_hashes(seed: int, scenario: str) -> None:
    code = (
        "from tests.sim.world import Options, run; "
        f"print(run(Options(seed={seed}, scenario={scenario!r})).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "2"}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == run(Options(seed=seed, scenario=scenario)).digest


def test_a_failing_world_shrinks_to_a_smaller_one_that_fails_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.engine.decide.decide._passes", lambda *_args: True)
    found = next(
        verdict for seed in range(40) if (verdict := run(Options(seed=seed, scenario="tight"))).violations
    )
    smaller = shrink(found)
    assert smaller.violations[0].startswith(found.violations[0].partition(":")[0])
    assert smaller.pods <= found.pods and len(smaller.faults) <= len(found.faults)
    again = run(smaller.options)
    assert again.violations == smaller.violations and again.digest == smaller.digest
