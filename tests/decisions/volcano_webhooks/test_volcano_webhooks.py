"""Volcano's recorded admission reviews, asked again: every answer is equal but for what is meant (`deliberate`)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.decisions.volcano_webhooks.deliberate import is_meant
from tests.decisions.volcano_webhooks.recording import PATHS, Case, State, read_cases, read_state
from tests.decisions.volcano_webhooks.replay import is_equal, replay

#: The share of cases that are equal without a rule: rules excuse few.
_EQUAL = 0.8


@pytest.fixture(scope="module")
def cases() -> Sequence[Case]:
    return read_cases()


@pytest.fixture(scope="module")
def state() -> State:
    return read_state()


@pytest.mark.parametrize("path", PATHS)
def test_reviews_answer_as_volcanos_did(cases: Sequence[Case], state: State, path: str) -> None:
    chosen = [case for case in cases if case.path == path]
    differ, excused = [], 0
    for case in chosen:
        answer = replay(case, state)
        if any(is_equal(case, answer, response) for response in case.responses):
            continue
        if is_meant(case, answer, state):
            excused += 1
        else:
            differ.append(f"{case}\n  ours:   {answer}\n  theirs: {case.responses}")
    equal = len(chosen) - len(differ) - excused
    print(f"{path}: {equal} of {len(chosen)} answers are equal, {excused} but for what is meant")
    assert not differ, "\n".join(differ)
    assert chosen
    assert equal >= _EQUAL * len(chosen)
