"""Vectors: what is a dimension, and what counts for one that a side does not have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

GPU = "nvidia.com/gpu"
vectors = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", GPU, "ephemeral-storage"]), st.integers(0, 10_000), max_size=5
)


def test_resources_are_read_in_thousandths_but_for_memory_and_pods() -> None:
    found = of_resources({"cpu": "1500m", "memory": "1Ki", "pods": "3", GPU: "2", "ephemeral-storage": "5"})
    assert found == {"cpu": 1500, "memory": 1024, "pods": 3, GPU: 2000, "ephemeral-storage": 5000}
    assert of_resources(None) == of_resources({}) == {}


@pytest.mark.parametrize(
    "resource", ["count/pods", "requests.cpu", "requests.nvidia.com/gpu", "storage", "services"]
)
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
def test_one_vector_is_within_another_if_nothing_exceeds_it(
    left: dict[str, float], right: dict[str, float]
) -> None:
    assert less_equal(left, right) == (not any(exceeding(left, right).values()))


def test_a_dimension_that_is_missing_is_0_when_compared() -> None:
    assert less_equal({}, {})
    assert not less_equal({GPU: 1}, {"cpu": 1})
    assert less_equal({"cpu": 1}, {"cpu": 1, GPU: 5})


def test_amounts_closer_than_a_tenth_are_equal() -> None:
    assert less_equal({"cpu": 1000.05}, {"cpu": 1000})
    assert not less_equal({"cpu": 1000.1}, {"cpu": 1000})


def test_nothing_exceeds_what_is_unlimited() -> None:
    assert less_equal({"cpu": UNLIMITED}, {"cpu": UNLIMITED})
    assert exceeding({"cpu": UNLIMITED, "memory": 5}, {"cpu": 7, "memory": 5}) == {
        "cpu": UNLIMITED,
        "memory": 0,
    }


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


def test_any_within_leaves_aside_what_neither_has() -> None:
    assert any_within({"cpu": 5, "memory": 9}, {"cpu": 5, "memory": 5}, {"cpu": 1, "memory": 1})
    assert not any_within({"memory": 9}, {"memory": 5}, {"cpu": 1, "memory": 1, "pods": 1})
    assert not any_within({"cpu": 1}, {"cpu": 5}, {"memory": 1})


def test_any_above_leaves_aside_what_the_limit_says_nothing_of() -> None:
    assert any_above({"cpu": 5, GPU: 5}, {"cpu": 9, GPU: 1}, {"cpu": 1, GPU: 1})
    assert not any_above({"cpu": 5, GPU: 5}, {"cpu": 0}, {"cpu": 1, GPU: 1})
    assert any_above({GPU: 5}, {GPU: 0}, {GPU: 1})


def test_pods_alone_are_nothing() -> None:
    assert is_empty({"cpu": 0, "pods": 5})
    assert not is_empty({GPU: 1})
