"""Volcano's recorded admission reviews, repeated: every answer is equal except intended ones (`deliberate`)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.decisions.volcano_webhooks.deliberate import is_meant
from tests.decisions.volcano_webhooks.recording import PATHS, Case, Obj, State, read_cases, read_state
from tests.decisions.volcano_webhooks.replay import is_equal, replay

#: The minimum share of cases that are equal without a rule: rules excuse few.
_EQUAL = 0.8


cases = pytest.fixture(scope="module")(read_cases)
state = pytest.fixture(scope="module")(read_state)


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


@pytest.mark.wide
def test_with_strict_minimums_jobs_are_refused_for_these_and_nothing_else(cases: Sequence[Case], state: State) -> None:
    more = 0
    for case in cases:
        if case.path != "/jobs/validate":
            continue
        lax, strict = replay(case, state), replay(case, state, strict=True)
        refused = [each for each in told(strict) if each not in told(lax)]
        assert [each for each in told(lax) if each not in told(strict)] == []
        assert len(refused) <= 1
        assert lax["allowed"] == (not told(lax))
        if refused:
            least, tasks = case.object["spec"]["minAvailable"], case.object["spec"]["tasks"]
            assert refused[0].startswith(f"spec.minAvailable: {least} is not the sum of the tasks'")
            assert least != sum(task.get("minAvailable", task["replicas"]) for task in tasks)
            more += lax["allowed"]
    print(f"{more} jobs that Volcano allows are refused for their minimums")
    assert more


def told(answer: Obj) -> list[str]:
    """Return the problems without the allowed values."""
    return [each for each in answer["message"].split("; ") if each and not each.startswith("allowed: ")]
