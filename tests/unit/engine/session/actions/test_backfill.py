"""Pods that ask for nothing, and what is kept for gangs that they do not complete."""

from __future__ import annotations

from collections.abc import Iterable

from agent_scheduler.engine.session.model import Task, TaskStatus
from tests.support.engine import node
from tests.unit.engine.session.scene import Scene, bound, conf, opened

HOW = conf(actions="enqueue allocate backfill")


def test_what_is_reserved_for_each_gang_that_stays_incomplete_is_let_go_for_the_last_one_too() -> None:
    scene = Scene(node("a", cpu="1"))
    for name in ("first", "second", "last"):
        scene.group(name, minMember=3, phase="Inqueue")
        scene.member(name, cpu="9")
        scene.member(name, cpu="")
        scene.member(name, cpu="")
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
    scene = Scene(node("a", cpu="1"))
    scene.group("g", minMember=3)
    for cpu in ("1", "", ""):
        scene.member("g", cpu=cpu)
    session, _ = scene.run(HOW)
    assert scene.cluster.commits == [("g", ["g-0"], 1), ("g", ["g-1"], 1), ("g", ["g-2"], 1)]
    assert session.jobs["default/g"].ready == 3


def test_gated_pods_jobs_that_wait_and_jobs_that_lack_members_are_left_out() -> None:
    scene = Scene(node("a"))
    scene.group("gated")
    scene.member("gated", cpu="", schedulingGates=[{"name": "example.com/wait"}])
    scene.gang("few", 1, cpu="", minMember=2)
    scene.gang("waits", 1, cpu="", minResources={"cpu": "9"})
    scene.gang("free", 1, cpu="")
    session, _ = scene.run(conf("priority", "gang", "overcommit", "predicates", "nodeorder"))
    assert bound(session) == {"free-0": "a"}


def test_a_claim_on_room_to_come_is_tried_again_as_room_that_is_there() -> None:
    scene = Scene(node("a", pods="2"))
    scene.gang("g", 2, cpu="", minMember=1)
    session = opened(scene.session(HOW))
    job = session.jobs["default/g"]
    job.phase = "Inqueue"
    session.allocate(next(iter(job.tasks.values())), 0)
    assert job.count(TaskStatus.PIPELINED) == 1
    from agent_scheduler.engine.session.actions.backfill import backfill

    for _ in backfill(session):
        pass
    assert bound(session) == {"g-0": "a", "g-1": "a"}


def test_they_come_in_the_order_of_jobs_and_tasks() -> None:
    scene = Scene(node("a", pods="3"))
    scene.more["priorities"] = {"high": 9}
    scene.gang("low", 2, cpu="", minMember=1)
    scene.group("high", priorityClassName="high")
    scene.member("high", "later", cpu="", priority=1)
    scene.member("high", "sooner", cpu="", priority=2)
    session, _ = scene.run(HOW)
    sent = [name for _, names, _ in scene.cluster.commits for name in names]
    assert sent == ["sooner", "later", "low-0"]
    assert session.jobs["default/low"].fit_errors.keys() == {scene.members[scene.groups[0].key][1].uid}
