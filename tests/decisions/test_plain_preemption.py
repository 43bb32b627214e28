"""The plain reading preempts in every recorded case as kube-scheduler did, and where no case decides as it says."""

from __future__ import annotations

import pytest

from tests.decisions.plain import Decision, Obj, World, decide
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


def _chosen(*victims: list[tuple[int, int]]) -> set[str]:
    """The nodes to choose from, n0 and on, each full of these pods of a priority that started at a second."""
    nodes, pods = [], []
    for index, on_node in enumerate(victims):
        allocatable = {"cpu": "10", "memory": "8Gi", "pods": "10"}
        nodes.append({"metadata": {"name": f"n{index}"}, "status": {"allocatable": allocatable}})
        for number, (priority, second) in enumerate(on_node):
            status = {"startTime": f"2026-01-01T00:00:{second:02}Z"}
            pods.append(_pod(f"e{number}", 10000 // len(on_node), priority, f"n{index}", status=status))
    decision = decide(_pod("pending", 10000, 1000), World(tuple(nodes), tuple(pods)))
    return {candidate.node for candidate in decision.candidates}


def _pod(called: str, millicores: int, priority: int, on: str = "", **more: Obj) -> Obj:
    resources = {"requests": {"cpu": f"{millicores}m"}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    spec = {"priority": priority, "containers": containers, **({"nodeName": on} if on else {})}
    return {"metadata": {"name": called}, "spec": spec, **more}


def test_less_important_victims_are_preferred_to_fewer() -> None:
    assert _chosen([(500, 1)], [(100, 1), (100, 2), (100, 3)]) == {"n1"}


def test_one_victim_more_weighs_more_than_any_priority_below_the_highest() -> None:
    assert _chosen([(500, 1), (0, 2), (0, 3)], [(500, 1), (400, 2)]) == {"n1"}
    assert _chosen([(500, 1), (300, 2)], [(500, 1), (400, 2)]) == {"n0"}


def test_the_start_of_the_longest_running_of_the_most_important_victims_breaks_the_tie() -> None:
    assert _chosen([(500, 10), (100, 1)], [(500, 5), (100, 20)]) == {"n0"}
    assert _chosen([(500, 10), (500, 30)], [(500, 11), (500, 12)]) == {"n1"}
    assert _chosen([(500, 10), (100, 1)], [(500, 10), (100, 20)]) == {"n0", "n1"}


def test_of_equals_the_longer_running_stays() -> None:
    allocatable = {"cpu": "10", "memory": "8Gi", "pods": "10"}
    node = {"metadata": {"name": "n0"}, "status": {"allocatable": allocatable}}
    young, old = (
        _pod(called, 5000, 0, "n0", status={"startTime": f"2026-01-01T00:00:{second}Z"})
        for called, second in (("young", 20), ("old", 10))
    )
    decision = decide(_pod("pending", 5000, 1000), World((node,), (young, old)))
    assert [victim for candidate in decision.candidates for victim in candidate.victims] == [young]
