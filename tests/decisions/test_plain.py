"""The plain reading decides every recorded case as kube-scheduler did."""

from __future__ import annotations

import pytest

from tests.decisions.plain import Decision, decide
from tests.decisions.scene import Scene


@pytest.fixture(scope="module")
def replayed(scenes: list[Scene]) -> list[tuple[Scene, Decision]]:
    """It knows nothing of storage."""
    plain = [scene for scene in scenes if not scene.case.storage]
    assert plain
    return [(scene, decide(scene.case.pending, scene.world)) for scene in plain]


def test_a_pod_is_refused_with_the_same_message_or_not_at_all(replayed: list[tuple[Scene, Decision]]) -> None:
    assert [
        (scene.case.id, decision.message, scene.case.message)
        for scene, decision in replayed
        if decision.message != scene.case.message
    ] == []


def test_the_same_nodes_are_feasible(replayed: list[tuple[Scene, Decision]]) -> None:
    """Where nodes were scored these are the ones, else there was one or none."""
    assert [
        scene.case.id
        for scene, decision in replayed
        if sorted(decision.feasible) != sorted(scene.case.scores or filter(None, [scene.case.node]))
    ] == []


def test_every_plugin_scores_every_feasible_node_the_same(replayed: list[tuple[Scene, Decision]]) -> None:
    """Plugins that had nothing to say are missing in both."""
    assert [
        (scene.case.id, decision.scores, scene.case.scores)
        for scene, decision in replayed
        if decision.scores != scene.case.scores
    ] == []


def test_the_same_sums_and_the_chosen_node_among_the_best(replayed: list[tuple[Scene, Decision]]) -> None:
    assert [
        scene.case.id
        for scene, decision in replayed
        if decision.final != scene.case.final
        or (scene.case.node is not None and scene.case.node not in decision.best)
    ] == []


def test_a_pod_without_claims_gets_nothing_from_dynamic_resources(scenes: list[Scene]) -> None:
    """The recording says so in every case, which is why the plain reading may answer 0 without a look."""
    recorded = [scores for scene in scenes for scores in scene.case.scores.values()]
    assert {scores["DynamicResources"] for scores in recorded} <= {0}
