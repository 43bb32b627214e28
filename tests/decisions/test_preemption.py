"""The engine preempts in every recorded case as kube-scheduler did, and in others as the plain reading does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.preemption.dry_run import Candidate
from tests.decisions.engine import Engine
from tests.decisions.plain import Obj, World
from tests.decisions.plain import decide as plain_decide
from tests.decisions.plain.world import name
from tests.decisions.preempting import attempts
from tests.decisions.recording import PreemptionCase
from tests.support.examples import examples


class Outcome(NamedTuple):
    """What the engine made of a case: where the pod fits, or whom it would evict, by the node that it begins at."""

    feasible: frozenset[str]
    message: str | None
    chosen: tuple[Candidate, ...]


def replay(case: PreemptionCase) -> Outcome:
    engine = Engine(case.world)
    decision = engine.decide(case.pending)
    if decision.message is None:
        return Outcome(frozenset(decision.feasible), None, ())
    found = list(attempts(engine, case.pending, case.budgets))
    chosen = tuple(each.candidate for each in found if each.candidate is not None)
    return Outcome(frozenset(), found[-1].message if found else decision.message, chosen)


@pytest.fixture(scope="module")
def replayed(preemptions: list[PreemptionCase]) -> list[tuple[PreemptionCase, Outcome]]:
    assert preemptions
    return [(case, replay(case)) for case in preemptions]


def test_a_pod_fits_on_the_chosen_node_or_is_refused_with_the_same_message(
    replayed: list[tuple[PreemptionCase, Outcome]],
) -> None:
    assert [
        (case.id, outcome.message, case.message)
        for case, outcome in replayed
        if outcome.message != case.message or (case.node is not None and case.node not in outcome.feasible)
    ] == []


def test_beginning_at_some_node_leads_to_the_node_that_was_nominated(
    replayed: list[tuple[PreemptionCase, Outcome]],
) -> None:
    """kube-scheduler begins at a node by chance, and what ties in every rule is decided by that."""
    assert [
        (case.id, case.nominated, outcome.chosen)
        for case, outcome in replayed
        if (case.nominated is None) != (not outcome.chosen)
        or (case.nominated is not None and case.nominated not in {each.node_name for each in outcome.chosen})
    ] == []


def test_all_nodes_that_a_beginning_leads_to_are_as_good(
    replayed: list[tuple[PreemptionCase, Outcome]],
) -> None:
    assert [
        (case.id, outcome.chosen)
        for case, outcome in replayed
        if len({(each.rank, each.earliest_start) for each in outcome.chosen}) > 1
    ] == []


def test_the_same_pods_have_to_go(replayed: list[tuple[PreemptionCase, Outcome]]) -> None:
    assert [
        (case.id, case.victims, victims)
        for case, outcome in replayed
        for victims in [
            {
                victim.name
                for each in outcome.chosen
                if each.node_name == case.nominated
                for victim in each.victims
            }
        ]
        if case.victims != victims
    ] == []


def _pod(
    draw: st.DrawFn, number: int, *, node: str | None, priorities: Sequence[int], policy: str = ""
) -> dict[str, Any]:
    app = draw(st.sampled_from(["a", "b", ""]))
    container: dict[str, Any] = {
        "name": "c",
        "image": "i",
        "resources": {"requests": {"cpu": draw(st.sampled_from(["500m", "1", "2"]))}},
    }
    if draw(st.integers(0, 3)) == 0:
        container["ports"] = [
            {"containerPort": 80, "hostPort": draw(st.sampled_from([80, 81])), "protocol": "TCP"}
        ]
    spec: dict[str, Any] = {"priority": draw(st.sampled_from(priorities)), "containers": [container]}
    if node is not None:
        spec["nodeName"] = node
    if policy:
        spec["preemptionPolicy"] = policy
    kind = draw(st.sampled_from([None, None, None, "podAntiAffinity", "podAffinity"]))
    if kind is not None:
        term = {
            "labelSelector": {"matchLabels": {"app": draw(st.sampled_from(["a", "b"]))}},
            "topologyKey": draw(st.sampled_from(["kubernetes.io/hostname", "zone"])),
        }
        spec["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {
        "metadata": {"name": f"p{number}", "namespace": "default", "labels": {"app": app} if app else {}},
        "spec": spec,
        "status": {"startTime": f"2026-01-01T00:{draw(st.integers(0, 3)):02}:{number:02}Z"},
    }


@st.composite
def _cases(draw: st.DrawFn) -> PreemptionCase:
    nodes: tuple[Obj, ...] = tuple(
        {
            "metadata": {
                "name": f"n{number}",
                "labels": {"kubernetes.io/hostname": f"n{number}", "zone": draw(st.sampled_from(["x", "y"]))},
            },
            "spec": {},
            "status": {"allocatable": {"cpu": draw(st.sampled_from(["2", "3"])), "pods": "110"}},
        }
        for number in range(draw(st.integers(1, 4)))
    )
    pods = tuple(
        _pod(draw, number, node=draw(st.sampled_from(nodes))["metadata"]["name"], priorities=(0, 100, 500))
        for number in range(draw(st.integers(0, 10)))
    )
    budgets = tuple(
        {
            "metadata": {
                "name": f"b{number}",
                "namespace": draw(st.sampled_from(["default", "default", "other"])),
            },
            "spec": {"selector": {"matchLabels": {"app": draw(st.sampled_from(["a", "b"]))}}},
            "status": {
                "disruptionsAllowed": draw(st.integers(0, 2)),
                "disruptedPods": {f"p{draw(st.integers(0, 9))}": "2026-01-01T00:00:00Z"},
            },
        }
        for number in range(draw(st.integers(0, 2)))
    )
    policy = draw(st.sampled_from(["", "", "", "Never"]))
    pending = _pod(draw, 50, node=None, priorities=(100, 500, 1000), policy=policy)
    return PreemptionCase(0, World(nodes, pods), budgets, pending, None, None, frozenset(), None)


@examples(300)
@given(_cases())
def test_engine_and_plain_reading_preempt_alike_with_neighbours_ports_and_budgets(
    case: PreemptionCase,
) -> None:
    plain, outcome = plain_decide(case.pending, case.world, case.budgets), replay(case)
    assert outcome.message == plain.message
    assert outcome.feasible == frozenset(plain.feasible)
    assert {(each.node_name, tuple(victim.name for victim in each.victims)) for each in outcome.chosen} == {
        (each.node, tuple(name(victim) for victim in each.victims)) for each in plain.candidates
    }
