"""Volcano's recorded sessions, decided again: every stable field is equal but for what is meant (`deliberate`)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.decisions.volcano_sessions.deliberate import is_meant
from tests.decisions.volcano_sessions.recording import Case, read_cases
from tests.decisions.volcano_sessions.replay import differences, replay

#: Those in which pods are evicted are told apart: actions that a session does not have yet.
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
)


@pytest.fixture(scope="module")
def cases() -> Sequence[Case]:
    return read_cases()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_sessions_decide_as_volcano_did(cases: Sequence[Case], scenario: str) -> None:
    chosen = [case for case in cases if case.scenario == scenario]
    failures = {}
    for case in chosen:
        found = [each for each in differences(case, replay(case)) if not is_meant(case, each)]
        if found:
            failures[case.id] = found
    print(f"{scenario}: {len(chosen) - len(failures)} of {len(chosen)} cases are equal")
    shown = "\n".join(f"{case}: {found[:5]}" for case, found in list(failures.items())[:10])
    assert not failures, f"{len(failures)} of {len(chosen)} differ:\n{shown}"
