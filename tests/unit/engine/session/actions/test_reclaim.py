"""Which pods of other queues are evicted for a queue that has less than it deserves."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.objects.batch import PREEMPTABLE
from tests.support.engine import node
from tests.unit.engine.session.scene import Scene, claimed, conf, evicted

pytestmark = pytest.mark.promise("S30")

ACTIONS = "enqueue allocate reclaim"


def plugins(*more: str | PluginOption) -> SessionConf:
    return conf("priority", "gang", *more, "predicates", "nodeorder", actions=ACTIONS)


CAPACITY = plugins("capacity")


def deserving(name: str, cpu: int, *, parent: str = "root", **more: Any) -> QueueInfo:
    return QueueInfo(name=name, parent=parent, deserved={"cpu": cpu * 1000}, **more)


def scene(*queues: QueueInfo, cpus: tuple[int, ...] = (4,)) -> Scene:
    """Nodes `n0`, `n1`... with these amounts, and the queues `rich` and `poor`, which deserve 2 each, or others."""
    made = Scene(*(node(f"n{index}", cpu=str(cpu)) for index, cpu in enumerate(cpus)))
    made.queues += queues or (deserving("rich", 2), deserving("poor", 2))
    return made


@pytest.mark.parametrize(("number", "expected"), [(1, 1), (2, 2), (3, 0)])
def test_a_queue_takes_back_what_it_deserves_and_for_a_gang_that_needs_more_nothing(
    number: int, expected: int
) -> None:
    made = scene()
    made.running("rich", *["n0"] * 4, queue="rich")
    made.gang("poor", number, queue="poor")
    session, _ = made.run(CAPACITY)
    assert evicted(session) == ["rich-3", "rich-2"][:expected]
    assert len(claimed(session)) == expected
    assert made.cluster.evictions == [(name, "reclaim") for name in evicted(session)]


def test_what_a_queue_holds_already_counts_in_what_it_may_take_back() -> None:
    made = scene(cpus=(6,))
    made.running("rich", *["n0"] * 5, queue="rich")
    made.running("some", "n0", queue="poor")
    made.gang("first", 1, queue="poor")
    made.gang("second", 1, queue="poor")
    session, _ = made.run(CAPACITY)
    assert evicted(session) == ["rich-4"]
    assert claimed(session) == {"first-0": "n0"}


@pytest.mark.parametrize(
    ("victim", "reclaimer"),
    [
        ({"annotations": {PREEMPTABLE: "false"}}, {}),
        ({"phase": "Pending"}, {}),
        ({"deleting": True}, {}),
        ({}, {"preemptionPolicy": "Never"}),
        ({}, {"schedulingGates": [{"name": "example.com/wait"}]}),
        ({}, {"nodeSelector": {"not": "there"}}),
    ],
)
def test_a_pod_stays_that_may_not_go_or_is_of_no_use(victim: Any, reclaimer: Any) -> None:
    made = scene()
    made.group("rich", queue="rich", phase="Running")
    for _ in range(4):
        made.member("rich", node="n0", **victim)
    made.group("poor", queue="poor")
    made.member("poor", **reclaimer)
    assert evicted(made.run(CAPACITY)[0]) == []


def test_a_queue_that_is_not_reclaimable_and_the_jobs_own_queue_keep_what_they_have() -> None:
    made = scene(deserving("kept", 0, reclaimable=False), deserving("poor", 3))
    made.running("kept", "n0", "n0", queue="kept")
    made.running("own", "n0", "n0", queue="poor")
    made.gang("poor", 1, queue="poor")
    assert evicted(made.run(CAPACITY)[0]) == []


@pytest.mark.parametrize(("queue", "expected"), [("poor", []), ("rich", ["runs-1"])])
def test_without_a_plugin_that_asks_queues_only_pods_of_other_queues_go(
    queue: str, expected: list[str]
) -> None:
    made = scene(cpus=(2,))
    made.running("runs", "n0", "n0", queue=queue)
    made.gang("waits", 1, queue="poor")
    assert evicted(made.run(plugins())[0]) == expected


def test_each_task_is_given_room_on_one_node_and_others_keep_their_pods() -> None:
    made = scene(deserving("rich", 0), deserving("poor", 4), cpus=(2, 2))
    made.running("one", "n0", "n0", queue="rich")
    made.running("two", "n1", "n1", queue="rich")
    made.gang("poor", 2, queue="poor")
    session, _ = made.run(CAPACITY)
    assert evicted(session) == ["one-1", "two-1"]


def test_all_jobs_of_a_queue_have_their_turn_and_all_queues() -> None:
    made = scene(*(deserving(name, 2) for name in ("rich", "poor", "bare")), cpus=(6,))
    made.running("rich", *["n0"] * 6, queue="rich")
    for name in ("poor", "bare"):
        made.gang(f"{name}-large", 5, queue=name)
        made.gang(f"{name}-a", 1, queue=name)
        made.gang(f"{name}-b", 1, queue=name)
    session, _ = made.run(CAPACITY)
    assert sorted(claimed(session)) == ["bare-a-0", "bare-b-0", "poor-a-0", "poor-b-0"]
    assert len(evicted(session)) == 4


def test_a_job_that_was_not_let_in_or_lacks_members_takes_nothing_back() -> None:
    made = scene()
    made.running("rich", *["n0"] * 4, queue="rich")
    made.gang("waits", 1, queue="poor", minResources={"cpu": "9"})
    made.gang("few", 1, queue="poor", minMember=2)
    assert evicted(made.run(plugins("overcommit", "capacity"))[0]) == []


def test_a_job_above_its_minimum_takes_nothing_back() -> None:
    made = scene()
    made.running("rich", *["n0"] * 3, queue="rich")
    made.group("poor", queue="poor", phase="Running")
    made.member("poor", node="n0")
    made.member("poor")
    assert evicted(made.run(CAPACITY)[0]) == []


def test_with_proportion_a_queue_at_its_part_of_the_cluster_takes_nothing_back() -> None:
    for held, expected in ((1, ["rich-6"]), (4, [])):
        made = scene(QueueInfo(name="rich"), QueueInfo(name="poor"), cpus=(8,))
        made.running("rich", *["n0"] * (8 - held), queue="rich")
        made.running("poor", *["n0"] * held, queue="poor")
        made.gang("waits", 1, queue="poor")
        assert evicted(made.run(plugins("proportion"))[0]) == expected


@pytest.mark.parametrize(("level", "expected"), [(0, 3), (1, 2)])
def test_what_several_queues_of_a_branch_lose_counts_in_what_the_branch_deserves(
    level: int, expected: int
) -> None:
    """Three leaves of the branch each hold twice what they deserve; the branch may lose two before it has less."""
    made = scene(
        deserving("branch", 4),
        *(deserving(f"leaf-{number}", 1, parent="branch") for number in range(3)),
        deserving("poor", 4),
        cpus=(6,),
    )
    for number in range(3):
        made.running(f"runs-{number}", "n0", "n0", queue=f"leaf-{number}")
    made.group("poor", queue="poor", minMember=0)
    for number in range(3):
        made.gang(f"poor-{number}", 1, queue="poor")
    tree = PluginOption("capacity", {"ancestorReclaimLevel": level}, {"enableHierarchy": True})
    session, _ = made.run(plugins(tree))
    assert len(evicted(session)) == expected


@pytest.mark.parametrize("tree", [False, True])
def test_of_two_queues_that_have_too_much_the_nearer_one_loses_pods_or_else_the_one_that_has_more(
    tree: bool,
) -> None:
    made = scene(
        deserving("near", 4),
        deserving("some", 1, parent="near"),
        deserving("poor", 1, parent="near"),
        deserving("far", 1),
        deserving("rich", 1, parent="far"),
        cpus=(5,),
    )
    made.running("some", "n0", "n0", queue="some")
    made.running("rich", *["n0"] * 3, queue="rich")
    made.gang("poor", 1, queue="poor")
    option = PluginOption("capacity", {}, {"enableHierarchy": tree})
    session, _ = made.run(plugins(option))
    assert evicted(session) == ["some-1" if tree else "rich-2"]
