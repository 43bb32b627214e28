"""Queues that may not be made, changed or deleted so: what the recordings do not ask."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.admission.queues import QueueRules, mutate, validate
from agent_scheduler.objects.batch import Queue

from .reviews import patched, queue, request

RULES = QueueRules()


def known(*queues: Any) -> dict[str, Queue]:
    roots = [queue("root", parent=""), queue("default")]
    return {each["metadata"]["name"]: msgspec.convert(each, Queue) for each in (*roots, *queues)}


def changed(old: Any, new: Any, *others: Any, rules: QueueRules = RULES) -> str:
    name = new["metadata"]["name"]
    return validate(request(new, old=old, operation="UPDATE", name=name), known(old, *others), rules).message


def made(new: Any, *others: Any, rules: QueueRules = RULES) -> str:
    return validate(request(new, name=new["metadata"]["name"]), known(*others), rules).message


def test_a_queue_is_given_what_it_leaves_out() -> None:
    bare = {"metadata": {"name": "it"}, "spec": {}}
    assert patched(bare, mutate(request(bare)))["spec"] == {"reclaimable": True, "weight": 1}
    said = {"metadata": {"name": "it"}, "spec": {"reclaimable": False, "weight": 3}}
    assert mutate(request(said)).patch == ()


@pytest.mark.parametrize("state", ["Closing", "Unknown"])
def test_a_queue_that_is_closing_may_be_changed_and_not_be_made_so(state: str) -> None:
    was = queue(state=state)
    assert changed(was, queue(state=state, weight=7)) == ""
    assert "queue state must be in [Open Closed]" in changed(queue(), queue(state=state))
    assert "queue state must be in [Open Closed]" in made(queue(state=state))


@pytest.mark.parametrize("below", ["child", "grandchild"])
def test_a_queue_is_not_moved_below_itself(below: str) -> None:
    others = queue("child", parent="it"), queue("grandchild", parent="child")
    problem = changed(queue(), queue(parent=below), *others)
    assert problem == f"queue it cannot have the queue {below} as parent, which is below it"
    assert changed(queue(), queue(parent="it"), *others) == "queue it cannot use itself as parent"


def test_root_is_not_moved_below_another() -> None:
    problem = changed(queue("root", parent=""), queue("root", parent="other"), queue("other"))
    assert problem == "queue root cannot have the queue other as parent, which is below it"


def test_what_root_has_is_changed_only_where_it_is_not_protected() -> None:
    was, new = queue("root", parent=""), queue("root", parent="", capability={"cpu": "1"})
    told = "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"
    assert changed(was, new) == told
    assert changed(was, new, rules=QueueRules(protect_root=False)) == ""


def test_amounts_that_are_the_same_in_other_words_are_no_change() -> None:
    # Its parent has not so much, which counts only once something changes.
    parent = queue("parent", capability={"cpu": "1"})
    was = queue(parent="parent", capability={"cpu": "2"})
    assert changed(was, queue(parent="parent", capability={"cpu": "2000m"}, weight=2), parent) == ""
    told = "queue it capability[cpu]=3 exceeds its ancestor's capability=1"
    assert changed(was, queue(parent="parent", capability={"cpu": "3"}), parent) == told


def test_a_circle_that_is_there_already_is_walked_once() -> None:
    one, two = queue("one", parent="two"), queue("two", parent="one")
    told = changed(one, queue("one", parent="two", capability={"memory": "1Gi"}), two)
    assert told == ""


def test_other_resources_are_compared_too() -> None:
    parent = queue("parent", capability={"nvidia.com/gpu": "2"})
    told = made(queue(parent="parent", capability={"nvidia.com/gpu": "3"}), parent)
    assert told == "queue it capability[nvidia.com/gpu]=3000.00 exceeds its ancestor's capability=2000.00"


def test_a_capability_of_nothing_limits_nothing_below() -> None:
    below = queue("below", parent="it", capability={"cpu": "4", "memory": "1Gi"})
    assert changed(queue(), queue(capability={"cpu": "0", "memory": "1Gi"}), below) == ""
    told = "queue it capability[memory]=1Mi is smaller than its descendants' max capability=1Gi"
    assert changed(queue(), queue(capability={"cpu": "0", "memory": "1Mi"}), below) == told


def test_an_amount_that_is_none_is_refused() -> None:
    assert made(queue(capability={"cpu": "much"})).startswith("invalid quantity 'much'")


def test_an_operation_that_is_none_of_a_queues_is_refused() -> None:
    answer = validate(request(None, operation="CONNECT"), known(), RULES)
    expected = "invalid operation `CONNECT`, expect operation to be `CREATE`, `UPDATE` or `DELETE`"
    assert (answer.allowed, answer.message) == (False, expected)


@pytest.mark.parametrize("weight", ["1", "0.5", "1e3", ".5", "+2", "Inf"])
def test_weights_of_a_hierarchy_are_what_go_takes_for_numbers(weight: str) -> None:
    annotations = {"volcano.sh/hierarchy": "root", "volcano.sh/hierarchy-weights": weight}
    assert made(queue(annotations=annotations)) == ""


@pytest.mark.parametrize("weight", ["", " 1", "1_0", "x", "0x1"])
def test_other_weights_are_no_numbers(weight: str) -> None:
    annotations = {"volcano.sh/hierarchy": "root", "volcano.sh/hierarchy-weights": weight}
    assert "is invalid number: strconv.ParseFloat" in made(queue(annotations=annotations))


_NAMES = st.sampled_from(["a", "b", "c", "d"])


@given(moves=st.lists(st.tuples(_NAMES, st.sampled_from(["root", "a", "b", "c", "d"])), max_size=12))
def test_no_moves_that_are_allowed_make_a_circle(moves: list[tuple[str, str]]) -> None:
    parents = dict.fromkeys("abcd", "root")
    for name, parent in moves:
        there = [queue(each, parent=parents[each]) for each in parents]
        if validate(
            request(queue(name, parent=parent), old=queue(name, parent=parents[name]), operation="UPDATE"),
            known(*there),
            RULES,
        ).allowed:
            parents[name] = parent
    for name in parents:
        steps = 0
        while name != "root":
            name, steps = parents[name], steps + 1
            assert steps <= len(parents)
