"""Pods that ask for nothing, and what is kept for gangs that they do not complete."""

from __future__ import annotations

from collections.abc import Iterable

from agent_scheduler.engine.session.actions.backfill import backfill
from agent_scheduler.engine.session.model import Task, TaskStatus
from tests.support.engine import node
from tests.unit.engine.session.scene import GATED, Scene, bound, conf, has, opened, sized, waits

HOW = conf(actions="enqueue allocate backfill")


def test_what_is_reserved_for_each_gang_that_stays_incomplete_is_let_go_for_the_last_one_too() -> None:
    members = ({"cpu": "9"}, {"cpu": ""}, {"cpu": ""})
    names = ("first", "second", "last")
    scene = sized(1).holding(*(has(name, *members, minMember=3, phase="Inqueue") for name in names))
    session = scene.session(HOW)
    let_go: list[list[str]] = []

    def let_go_of(tasks: Iterable[Task]) -> None:
        if names := [task.pod.name for task in tasks]:
            let_go.append(names)

    session.nodes.let_go = let_go_of  # type: ignore[method-assign]
    for _ in session.run():
        pass
    assert let_go == [["first-1", "first-2"], ["second-1", "second-2"], ["last-1", "last-2"]]
    assert bound(session) == {} and session.claims


def test_a_gang_is_bound_whole_once_pods_that_ask_for_nothing_complete_it() -> None:
    scene = sized(1).holding(has("g", {}, {"cpu": ""}, {"cpu": ""}, minMember=3))
    session, _ = scene.run(HOW)
    assert scene.cluster.commits == [("g", ["g-0"], 1), ("g", ["g-1"], 1), ("g", ["g-2"], 1)]
    assert session.jobs["default/g"].ready == 3


def test_gated_pods_jobs_that_wait_and_jobs_that_lack_members_are_left_out() -> None:
    scene = sized(4).holding(
        has("gated", {"cpu": "", **GATED}),
        waits("few", cpu="", minMember=2),
        waits("waits", cpu="", minResources={"cpu": "9"}),
        waits("free", cpu=""),
    )
    session, _ = scene.run(conf("priority", "gang", "overcommit", "predicates", "nodeorder"))
    assert bound(session) == {"free-0": "n0"}


def test_a_claim_on_room_to_come_is_tried_again_as_room_that_is_there() -> None:
    scene = Scene(node("a", pods="2"))
    scene.gang("g", 2, cpu="", minMember=1)
    session = opened(scene.session(HOW))
    job = session.jobs["default/g"]
    job.phase = "Inqueue"
    session.allocate(next(iter(job.tasks.values())), 0)
    assert job.count(TaskStatus.PIPELINED) == 1
    for _ in backfill(session):
        pass
    assert bound(session) == {"g-0": "a", "g-1": "a"}


def test_they_come_in_the_order_of_jobs_and_tasks() -> None:
    scene = Scene(node("a", pods="3"))
    scene.more["priorities"] = {"high": 9}
    later, sooner = ({"cpu": "", "priority": priority} for priority in (1, 2))
    scene.holding(waits("low", 2, cpu="", minMember=1), has("high", later, sooner, priorityClassName="high"))
    session, _ = scene.run(HOW)
    sent = [name for _, names, _ in scene.cluster.commits for name in names]
    assert sent == ["high-1", "high-0", "low-0"]
    assert session.jobs["default/low"].fit_errors.keys() == {scene.members[scene.groups[0].key][1].uid}
