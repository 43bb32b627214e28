"""The engine decides every recorded case as kube-scheduler did, under the profile `default-scheduler`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.decisions.comparing import nonzero
from tests.decisions.deliberate import why_different
from tests.decisions.engine import Engine, EngineDecision
from tests.decisions.preempting import message
from tests.decisions.scene import Scene
from tests.decisions.storing import Given, catalogue, given


class Replayed(NamedTuple):
    """A recorded case, what the engine decided, and the whole message with the sentence about preemption."""

    scene: Scene
    decision: EngineDecision
    message: str | None


@pytest.fixture(scope="module")
def every(scenes: list[Scene]) -> list[Replayed]:
    assert scenes
    found = []
    for scene in scenes:
        engine = Engine(scene.world, catalogue=catalogue(scene.case.storage))
        decision = engine.decide(scene.case.pending)
        found.append(Replayed(scene, decision, message(engine, scene.case.pending)))
    return found


@pytest.fixture(scope="module")
def replayed(every: list[Replayed]) -> list[Replayed]:
    """All but those where the engine may differ."""
    return [each for each in every if not why_different(each.scene.case)]


def differences(
    replayed: list[Replayed], expected: Callable[[Scene], object], got: Callable[[Replayed], object]
) -> list[str]:
    """A line for each case in which the two differ."""
    return [
        f"case {each.scene.case.id}: expected {wanted}, got {found}"
        for each in replayed
        if (wanted := expected(each.scene)) != (found := got(each))
    ]


def test_a_pod_is_refused_with_the_same_message_or_not_at_all(replayed: list[Replayed]) -> None:
    assert differences(replayed, lambda scene: scene.case.message, lambda each: each.message) == []


def test_the_same_nodes_are_feasible(replayed: list[Replayed]) -> None:
    """Where nodes were scored these are the ones, else there was one or none."""

    def expected(scene: Scene) -> list[str]:
        return sorted(scene.case.scores or filter(None, [scene.case.node]))

    assert differences(replayed, expected, lambda each: sorted(each.decision.feasible)) == []


def test_every_plugin_scores_every_feasible_node_the_same(replayed: list[Replayed]) -> None:
    several = [each for each in replayed if each.scene.case.scores]
    assert (
        differences(
            several, lambda scene: nonzero(scene.case.scores), lambda each: nonzero(each.decision.scores)
        )
        == []
    )


def test_the_same_nodes_are_the_best_by_the_same_sums(replayed: list[Replayed]) -> None:
    several = [each for each in replayed if each.scene.case.scores]
    assert differences(several, lambda scene: scene.case.final, lambda each: each.decision.final) == []


def test_the_node_that_was_taken_is_among_the_best(replayed: list[Replayed]) -> None:
    assert [
        f"case {each.scene.case.id}: {each.scene.case.node} was taken, best are {sorted(best)}"
        for each in replayed
        for best in [each.decision.best]
        if (each.scene.case.node is None) == bool(best) or (best and each.scene.case.node not in best)
    ] == []


def test_one_of_the_best_is_what_the_engine_would_take(replayed: list[Replayed]) -> None:
    assert [
        f"case {each.scene.case.id}: best are {sorted(each.decision.best)}, {each.decision.candidates[0]} is first"
        for each in replayed
        if each.decision.candidates and each.decision.candidates[0] not in each.decision.best
    ] == []


def test_the_pods_claims_get_the_volumes_that_they_got(replayed: list[Replayed]) -> None:
    stored = [each for each in replayed if each.scene.case.storage and each.scene.case.node]

    def wanted(scene: Scene) -> Given:
        storage = scene.case.storage
        return Given(storage.bound, storage.provisioning)

    def got(each: Replayed) -> Given:
        case = each.scene.case
        assert case.node is not None
        return given(Engine(each.scene.world), case.storage, case.pending, case.node)

    assert differences(stored, wanted, got) == []


def test_where_the_engine_may_differ_the_recorded_node_is_one_of_those_that_will_do(
    every: list[Replayed],
) -> None:
    different = [each for each in every if why_different(each.scene.case)]
    assert len(different) <= 5
    assert [
        each.scene.case.id
        for each in different
        if not {each.scene.case.node} <= {*each.decision.feasible, None}
    ] == []
