"""Which pods of other queues are evicted for a queue that has less than it deserves."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.objects.batch import PREEMPTABLE
from tests.support.engine import queue_of
from tests.unit.engine.session.scene import Part, Scene, claimed, conf, evicted, has, runs, sized, waits

pytestmark = pytest.mark.promise("S30")

ACTIONS = "enqueue allocate reclaim"


def plugins(*more: str | PluginOption) -> SessionConf:
    return conf("priority", "gang", *more, "predicates", "nodeorder", actions=ACTIONS)


CAPACITY = plugins("capacity")
ON = {"node": "n0"}


def deserving(name: str, cpu: int, *, parent: str = "root", **more: Any) -> QueueInfo:
    return queue_of(name, parent, deserved=cpu * 1000, **more)


def scene(*queues: QueueInfo, cpus: tuple[int, ...] = (4,)) -> Scene:
    """With the queues `rich` and `poor`, which deserve 2 each, or others."""
    made = sized(*cpus)
    made.queues += queues or (deserving("rich", 2), deserving("poor", 2))
    return made


def rich(number: int, name: str = "rich", queue: str = "") -> Part:
    """So many that run on n0, in the queue of their name or another."""
    return runs(name, *["n0"] * number, queue=queue or name)


def poor(number: int = 1, name: str = "poor", queue: str = "poor", **more: Any) -> Part:
    return waits(name, number, queue=queue, **more)


@pytest.mark.parametrize(
    ("queues", "cpus", "parts", "gone", "claims"),
    [
        # What the queue deserves, and for a gang that needs more nothing.
        ((), (4,), [rich(4), poor(1)], "rich-3", ["poor-0"]),
        ((), (4,), [rich(4), poor(2)], "rich-3 rich-2", ["poor-0", "poor-1"]),
        ((), (4,), [rich(4), poor(3)], "", []),
        # What it holds already counts in that.
        (
            (),
            (6,),
            [rich(5), rich(1, "some", "poor"), poor(name="first"), poor(name="second")],
            "rich-4",
            ["first-0"],
        ),
        # A queue that is not reclaimable and the job's own queue keep what they have.
        (
            (deserving("kept", 0, reclaimable=False), deserving("poor", 3)),
            (4,),
            [rich(2, "kept"), rich(2, "own", "poor"), poor()],
            "",
            [],
        ),
        # Each task is given room on one node, and others keep their pods.
        (
            (deserving("rich", 0), deserving("poor", 4)),
            (2, 2),
            [rich(2), runs("two", "n1", "n1", queue="rich"), poor(2)],
            "rich-1 two-1",
            ["poor-0", "poor-1"],
        ),
        # A job above its minimum takes nothing back.
        ((), (4,), [rich(3), has("poor", ON, {}, queue="poor", phase="Running")], "", []),
    ],
)
def test_a_queue_takes_back_what_it_deserves(
    queues: tuple[QueueInfo, ...], cpus: tuple[int, ...], parts: list[Part], gone: str, claims: list[str]
) -> None:
    made = scene(*queues, cpus=cpus)
    session, _ = made.holding(*parts).run(CAPACITY)
    assert (evicted(session), sorted(claimed(session))) == (gone.split(), claims)
    assert made.cluster.evictions == [(name, "reclaim") for name in gone.split()]


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
    victims = has("rich", *[{**ON, **victim}] * 4, queue="rich", phase="Running")
    made = scene().holding(victims, has("poor", reclaimer, queue="poor"))
    assert evicted(made.run(CAPACITY)[0]) == []


@pytest.mark.parametrize(("queue", "expected"), [("poor", []), ("rich", ["runs-1"])])
def test_without_a_plugin_that_asks_queues_only_pods_of_other_queues_go(
    queue: str, expected: list[str]
) -> None:
    made = scene(cpus=(2,)).holding(rich(2, "runs", queue), poor())
    assert evicted(made.run(plugins())[0]) == expected


def test_all_jobs_of_a_queue_have_their_turn_and_all_queues() -> None:
    made = scene(*(deserving(name, 2) for name in ("rich", "poor", "bare")), cpus=(6,)).holding(rich(6))
    for name in ("poor", "bare"):
        made.holding(
            *(poor(number, f"{name}-{each}", name) for each, number in (("l", 5), ("a", 1), ("b", 1)))
        )
    session, _ = made.run(CAPACITY)
    assert sorted(claimed(session)) == ["bare-a-0", "bare-b-0", "poor-a-0", "poor-b-0"]
    assert len(evicted(session)) == 4


def test_a_job_that_was_not_let_in_or_lacks_members_takes_nothing_back() -> None:
    made = scene().holding(rich(4), poor(minResources={"cpu": "9"}), poor(name="few", minMember=2))
    assert evicted(made.run(plugins("overcommit", "capacity"))[0]) == []


@pytest.mark.parametrize(("held", "expected"), [(1, ["rich-6"]), (4, [])])
def test_with_proportion_a_queue_at_its_part_of_the_cluster_takes_nothing_back(
    held: int, expected: list[str]
) -> None:
    made = scene(queue_of("rich"), queue_of("poor"), cpus=(8,))
    made.holding(rich(8 - held), rich(held, "some", "poor"), poor())
    assert evicted(made.run(plugins("proportion"))[0]) == expected


@pytest.mark.parametrize(("level", "expected"), [(0, 3), (1, 2)])
def test_what_several_queues_of_a_branch_lose_counts_in_what_the_branch_deserves(
    level: int, expected: int
) -> None:
    """Three leaves of the branch each hold twice what they deserve; the branch may lose two before it has less."""
    leaves = (deserving(f"leaf-{number}", 1, parent="branch") for number in range(3))
    made = scene(deserving("branch", 4), *leaves, deserving("poor", 4), cpus=(6,))
    made.holding(*(rich(2, f"runs-{number}", f"leaf-{number}") for number in range(3)))
    made.holding(has("poor", queue="poor", minMember=0), *(poor(name=f"poor-{each}") for each in range(3)))
    tree = PluginOption("capacity", {"ancestorReclaimLevel": level}, {"enableHierarchy": True})
    session, _ = made.run(plugins(tree))
    assert len(evicted(session)) == expected


@pytest.mark.parametrize(("tree", "gone"), [(False, "rich-2"), (True, "some-1")])
def test_of_two_queues_that_have_too_much_the_nearer_one_loses_pods_or_else_the_one_that_has_more(
    tree: bool, gone: str
) -> None:
    queues = (
        ("near", 4, "root"),
        ("some", 1, "near"),
        ("poor", 1, "near"),
        ("far", 1, "root"),
        ("rich", 1, "far"),
    )
    made = scene(*(deserving(name, cpu, parent=parent) for name, cpu, parent in queues), cpus=(5,))
    made.holding(rich(2, "some"), rich(3), poor())
    option = PluginOption("capacity", {}, {"enableHierarchy": tree})
    assert evicted(made.run(plugins(option))[0]) == [gone]
