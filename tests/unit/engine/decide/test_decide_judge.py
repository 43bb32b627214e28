"""The binder's judgement: the design's numbered rules under `strict`, and the live re-check under `revalidate`."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.decide.decide import CandidateNode, CandidateNodes, ConflictPolicy, Verdict, judge
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import World, node
from tests.support.terms import beside, pod_term


class Race:
    """Workers that decided on one snapshot, and the binder that takes their results one after another."""

    def __init__(self, world: World, policy: ConflictPolicy) -> None:
        self.world = world
        self.policy = policy

    def decide(self, pod: PodInfo, *, candidates: int = 3) -> tuple[CandidateNode, ...]:
        decision = self.world.decide(pod, candidates=candidates)
        assert isinstance(decision, CandidateNodes)
        return decision.candidates

    def judge(self, pod: PodInfo, candidates: tuple[CandidateNode, ...]) -> Verdict:
        return judge(self.world.ledger, candidates, self.world.views.of(pod.cls).filters, self.policy)

    def bind(self, pod: PodInfo, candidates: tuple[CandidateNode, ...]) -> str | None:
        verdict = self.judge(pod, candidates)
        if verdict.candidate is None:
            return None
        self.world.ledger.assume(pod, verdict.candidate.row)
        return verdict.candidate.node_name


def pods(world: World, count: int) -> list[PodInfo]:
    return [world.pod(requests={"cpu": "1"}) for _ in range(count)]


def test_rule_1_a_result_names_several_nodes_each_with_its_version() -> None:
    world = World(node("a"), node("b"), node("c"), node("d"))
    candidates = Race(world, ConflictPolicy.STRICT).decide(world.pod(requests={"cpu": "1"}), candidates=3)
    assert [each.node_name for each in candidates] == ["a", "b", "c"]
    versions = world.ledger.columns.version
    assert [each.version for each in candidates] == [int(versions[each.row]) for each in candidates]


def test_rule_2_an_unused_version_is_accepted_and_then_used() -> None:
    world = World(node("a"))
    race = Race(world, ConflictPolicy.STRICT)
    first, second = pods(world, 2)
    seen = race.decide(first)
    assert race.bind(first, seen) == "a"
    assert world.ledger.used(seen[0].row, seen[0].version)
    assert race.bind(second, seen) is None


def test_rule_3_a_used_version_moves_on_to_the_next_candidate() -> None:
    world = World(node("a"), node("b"))
    race = Race(world, ConflictPolicy.STRICT)
    pod_a, pod_b = pods(world, 2)
    seen_a, seen_b = race.decide(pod_a), race.decide(pod_b)
    assert race.bind(pod_a, seen_a) == "a"
    assert race.bind(pod_b, seen_b) == "b"


def test_rule_4_a_result_with_only_used_versions_goes_back_to_the_queue() -> None:
    world = World(node("a"), node("b"))
    race = Race(world, ConflictPolicy.STRICT)
    pod_a, pod_b, pod_c = pods(world, 3)
    seen = [race.decide(pod) for pod in (pod_a, pod_b, pod_c)]
    assert [race.bind(pod, each) for pod, each in zip((pod_a, pod_b, pod_c), seen, strict=True)] == [
        "a",
        "b",
        None,
    ]
    assert race.judge(pod_c, seen[2]).conflicts == 2


def test_rule_5_a_decision_on_the_new_version_is_no_conflict() -> None:
    world = World(node("a"))
    race = Race(world, ConflictPolicy.STRICT)
    pod_a, pod_d = pods(world, 2)
    assert race.bind(pod_a, race.decide(pod_a)) == "a"
    assert race.bind(pod_d, race.decide(pod_d)) == "a"


def test_strict_does_not_count_what_others_did_to_the_node_as_a_used_version() -> None:
    world = World(node("a"))
    race = Race(world, ConflictPolicy.STRICT)
    pod = world.pod(requests={"cpu": "1"})
    seen = race.decide(pod)
    world.place("a", requests={"cpu": "1"})
    assert race.bind(pod, seen) == "a"


@pytest.mark.promise("S1", "S25")
def test_strict_never_takes_room_that_a_foreign_pod_took_since() -> None:
    world = World(node("a"))
    race = Race(world, ConflictPolicy.STRICT)
    pod = world.pod(requests={"cpu": "1"})
    seen = race.decide(pod)
    world.place("a", requests={"cpu": "4"})
    assert race.bind(pod, seen) is None


@pytest.mark.promise("S1")
def test_revalidate_takes_a_changed_node_on_which_the_pod_still_fits() -> None:
    world = World(node("a"), node("b"))
    race = Race(world, ConflictPolicy.REVALIDATE)
    waiting = pods(world, 5)
    seen = [race.decide(pod) for pod in waiting]
    assert [race.bind(pod, each) for pod, each in zip(waiting, seen, strict=True)] == ["a"] * 4 + ["b"]
    verdict = race.judge(waiting[4], race.decide(waiting[4]))
    assert (verdict.conflicts, verdict.revalidated) == (0, 0)


@pytest.mark.promise("S25")
def test_revalidate_moves_on_where_the_node_has_become_unfit_in_any_way() -> None:
    world = World(node("a"), node("b"), node("c"), node("d"))
    race = Race(world, ConflictPolicy.REVALIDATE)
    pod = world.pod(requests={"cpu": "1"})
    seen = race.decide(pod, candidates=4)
    world.place("a", requests={"cpu": "4"})
    world.ledger.set_node(node("b", unschedulable=True))
    world.ledger.set_node(node("c", taints=[{"key": "k", "effect": "NoExecute"}]))
    verdict = race.judge(pod, seen)
    assert verdict.candidate is not None
    assert (verdict.candidate.node_name, verdict.conflicts, verdict.outdated) == ("d", 3, 3)


def test_a_node_that_went_and_came_back_is_judged_as_it_is_now() -> None:
    for policy in ConflictPolicy:
        world = World(node("a"))
        race = Race(world, policy)
        pod, other = pods(world, 2)
        seen = race.decide(pod)
        world.ledger.remove_node("a")
        assert race.judge(pod, seen).candidate is None
        world.ledger.set_node(node("a", uid="another", cpu="500m"))
        assert race.judge(pod, seen).candidate is None
        # Its versions go on rising, so it never becomes unusable for those who decide anew.
        world.ledger.set_node(node("a", uid="another", cpu="8"))
        assert race.bind(other, race.decide(other)) == "a"


def test_a_row_that_now_holds_another_node_is_not_taken_for_the_old_one() -> None:
    world = World(node("a"))
    race = Race(world, ConflictPolicy.REVALIDATE)
    pod = world.pod(requests={"cpu": "1"})
    seen = race.decide(pod)
    world.ledger.remove_node("a")
    world.ledger.set_node(node("b"))
    assert world.ledger.rows["b"] == seen[0].row
    assert race.judge(pod, seen).candidate is None


def test_a_forgotten_bind_gives_the_room_back_under_a_new_version() -> None:
    world = World(node("a", cpu="1"))
    race = Race(world, ConflictPolicy.STRICT)
    first, second = pods(world, 2)
    assert race.bind(first, race.decide(first)) == "a"
    before = int(world.ledger.columns.version[0])
    assert world.ledger.forget(first.uid) == "a"
    assert int(world.ledger.columns.version[0]) > before
    assert race.bind(second, race.decide(second)) == "a"


@pytest.mark.promise("S25")
def test_a_node_whose_own_spec_changed_is_asked_about_by_every_filter_again() -> None:
    world = World(node("a"))
    race = Race(world, ConflictPolicy.REVALIDATE)
    pod, other = pods(world, 2)
    seen = race.decide(pod)
    world.ledger.set_node(node("a", taints=[{"key": "k", "effect": "NoSchedule"}]))
    assert race.bind(other, seen) is None
    world.ledger.set_node(node("a"))
    assert race.bind(pod, seen) == "a"


def test_a_filter_that_looks_at_other_nodes_is_asked_again_if_anything_has_changed_since() -> None:
    world = World(*(node(name, labels={"zone": "z"}) for name in ("a", "b")))
    race = Race(world, ConflictPolicy.REVALIDATE)
    apart = {"affinity": beside("podAntiAffinity", pod_term("web", "zone"))}
    pod, seen = world.pod(**apart), world.ledger.sequence
    candidates = race.decide(pod, candidates=1)
    filters = world.views.of(pod.cls).filters
    unchanged = judge(world.ledger, candidates, filters, race.policy, seen=world.ledger.sequence)
    assert unchanged.candidate is not None and unchanged.revalidated == 0
    world.place("b", labels={"app": "web"})
    assert judge(world.ledger, candidates, filters, race.policy, seen=seen).candidate is None
    other = world.pod(requests={"cpu": "1"})
    taken = judge(world.ledger, race.decide(other), world.views.of(other.cls).filters, race.policy, seen=seen)
    assert taken.candidate is not None and taken.revalidated == 0
