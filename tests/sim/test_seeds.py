"""Worlds from seeds.

`make test` plays new ones of each scenario, whose seeds come from the commit; `make verify` plays some two hundred that
are always the same, in which every fault occurs and every rare state is reached.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import DOCS

from .faults import KINDS
from .many import kept, worlds
from .scenarios import SCENARIOS
from .states import SELDOM, WANTED, WANTED_THERE
from .world import Options, Verdict, run, shrink

#: Seconds for a world and, if it fails, for smaller ones, on a machine with other work.
pytestmark = pytest.mark.timeout(600)
#: A fault that occurred less often than this in all worlds together counts as absent.
_AT_LEAST = 5

_WORLDS = worlds()
_KEPT = set(kept())


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory for what each world of this run has reached, shared by all processes of the run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    found = shared / "worlds"
    found.mkdir(exist_ok=True)
    return found


def _case(options: Options) -> Any:
    marks = [pytest.mark.wide] if options in _KEPT else []
    faults = "" if options.faults is None else f"-{len(options.faults)}"
    return pytest.param(options, id=f"{options.scenario}-{options.seed}{faults}", marks=marks)


@pytest.mark.parametrize("options", [_case(options) for options in _WORLDS])
def test_a_world_breaks_no_promise(options: Options, told: Path) -> None:
    verdict = run(options)
    if verdict.violations:
        smaller = shrink(verdict, attempts=30)
        pytest.fail(f"{verdict.violations[0]}\nagain: {smaller.options.command()}", pytrace=False)
    if options in _KEPT:
        _tell(told, verdict)
        _check_all_together(told)


def _tell(told: Path, verdict: Verdict) -> None:
    options = verdict.options
    name = f"{options.scenario}-{options.seed}-{len(options.faults or ())}"
    being_written = told / f".{name}"
    found = {"scenario": options.scenario, "fired": verdict.fired, "states": verdict.states}
    being_written.write_text(json.dumps(found))
    being_written.rename(told / f"{name}.json")


def _check_all_together(told: Path) -> None:
    """Check, in the last of the worlds that every run plays, what they have reached together.

    The worlds of the commit are left out, because what they reach depends on chance.
    """
    files = list(told.glob("*.json"))
    if len(files) < len(_KEPT):
        return
    fired: Counter[str] = Counter()
    states: Counter[str] = Counter()
    there: dict[str, Counter[str]] = {scenario: Counter() for scenario in SCENARIOS}
    for file in files:
        found = json.loads(file.read_text())
        fired.update(found["fired"])
        states.update(found["states"])
        there[found["scenario"]].update(found["states"])
    assert {name: fired[name] for name in KINDS if fired[name] < _AT_LEAST} == {}
    assert [state for state in WANTED if not states[state] and state not in SELDOM] == []
    for name, wanted in WANTED_THERE.items():
        assert [state for state in wanted if not there[name][state]] == []


def test_every_scenario_is_played() -> None:
    assert {options.scenario for options in _WORLDS} == set(SCENARIOS)


def test_the_documentation_lists_every_fault_once() -> None:
    page = (DOCS / "reliability.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| .+ \|$", page, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(KINDS) + 1))
    assert sorted(name for _, name in rows) == sorted(KINDS)


def test_every_promise_of_the_documentation_is_looked_at_by_a_judge() -> None:
    page = (DOCS / "reliability.md").read_text()
    promised = set(", ".join(re.findall(r"^\| ([SL][\dSL, ]+) \|", page, re.MULTILINE)).split(", "))
    judges = [file for file in Path(__file__).parent.glob("*.py") if file.stem[:5] != "test_"]
    looked_at = {code for file in judges for code in re.findall(r'"([SL]\d+)"', file.read_text())}
    # The queue's model (tests/unit/engine/queueing) verifies backoff step by step.
    assert promised - looked_at == {"S11", "S12"}


#: Worlds whose result once depended on the order of sets, in the product too, and others.
_TWICE = [Options(seed=83, scenario="gates"), Options(seed=4, scenario="planned")]
_MORE = (
    *(("preempting", 2), ("devices", 12), ("sharded", 8), ("batch", 3), ("mixed-batch", 9), ("gates", 5)),
    *(("gates-native", 5), ("gates-shards", 7), ("gpus", 8), ("jobs", 8)),
)
_RARE = (("gates", 129), ("gates", 155), ("devices", 101))
_TWICE_IN_ALL = [
    *(Options(seed=seed, scenario=scenario) for scenario, seed in _MORE),
    *(each for each in kept() if (each.scenario, each.seed) in _RARE),
]


@pytest.mark.parametrize("worlds", [_TWICE, pytest.param(_TWICE_IN_ALL, marks=pytest.mark.wide)], ids=["few", "many"])
def test_a_seed_has_one_history_whatever_the_hashes(worlds: list[Options]) -> None:
    code = f"from tests.sim.world import Options, run\nfor options in {worlds!r}: print(run(options).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "2"}
    answer = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert answer.split() == [run(options).digest for options in worlds]


@pytest.mark.wide
def test_a_failing_world_shrinks_to_a_smaller_one_that_fails_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.engine.decide.decide._passes", lambda *_args: True)
    verdicts = (run(Options(seed=seed, scenario="tight")) for seed in range(40))
    found = next(verdict for verdict in verdicts if verdict.violations)
    smaller = shrink(found)
    assert smaller.violations[0].startswith(found.violations[0].partition(":")[0])
    assert smaller.pods <= found.pods and len(smaller.faults) <= len(found.faults)
    again = run(smaller.options)
    assert again.violations == smaller.violations and again.digest == smaller.digest


# -- the shipped HTTP transport in worlds


def test_some_worlds_of_each_run_speak_http() -> None:
    assert sum(options.wired for options in _WORLDS) > 10


@pytest.mark.parametrize(
    "scenario", ["churn", *(pytest.param(name, marks=pytest.mark.wide) for name in ("replicas", "devices"))]
)
def test_a_world_breaks_no_promise_whatever_befalls_its_bytes(scenario: str) -> None:
    faults = ("mangled", "lost_after", "slow_credentials")
    verdicts = [run(Options(seed=seed, scenario=scenario, faults=faults)) for seed in range(3)]
    assert [verdict.violations for verdict in verdicts] == [[]] * 3
    assert sum(verdict.fired["mangled"] for verdict in verdicts)


@pytest.mark.wide
def test_credentials_that_are_replaced_are_no_trouble() -> None:
    verdicts = [run(Options(seed=seed, scenario="churn", faults=("rotated", "crash"))) for seed in range(6)]
    assert [verdict.violations for verdict in verdicts] == [[]] * 6
    for state in ("old token refused", "old certificate refused", "unknown authority"):
        assert sum(verdict.states[state] for verdict in verdicts), state


@pytest.mark.wide
def test_the_sharding_controller_speaks_http_in_such_worlds_too() -> None:
    faults = ("rotated", "mangled")
    verdicts = [run(Options(seed=seed, scenario="planned", faults=faults)) for seed in range(2)]
    assert [verdict.violations for verdict in verdicts] == [[]] * 2
    assert sum(verdict.checked["S24"] for verdict in verdicts)


@pytest.mark.wide
def test_connections_that_are_idle_for_exactly_long_enough_are_closed() -> None:
    """A pool that wakes when they are due, and by a rounding error finds that they are not, wakes again endlessly."""
    assert run(Options(seed=1, scenario="replicas", faults=("mangled",))).violations == []
