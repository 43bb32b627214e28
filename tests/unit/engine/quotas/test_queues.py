"""The tree of queues and its faults, and what a job was let in for and does not hold yet."""

from __future__ import annotations

import msgspec
import pytest

from agent_scheduler.engine.quotas.demand import JobDemand
from agent_scheduler.engine.quotas.queues import QueueInfo, QueueTree, queue_info
from agent_scheduler.objects.batch import Queue
from tests.support.engine import queue_of


def tree(**parents: str) -> QueueTree:
    return QueueTree(queue_of(name, parent) for name, parent in {"root": "", **parents}.items())


def test_a_queue_without_a_parent_lies_in_the_root() -> None:
    found = tree(a="", b="root", c="a")
    assert found.ancestors == {"root": (), "a": ("root",), "b": ("root",), "c": ("a", "root")}
    assert [name for name in found.queues if found.is_leaf(name)] == ["b", "c"]
    assert not found.faults


def test_a_missing_parent_is_told_of_the_queue_that_names_it() -> None:
    found = tree(a="gone", b="a")
    assert [fault.message for fault in found.faults] == ["queue a has the parent gone, which does not exist"]
    assert found.ancestors["b"] == ("a",)


def test_a_queue_that_is_its_own_ancestor_is_told_of() -> None:
    found = tree(a="b", b="a", c="a")
    assert {fault.queue for fault in found.faults} == {"a", "b"}
    assert found.ancestors["c"] == ("a", "b")


def test_a_tree_without_a_root_has_one_fault() -> None:
    assert [fault.queue for fault in QueueTree([queue_of("a")]).faults] == ["root"]


def test_levels_count_from_the_root_down() -> None:
    found = tree(a="", b="", a1="a", a2="a", a11="a1", b1="b")
    assert [found.common_levels("a1", other) for other in ("a2", "b1", "a11")] == [1, 0, 1]
    assert [found.branch_at("a11", level) for level in range(4)] == ["root", "a", "a1", "a11"]


def test_an_object_is_read_with_its_limits() -> None:
    raw = b"""{"metadata": {"name": "q", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec":
    {"weight": 3, "priority": 5, "capability": {"cpu": "2", "memory": "x"}, "guarantee": {"resource": {"cpu": 1}},
    "reclaimable": false, "parent": "p"}, "status": {"state": "Closed"}}"""
    problems: list[str] = []
    queue = queue_info(msgspec.json.decode(raw, type=Queue), problems)
    assert queue == QueueInfo(
        name="q",
        uid="u",
        created="2026-01-01T00:00:00Z",
        weight=3,
        priority=5,
        capability={"cpu": 2000},
        guarantee={"cpu": 1000},
        reclaimable=False,
        parent="p",
        state="Closed",
    )
    assert not queue.open
    assert [problem.split(":")[0] for problem in problems] == ["spec.capability[memory]"]


def test_an_object_that_says_nothing_has_no_limit_at_all() -> None:
    queue = queue_info(msgspec.json.decode(b'{"metadata": {"name": "q"}, "spec": {}}', type=Queue), [])
    assert (queue.capability, queue.weight, queue.reclaimable, queue.state) == (None, 1, True, "")


GPU = "nvidia.com/gpu"


def job(**fields: object) -> JobDemand:
    return JobDemand(queue="q", **{"phase": "Inqueue", "minimum": {"cpu": 4000, "memory": 10}, **fields})  # type: ignore[arg-type]


NOTHING: dict[str, int] = {}
RUNS = {"phase": "Running", "min_member": 2, "allocated": {"cpu": 1}}


@pytest.mark.parametrize(
    ("fields", "admitted"),
    [
        # What is allocated, or held by gates, is not waited for.
        ({"allocated": {"cpu": 1000, "memory": 99, "pods": 1}}, {"cpu": 3000, "memory": 0}),
        ({"gated": {"cpu": 9000, "pods": 1}}, {"cpu": 0, "memory": 10}),
        # Nor is anything in another phase or without a minimum; one that runs waits only while it has its members.
        *(({"phase": phase}, NOTHING) for phase in ("Pending", "Unknown", "Completed", "")),
        ({"minimum": None}, NOTHING),
        ({**RUNS, "holding": 1}, NOTHING),
        ({**RUNS, "holding": 2}, {"cpu": 3999, "memory": 10}),
        # Of other resources a thousandth counts, as for Volcano.
        ({"minimum": {GPU: 2000}}, {"cpu": 0, "memory": 0, GPU: 2}),
        ({"minimum": {GPU: 2000}, "allocated": {GPU: 1000}}, {"cpu": 0, "memory": 0}),
    ],
)
def test_a_job_waits_for_the_rest_of_its_minimum(fields: dict[str, object], admitted: dict[str, int]) -> None:
    assert job(**fields).admitted() == admitted


def test_what_is_held_above_the_minimum_is_elastic() -> None:
    assert job(allocated={"cpu": 5000, "memory": 4, "pods": 2}).elastic() == {
        "cpu": 1000,
        "memory": 0,
        "pods": 2,
    }
