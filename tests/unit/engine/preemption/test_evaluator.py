"""Whom preemption chooses where recorded and random cases say little: eligibility, effort, the last rules."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.framework.args import DefaultPreemptionArgs
from agent_scheduler.engine.plugins.default_preemption import DefaultPreemption
from agent_scheduler.engine.preemption.dry_run import Candidate
from agent_scheduler.engine.preemption.evaluator import NEVER, TERMINATING, Evaluator, PostFilterResult
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.preemption.pdbs import PDB, PDBs, read_pdb
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.queueing.nominator import Nominator
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.selecting import PodDisruptionBudget
from tests.unit.engine.world import World, node, pod_json, read_pod

PROFILE = build_profile(ProfileSpec(scheduler_name="agent-scheduler", base="default-scheduler"))
PORT = [{"containerPort": 1, "hostPort": 80, "protocol": "TCP"}]


def first(_nodes: int) -> int:
    return 0


class Cluster(World):
    def __init__(self, *nodes: NodeInfo) -> None:
        super().__init__(*nodes)
        self.nominator: Nominator[PodInfo] = Nominator()
        self.snapshot = Snapshot(self.ledger)
        self.views = ClassViews(PROFILE, self.snapshot)
        self.nominations = Nominations(self.nominator, self.ledger, self.snapshot, lambda _: PROFILE)
        self.pdbs = PDBs()
        self.selection = Evaluator(self.ledger, self.snapshot.columns, self.pdbs, self.nominations)

    def run(self, name: str, on: str, *, cpu: str = "1", priority: int = 0, **more: Any) -> PodInfo:
        """`more`: labels, started, deleting, preempted."""
        body = pod_json(name, requests={"cpu": cpu}, priority=priority, nodeName=on)
        body["metadata"] |= {"uid": name, "labels": more.get("labels", {})}
        if more.get("deleting"):
            body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        body["status"] = {"startTime": more.get("started", "2026-01-01T00:00:00Z")}
        if more.get("preempted"):
            reason = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            body["status"]["conditions"] = [reason]
        pod = read_pod(body, self.classes)
        self.ledger.set_pod(pod, on)
        return pod

    def preempt(
        self,
        pod: PodInfo,
        *,
        offset: Callable[[int], int] = first,
        nominated: str = "",
        leaving: Collection[str] = frozenset(),
        **args: Any,
    ) -> PostFilterResult:
        self.snapshot.refresh()
        view = self.views.of(self.snapshot.handle.class_of(pod))
        against = self.nominations.against(pod)
        columns = self.snapshot.columns
        return self.selection.preempt(
            pod,
            view,
            self.nominations.refused(pod, view, columns, against),
            wanted=DefaultPreemption(DefaultPreemptionArgs(**args)).wanted,
            offset=offset,
            nominated=nominated,
            against=against,
            leaving=leaving,
        )


def chosen(found: PostFilterResult) -> tuple[str, list[str]]:
    assert found.candidate is not None, found.message
    return found.candidate.node_name, [victim.name for victim in found.candidate.victims]


def high(world: Cluster, cpu: str = "2", **spec: Any) -> PodInfo:
    return world.pod(requests={"cpu": cpu}, priority=100, **spec)


#: The same pod for the expression over all nodes, and, since host ports are more than amounts, for one at a time.
EITHER_WAY = pytest.mark.parametrize("ports", [None, PORT], ids=["together", "alone"])


def high_with(world: Cluster, ports: Any, cpu: str = "2") -> PodInfo:
    container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    if ports:
        container["ports"] = ports
    return world.pod(containers=[container], priority=100)


def test_a_pod_that_may_not_preempt_says_so_and_keeps_its_nomination() -> None:
    world = Cluster(node("a", cpu="2"))
    world.run("low", "a", cpu="2")
    assert world.preempt(high(world, preemptionPolicy="Never")) == PostFilterResult(None, NEVER)


@pytest.mark.parametrize(
    ("victim", "leaving", "waits"),
    [
        ({"deleting": True, "preempted": True}, (), True),
        ({"deleting": True}, (), False),
        ({"preempted": True}, (), False),
        ({}, ("low",), True),
        ({"deleting": True, "preempted": True, "priority": 100}, ("low",), False),
    ],
)
def test_a_pod_waits_for_victims_that_are_leaving_its_node(
    victim: dict[str, Any], leaving: tuple[str, ...], waits: bool
) -> None:
    world = Cluster(node("a", cpu="2"))
    world.run("low", "a", cpu="2", **victim)
    found = world.preempt(high(world), nominated="a", leaving=leaving)
    assert (found.message == TERMINATING) is waits
    if waits:
        assert not found.clear


def test_a_pod_whose_nominated_node_will_never_do_does_not_wait_for_it() -> None:
    world = Cluster(node("a", cpu="2", unschedulable=True), node("b", cpu="2"))
    world.run("leaving", "a", cpu="2", deleting=True, preempted=True)
    world.run("low", "b", cpu="2")
    assert chosen(world.preempt(high(world), nominated="a")) == ("b", ["low"])
    assert chosen(world.preempt(high(world), nominated="gone")) == ("b", ["low"])


def test_a_nomination_is_of_no_use_where_nobody_can_be_evicted() -> None:
    world = Cluster(node("a", cpu="2"))
    world.run("peer", "a", cpu="2", priority=100)
    found = world.preempt(high(world))
    assert found.clear
    assert found.message == "0/1 nodes are available: 1 No preemption victims found for incoming pod."


@EITHER_WAY
def test_the_most_important_pods_stay(ports: Any) -> None:
    world = Cluster(node("a", cpu="4"))
    world.run("older", "a", priority=5, started="2026-01-01T00:00:01Z")
    world.run("newer", "a", priority=5, started="2026-01-01T00:00:02Z")
    world.run("least", "a", priority=1, started="2026-01-01T00:00:00Z")
    world.run("not-started", "a", priority=5, started=None)
    assert chosen(world.preempt(high_with(world, ports, "3"))) == ("a", ["newer", "not-started", "least"])


@EITHER_WAY
def test_pods_that_a_budget_covers_stay_before_more_important_ones(ports: Any) -> None:
    world = Cluster(node("a", cpu="2"))
    world.run("covered", "a", priority=1, labels={"app": "x"})
    world.run("more", "a", priority=50)
    world.pdbs.set(covering("x", 0))
    assert chosen(world.preempt(high_with(world, ports, "1"))) == ("a", ["more"])
    found = world.preempt(high_with(world, ports, "2"))
    assert chosen(found) == ("a", ["more", "covered"])
    assert found.candidate is not None and found.candidate.pdb_violations == 1


@EITHER_WAY
@pytest.mark.parametrize(
    ("better", "worse"),
    [
        # A budget that would be broken, against a victim of higher priority.
        ([("b1", {"priority": 50})], [("x1", {"priority": 0, "labels": {"app": "x"}})]),
        ([("b1", {"priority": 1}), ("b2", {"priority": 1})], [("w1", {"priority": 2, "cpu": "2"})]),
        (
            [("b1", {"priority": 9}), ("b2", {"priority": 1})],
            [("w1", {"priority": 9}), ("w2", {"priority": 2})],
        ),
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
        world = Cluster(node("a", cpu="2"), node("b", cpu="2"))
        world.pdbs.set(covering("x", 0))
        for name, pods in zip(names, (better, worse), strict=True):
            for uid, more in pods:
                world.run(uid, name, **({"cpu": "2"} | more if len(pods) == 1 else more))
        assert chosen(world.preempt(high_with(world, ports)))[0] == names[0]


@EITHER_WAY
def test_of_equal_nodes_the_first_from_the_offset_is_chosen(ports: Any) -> None:
    world = Cluster(*(node(name, cpu="2") for name in "abcd"))
    for name in "abcd":
        world.run(f"low-{name}", name, cpu="2")
    pod = high_with(world, ports)
    for offset, name in enumerate("abcd"):
        assert chosen(world.preempt(pod, offset=lambda _, offset=offset: offset))[0] == name


@EITHER_WAY
def test_no_more_candidates_are_looked_for_than_wanted(ports: Any) -> None:
    world = Cluster(*(node(name, cpu="2") for name in "abcd"))
    for name, priority in zip("abcd", (50, 40, 30, 20), strict=True):
        world.run(f"low-{name}", name, cpu="2", priority=priority)
    pod, few = high_with(world, ports), {"min_candidate_nodes_percentage": 0}
    assert chosen(world.preempt(pod, min_candidate_nodes_absolute=2, **few))[0] == "b"
    assert chosen(world.preempt(pod, min_candidate_nodes_absolute=3, **few))[0] == "c"
    assert (
        chosen(world.preempt(pod, min_candidate_nodes_percentage=50, min_candidate_nodes_absolute=0))[0]
        == "b"
    )
    assert chosen(world.preempt(pod))[0] == "d"


@EITHER_WAY
def test_the_search_goes_on_until_a_node_breaks_no_budget(ports: Any) -> None:
    world = Cluster(*(node(name, cpu="2") for name in "abcd"))
    world.pdbs.set(covering("x", 0))
    for name in "ab":
        world.run(f"covered-{name}", name, cpu="2", labels={"app": "x"})
    world.run("c", "c", cpu="2", priority=50)
    world.run("d", "d", cpu="2")
    found = world.preempt(
        high_with(world, ports), min_candidate_nodes_absolute=1, min_candidate_nodes_percentage=0
    )
    assert chosen(found)[0] == "c"


@EITHER_WAY
def test_room_that_is_kept_for_a_nominated_pod_is_not_used_twice(ports: Any) -> None:
    world = Cluster(node("a", cpu="4"))
    for number in range(4):
        world.run(f"low-{number}", "a", started=f"2026-01-01T00:00:0{number}Z")
    other = world.pod(requests={"cpu": "2"}, priority=100)
    world.nominator.add(other, "a")
    assert chosen(world.preempt(high_with(world, ports, "2")))[1] == ["low-0", "low-1", "low-2", "low-3"]
    lesser = world.pod(requests={"cpu": "2"}, priority=99)
    world.nominator.add(lesser, "a")
    world.nominator.delete(other.uid)
    assert chosen(world.preempt(high_with(world, ports, "2")))[1] == ["low-2", "low-3"]
    world.nominator.add(world.pod(requests={"cpu": "3"}, priority=100), "a")
    found = world.preempt(high_with(world, ports, "2"))
    assert found.message == "0/1 nodes are available: 1 Insufficient cpu."


def test_a_nominated_pod_is_not_counted_on_as_a_neighbour() -> None:
    world = Cluster(node("a", cpu="4"))
    world.run("low", "a", cpu="4")
    body = pod_json(requests={"cpu": "1"}, priority=100)
    body["metadata"]["labels"] = {"app": "db"}
    world.nominator.add(read_pod(body, world.classes), "a")
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = world.preempt(high(world, "1", affinity=affinity))
    assert found.message == "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."


def test_columns_are_as_they_were_after_a_search() -> None:
    world = Cluster(node("a", cpu="2"), node("b", cpu="2"))
    world.run("low", "a", cpu="2")
    world.run("peer", "b", cpu="2", priority=100)
    world.snapshot.refresh()
    columns = world.snapshot.columns
    usage, before = columns.usage, columns.usage.copy()
    assert chosen(world.preempt(high(world)))[1] == ["low"]
    assert columns.usage is usage and (usage == before).all()
    assert columns.requested.base is usage


def covering(app: str, allowed: int, **status: Any) -> PDB:
    return read_pdb(
        msgspec.convert(
            {
                "metadata": {"name": app, "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": app}}},
                "status": {"disruptionsAllowed": allowed, **status},
            },
            PodDisruptionBudget,
        )
    )


def test_a_budget_is_broken_by_those_beyond_what_it_allows() -> None:
    world = Cluster(node("a", cpu="9"))
    pods = [world.run(f"p{number}", "a", labels={"app": "x"}) for number in range(3)]
    world.pdbs.set(covering("x", 1))
    assert world.pdbs.violating(pods) == {"p1", "p2"}
    world.pdbs.set(covering("x", 1, disruptedPods={"p0": "2026-01-01T00:00:00Z"}))
    assert world.pdbs.violating(pods) == {"p2"}
    world.pdbs.delete("default", "x")
    assert not world.pdbs and world.pdbs.violating(pods) == frozenset()


def test_a_pod_that_two_budgets_cover_takes_from_both() -> None:
    world = Cluster(node("a", cpu="9"))
    both = world.run("both", "a", labels={"app": "x", "tier": "y"})
    only = world.run("only", "a", labels={"app": "x"})
    other = read_pdb(
        msgspec.convert(
            {
                "metadata": {"name": "tier", "namespace": "default"},
                "spec": {"selector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}},
                "status": {"disruptionsAllowed": 0},
            },
            PodDisruptionBudget,
        )
    )
    world.pdbs.set(covering("x", 1))
    world.pdbs.set(other)
    assert world.pdbs.violating([both, only]) == {"both", "only"}
    assert world.pdbs.violating([only, both]) == {"both"}


@pytest.mark.parametrize("selector", [None, {}, {"matchExpressions": [{"key": "a", "operator": "Odd"}]}])
def test_a_budget_that_selects_nothing_in_particular_covers_nobody(selector: Any) -> None:
    world = Cluster(node("a", cpu="9"))
    pod = world.run("p", "a", labels={"app": "x"})
    found = {"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": selector}, "status": {}}
    world.pdbs.set(read_pdb(msgspec.convert(found, PodDisruptionBudget)))
    assert world.pdbs.violating([pod]) == frozenset()


def test_a_pod_without_labels_is_covered_by_no_budget() -> None:
    """Not even by one that selects pods which lack a label."""
    world = Cluster(node("a", cpu="9"))
    bare, labelled = world.run("p", "a"), world.run("q", "a", labels={"app": "x"})
    selector = {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}
    found = {"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": selector}, "status": {}}
    world.pdbs.set(read_pdb(msgspec.convert(found, PodDisruptionBudget)))
    assert world.pdbs.violating([bare, labelled]) == {"q"}


def test_a_candidate_is_ranked_by_its_victims() -> None:
    world = Cluster(node("a", cpu="9"))
    victims = (world.run("p", "a", priority=7), world.run("q", "a", priority=-1))
    assert tuple(Candidate("a", 0, victims, 1).rank) == (1, 7, 6 + 2 * 2**31, 2)


@pytest.mark.parametrize(("deleting", "helps"), [(False, True), (True, False)])
def test_a_pod_that_is_being_deleted_was_not_counted_and_makes_no_domain_emptier(
    deleting: bool, helps: bool
) -> None:
    """Spread over two zones, of which the pod can go into one: there stand one that stays and one of low priority."""
    world = Cluster(
        node("a", labels={"zone": "x"}),
        node("b", labels={"zone": "y"}, unschedulable=True),
    )
    labels = {"app": "web"}
    world.run("stays", "a", priority=100, labels=labels)
    world.run("low", "a", labels=labels, deleting=deleting)
    body = pod_json(
        priority=100,
        topologySpreadConstraints=[
            {
                "maxSkew": 2,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": labels},
            }
        ],
    )
    body["metadata"]["labels"] = labels
    if deleting:
        body["spec"]["topologySpreadConstraints"][0]["maxSkew"] = 1
    found = world.preempt(read_pod(body, world.classes))
    assert (found.candidate is not None) is helps
    if found.candidate is not None:
        assert [victim.name for victim in found.candidate.victims] == ["low"]
