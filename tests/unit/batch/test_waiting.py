"""What makes a session due, and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from agent_scheduler.batch.waiting import NOT_TRIED, BatchWaitingPods, EquivalentPods, kind_of
from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.gangs.group import of_pod_group
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queueing.queue import QueueSignals, SchedulingQueue
from agent_scheduler.engine.queueing.subqueues import QueueSettings
from agent_scheduler.engine.session.results import GroupResult
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects import batch
from tests.support.engine import node, pod_json, read_pod
from tests.support.queues import scheduling_queue
from tests.unit.cluster.test_cluster import World as ClusterWorld
from tests.unit.engine.session.scene import finished

PROFILE = build_profile(ProfileSpec(scheduler_name="volcano"))
KEY = GroupKey("default", "g")


class World:
    def __init__(self, *nodes: str) -> None:
        self.world = ClusterWorld()
        self.cluster = self.world.cluster
        self.waiting = BatchWaitingPods("volcano", Groups(schedulers=("volcano",)), self.cluster, self._queue)
        for name in nodes:
            self.cluster.set_node(node(name, cpu="1"))

    def _queue(self, signals: QueueSignals) -> SchedulingQueue[PodInfo]:
        return scheduling_queue(
            {"volcano": PROFILE.hint_map()},
            settings=QueueSettings(max_backoff=0),
            signals=signals,
            is_pending=self.cluster.waits,
        )

    def pod(self, name: str, *, cpu: str = "1", **changes: Any) -> PodInfo:
        body = pod_json(name, requests={"cpu": cpu})
        body["metadata"] |= {
            "uid": name,
            "resourceVersion": str(changes.pop("version", 1)),
            "annotations": {"scheduling.k8s.io/group-name": "g"},
            **changes.pop("about", {}),
        }
        body["spec"] |= {"schedulerName": "volcano", **changes.pop("spec", {})}
        body |= changes
        pod = read_pod(body, self.world.classes)
        self.cluster.set_pod(pod)
        self.waiting.groups.set_pod(pod)
        return pod

    def group(self, *, version: int = 1, phase: str = "", minimum: int = 1) -> None:
        body = {
            "metadata": {"name": "g", "namespace": "default", "uid": "g", "resourceVersion": str(version)},
            "spec": {"minMember": minimum},
            "status": {"phase": phase},
        }
        self.waiting.groups.set_group(msgspec.convert(body, batch.PodGroup))

    def begin(self, kinds: Mapping[EquivalentPods, PodInfo]) -> None:
        list(self.waiting.open({}))
        list(self.waiting.begin(kinds))

    def session(self, *pods: PodInfo, refused_by: str = "") -> None:
        """One that looks at these, all of one kind; `refused_by` names plugins with spaces between them."""
        first, *_ = pods
        kind = kind_of(KEY, first)
        self.begin({kind: first})
        assert not self.waiting.due.is_set()
        list(self.waiting.end({kind: frozenset(refused_by.split())}))

    @property
    def is_due(self) -> bool:
        due = self.waiting.due.is_set()
        self.waiting.due.clear()
        return due


def test_a_new_pod_and_a_new_or_other_spec_of_a_group_are_due_and_its_status_is_not() -> None:
    world = World("a")
    world.pod("p")
    assert world.is_due
    world.group()
    assert world.is_due
    world.group(version=2, phase="Inqueue")
    assert not world.is_due
    world.group(version=3, phase="Inqueue", minimum=2)
    assert world.is_due


def test_what_the_scheduler_says_of_a_pod_itself_is_not_due() -> None:
    world = World("a")
    world.pod("p")
    assert world.is_due
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    world.pod("p", version=2, status={"conditions": [said]})
    assert not world.is_due
    world.pod("p", version=3, cpu="2")
    assert world.is_due


def test_a_refused_pod_waits_for_what_can_help_it() -> None:
    world = World("a")
    pods = [world.pod(f"p{number}", cpu="3") for number in range(2)]
    world.session(*pods, refused_by="NodeResourcesFit")
    assert world.waiting.queue.where("p0") is Place.UNSCHEDULABLE and world.waiting.queue.where("p1") is None
    world.cluster.set_node(node("b", cpu="2"))
    assert not world.is_due
    world.cluster.set_node(node("c", cpu="4"))
    assert world.is_due


def test_a_pod_with_a_claim_of_its_own_stands_for_itself_alone() -> None:
    world = World("a")
    names = ("first", "second", "shared", "shared")
    pods = [
        world.pod(f"p{number}", spec={"resourceClaims": [{"name": "r", "resourceClaimName": name}]})
        for number, name in enumerate(names)
    ]
    assert len({pod.cls for pod in pods}) == 1
    assert len({kind_of(KEY, pod) for pod in pods}) == 3


def test_what_comes_while_a_session_goes_on_is_put_to_the_refused_when_it_ends() -> None:
    world = World("a")
    pod = world.pod("p", cpu="3")
    kind = kind_of(KEY, pod)
    world.begin({kind: pod})
    world.cluster.set_node(node("b", cpu="4"))
    assert not world.is_due
    list(world.waiting.end({kind: frozenset(("NodeResourcesFit",))}))
    assert world.is_due


@pytest.mark.parametrize(
    ("cpu", "refused_by"), [("1", ""), ("8", ""), ("1", f"{NOT_TRIED} VolumeZone")], ids=["1", "8", "evicting"]
)
def test_a_pod_that_was_not_tried_waits_for_more_nodes_and_for_the_end_of_others(cpu: str, refused_by: str) -> None:
    world = World("a")
    other = read_pod(pod_json("other", requests={"cpu": "1"}, nodeName="a"), world.world.classes)
    world.cluster.set_pod(other)
    pod = world.pod("p", cpu=cpu)
    world.session(pod, refused_by=refused_by)
    assert NOT_TRIED in world.waiting.queue.places.unschedulable.entries["p"].rejectors
    world.cluster.set_node(node("b", cpu="1"))
    assert world.is_due
    world.cluster.delete_pod(other.uid)
    assert world.is_due


def test_a_pod_that_is_bound_or_gone_stands_for_nobody() -> None:
    world = World("a", "b")
    pods = [world.pod(f"p{number}") for number in range(2)]
    kind = kind_of(KEY, pods[0])
    world.begin({kind: pods[0]})
    world.cluster.ledger.assume(pods[0], 0)
    list(world.waiting.end({}))
    assert world.waiting.queue.where("p0") is None
    world.begin({kind: pods[1]})
    list(world.waiting.end({kind: frozenset(("NodeResourcesFit",))}))
    assert world.waiting.queue.where("p1") is Place.UNSCHEDULABLE
    world.cluster.delete_pod("p1")
    assert world.waiting.queue.where("p1") is None and world.is_due


def test_events_are_put_to_a_pod_that_was_not_bound_after_all() -> None:
    world = World("a")
    pod = world.pod("p", cpu="3")
    kind = kind_of(KEY, pod)
    world.begin({kind: pod})
    world.cluster.ledger.assume(pod, 0)
    list(world.waiting.end({}))
    world.cluster.ledger.forget(pod.uid)
    world.session(pod, refused_by="NodeResourcesFit")
    assert world.waiting.queue.where("p") is Place.UNSCHEDULABLE
    world.cluster.set_node(node("b", cpu="4"))
    assert world.is_due


def test_events_are_put_to_a_pod_that_had_a_node_and_waits_again() -> None:
    """As where the store goes back to before its bind."""
    world = World("a")
    pod = world.pod("p", cpu="3")
    world.session(pod, refused_by="NodeResourcesFit")
    world.pod("p", cpu="3", version=2, spec={"nodeName": "a"})
    assert world.waiting.queue.where("p") is None
    world.session(world.pod("p", cpu="3", version=3), refused_by="NodeResourcesFit")
    assert world.waiting.queue.where("p") is Place.UNSCHEDULABLE
    world.cluster.set_node(node("b", cpu="4"))
    assert world.is_due


def test_a_member_that_runs_or_ends_is_due_and_a_stranger_is_not() -> None:
    world = World("a")
    world.pod("p", spec={"nodeName": "a"})
    assert world.is_due
    world.pod("p", spec={"nodeName": "a"}, version=2, status={"phase": "Running"})
    assert world.is_due
    stranger = pod_json("stranger", nodeName="a")
    world.cluster.set_pod(read_pod(stranger, world.world.classes))
    assert not world.is_due


@pytest.mark.parametrize("change", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"annotations": {}}], ids=str)
def test_a_member_on_its_node_that_leaves_it_or_its_group_is_due(change: dict[str, Any]) -> None:
    world = World("a")
    world.pod("p", spec={"nodeName": "a"})
    assert world.is_due
    world.pod("p", spec={"nodeName": "a"}, version=2)
    assert not world.is_due
    world.pod("p", spec={"nodeName": "a"}, version=3, about=change)
    assert world.is_due


def test_a_member_that_had_ended_is_due_when_it_goes() -> None:
    world = World("a")
    world.group()
    pod = world.pod("p", spec={"nodeName": "a"}, status={"phase": "Succeeded"})
    assert pod.finished
    world.session(pod)
    assert not world.is_due
    world.waiting.groups.delete_pod(pod.uid)
    assert world.is_due


def test_a_pod_that_has_ended_is_due_when_it_comes_to_name_its_group_and_not_again() -> None:
    world = World("a")
    world.group()
    assert world.is_due
    for version, due in ((1, True), (2, False)):
        world.pod("p", version=version, spec={"nodeName": "a"}, status={"phase": "Succeeded"})
        assert world.is_due is due


def test_a_status_that_is_not_what_was_decided_is_due() -> None:
    world = World("a")
    world.group(phase="Running")
    group = of_pod_group(world.waiting.groups.groups[KEY].object)  # type: ignore[arg-type]
    status = batch.PodGroupStatus(phase="Inqueue")
    assert world.is_due
    result = GroupResult(group=group, status=status, write=True, tasks={}, verdict=None)
    assert finished(world.waiting.decided([result], {})) is None
    world.group(version=2, phase="Inqueue")
    assert not world.is_due
    world.group(version=3, phase="Running")
    assert world.is_due


@pytest.mark.parametrize(
    ("priority", "scheduler", "due"),
    [(0, "agent-scheduler", True), (0, "volcano", False), (-1, "agent-scheduler", False)],
)
def test_a_nominations_end_is_due_for_whom_it_kept_away(priority: int, scheduler: str, due: bool) -> None:
    world = World("a")
    world.group()
    pod = world.pod("p")
    world.session(pod, refused_by="NodeResourcesFit")
    other = pod_json("other", requests={"cpu": "1"}, priority=priority)
    other["spec"]["schedulerName"] = scheduler
    nominated = read_pod(other, world.world.classes)
    world.cluster.set_pod(nominated)
    world.cluster.queue.nominate(nominated, "a")
    assert world.is_due is (scheduler == "volcano")
    world.cluster.queue.nominate(nominated, "")
    assert world.is_due is due


def settled_world() -> tuple[World, PodInfo, PodInfo]:
    """Two kinds of one group, refused in a session that is over, and nothing due."""
    world = World("a")
    pods = world.pod("p", cpu="3"), world.pod("q", cpu="6")
    kinds = {kind_of(KEY, pod): pod for pod in pods}
    world.begin(kinds)
    list(world.waiting.end(dict.fromkeys(kinds, frozenset(("NodeResourcesFit",)))))
    list(world.waiting.open({}))
    list(world.waiting.end(dict.fromkeys(kinds, frozenset(("NodeResourcesFit",)))))
    return world, *pods


def test_pods_of_a_settled_group_are_left_alone_until_something_helps_one_of_them() -> None:
    world, *_ = settled_world()
    settled: Any = {KEY: None}
    assert finished(world.waiting.open(settled)) == settled
    list(world.waiting.begin({}, settled))
    list(world.waiting.end({}))
    assert world.waiting.queue.where("p") is world.waiting.queue.where("q") is Place.UNSCHEDULABLE
    assert not world.is_due
    world.waiting.queue.activate(["p"])
    assert world.is_due
    assert finished(world.waiting.open(settled)) == {}
    assert world.waiting.queue.where("p") is world.waiting.queue.where("q") is Place.IN_FLIGHT


def test_what_comes_while_a_session_looks_at_the_cluster_is_put_to_those_that_it_looks_at() -> None:
    world, pod, other = settled_world()
    list(world.waiting.open({}))
    world.cluster.set_node(node("b", cpu="4"))
    kinds = {kind_of(KEY, each): each for each in (pod, other)}
    list(world.waiting.begin(kinds))
    list(world.waiting.end(dict.fromkeys(kinds, frozenset(("NodeResourcesFit",)))))
    assert world.is_due and world.waiting.queue.where("q") is Place.UNSCHEDULABLE


def test_what_came_before_a_new_pod_stood_for_its_kind_makes_another_session_due() -> None:
    world = World("a")
    pod = world.pod("p", cpu="3")
    list(world.waiting.open({}))
    world.cluster.set_node(node("b", cpu="4"))
    list(world.waiting.begin({kind_of(KEY, pod): pod}))
    assert world.is_due


def test_what_helps_a_settled_group_while_a_session_goes_on_makes_another_due() -> None:
    world, *_ = settled_world()
    settled: Any = {KEY: None}
    list(world.waiting.open(settled))
    list(world.waiting.begin({}, settled))
    world.cluster.set_node(node("b", cpu="4"))
    list(world.waiting.end({}))
    assert world.is_due
    assert finished(world.waiting.open(settled)) == {}


def test_a_node_more_or_less_or_another_queue_has_all_looked_at_anew() -> None:
    world, *_ = settled_world()
    settled: Any = {KEY: None}
    world.cluster.set_node(node("b", cpu="1"))
    assert not world.is_due
    assert finished(world.waiting.open(settled)) == {}
    assert finished(world.waiting.open(settled)) == settled
    world.cluster.delete_node("b")
    assert finished(world.waiting.open(settled)) == {}
    world.waiting.groups.set_queue(msgspec.convert({"metadata": {"name": "q"}}, batch.Queue))
    assert finished(world.waiting.open(settled)) == {}
