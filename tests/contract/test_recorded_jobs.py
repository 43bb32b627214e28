"""Recorded scenarios of Volcano's controllers, step by step, with their intended differences.

The recording is `AGENT_SCHEDULER_VOLCANO_CONTROLLERS`, or the one beside the checkout.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.examples import in_time

from .jobs_replay import replay, scenarios

pytestmark = pytest.mark.promise("S35", "S36", "S37")

FAMILIES = (
    *("command", "depends", "exit", "minres", "minsuccess", "misc", "naming", "partial", "plugin"),
    *("podgroup", "policy", "queue", "retry", "scale", "ttl", "volume"),
)
#: The minimum share of steps that are equal without a rule: rules excuse few.
_EQUAL = 0.7


Families = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def recorded() -> Families:
    found: Families = {}
    for scenario in scenarios():
        found.setdefault(scenario["family"], []).append(scenario)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_scenarios_of_each_family_have_volcanos_result_but_for_what_is_argued(recorded: Families, family: str) -> None:
    """Every fifth scenario is replayed here; the next test replays all."""
    found = {each["id"]: replay(each).differences for each in recorded[family][::5]}
    assert {name: differences for name, differences in found.items() if any(differences)} == {}


@in_time
@pytest.mark.wide
def test_every_step_has_volcanos_result_but_for_what_is_argued(recorded: Families) -> None:
    assert set(recorded) == set(FAMILIES)
    outcomes = {each["id"]: replay(each) for family in recorded.values() for each in family}
    assert {name: found.differences for name, found in outcomes.items() if any(found.differences)} == {}
    argued = [rules for found in outcomes.values() for rules in found.argued]
    equal = argued.count(set())
    print(f"{equal} of {len(argued)} steps are equal, the others but for what is argued")
    assert equal >= _EQUAL * len(argued)
