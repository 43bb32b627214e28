"""Filters, scores and the choice of candidates, on columns and in kube-scheduler's words."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given

from agent_scheduler.engine.decide.decide import ClassViews, decide
from agent_scheduler.engine.decide.facet_classes import FacetClasses
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.framework.plugin import Depends, PodUnrankable, Profile
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.columns import COLUMNS_KEPT
from tests.decisions.clusters import Drawn, clusters
from tests.decisions.engine import Engine
from tests.decisions.plain.filters import FILTERS
from tests.support.engine import PACK, SPREAD, World, node
from tests.support.examples import examples
from tests.support.terms import HOSTNAME, beside, pod_term, spread


@pytest.mark.parametrize(("profile", "best"), [(PACK, ["b", "a"]), (SPREAD, ["a", "b"])])
def test_packing_prefers_the_fullest_node_that_fits_and_spreading_the_emptiest(
    profile: Profile, best: list[str]
) -> None:
    world = World(node("a"), node("b"), node("full"), profile=profile)
    world.place("b", requests={"cpu": "2", "memory": "1Gi"})
    world.place("full", requests={"cpu": "3500m", "memory": "1Gi"})
    assert world.chosen(world.pod(requests={"cpu": "1", "memory": "1Gi"})) == best


def test_workers_with_different_offsets_start_at_different_nodes_of_equal_score() -> None:
    world = World(*(node(f"n{index}") for index in range(6)))
    pod = world.pod(requests={"cpu": "1"})
    assert world.chosen(pod, candidates=3, offset=0) == ["n0", "n1", "n2"]
    assert world.chosen(pod, candidates=3, offset=4) == ["n4", "n5", "n0"]


def test_a_nominated_node_comes_first_while_it_is_feasible_though_it_is_not_among_the_best() -> None:
    world = World(node("a"), node("b"), node("c"))
    world.place("a", requests={"cpu": "2"})
    pod = world.pod(requests={"cpu": "1"})
    assert world.chosen(pod, candidates=1) == ["a"]
    assert world.chosen(pod, candidates=1, nominated=2) == ["c"]
    assert world.chosen(pod, nominated=2) == ["c", "a", "b"]
    world.place("c", requests={"cpu": "4"})
    assert world.chosen(pod, nominated=2)[0] == "a"


def test_a_refusal_counts_the_first_reason_of_each_node_sorted_as_texts() -> None:
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    world = World(
        *(node(f"t{index}", taints=taint) for index in range(10)),
        node("cordoned", unschedulable=True, taints=taint),
        node("small", cpu="500m", memory="1Mi"),
        node("full", pods="0"),
    )
    decision = world.refusal(world.pod(requests={"cpu": "1", "memory": "1Gi"}))
    assert decision.message == (
        "0/13 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods, "
        "1 node(s) were unschedulable, 10 node(s) had untolerated taint(s)."
    )
    assert decision.plugins == {"NodeUnschedulable", "TaintToleration", "NodeResourcesFit"}


def test_memory_is_counted_to_the_byte() -> None:
    world = World(node("a", memory=str(2**34)))
    world.place("a", requests={"memory": str(2**34 - 512)})
    assert not world.feasible(world.pod(requests={"memory": "513"}))
    assert world.chosen(world.pod(requests={"memory": "512"})) == ["a"]


def test_selectors_on_ever_new_labels_do_not_fill_the_memory() -> None:
    world = World(node("a"), node("b", labels={"key-7": "x"}))
    snapshot = world.snapshot
    for number in [*range(2 * COLUMNS_KEPT), 7]:
        column = snapshot.columns.label(f"key-{number}")
        assert (column[: snapshot.columns.size] != 0).tolist() == [False, number == 7]
    assert len(snapshot.columns._labels) == COLUMNS_KEPT


def test_an_absurd_request_fits_nowhere_and_overflows_nothing() -> None:
    world = World(node("a", memory="8Ei"))
    for _ in range(1000):
        world.place("a", requests={"memory": "8Ei"})
    assert not world.feasible(world.pod(requests={"memory": "8Ei"}))
    assert contradictions(world.ledger) == []


def test_classes_that_may_go_to_the_same_nodes_ask_about_them_once() -> None:
    world = World(node("a"), node("b"))
    tolerates = [{"key": "k", "operator": "Exists"}]
    for profile in (PACK, SPREAD):
        views = ClassViews(profile, world.snapshot)
        plain = [views.of(world.pod(requests={"cpu": cpu}).cls) for cpu in ("1", "2")]
        tolerant = [views.of(world.pod(requests={"cpu": cpu}, tolerations=tolerates).cls) for cpu in ("1", "2")]
        assert plain[0]._rows.nodes is plain[1]._rows.nodes
        assert tolerant[0]._rows.nodes is tolerant[1]._rows.nodes is not plain[0]._rows.nodes


@examples(300)
@given(drawn=clusters())
def test_every_filter_says_of_a_row_what_its_rule_says_read_plainly_and_of_many_rows_the_same(drawn: Drawn) -> None:
    engine = Engine(drawn.world, SPREAD)
    handle, columns = engine.snapshot.handle, engine.ledger.columns
    pod, rows = handle.class_of(engine.waiting(drawn.pending)), columns.all_rows()
    for plugin in SPREAD.filters:
        rules = [rule for name, rule in FILTERS.items() if name.partition("'")[0] == plugin.name]
        state: Any = plugin.prepare(pod, handle)
        found = [True] * len(rows) if state is None else plugin.feasible(state, columns, rows).tolist()
        expected = [all(rule(drawn.pending, each, drawn.world) is None for rule in rules) for each in drawn.world.nodes]
        assert not rules or found == expected, plugin.name
        if state is not None:
            assert [plugin.feasible_row(state, columns, row) for row in rows.tolist()] == found, plugin.name
    for scoring in (*SPREAD.scores, *PACK.scores):
        each: Any = scoring.plugin
        state = None
        with suppress(PodUnrankable):
            state = each.prepare(pod, handle)
        if state is not None and each.depends in (Depends.NODE, Depends.ROOM):
            scores = each.score(state, columns, rows).tolist()
            assert [each.score_row(state, columns, row) for row in rows.tolist()] == scores, each.name


ELSEWHERE: dict[str, Any] = {
    "spread": lambda key, when: {"topologySpreadConstraints": [spread(key, "x", when=when)]},
    "both": lambda key, rank: {
        "topologySpreadConstraints": [spread(key, "x", skew=2), spread(rank, "x", when="ScheduleAnyway")]
    },
    "required": lambda key, kind: {"affinity": beside(kind, pod_term("x", key))},
    "preferred": lambda key, kind: {"affinity": beside(kind, pod_term("x", key), weight=10)},
}


@pytest.mark.parametrize("most", [64, 3])
@pytest.mark.parametrize("key", ["zone", HOSTNAME])
@pytest.mark.parametrize(
    ("rule", "how"),
    [
        ("spread", "DoNotSchedule"),
        ("spread", "ScheduleAnyway"),
        ("both", "zone"),
        ("both", HOSTNAME),
        *((rule, kind) for rule in ("required", "preferred") for kind in ("podAffinity", "podAntiAffinity")),
    ],
)
@pytest.mark.parametrize("profile", [PACK, SPREAD])
def test_a_view_that_looks_at_other_rows_chooses_pod_after_pod_what_a_new_one_would(
    profile: Any, rule: str, how: str, key: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_scheduler.engine.decide.facet_classes._MOST", most)
    monkeypatch.setattr("agent_scheduler.engine.decide.classview._SCANS_AFTER_MANY", 5)
    world = World(*(node(f"n{index}", labels={"zone": f"z{index % 4}"}) for index in range(30)))
    for index in (1, 2, 2, 8, 9, 17):
        world.place(f"n{index}", requests={"cpu": "1"})
    handle, snapshot = world.handle, world.snapshot
    views, spec = ClassViews(profile, snapshot), ELSEWHERE[rule](key, how)
    refused = 0
    for number in range(60):
        pod = world.pod(requests={"cpu": "500m"}, labels={"app": "x"}, **spec)
        if number == 20:
            world.ledger.set_node(node("n3", labels={"zone": "z1"}))
        elif number == 40:
            world.ledger.set_node(node("new", labels={"zone": "z2"}))
        snapshot.refresh()
        offset = number * 7 % 31
        kept, new = (
            decide(each.of(handle.class_of(pod)), snapshot.columns, candidates=3, offset=offset)
            for each in (views, ClassViews(profile, snapshot))
        )
        assert kept == new
        if isinstance(kept, Refusal):
            refused += 1
            world.ledger.remove_pod(next(iter(world.ledger.placements)))
        else:
            world.ledger.assume(pod, kept.candidates[0].row)
    assert refused < 40


@pytest.mark.parametrize("zones", [80, 20])
def test_classes_of_rows_are_made_once_however_many_they_are(zones: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    make = FacetClasses.__init__

    def count(self: FacetClasses, *args: Any) -> None:
        calls.append(1)
        make(self, *args)

    monkeypatch.setattr(FacetClasses, "__init__", count)
    world = World(*(node(f"n{index}", labels={"zone": f"z{index % zones}"}) for index in range(100)))
    spec = ELSEWHERE["preferred"]("zone", "podAntiAffinity")
    for _ in range(40):
        pod = world.pod(requests={"cpu": "500m"}, labels={"app": "x"}, **spec)
        world.ledger.assume(pod, world.ledger.rows[world.chosen(pod)[0]])
    assert len(calls) == 1


def test_a_worker_keeps_fewer_views_of_a_larger_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.engine.decide.decide.VIEW_ROWS_KEPT", 64 * 20)
    world = World(*(node(f"n{index}") for index in range(10)))
    views = ClassViews(PACK, world.snapshot)
    pods = [world.pod(requests={"cpu": f"{index}m"}) for index in range(1, 31)]
    kept = [views.of(pod.cls) for pod in pods]
    assert [views.of(pod.cls) is view for pod, view in zip(pods[-20:], kept[-20:], strict=True)] == [True] * 20
    assert views.of(pods[0].cls) is not kept[0]
