"""The plain reading preempts in every recorded case as kube-scheduler did."""

from __future__ import annotations

import pytest

from tests.decisions.plain import Decision, decide
from tests.decisions.plain.world import name
from tests.decisions.recording import PreemptionCase


@pytest.fixture(scope="module")
def replayed(preemptions: list[PreemptionCase]) -> list[tuple[PreemptionCase, Decision]]:
    assert preemptions
    return [(case, decide(case.pending, case.world, case.budgets)) for case in preemptions]


def test_a_pod_fits_on_the_chosen_node_or_is_refused_with_the_same_message(
    replayed: list[tuple[PreemptionCase, Decision]],
) -> None:
    assert [
        (case.id, decision.message, case.message)
        for case, decision in replayed
        if decision.message != case.message or (case.node is not None and case.node not in decision.best)
    ] == []


def test_the_nominated_node_is_one_of_the_best_or_there_is_none(
    replayed: list[tuple[PreemptionCase, Decision]],
) -> None:
    """Only nodes that tie in every rule are left to choose from."""
    assert [
        (case.id, case.nominated, decision.candidates)
        for case, decision in replayed
        if ({case.nominated} if case.nominated else set())
        - {candidate.node for candidate in decision.candidates}
        or (case.nominated is None and decision.candidates)
    ] == []


def test_the_same_pods_have_to_go(replayed: list[tuple[PreemptionCase, Decision]]) -> None:
    assert [
        (case.id, case.victims, chosen)
        for case, decision in replayed
        for chosen in [[candidate for candidate in decision.candidates if candidate.node == case.nominated]]
        if case.victims != {name(victim) for candidate in chosen for victim in candidate.victims}
    ] == []
