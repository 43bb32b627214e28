"""Which jobs stand for themselves in the next session, and what they count for there."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from agent_scheduler.engine.quotas.book import QuotaBook
from agent_scheduler.engine.session.close import Result
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.engine.session.model import Job, Task
from agent_scheduler.engine.session.session import Session
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from tests.support.engine import queue_of

from .scene import Part, Scene, bound, conf, has, runs, sized, told, waits
from .test_close import again

SHARES = conf("priority", "gang", "drf", "predicates", "proportion", "nodeorder")


def four_nodes(*parts: Part) -> Scene:
    """None of which has room for a pod of 3 cpus, though there are 8."""
    return sized(2, 2, 2, 2).holding(*parts)


def rested(scene: Scene, how: SessionConf = SHARES) -> Result:
    """What the session after one says of which all has been written."""
    for _ in range(2):
        _, result = scene.run(how, book=QuotaBook())
        again(scene, result)
    return result


def names(result: Result) -> set[str]:
    return {key.name for key in result.settled}


def test_a_gang_that_nodes_refused_and_one_that_runs_are_settled_once_all_is_written() -> None:
    scene = four_nodes(waits("waits", 2, cpu="3"), has("runs", {"node": "n0"}))
    _, first = scene.run(SHARES, book=QuotaBook())
    assert not names(first), "their statuses are to be written"
    again(scene, first)
    _, second = scene.run(SHARES, book=QuotaBook())
    assert names(second) == {"waits", "runs"}


def test_a_settled_job_is_not_looked_at_and_counts_as_before() -> None:
    scene = four_nodes(runs("runs", "n0"), waits("waits", cpu="3"))
    before = rested(scene)
    scene.more["settled"] = before.settled
    scene.gang("new", 3)
    session, result = scene.run(SHARES, book=QuotaBook())
    assert [job.name for job in session.fresh] == ["new"]
    assert set(bound(session)) == {"new-0", "new-1", "new-2"}
    assert {each.queue.name: each.allocated.get("cpu") for each in result.queues}["default"] == 4000
    assert session.shares["default/runs"] == 0.125
    assert {"waits", "runs"} <= names(result)
    told = {each.group.key.name: each.waits_for for each in result.groups}
    assert told == {"waits": "nodes", "runs": "", "new": ""}
    assert not any(event.group.name == "waits" for event in result.events)


def test_what_a_settled_job_asks_for_counts_in_what_its_queue_deserves() -> None:
    def gauges(*, settled: bool) -> Any:
        scene = four_nodes(waits("waits", 2, cpu="3"))
        before = rested(scene)
        assert names(before)
        scene.more["settled"] = before.settled if settled else {}
        return scene.run(SHARES, book=QuotaBook())[1].gauges

    assert gauges(settled=True) == gauges(settled=False)


@pytest.mark.parametrize(
    "how",
    [
        conf("priority", "gang", "predicates", actions="enqueue allocate preempt"),
        conf("priority", "gang", "predicates", actions="enqueue allocate reclaim backfill"),
        conf("gang", "predicates", PluginOption("sla", {"sla-waiting-time": "1h"})),
    ],
    ids=["preempt", "reclaim", "sla"],
)
def test_nobody_is_settled_where_room_is_made_or_claims_come_with_time(how: SessionConf) -> None:
    assert not names(rested(four_nodes(waits("waits", 2, cpu="3")), how))


def test_who_was_refused_beside_claims_of_others_is_not_settled() -> None:
    """The claims are gone with the session, and no event tells of that."""
    leaves = has("leaves", {"cpu": "2", "node": "n0", "deleting": True}, phase="Running")
    scene = sized(2, 1, 1).holding(leaves, waits("claims", cpu="2"), waits("waits", cpu="2"))
    session, result = scene.run(SHARES, book=QuotaBook())
    assert session.claims
    again(scene, result)
    assert "waits" not in names(scene.run(SHARES, book=QuotaBook())[1])


def test_who_is_not_let_in_lacks_members_has_a_gate_or_asks_for_nothing_is_not_settled() -> None:
    scene = sized(2).holding(
        waits("out", 3, minResources={"cpu": "8"}),
        has("few", {}, minMember=2),
        has("gated", {"schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}]}),
        has("empty", minResources={"cpu": "8"}),
        has("free", {"cpu": ""}, {"cpu": "", "nodeSelector": {"not": "there"}}),
    )
    how = conf("priority", "gang", "predicates", "proportion", "overcommit")
    assert not names(rested(scene, how))


def test_a_job_of_which_a_queue_held_a_task_back_is_not_settled() -> None:
    """Room in the queue would help it, of which nodes do not tell."""
    scene = four_nodes(has("mixed", {"cpu": "9"}, {"cpu": "3"}))
    session: Session | None = None
    for _ in range(2):
        session, result = scene.run(SHARES, book=QuotaBook())
        again(scene, result)
    assert session is not None and session.held_back and not names(result)


def test_a_settled_job_that_its_queue_holds_back_from_now_on_says_so() -> None:
    scene = four_nodes(waits("waits", 2, cpu="3", queue="q"))
    scene.queues.append(queue_of("q", "root", capability=8000))
    book = scene.book()
    for _ in range(2):
        _, result = scene.run(SHARES, book=book)
        again(scene, result)
    assert names(result) == {"waits"}
    scene.more["settled"] = result.settled
    book.set_queue(queue_of("q", "root", capability=2000))
    _, result = scene.run(SHARES, book=book)
    assert {reason for reason, _ in told(result).values()} == {"QueueFull"} and not names(result)


def test_a_session_that_is_over_goes_without_a_collection() -> None:
    scene = four_nodes(waits("waits", cpu="3"))
    settled = rested(scene).settled
    scene.more["settled"] = settled
    scene.gang("other", 1, cpu="3", subGroupPolicy=[{"name": "s", "subGroupSize": 1, "minSubGroups": 1}])
    gc.collect()
    gc.disable()
    try:
        # The jobs that stand, the one that is new, and of the session before it the one that was new there.
        session, _ = scene.run(SHARES, book=QuotaBook())
        later, _ = scene.run(SHARES, book=QuotaBook())
        assert left(Session) == 2 and left(Task) == left(Job) == 3
        for _ in session.retire(later):
            pass
        del session
        assert left(Session) == 1 and left(Task) == left(Job) == 2
    finally:
        gc.enable()
    assert set(later.jobs) == {"default/waits", "default/other"} and later.jobs["default/waits"].tasks


def left(kind: type) -> int:
    return sum(type(each) is kind for each in gc.get_objects())
