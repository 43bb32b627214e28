"""Queues that may not be made, changed or deleted so: what the recordings do not ask."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.admission.queues import QueueRules, mutate, validate
from tests.support.reviews import known, patched, queue, request

RULES = QueueRules()


ROOTS = queue("root", parent=""), queue("default")


def changed(old: Any, new: Any, *others: Any, rules: QueueRules = RULES) -> str:
    name = new["metadata"]["name"]
    return validate(request(new, old=old, operation="UPDATE", name=name), known(*ROOTS, old, *others), rules).message


def made(new: Any, *others: Any, rules: QueueRules = RULES) -> str:
    return validate(request(new, name=new["metadata"]["name"]), known(*ROOTS, *others), rules).message


def test_a_queue_is_given_what_it_leaves_out() -> None:
    bare = {"metadata": {"name": "it"}, "spec": {}}
    assert patched(bare, mutate(request(bare)))["spec"] == {"reclaimable": True, "weight": 1}
    said = {"metadata": {"name": "it"}, "spec": {"reclaimable": False, "weight": 3}}
    assert mutate(request(said)).patch == ()
    assert not mutate(request(said, old=said, operation="UPDATE")).allowed


HIERARCHY, WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({HIERARCHY: "sci", WEIGHTS: "2"}, {HIERARCHY: "root/sci", WEIGHTS: "1/2"}),
        ({HIERARCHY: "root/sci", WEIGHTS: "1/2"}, {HIERARCHY: "root/sci", WEIGHTS: "1/2"}),
        ({HIERARCHY: "sci"}, {HIERARCHY: "sci"}),
    ],
)
def test_a_hierarchy_begins_at_root(given: dict[str, str], expected: dict[str, str]) -> None:
    bare = queue(annotations=given)
    assert patched(bare, mutate(request(bare)))["metadata"]["annotations"] == expected


def test_a_hierarchy_has_a_weight_for_each_level_and_none_is_below_another_queues() -> None:
    def hierarchy(path: str, weights: str, *others: Any) -> str:
        return made(queue(annotations={HIERARCHY: path, WEIGHTS: weights}), *others)

    other = queue("other", annotations={HIERARCHY: "root/a/b", WEIGHTS: "1/1/1"})
    assert "must have the same length" in hierarchy("root/a", "1")
    assert "must have the same length" in hierarchy("root/a", "")
    wrong = hierarchy("root/a/b/c/d", "1/0/x/-2/x")
    found = [wrong.find(f"{each} in the 1/0/x/-2/x ") for each in ("0", "x", "-2")]
    assert -1 < found[0] < found[1] < found[2] and wrong.count("Invalid value") == 3
    below = hierarchy("root/a", "1/1", other, queue("more", annotations={HIERARCHY: "root/a/c"}))
    for name, path in (("other", "root/a/b"), ("more", "root/a/c")):
        assert f"not allowed to be in the sub path of {path} of queue {name}" in below
    assert hierarchy("root/a/b", "1/1/1", other) == hierarchy("root/b", "1/1", other) == ""


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"capability": {"cpu": "0"}}, ""),
        ({"capability": {"cpu": "-1"}}, "must be greater than or equal to 0"),
        ({"capability": {"cpu": "-1", "memory": "-1"}}, "must be greater than or equal to 0]"),
        ({"guarantee": {"resource": {"cpu": "-1"}}, "deserved": {"cpu": "0"}}, "than or equal to 0"),
        ({"capability": {"pods": "2"}}, ""),
        ({"capability": {"pods": "1500m"}}, "must be an integer"),
        ({"deserved": {"a.example/x": "500m"}}, "must be an integer"),
        ({"deserved": {"cpu": "2"}}, ""),
        ({"deserved": {"cpu": "2"}, "capability": {"memory": "1Gi"}}, ""),
        ({"deserved": {"cpu": "2"}, "capability": {"cpu": "2"}}, ""),
        ({"deserved": {"cpu": "3"}, "capability": {"cpu": "2"}}, "must be <= capability[cpu]=2"),
        ({"guarantee": {"resource": {"cpu": "2"}}, "deserved": {"cpu": "2"}}, ""),
        ({"guarantee": {"resource": {"cpu": "2"}}}, "must be >= guarantee[cpu]=2"),
        ({"guarantee": {"resource": {"cpu": "2"}}, "deserved": {"cpu": "1"}}, "must be >= guarantee[cpu]=2"),
    ],
)
def test_what_is_guaranteed_is_deserved_and_that_is_within_the_capability(spec: Any, problem: str) -> None:
    for told in (made(queue(**spec)), changed(queue(), queue(**spec))):
        assert told.endswith(problem) and bool(told) == bool(problem)


def sharing(name: str, cpu: str, parent: str = "parent") -> Any:
    """A queue that is guaranteed and deserves so much."""
    return queue(name, parent=parent, guarantee={"resource": {"cpu": cpu}}, deserved={"cpu": cpu})


def test_a_queue_that_is_changed_is_counted_once_beside_the_others_of_its_parent() -> None:
    parent = sharing("parent", "8", "root")
    beside = sharing("one", "2"), sharing("two", "2"), sharing("elsewhere", "7", "root")
    assert changed(sharing("it", "2"), sharing("it", "4"), parent, *beside) == ""
    told = changed(sharing("it", "2"), sharing("it", "5"), parent, *beside)
    assert told.startswith("parent queue parent validation failed: sum of children's guarantee (cpu 9000.00")
    assert made(sharing("it", "4"), parent, *beside) == ""
    assert "exceeds parent's guarantee limit (cpu 8000.00" in made(sharing("it", "5"), parent, *beside)
    # One that comes from elsewhere is counted where it goes.
    assert changed(sharing("it", "5", "root"), sharing("it", "5"), parent, *beside) == told


def test_a_parent_that_is_changed_has_room_for_all_below_it() -> None:
    below = sharing("one", "2"), sharing("two", "2"), sharing("three", "2")
    parent = sharing("parent", "8", "root")
    assert changed(parent, sharing("parent", "6", "root"), *below) == ""
    told = changed(parent, sharing("parent", "5", "root"), *below)
    assert told.startswith("queue parent validation failed: sum of children's guarantee (cpu 6000.00")
    deserving = queue("parent", deserved={"cpu": "6"}, guarantee={"resource": {"cpu": "5"}})
    assert "sum of children's guarantee" in changed(parent, deserving, *below)
    assert "sum of children's deserved" in changed(
        queue("parent", deserved={"cpu": "8"}),
        queue("parent", deserved={"cpu": "3"}),
        *(queue(name, parent="parent", deserved={"cpu": "2"}) for name in ("one", "two")),
    )


def test_a_capability_is_within_the_next_above_that_has_one_and_above_all_below() -> None:
    top = queue("top", capability={"cpu": "4"})
    middle = queue("middle", parent="top")
    assert made(queue(parent="middle", capability={"cpu": "4"}), top, middle) == ""
    told = "queue it capability[cpu]=5 exceeds its ancestor's capability=4"
    assert made(queue(parent="middle", capability={"cpu": "5"}), top, middle) == told
    assert changed(queue(parent="middle"), queue(parent="middle", capability={"cpu": "5"}), top, middle) == told
    leaf = queue("leaf", parent="middle", capability={"cpu": "3"})
    assert changed(top, queue("top", capability={"cpu": "3"}), middle, leaf) == ""
    told = "queue top capability[cpu]=2 is smaller than its descendants' max capability=3"
    assert changed(top, queue("top", capability={"cpu": "2"}), middle, leaf) == told


def test_a_queue_is_as_deep_as_it_may_be_and_below_one_that_may_have_it() -> None:
    chain = [queue(f"q{number}", parent=f"q{number - 1}" if number else "root") for number in range(5)]
    assert made(queue(parent="q3"), *chain) == ""
    told = "queue it exceeds the maximum allowed depth of 5"
    assert made(queue(parent="q4"), *chain) == changed(queue(), queue(parent="q4"), *chain) == told
    assert "failed to get parent queue none of queue it" in made(queue(parent="none"))
    busy = {**queue("busy"), "status": {"state": "Open", "allocated": {"pods": 2}}}
    told = "queue busy cannot be the parent queue of queue it because it has allocated Pods: 2"
    assert made(queue(parent="busy"), busy) == changed(queue(), queue(parent="busy"), busy) == told
    assert made(queue(parent="busy"), busy, queue("other", parent="busy")) == ""
    assert changed(queue(parent="busy"), queue(parent="busy", weight=2), busy) == "", "it is there already"


@pytest.mark.parametrize(
    ("name", "keeps", "problem"),
    [
        ("root", False, "`root` queue can not be deleted"),
        ("default", False, "`default` queue can not be deleted"),
        ("none", False, 'queue.scheduling.volcano.sh "none" not found'),
        ("busy", True, "queue busy cannot be deleted because it has allocated Pods: 2"),
        ("busy", False, ""),
        ("parent", False, "queue parent can not be deleted because it has 2 child queues: one, two"),
        ("one", True, ""),
    ],
)
def test_a_queue_that_is_needed_is_not_deleted(name: str, keeps: bool, problem: str) -> None:
    busy = {**queue("busy"), "status": {"state": "Open", "allocated": {"pods": 2}}}
    there = known(*ROOTS, busy, queue("parent"), queue("two", parent="parent"), queue("one", parent="parent"))
    asked = request(None, operation="DELETE", name=name)
    assert validate(asked, there, QueueRules(keep_allocated=keeps)).message == problem


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
    answer = validate(request(None, operation="CONNECT"), known(*ROOTS), RULES)
    expected = "invalid operation `CONNECT`, expect operation to be `CREATE`, `UPDATE` or `DELETE`"
    assert (answer.allowed, answer.message) == (False, expected)


@pytest.mark.parametrize("weight", ["1", "0.5", "1e3", ".5", "+2", "Inf", "", " 1", "1_0", "x", "0x1"])
def test_weights_of_a_hierarchy_are_what_go_takes_for_numbers(weight: str) -> None:
    problem = made(queue(annotations={HIERARCHY: "root", WEIGHTS: weight}))
    if weight in ("1", "0.5", "1e3", ".5", "+2", "Inf"):
        assert problem == ""
    else:
        assert "is invalid number: strconv.ParseFloat" in problem


_NAMES = st.sampled_from(["a", "b", "c", "d"])


@given(moves=st.lists(st.tuples(_NAMES, st.sampled_from(["root", "a", "b", "c", "d"])), max_size=12))
def test_no_moves_that_are_allowed_make_a_circle(moves: list[tuple[str, str]]) -> None:
    parents = dict.fromkeys("abcd", "root")
    for name, parent in moves:
        there = [queue(each, parent=parents[each]) for each in parents]
        if validate(
            request(queue(name, parent=parent), old=queue(name, parent=parents[name]), operation="UPDATE"),
            known(*ROOTS, *there),
            RULES,
        ).allowed:
            parents[name] = parent
    for name in parents:
        steps = 0
        while name != "root":
            name, steps = parents[name], steps + 1
            assert steps <= len(parents)


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"agent-scheduler.io/namespaces": "team-a, team-b"}, ""),
        ({"agent-scheduler.io/namespace-selector": "team in (a,b),!old"}, ""),
        (
            {"agent-scheduler.io/namespaces": "team_a"},
            "metadata.annotations[agent-scheduler.io/namespaces]: 'team_a' is not the name of a namespace; "
            "allowed: names of namespaces, separated by commas",
        ),
        (
            {"agent-scheduler.io/namespace-selector": "team in a"},
            "metadata.annotations[agent-scheduler.io/namespace-selector]: 'team in a' is not a label selector; "
            "allowed: key, !key, key=value, key!=value, key in (a,b), key notin (a,b), separated by commas",
        ),
    ],
)
def test_a_list_of_namespaces_that_cannot_be_read_is_refused(annotations: dict[str, str], problem: str) -> None:
    assert made(queue(annotations=annotations)) == problem
