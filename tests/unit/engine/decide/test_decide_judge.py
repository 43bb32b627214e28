"""The binder's judgement: the design's numbered rules under `strict`, and the live re-check under `revalidate`."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.decide.decide import CandidateNode, CandidateNodes, ConflictPolicy, JudgeResult, judge
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

    def judge(self, pod: PodInfo, candidates: tuple[CandidateNode, ...]) -> JudgeResult:
        return judge(self.world.ledger, candidates, self.world.views.of(pod.cls).filters, self.policy)

    def bind(self, pod: PodInfo, candidates: tuple[CandidateNode, ...]) -> str | None:
        verdict = self.judge(pod, candidates)
        if verdict.candidate is None:
            return None
        self.world.ledger.assume(pod, verdict.candidate.row)
        return verdict.candidate.node_name


def pods(world: World, count: int) -> list[PodInfo]:
    return [world.pod(requests={"cpu": "1"}) for _ in range(count)]


@pytest.mark.promise("S1")
def test_rules_1_to_5_under_strict_a_version_is_used_once_and_what_others_did_to_a_node_uses_none() -> None:
    world = World(node("a"), node("b"))
    race = Race(world, ConflictPolicy.STRICT)
    waiting = pods(world, 3)
    seen = [race.decide(pod) for pod in waiting]
    versions = world.ledger.columns.version
    assert [(each.node_name, each.version) for each in seen[0]] == [("a", versions[0]), ("b", versions[1])]
    world.place("a", requests={"cpu": "1"})
    assert race.judge(waiting[0], seen[0]).revalidated == 1
    assert [race.bind(pod, each) for pod, each in zip(waiting, seen, strict=True)] == ["a", "b", None]
    assert world.ledger.used(seen[0][0].row, seen[0][0].version)
    assert race.judge(waiting[2], seen[2]).conflicts == 2
    assert race.bind(waiting[2], race.decide(waiting[2])) == "a"


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
