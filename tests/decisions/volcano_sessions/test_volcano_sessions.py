"""Volcano's recorded sessions, decided again: every stable field is equal but for what is meant (`deliberate`)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.decisions.volcano_sessions.deliberate import is_meant
from tests.decisions.volcano_sessions.recording import Case, read_cases
from tests.decisions.volcano_sessions.replay import differences, replay

SCENARIOS = (
    "gang-fit",
    "gang-compete",
    "gang-roles",
    "capacity-flat",
    "capacity-hierarchy",
    "proportion",
    "enqueue",
    "backfill",
    "drf",
    "node-choice",
    "gates",
    "shipped-config",
    "no-podgroup",
    "placement",
    "preempt",
    "reclaim",
)
#: Of those in which pods are evicted, the share of cases that are equal in everything: rules excuse few.
_EQUAL = 0.85


@pytest.fixture(scope="module")
def cases() -> Sequence[Case]:
    return read_cases()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_sessions_decide_as_volcano_did(cases: Sequence[Case], scenario: str) -> None:
    chosen = [case for case in cases if case.scenario == scenario]
    failures, excused = {}, 0
    for case in chosen:
        differ = differences(case, replay(case))
        found = [each for each in differ if not is_meant(case, each)]
        if found:
            failures[case.id] = found
        elif differ:
            excused += 1
    equal = len(chosen) - len(failures) - excused
    print(f"{scenario}: {equal} of {len(chosen)} cases are equal, {excused} but for what is meant")
    shown = "\n".join(f"{case}: {found[:5]}" for case, found in list(failures.items())[:10])
    assert not failures, f"{len(failures)} of {len(chosen)} differ:\n{shown}"
    assert equal >= _EQUAL * len(chosen)


def test_a_gang_is_broken_nowhere(cases: Sequence[Case]) -> None:
    """Who is evicted leaves each running gang its minimum, or nothing."""
    evicting = 0
    for case in cases:
        if case.scenario not in ("preempt", "reclaim"):
            continue
        groups = {group["metadata"]["name"]: group for group in case.input["podGroups"]}
        answer = replay(case)[0]
        for key, found in answer["podGroups"].items():
            if not found.get("evictedCount"):
                continue
            evicting += 1
            minimum = groups[key.partition("/")[2]]["spec"].get("minMember", 0)
            assert found["running"] == 0 or found["running"] >= minimum, (case.id, key, found)
    assert evicting
