"""How a change in the cluster reaches ledger and queue: no room leaks, and whoever it helps is woken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_scheduler.cluster.cluster import Cluster, KnownPods
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.events.events import ClusterEvent
from agent_scheduler.engine.gangs.native import NativeGroups
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.plugins.dynamic_resources import DynamicResources
from agent_scheduler.engine.plugins.gpu_share import GPUShare
from agent_scheduler.engine.plugins.node_resources_fit import NodeResourcesFit
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.gpus import ANNOTATION as GPU_INDEX
from agent_scheduler.engine.state.gpus import RESOURCE as GPU
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import node, pod_json, read_pod
from tests.support.queues import scheduling_queue
from tests.support.running import AGENT, Reports

pytestmark = pytest.mark.promise("S7")


class World:
    """A picture of a cluster on its own; pods are told apart by version, as the API server does it."""

    def __init__(self, *nodes: str, cpu: str = "1") -> None:
        self.reports = Reports()
        self.now = 100.0
        self.ledger, known = Ledger(), KnownPods()
        self.settled: list[str] = []
        self.queue: SchedulingQueue = scheduling_queue(
            {"agent-scheduler": AGENT.hint_map()},
            clock=lambda: self.now,
            pre_enqueue={"agent-scheduler": AGENT.pre_enqueue},
            recorder=self.reports,
            is_pending=known.waits,
        )
        listener = SimpleNamespace(settled=lambda pod, _node: self.settled.append(pod.name), seen=lambda _pod: None)
        self.cluster = Cluster(
            known=known,
            ledger=self.ledger,
            devices=Devices(self.ledger.touch),
            queue=self.queue,
            listener=cast(Any, listener),
            observer=self.reports,
        )
        self.classes = PodClasses()
        self._version = 0
        for name in nodes:
            self.cluster.set_node(node(name, cpu=cpu))

    def seen(self, body: dict[str, Any], **spec: Any) -> PodInfo:
        """The watch shows `body`, changed by `spec`."""
        self._version += 1
        body["spec"].update(spec)
        body["metadata"]["resourceVersion"] = str(self._version)
        pod = read_pod(body, self.classes)
        self.cluster.set_pod(pod)
        return pod

    def refused(self, name: str, by: str = "NodeResourcesFit", cpu: str = "1", **requests: str) -> PodInfo:
        """A pod that was tried and got no node."""
        pod = self.seen(pod_json(name, requests=requests or {"cpu": cpu}))
        entry = self.queue.pop()
        assert entry is not None and entry.uid == pod.uid
        self.queue.add_unschedulable(entry, unschedulable_plugins={by})
        assert self.queue.pending().unschedulable == 1
        return pod

    def assumed(self, body: dict[str, Any], node_name: str) -> PodInfo:
        """A pod whose bind is under way."""
        pod = self.seen(body)
        entry = self.queue.pop()
        assert entry is not None and entry.uid == pod.uid
        self.ledger.assume(pod, self.ledger.rows[node_name])
        return pod

    def cpu(self, node_name: str) -> int:
        """Millicores taken."""
        assert contradictions(self.ledger) == []
        self.queue.check_invariants()
        return int(self.ledger.columns.requested[0, self.ledger.rows[node_name]])

    def woken(self) -> bool:
        return self.queue.pending().unschedulable == 0


def binding(*nodes: str) -> tuple[World, dict[str, Any], PodInfo]:
    """A cluster of `n1` and these nodes, and a pod whose bind to `n1` is under way, which it fills."""
    world = World("n1", *nodes)
    body = pod_json("a", requests={"cpu": "1"})
    return world, body, world.assumed(body, "n1")


def test_a_pod_that_another_scheduler_bound_elsewhere_frees_the_room_that_was_assumed_for_it() -> None:
    world, body, _ = binding("n2")
    world.refused("b")
    world.seen(body, nodeName="n2")
    assert (world.cpu("n1"), world.cpu("n2")) == (0, 1000)
    assert world.woken()


def test_an_assumed_pod_that_turns_out_smaller_frees_the_difference() -> None:
    world, body, _ = binding()
    world.refused("b", cpu="500m")
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500m"
    world.seen(body, nodeName="n1")
    assert world.cpu("n1") == 500
    assert world.woken()


def test_a_confirmed_pod_wakes_nobody() -> None:
    world, body, _ = binding()
    world.refused("b")
    world.seen(body, nodeName="n1")
    assert world.cpu("n1") == 1000
    assert not world.woken()


def sharing() -> tuple[World, dict[str, Any]]:
    """A cluster of a node with two devices, and a pod that is to have most of one."""
    world = World()
    world.cluster.set_node(node("n1", extended={GPU: "2000"}))
    return world, pod_json("a", requests={GPU: "600"})


@pytest.mark.parametrize(
    ("devices", "free", "wakes"), [("0", (400, 1000), False), ("1", (1000, 400), True), (None, (1000, 1000), True)]
)
def test_a_pod_that_is_seen_on_another_device_than_it_was_assumed_on_frees_that(
    devices: str | None, free: tuple[int, ...], wakes: bool
) -> None:
    world, body = sharing()
    world.assumed(body, "n1")
    world.refused("b", by="GPUShare", **{GPU: "700"})
    if devices is not None:
        body["metadata"]["annotations"] = {GPU_INDEX: devices}
    world.seen(body, nodeName="n1")
    assert world.cpu("n1") == 0 and world.ledger.columns.gpus == {0: free}
    assert world.woken() is wakes


def test_a_pod_that_turns_out_to_be_on_another_device_frees_the_one_that_it_was_counted_on() -> None:
    world, body = sharing()
    body["metadata"]["annotations"] = {GPU_INDEX: "0"}
    world.seen(body, nodeName="n1")
    world.refused("b", by="GPUShare", **{GPU: "700"})
    world.seen(body)
    assert not world.woken()
    body["metadata"]["annotations"] = {GPU_INDEX: "1"}
    world.seen(body)
    assert world.cpu("n1") == 0 and world.ledger.columns.gpus == {0: (1000, 400)}
    assert world.woken()


def test_the_target_workload_counts_each_pod_once_and_only_while_it_is_wanted() -> None:
    world = World("n1")
    workload = world.cluster.target_workload
    world.seen(pod_json("a", requests={"cpu": "1"}))
    assert workload.kinds == ()
    workload.wanted = True
    body = pod_json("b", requests={"cpu": "2"})
    world.seen(body)
    world.seen(body)
    world.seen(body, nodeName="n1")
    world.seen(pod_json("c", requests={"cpu": "3"}), nodeName="n1", schedulerName="another")
    assert [(dict(kind.requests), share) for kind, share in workload.kinds] == [
        ({"cpu": 2000}, 0.5),
        ({"cpu": 3000}, 0.5),
    ]


def released_and_taken_on(world: World, body: dict[str, Any]) -> None:
    world.cluster.release(["agent-scheduler"])
    world.cluster.take_on(["agent-scheduler"])


@pytest.mark.parametrize("happens", [World.seen, released_and_taken_on])
def test_a_pod_whose_bind_was_answered_is_not_queued_by_what_was_said_before_nor_with_its_profile(
    happens: Callable[[World, dict[str, Any]], object],
) -> None:
    world, body, pod = binding()
    world.queue.done(pod.uid)
    world.ledger.confirm(pod.uid)
    happens(world, body)
    assert world.queue.where(pod.uid) is None
    assert world.cpu("n1") == 1000
    world.seen(body, nodeName="n1")
    assert world.cpu("n1") == 1000
    assert sum(world.queue.pending()) == 0


def test_a_bind_that_came_to_nothing_wakes_those_who_wait_for_its_room() -> None:
    world, _, pod = binding()
    world.refused("b")
    world.cluster.forget(pod)
    assert world.cpu("n1") == 0
    assert world.woken()


def test_schedulers_that_share_a_profile_look_at_their_own_pictures() -> None:
    shown = AGENT.seeing(Ledger(), Devices(), NativeGroups())
    test_a_bind_that_came_to_nothing_wakes_those_who_wait_for_its_room()
    seen = [*zip(AGENT.filters, shown.filters, strict=True)]
    assert [ours is theirs for ours, theirs in seen] == [
        not isinstance(ours, NodeResourcesFit | DynamicResources | GPUShare) for ours, _ in seen
    ]
    # What stands in two places is still one.
    (claims,) = (each for each in shown.filters if isinstance(each, DynamicResources))
    assert claims in shown.pre_enqueue


@pytest.mark.promise("S3")
def test_a_pod_of_another_scheduler_is_known_but_never_waits_here() -> None:
    world = World("n1")
    body = pod_json("a", requests={"cpu": "1"})
    pod = world.seen(body, schedulerName="another-scheduler")
    assert pod.uid in world.cluster.pods
    assert not world.cluster.waits(pod.uid)
    assert sum(world.queue.pending()) == 0
    world.seen(body, nodeName="n1")
    assert world.cpu("n1") == 1000
    assert world.settled == []


def test_a_pod_whose_bind_was_undone_by_a_restore_waits_again() -> None:
    world = World("n1")
    body = pod_json("a", requests={"cpu": "1"}, nodeName="n1")
    world.seen(body)
    assert world.cpu("n1") == 1000
    world.refused("b")
    world.seen(body, nodeName=None)
    assert world.cpu("n1") == 0
    assert world.woken()
    assert world.queue.pending().active >= 1


def test_a_pod_made_again_under_its_name_while_its_bind_is_under_way_is_another_pod() -> None:
    world, _, old = binding()
    world.cluster.delete_pod(old.uid)
    assert world.cpu("n1") == 0
    new = world.seen(pod_json("a", requests={"cpu": "500m"}))
    # The answer to the old one's bind comes last.
    world.cluster.forget(old)
    world.queue.done(old.uid)
    entry = world.queue.pop()
    assert entry is not None and entry.uid == new.uid
    assert world.settled == ["a"]


def test_a_node_that_comes_back_while_a_bind_to_it_is_under_way_still_counts_the_pod() -> None:
    world, body, _ = binding()
    world.cluster.delete_node("n1")
    world.cluster.set_node(node("n1", cpu="1", uid="another"))
    assert world.cpu("n1") == 1000
    world.seen(body, nodeName="n1")
    assert world.cpu("n1") == 1000


def test_a_node_that_is_malformed_is_reported_once_for_each_way_in_which_it_is() -> None:
    world = World()

    def seen(cpu: str) -> int:
        world.cluster.set_node(node("n1", cpu=cpu))
        return len(world.reports.problems)

    assert [seen(cpu) for cpu in ("many", "many", "4", "4", "few", "more")] == [1, 1, 1, 1, 2, 3]
    assert world.reports.problems[0].startswith("Node n1: ") and "many" in world.reports.problems[0]


def test_a_bound_pod_with_a_malformed_field_takes_its_room_and_is_reported_once() -> None:
    world = World("n1")
    body = pod_json("a", requests={"cpu": "1"}, nodeName="n1")
    body["spec"]["containers"][0]["ports"] = [{"hostPort": "http"}]
    world.seen(body)
    world.seen(body)
    assert world.cpu("n1") == 1000
    assert len(world.reports.problems) == 1
    assert world.reports.problems[0].startswith("Pod default/a: spec.containers[0].ports: Expected `int")


def test_a_bound_pod_that_was_malformed_is_counted_in_full_once_it_can_be_read() -> None:
    world = World("n1")
    body = pod_json("a", requests={"cpu": "1"}, nodeName="n1")
    world.seen(body)
    body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    world.seen(body)
    assert world.ledger.columns.ports[world.ledger.rows["n1"]] == {("0.0.0.0", "TCP", 80)}
    world.cluster.delete_pod(body["metadata"]["uid"])
    assert not world.ledger.columns.ports


def test_every_change_of_a_waiting_pod_is_taken_in_at_every_stage() -> None:
    world = World("n1")
    body = pod_json("a", requests={"cpu": "2"}, schedulingGates=[{"name": "example.com/g"}])
    world.seen(body)
    assert world.queue.pending().gated == 1
    world.seen(body, schedulingGates=None)
    entry = world.queue.pop()
    assert entry is not None
    world.queue.add_unschedulable(entry, unschedulable_plugins={"NodeResourcesFit"})
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    world.seen(body)
    assert world.woken()
    body["status"] = {"phase": "Failed"}
    world.seen(body)
    assert sum(world.queue.pending()) == 0
    assert not world.cluster.pods
    assert world.settled == ["a"]


def test_a_refused_pod_that_somebody_else_bound_leaves_the_queue() -> None:
    world = World("n1")
    body = pod_json("a", requests={"cpu": "8"})
    pod = world.seen(body)
    entry = world.queue.pop()
    assert entry is not None
    world.queue.add_unschedulable(entry, unschedulable_plugins={"NodeResourcesFit"})
    world.seen(body, nodeName="n1")
    assert world.queue.where(pod.uid) is None
    assert sum(world.queue.pending()) == 0


def test_a_nomination_that_others_made_holds_again_when_the_bind_there_comes_to_nothing() -> None:
    world, body, pod = binding()
    body["status"] = {"nominatedNodeName": "n1"}
    world.seen(body)
    assert world.queue.nominator.nominated.get(pod.uid, "") == ""
    world.cluster.forget(pod)
    assert world.queue.nominator.nominated.get(pod.uid, "") == "n1"


class Other:
    """Finds nodes for the pods of a profile of its own, and writes down what it is told."""

    def __init__(self) -> None:
        self.waiting: dict[str, str] = {}
        self.heard: list[str] = []
        self.bursts = 0

    def add(self, pod: PodInfo) -> None:
        self.waiting[pod.uid] = pod.name

    def delete(self, uid: str, *, node_name: str = "") -> None:
        del self.waiting[uid]

    def move_all(self, event: ClusterEvent, old: object | None = None, new: object | None = None) -> int:
        self.heard.append(event.label)
        return 0

    def assigned_pod_updated(self, old: PodInfo, new: PodInfo) -> int:
        self.heard.append("AssignedPodUpdate")
        return 0

    @contextmanager
    def burst(self) -> Iterator[None]:
        self.bursts += 1
        yield


def test_each_subscriber_has_the_pods_of_its_profiles_and_all_hear_of_every_event() -> None:
    world = World("a")
    other = Other()
    world.cluster.subscribe(other, ["other"])
    body = pod_json("theirs")
    pod = world.seen(body, schedulerName="other")
    refused = world.refused("ours")
    assert other.waiting == {pod.uid: "theirs"} and world.queue.where(pod.uid) is None
    assert world.cluster.waits(pod.uid) and world.cluster.waits(refused.uid)
    world.cluster.set_node(node("b", cpu="4"))
    assert world.queue.where(refused.uid) is Place.BACKOFF
    world.seen(body, nodeName="b")
    assert not other.waiting and world.settled == ["theirs"]
    assert other.heard == ["NodeAdd", "AssignedPodAdd"]
    with world.cluster.events.burst():
        assert other.bursts == 1


def test_a_profile_has_one_subscriber() -> None:
    with pytest.raises(AssertionError):
        World("a").cluster.subscribe(Other(), ["agent-scheduler"])
