"""Whom preemption chooses where recorded and random cases say little: eligibility, effort, the last rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.framework.args import DefaultPreemptionArgs
from agent_scheduler.engine.plugins.default_preemption import DefaultPreemption
from agent_scheduler.engine.preemption.evaluator import NEVER, TERMINATING, PostFilterResult
from agent_scheduler.engine.preemption.pdbs import PDB
from agent_scheduler.engine.state.podinfo import PodInfo
from apimachinery.labels import Requirement
from tests.support.engine import SPREAD, World, budget, covering, node, wakes
from tests.support.objects import condition
from tests.support.terms import beside, pod_term, spread

cluster = partial(World, profile=SPREAD)
DELETED = {"deleted": "2026-01-01T00:00:00Z"}
PREEMPTED = {"conditions": [condition("DisruptionTarget", "True", "PreemptionByScheduler")]}

#: The same pod for the expression over all nodes, and, since host ports are more than amounts, for one at a time.
EITHER_WAY = pytest.mark.parametrize("ports", [(), (80,)], ids=["together", "alone"])


def chosen(found: PostFilterResult) -> tuple[str, list[str]]:
    assert found.candidate is not None, found.message
    return found.candidate.node_name, [victim.name for victim in found.candidate.victims]


def high(world: World, cpu: str = "2", **more: Any) -> PodInfo:
    return world.pod(requests={"cpu": cpu}, priority=100, **more)


def test_a_pod_that_may_not_preempt_says_so_and_keeps_its_nomination() -> None:
    world = cluster(node("a", cpu="2"))
    world.run("low", "a", cpu="2")
    assert world.preempt(high(world, preemptionPolicy="Never")) == PostFilterResult(None, NEVER)


@pytest.mark.promise("S14")
@pytest.mark.parametrize(
    ("victim", "leaving", "waits"),
    [
        ({**DELETED, **PREEMPTED}, (), True),
        (DELETED, (), False),
        (PREEMPTED, (), False),
        ({}, ("low",), True),
        ({**DELETED, **PREEMPTED, "priority": 100}, ("low",), False),
    ],
)
def test_a_pod_waits_for_victims_that_are_leaving_its_node(
    victim: dict[str, Any], leaving: tuple[str, ...], waits: bool
) -> None:
    world = cluster(node("a", cpu="2"))
    world.run("low", "a", cpu="2", **victim)
    found = world.preempt(high(world), nominated="a", leaving=leaving)
    assert (found.message == TERMINATING) is waits
    if waits:
        assert not found.clear


def test_a_pod_whose_nominated_node_will_never_do_does_not_wait_for_it() -> None:
    world = cluster(node("a", cpu="2", unschedulable=True), node("b", cpu="2"))
    world.run("leaving", "a", cpu="2", **DELETED, **PREEMPTED)
    world.run("low", "b", cpu="2")
    assert chosen(world.preempt(high(world), nominated="a")) == ("b", ["low"])
    assert chosen(world.preempt(high(world), nominated="gone")) == ("b", ["low"])


def test_a_nomination_is_of_no_use_where_nobody_can_be_evicted() -> None:
    world = cluster(node("a", cpu="2"))
    world.run("peer", "a", cpu="2", priority=100)
    found = world.preempt(high(world))
    assert found.clear
    assert found.message == "0/1 nodes are available: 1 No preemption victims found for incoming pod."


@pytest.mark.promise("S14")
@EITHER_WAY
def test_the_most_important_pods_stay(ports: Any) -> None:
    world = cluster(node("a", cpu="4"))
    world.run("older", "a", priority=5, started="2026-01-01T00:00:01Z")
    world.run("newer", "a", priority=5, started="2026-01-01T00:00:02Z")
    world.run("least", "a", priority=1, started="2026-01-01T00:00:00Z")
    world.run("not-started", "a", priority=5, started=None)
    assert chosen(world.preempt(high(world, "3", ports=ports))) == ("a", ["newer", "not-started", "least"])


@EITHER_WAY
def test_pods_that_a_budget_covers_stay_before_more_important_ones(ports: Any) -> None:
    world = cluster(node("a", cpu="2"))
    world.run("covered", "a", priority=1, labels={"app": "x"})
    world.run("more", "a", priority=50)
    world.pdbs.set(covering("x", 0))
    assert chosen(world.preempt(high(world, "1", ports=ports))) == ("a", ["more"])
    found = world.preempt(high(world, "2", ports=ports))
    assert chosen(found) == ("a", ["more", "covered"])
    assert found.candidate is not None and found.candidate.pdb_violations == 1


@pytest.mark.promise("S14")
@EITHER_WAY
@pytest.mark.parametrize(
    ("better", "worse"),
    [
        # A budget that would be broken, against a victim of higher priority.
        ([("b1", {"priority": 50})], [("x1", {"priority": 0, "labels": {"app": "x"}})]),
        ([("b1", {"priority": 1}), ("b2", {"priority": 1})], [("w1", {"priority": 2, "cpu": "2"})]),
        ([("b1", {"priority": 9}), ("b2", {"priority": 1})], [("w1", {"priority": 9}), ("w2", {"priority": 2})]),
        ([("b1", {"priority": 9, "cpu": "2"})], [("w1", {"priority": 9}), ("w2", {"priority": -50})]),
        (
            [("b1", {"priority": 9, "cpu": "2", "started": "2026-01-01T00:00:02Z"})],
            [("w1", {"priority": 9, "cpu": "2", "started": "2026-01-01T00:00:01Z"})],
        ),
        ([("b1", {"priority": 9, "cpu": "2", "started": None})], [("w1", {"priority": 9, "cpu": "2"})]),
        # What is last started counts among the most important victims only.
        (
            [
                ("b1", {"priority": 9, "started": "2026-01-01T00:00:05Z"}),
                ("b2", {"priority": 1, "started": "2026-01-01T00:00:00Z"}),
            ],
            [
                ("w1", {"priority": 9, "started": "2026-01-01T00:00:04Z"}),
                ("w2", {"priority": 1, "started": "2026-01-01T00:00:09Z"}),
            ],
        ),
    ],
)
def test_the_better_of_two_nodes_is_chosen(ports: Any, better: Any, worse: Any) -> None:
    for names in (("a", "b"), ("b", "a")):
        world = cluster(node("a", cpu="2"), node("b", cpu="2"))
        world.pdbs.set(covering("x", 0))
        for name, pods in zip(names, (better, worse), strict=True):
            for uid, more in pods:
                world.run(uid, name, **({"cpu": "2"} | more if len(pods) == 1 else more))
        assert chosen(world.preempt(high(world, ports=ports)))[0] == names[0]


@EITHER_WAY
def test_of_equal_nodes_the_first_from_the_offset_is_chosen(ports: Any) -> None:
    world = cluster(*(node(name, cpu="2") for name in "abcd"))
    for name in "abcd":
        world.run(f"low-{name}", name, cpu="2")
    pod = high(world, ports=ports)
    for offset, name in enumerate("abcd"):
        assert chosen(world.preempt(pod, offset=lambda _, offset=offset: offset))[0] == name


@EITHER_WAY
def test_no_more_candidates_are_looked_for_than_wanted(ports: Any) -> None:
    world = cluster(*(node(name, cpu="2") for name in "abcd"))
    for name, priority in zip("abcd", (50, 40, 30, 20), strict=True):
        world.run(f"low-{name}", name, cpu="2", priority=priority)
    pod, few = high(world, ports=ports), {"min_candidate_nodes_percentage": 0}
    assert chosen(world.preempt(pod, min_candidate_nodes_absolute=2, **few))[0] == "b"
    assert chosen(world.preempt(pod, min_candidate_nodes_absolute=3, **few))[0] == "c"
    assert chosen(world.preempt(pod, min_candidate_nodes_percentage=50, min_candidate_nodes_absolute=0))[0] == "b"
    assert chosen(world.preempt(pod))[0] == "d"


@EITHER_WAY
def test_the_search_goes_on_until_a_node_breaks_no_budget(ports: Any) -> None:
    world = cluster(*(node(name, cpu="2") for name in "abcd"))
    world.pdbs.set(covering("x", 0))
    for name in "ab":
        world.run(f"covered-{name}", name, cpu="2", labels={"app": "x"})
    world.run("c", "c", cpu="2", priority=50)
    world.run("d", "d", cpu="2")
    found = world.preempt(high(world, ports=ports), min_candidate_nodes_absolute=1, min_candidate_nodes_percentage=0)
    assert chosen(found)[0] == "c"


@pytest.mark.promise("S16")
@EITHER_WAY
def test_room_that_is_kept_for_a_nominated_pod_is_not_used_twice(ports: Any) -> None:
    world = cluster(node("a", cpu="4"))
    for number in range(4):
        world.run(f"low-{number}", "a", started=f"2026-01-01T00:00:0{number}Z")
    other = world.pod(requests={"cpu": "2"}, priority=100)
    world.nominator.add(other, "a")
    assert chosen(world.preempt(high(world, "2", ports=ports)))[1] == ["low-0", "low-1", "low-2", "low-3"]
    lesser = world.pod(requests={"cpu": "2"}, priority=99)
    world.nominator.add(lesser, "a")
    world.nominator.delete(other.uid)
    assert chosen(world.preempt(high(world, "2", ports=ports)))[1] == ["low-2", "low-3"]
    world.nominator.add(world.pod(requests={"cpu": "3"}, priority=100), "a")
    found = world.preempt(high(world, "2", ports=ports))
    assert found.message == "0/1 nodes are available: 1 Insufficient cpu."


def test_a_nominated_pod_is_not_counted_on_as_a_neighbour() -> None:
    world = cluster(node("a", cpu="4"))
    world.run("low", "a", cpu="4")
    world.nominator.add(world.pod(requests={"cpu": "1"}, priority=100, labels={"app": "db"}), "a")
    affinity = beside("podAffinity", pod_term("db"))
    found = world.preempt(high(world, "1", affinity=affinity))
    assert found.message == "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."


def test_columns_are_as_they_were_after_a_search() -> None:
    world = cluster(node("a", cpu="2"), node("b", cpu="2"))
    world.run("low", "a", cpu="2")
    world.run("peer", "b", cpu="2", priority=100)
    world.snapshot.refresh()
    columns = world.snapshot.columns
    usage, before = columns.usage, columns.usage.copy()
    assert chosen(world.preempt(high(world)))[1] == ["low"]
    assert columns.usage is usage and (usage == before).all()
    assert columns.requested.base is usage


def lacking(key: str, operator: str) -> Any:
    return {"matchExpressions": [{"key": key, "operator": operator}]}


@pytest.mark.parametrize(
    ("budgets", "order", "violating"),
    [
        # Those beyond what it allows break it, less those that are being evicted already.
        ([covering("x", 1)], "only also both", {"also", "both"}),
        ([covering("x", 1, disruptedPods={"only": "2026-01-01T00:00:00Z"})], "only also both", {"both"}),
        # A pod that two budgets cover takes from both.
        ([covering("x", 1), budget("tier", lacking("tier", "Exists"))], "both only", {"both", "only"}),
        ([covering("x", 1), budget("tier", lacking("tier", "Exists"))], "only both", {"both"}),
        # One that selects nothing in particular covers nobody, and none a pod without labels.
        ([budget("b", None)], "only", set()),
        ([budget("b", {})], "only", set()),
        ([budget("b", lacking("a", "Odd"))], "only", set()),
        ([budget("b", lacking("tier", "DoesNotExist"))], "bare only", {"only"}),
        ([], "only", set()),
    ],
)
def test_pods_that_are_evicted_break_the_budgets_that_cover_them(
    budgets: list[PDB], order: str, violating: set[str]
) -> None:
    world = cluster(node("a", cpu="9"))
    labels = {"only": {"app": "x"}, "also": {"app": "x"}, "both": {"app": "x", "tier": "y"}, "bare": {}}
    for each in budgets:
        world.pdbs.set(each)
    assert world.pdbs.violating([world.run(name, "a", labels=labels[name]) for name in order.split()]) == violating
    for each in budgets:
        world.pdbs.delete("default", each.name)
    assert not world.pdbs


@pytest.mark.parametrize(
    ("selector", "violating"),
    [
        # 1,000 budgets for other pods cost nothing.
        (lambda number: {"matchLabels": {"app": f"a{number}"}}, {"p7"}),
        # Too many to be compared with each pod: all of them are protected.
        (lambda number: {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"b{number}"]}]}, None),
        (lambda number: {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]}, None),
        (lambda number: {"matchLabels": {"all": "x"}}, None),
    ],
)
def test_a_thousand_budgets_are_not_compared_with_each_of_a_thousand_pods(
    selector: Callable[[int], Any], violating: set[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = cluster(node("a", cpu="2k", pods=2000))
    pods = [world.run(f"p{number}", "a", cpu="1", labels={"app": f"a{number}", "all": "x"}) for number in range(1000)]
    for number in range(1000):
        world.pdbs.set(budget(f"b{number}", selector(number), allowed=0 if number == 7 else 1))
    units = 0
    compare = Requirement.matches

    def counted(requirement: Requirement, labels: Any) -> bool:
        nonlocal units
        units += 1
        return compare(requirement, labels)

    monkeypatch.setattr(Requirement, "matches", counted)
    assert world.pdbs.violating(pods) == (violating if violating is not None else {pod.uid for pod in pods})
    assert units <= len(pods)


@pytest.mark.parametrize(("deleting", "helps"), [(False, True), (True, False)])
def test_a_pod_that_is_being_deleted_was_not_counted_and_makes_no_domain_emptier(deleting: bool, helps: bool) -> None:
    """Spread over two zones, of which the pod can go into one: there stand one that stays and one of low priority."""
    world = cluster(node("a", labels={"zone": "x"}), node("b", labels={"zone": "y"}, unschedulable=True))
    labels = {"app": "web"}
    world.run("stays", "a", priority=100, labels=labels)
    world.run("low", "a", labels=labels, **(DELETED if deleting else {}))
    constraint = spread("zone", skew=1 if deleting else 2)
    found = world.preempt(world.pod(priority=100, labels=labels, topologySpreadConstraints=[constraint]))
    assert (found.candidate is not None) is helps
    if found.candidate is not None:
        assert [victim.name for victim in found.candidate.victims] == ["low"]


# ---- several victims, and what is said where there are none


@pytest.mark.promise("S14")
@EITHER_WAY
def test_of_three_victims_only_those_go_that_have_to_and_the_third_in_a_row_like_the_first(ports: Any) -> None:
    """Each pod that is put back is judged with those that were put back before it."""
    world = cluster(node("a", cpu="6"))
    for name, cpu, priority in (("p1", "1", 40), ("p2", "3", 30), ("p3", "1", 20), ("p4", "1", 10)):
        world.run(name, "a", cpu=cpu, priority=priority)
    assert chosen(world.preempt(high(world, "3", ports=ports))) == ("a", ["p2"])
    assert chosen(world.preempt(high(world, "4", ports=ports))) == ("a", ["p2", "p4"])
    assert chosen(world.preempt(high(world, "5", ports=ports))) == ("a", ["p2", "p3", "p4"])


@EITHER_WAY
def test_each_victim_beyond_what_a_budget_allows_counts_as_a_violation(ports: Any) -> None:
    world = cluster(node("a", cpu="3"), node("b", cpu="3"))
    for number in range(3):
        world.run(f"x{number}", "a", labels={"app": "x"})
        world.run(f"y{number}", "b", labels={"app": "y"}, priority=50)
    world.pdbs.set(covering("x", 1))
    world.pdbs.set(covering("y", 2))
    found = world.preempt(high(world, "3", ports=ports)).candidate
    assert found is not None and (found.node_name, found.pdb_violations, len(found.victims)) == ("b", 1, 3)
    world.pdbs.set(covering("y", 0))
    found = world.preempt(high(world, "3", ports=ports)).candidate
    assert found is not None and (found.node_name, found.pdb_violations) == ("a", 2)


def test_the_message_counts_nodes_without_victims_and_nodes_that_nobodys_leaving_would_help() -> None:
    world = cluster(node("peer", cpu="2"), node("shut", unschedulable=True), node("small", cpu="1"))
    world.run("equal", "peer", cpu="2", priority=100)
    assert world.preempt(high(world)).message == (
        "0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_the_reason_of_a_node_is_that_of_the_first_filter_even_if_a_later_one_reads_amounts_alone() -> None:
    """Both the port and the room are taken by a pod of the same priority; ports are asked about first."""
    world = cluster(node("a", cpu="2"))
    world.place("a", requests={"cpu": "2"}, priority=100, ports=(80,))
    world.run("low", "a", cpu="0")
    assert world.preempt(high(world, ports=(80,))).message == (
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    )


@pytest.mark.parametrize(("priority", "woken"), [(4, False), (5, False), (6, True), (7, True)])
def test_a_pod_that_ends_wakes_those_of_higher_priority(priority: int, woken: bool) -> None:
    world = World()
    gone = world.pod(priority=5, nodeName="n")
    plugin = DefaultPreemption(DefaultPreemptionArgs())
    assert wakes(plugin, world.pod(priority=priority), ev.ASSIGNED_POD_DELETE, gone, None) is woken


@pytest.mark.parametrize(
    ("percentage", "absolute", "nodes", "wanted"),
    [(10, 100, 50, 50), (10, 100, 500, 100), (10, 100, 5000, 500), (50, 0, 3, 1), (0, 2, 9, 2)],
)
def test_a_part_of_the_nodes_is_enough_but_not_less_than_a_number_of_them(
    percentage: int, absolute: int, nodes: int, wanted: int
) -> None:
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute)
    assert DefaultPreemption(args).wanted(nodes) == wanted
