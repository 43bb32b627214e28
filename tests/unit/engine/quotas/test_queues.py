"""The tree of queues, what a job waits for, and vectors: what counts for a dimension that a side lacks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.quotas.demand import JobDemand
from agent_scheduler.engine.quotas.queues import QueueInfo, QueueTree, queue_info
from agent_scheduler.engine.quotas.vector import (
    UNLIMITED,
    add_to,
    any_above,
    any_within,
    at_least,
    at_most,
    exceeding,
    in_ledger_units,
    insufficient,
    is_empty,
    less_equal,
    minus,
    of_requests,
    of_resources,
    plus,
    readable,
    take_from,
)
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
    assert job(allocated={"cpu": 5000, "memory": 4, "pods": 2}).elastic() == {"cpu": 1000, "memory": 0, "pods": 2}


vectors = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", GPU, "ephemeral-storage"]), st.integers(0, 10_000), max_size=5
)


def test_resources_are_read_in_thousandths_but_for_memory_and_pods() -> None:
    found = of_resources({"cpu": "1500m", "memory": "1Ki", "pods": "3", GPU: "2", "ephemeral-storage": "5"})
    assert found == {"cpu": 1500, "memory": 1024, "pods": 3, GPU: 2000, "ephemeral-storage": 5000}
    assert of_resources(None) == of_resources({}) == {}


@pytest.mark.parametrize("resource", ["count/pods", "requests.cpu", "requests.nvidia.com/gpu", "storage", "services"])
def test_a_quota_of_objects_or_requests_is_no_dimension(resource: str) -> None:
    assert of_resources({resource: "5", "cpu": "1"}) == {"cpu": 1000}


def test_a_pod_counts_as_one_of_pods() -> None:
    assert of_requests({"cpu": 250, "memory": 7, GPU: 1}) == {"cpu": 250, "memory": 7, GPU: 1000, "pods": 1}
    assert of_requests({}) == {"pods": 1}


def test_an_amount_goes_back_to_the_ledger_rounded_up() -> None:
    assert [in_ledger_units(*each) for each in (("cpu", 250.2), (GPU, 1001), ("memory", 7))] == [251, 2, 7]


def test_what_cannot_be_read_is_named_and_the_rest_is_taken() -> None:
    problems: list[str] = []
    assert readable({"cpu": "x", "memory": "1"}, "spec.capability", problems) == {"memory": 1}
    assert len(problems) == 1
    assert problems[0].startswith("spec.capability[cpu]: invalid quantity 'x'")


@given(vectors, vectors)
def test_what_is_added_can_be_taken_off_again(left: dict[str, float], right: dict[str, float]) -> None:
    total = dict(left)
    add_to(total, right)
    assert total == plus(left, right)
    take_from(total, right)
    assert {each: amount for each, amount in total.items() if amount} == {
        each: amount for each, amount in left.items() if amount
    }
    assert minus(plus(left, right), right) == total


@given(vectors, vectors)
def test_one_vector_is_within_another_if_nothing_exceeds_it(left: dict[str, float], right: dict[str, float]) -> None:
    assert less_equal(left, right) == (not any(exceeding(left, right).values()))


@pytest.mark.parametrize(
    ("compare", "vectors", "expected"),
    [
        # A dimension that is missing is 0, and amounts closer than a tenth are equal.
        (less_equal, [{}, {}], True),
        (less_equal, [{GPU: 1}, {"cpu": 1}], False),
        (less_equal, [{"cpu": 1}, {"cpu": 1, GPU: 5}], True),
        (less_equal, [{"cpu": 1000.05}, {"cpu": 1000}], True),
        (less_equal, [{"cpu": 1000.1}, {"cpu": 1000}], False),
        # What neither has is left aside, and what the limit says nothing of.
        (any_within, [{"cpu": 5, "memory": 9}, {"cpu": 5, "memory": 5}, {"cpu": 1, "memory": 1}], True),
        (any_within, [{"memory": 9}, {"memory": 5}, {"cpu": 1, "memory": 1, "pods": 1}], False),
        (any_within, [{"cpu": 1}, {"cpu": 5}, {"memory": 1}], False),
        (any_above, [{"cpu": 5, GPU: 5}, {"cpu": 9, GPU: 1}, {"cpu": 1, GPU: 1}], True),
        (any_above, [{"cpu": 5, GPU: 5}, {"cpu": 0}, {"cpu": 1, GPU: 1}], False),
        (any_above, [{GPU: 5}, {GPU: 0}, {GPU: 1}], True),
        # Pods alone are nothing.
        (is_empty, [{"cpu": 0, "pods": 5}], True),
        (is_empty, [{GPU: 1}], False),
    ],
)
def test_vectors_are_compared_by_the_dimensions_that_count(compare: Any, vectors: list[Any], expected: bool) -> None:
    assert compare(*vectors) is expected


def test_nothing_exceeds_what_is_unlimited() -> None:
    assert less_equal({"cpu": UNLIMITED}, {"cpu": UNLIMITED})
    assert exceeding({"cpu": UNLIMITED, "memory": 5}, {"cpu": 7, "memory": 5}) == {"cpu": UNLIMITED, "memory": 0}


def test_the_lesser_of_two_takes_what_a_missing_dimension_is_said_to_be() -> None:
    vector, limit = {"cpu": 5, "memory": 5, GPU: 5, "pods": 1}, {"cpu": 3, GPU: 9}
    assert at_most(vector, limit, missing=0) == {"cpu": 3, "memory": 0, GPU: 5, "pods": 0}
    assert at_most(vector, limit, missing=UNLIMITED) == {"cpu": 3, "memory": 0, GPU: 5, "pods": 1}


def test_the_greater_of_two_keeps_no_empty_dimension_but_cpu_and_memory() -> None:
    assert at_least({GPU: 0, "pods": 2}, {"cpu": 1, "pods": 1}) == {"cpu": 1, "memory": 0, "pods": 2}


def test_only_what_is_wanted_is_insufficient_and_never_pods() -> None:
    used, limit = {"cpu": 9, "memory": 9, GPU: 9, "pods": 9}, {"memory": 9}
    assert insufficient(used, limit, {GPU: 1, "cpu": 1, "memory": 1, "pods": 1}) == ["cpu", GPU]
    assert insufficient(used, limit, {"memory": 1, "cpu": 0}) == []
