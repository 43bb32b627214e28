"""Which jobs stand for themselves in a view of the cluster, and which groups are looked at again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from agent_scheduler.batch.picture import Pictures, PictureSources, waiting_kinds
from agent_scheduler.engine.session.demand import demand_of
from agent_scheduler.engine.session.model import JobInfo
from agent_scheduler.engine.session.session import ClusterView
from agent_scheduler.engine.session.settled import STRIDE, SettledJob
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import Condition
from agent_scheduler.objects import batch
from tests.support.engine import pod_json, read_pod
from tests.unit.engine.session.scene import finished

from .test_waiting import KEY, World

SAID: Condition = ("False", "QueueFull", "", 0)


class Shown(World):
    """A group `g` of two pods, and a pod of none."""

    def __init__(self) -> None:
        World.__init__(self, "a")
        self.status: batch.PodGroupStatus | None = None
        self.conditions: dict[str, Condition] = {}
        self.leaving: set[str] = set()
        self.pictures = Pictures(
            self.cluster,
            self.waiting.groups,
            scheduler_name="volcano",
            default_queue="default",
            sources=PictureSources(
                status_of=lambda group: self.status or group.status,
                condition_of=lambda pod: self.conditions.get(pod.uid, pod.condition),
                said=dict,
                is_leaving=self.leaving.__contains__,
                malformed=lambda *_: None,
            ),
            pdbs=cast(Any, None),
        )
        self.group()
        self.pod("p")
        self.pod("r", spec={"nodeName": "a"})

    def view(self, before: ClusterView | None = None) -> ClusterView:
        """With all groups of the view before settled."""
        settled = {} if before is None else {group.key: of(group) for group in before.groups}
        return finished(self.pictures.view(settled, 1e9))


def of(group: Any) -> SettledJob:
    job = JobInfo(group)
    return SettledJob(job=job, demand=demand_of(job), result=cast(Any, None), share=None)


def test_a_group_of_the_same_objects_stands_and_nobody_waits_in_its_name() -> None:
    world = Shown()
    first = world.view()
    assert not first.settled and len(finished(waiting_kinds(first))) == 1
    second = world.view(first)
    assert set(second.settled) == {KEY} and second.pods[KEY] == tuple(first.pods[KEY])
    assert [group.key for group in second.groups] == [KEY]
    assert not finished(waiting_kinds(second))


@pytest.mark.parametrize(
    "happens",
    [
        lambda world: world.group(version=2),
        lambda world: world.pod("p", version=2),
        lambda world: world.pod("q"),
        lambda world: world.waiting.groups.delete_pod("p"),
    ],
    ids=["group", "pod", "another pod", "pod gone"],
)
def test_what_has_changed_is_looked_at_again(happens: Callable[[Shown], object]) -> None:
    world = Shown()
    first = world.view()
    happens(world)
    second = world.view(first)
    assert not second.settled
    assert set(world.view(second).settled) == {KEY}


@pytest.mark.parametrize(
    "happens",
    [
        lambda world: world.cluster.ledger.assume(world.cluster.pods["p"], 0),
        lambda world: world.leaving.add("r"),
        lambda world: setattr(world, "status", batch.PodGroupStatus(phase="Inqueue")),
        lambda world: world.conditions.update(p=SAID),
    ],
    ids=["being bound", "being evicted", "status being written", "condition being written"],
)
def test_what_is_known_but_not_shown_keeps_a_group_from_standing(happens: Callable[[Shown], object]) -> None:
    """What comes of it may be shown by no other object."""
    world = Shown()
    happens(world)
    first = world.view()
    assert not world.view(first).settled


def test_a_pod_says_what_was_said_last_and_not_what_a_late_watch_shows() -> None:
    """A session that found what the watch shows to be true would leave what was written meanwhile as it is."""
    world = Shown()
    world.conditions["p"] = SAID
    assert {pod.uid: pod.condition for pod in world.view().pods[KEY]} == {"p": SAID, "r": None}
    world.waiting.groups.delete_group(world.waiting.groups.groups[KEY].object)  # type: ignore[arg-type]
    ((_, waiting),) = world.view().lost.values()
    assert [pod.condition for pod in waiting] == [SAID]


def test_a_pod_without_a_group_stands_while_it_is_the_same() -> None:
    world = Shown()
    alone = GroupKey("default", "alone")

    def show(version: str) -> None:
        body = pod_json("alone", requests={"cpu": "1"}, schedulerName="volcano")
        body["metadata"] |= {"uid": "alone", "resourceVersion": version}
        pod = read_pod(body, world.world.classes)
        world.cluster.set_pod(pod)
        world.waiting.groups.set_pod(pod)

    show("1")
    first = world.view()
    second = world.view(first)
    assert set(second.settled) == {KEY, alone}
    show("2")
    third = world.view(second)
    assert set(third.settled) == {KEY}
    # The queue of its namespace is another now.
    world.cluster.ledger.usage.set_namespace("default", "other")
    fourth = world.view(third)
    assert set(fourth.settled) == {KEY}
    assert {group.key: group.queue for group in fourth.groups}[alone] == "other"


def test_a_view_pauses_though_all_groups_stand() -> None:
    world = Shown()
    for number in range(5 * STRIDE):
        body = {"metadata": {"name": f"g{number}", "namespace": "default", "uid": f"g{number}"}}
        world.waiting.groups.set_group(msgspec.convert(body, batch.PodGroup))
    first = world.view()
    settled = {group.key: of(group) for group in first.groups}
    assert sum(1 for _ in world.pictures.view(settled, 1e9)) >= 5
    second = world.view(first)
    assert len(second.settled) == 5 * STRIDE + 1
    assert sum(1 for _ in waiting_kinds(second)) >= 5


def test_what_a_pod_holds_whose_group_is_gone_counts_in_its_queue() -> None:
    world = Shown()
    world.cluster.ledger.usage.members.batch_schedulers = ("volcano",)
    assert world.view().others == []
    known = world.waiting.groups.groups[KEY].object
    assert known is not None
    world.waiting.groups.delete_group(known)
    (left,) = world.view().others
    assert (left.queue, left.allocated["pods"]) == ("default", 1)
