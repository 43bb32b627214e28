"""The load that the recording does not list is read off it, not made up to fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.decisions import background
from tests.decisions.background import Load, agrees, infer, observed
from tests.decisions.plain import decide
from tests.decisions.recording import Case


def test_half_of_the_cases_foretell_the_other_half(original: list[Case]) -> None:
    """Only around its start can a load be missed, for a case that does not count may be the first to show it."""
    inferred = infer(original[::2])
    foretold = unexplained = contradicted = 0
    for node, observations in observed(original[1::2]).items():
        for observation in observations:
            loads = [load for since, load in inferred.get(node, []) if since <= observation.case]
            load = loads[-1] if loads else Load()
            if agrees(load, observation):
                foretold += not agrees(Load(), observation)
            else:
                contradicted += loads != []
                unexplained += not loads
    assert contradicted == 0
    assert unexplained <= 2 * len(inferred)
    assert foretold > 20 * sum(map(len, inferred.values()))


def test_loads_are_few_and_explain_every_observation(original: list[Case]) -> None:
    inferred = infer(original)
    for node, observations in observed(original).items():
        for observation in observations:
            loads = [load for since, load in inferred.get(node, []) if since <= observation.case]
            assert agrees(loads[-1] if loads else Load(), observation), (node, observation.case)
        assert len(inferred.get(node, [])) <= 1 + len(observations) // 50


def test_a_recording_of_clusters_without_left_overs_shows_none(original: list[Case]) -> None:
    assert infer([_redecided(case) for case in original]) == {}


@pytest.mark.parametrize("load", [Load(250, 96 * 2**20, 0, 1), Load(0, 0, 2, 2), Load(1000, 2**30, 1, 4)])
def test_a_load_that_was_left_over_is_found_from_where_it_began(original: list[Case], load: Load) -> None:
    begins = len(original) // 3
    left_over = {"n2": [(original[begins].id, load)]}
    inferred = infer([_redecided(case, left_over) for case in original])
    ((_, found),) = inferred.pop("n2")
    assert found[:3] == load[:3]
    assert found.pods <= load.pods, "as many as the refusals show"
    assert inferred == {}


def _redecided(case: Case, left_over: dict[str, list[tuple[int, Load]]] | None = None) -> Case:
    """The case as it would have been recorded with these left-over pods, or with none."""
    decision = decide(case.pending, case.world(*background.carried(left_over or {}, case)))
    node = min(decision.best, default=None)
    return replace(case, node=node, message=decision.message, scores=decision.scores, final=decision.final)
