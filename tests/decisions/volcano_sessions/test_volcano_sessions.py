"""Volcano's recorded sessions, decided again: every stable field is equal except intended ones (`deliberate`)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.decisions.volcano_sessions.deliberate import is_meant
from tests.decisions.volcano_sessions.recording import Case, Obj, read_cases
from tests.decisions.volcano_sessions.replay import differences, replay

SCENARIOS = (
    *("gang-fit", "gang-compete", "gang-roles", "capacity-flat", "capacity-hierarchy", "proportion"),
    *("enqueue", "backfill", "drf", "node-choice", "gates", "shipped-config", "no-podgroup", "placement"),
    *("preempt", "reclaim"),
)
#: The minimum share of cases with evictions that are equal in everything: rules excuse few.
_EQUAL = 0.85


@pytest.fixture(scope="module", params=[6, pytest.param(1, marks=pytest.mark.wide)])
def cases(request: pytest.FixtureRequest) -> Sequence[Case]:
    """Return some of the cases in `make test`, all in `make verify`."""
    return read_cases()[:: request.param]


@pytest.mark.promise("S27", "S30")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_sessions_decide_as_volcano_did(cases: Sequence[Case], scenario: str) -> None:
    failures: dict[str, list[str]] = {}
    equal = excused = 0
    for case in (case for case in cases if case.scenario == scenario):
        answers = replay(case)
        differ = differences(case, answers)
        found = [each for each in differ if not is_meant(case, each)] + broken(case, answers[0])
        if found:
            failures[case.id] = found[:5]
        excused += bool(differ) and not found
        equal += not differ
    print(f"{scenario}: {equal} cases are equal, {excused} but for what is meant")
    assert failures == {}
    assert equal
    assert equal + 1 >= _EQUAL * (equal + excused)


def broken(case: Case, answer: Obj) -> list[str]:
    """Return the running gangs that keep some pods, but fewer than their minimum, after evictions."""
    groups = case.input["podGroups"]
    minimums = {each["metadata"]["name"]: each["spec"].get("minMember", 0) for each in groups}
    return [
        f"{key} is broken: {found}"
        for key, found in answer["podGroups"].items()
        if found.get("evictedCount") and 0 < found["running"] < minimums[key.partition("/")[2]]
    ]
