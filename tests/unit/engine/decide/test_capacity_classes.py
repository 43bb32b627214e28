"""Rows are of one class just if no plugin that reads capacity alone can tell them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.decide.ranking import REFUSED, best_of
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.framework.plugin import Depends, Filter, Score
from agent_scheduler.engine.state.columns import NODE_NAME, Ints, Rows
from tests.support.engine import GPU, PACK, SPREAD, World, node
from tests.support.examples import examples

SIZES: list[dict[str, Any]] = [
    {"cpu": "4"},
    {"cpu": "8"},
    {"cpu": "4", "labels": {"zone": "a"}},
    {"cpu": "4", "labels": {"zone": "b", "disk": "ssd"}},
    {"cpu": "4", "extended": {"example.com/gpu": "1"}},
    {"cpu": "4", "extended": {GPU: "2000"}},
    {"cpu": "4", "extended": {GPU: "3000"}},
]


def check(snapshot: Snapshot) -> None:
    columns, classes = snapshot.columns, snapshot.capacity_classes
    telling = columns.interns.telling_labels
    amounts = [
        (
            columns.offers[row],
            columns.taken[row],
            tuple(sorted(columns.gpus.get(row, ()))),
            tuple((each.name if key == NODE_NAME else each.labels.get(key)) for key in telling) if each else None,
        )
        for row, each in enumerate(columns.nodes[: columns.size])
    ]
    numbers = classes.of[: columns.size].tolist()
    assert len(set(zip(numbers, amounts, strict=True))) == len(set(numbers)) == len(set(amounts))
    examples = classes.examples().tolist()
    assert all(amounts[examples[number]] == amounts[row] for row, number in enumerate(numbers))


@examples(100)
@given(data=st.data())
def test_classes_follow_nodes_and_pods_as_they_come_change_and_go(data: st.DataObject) -> None:
    world = World(node("n0"))
    snapshot = world.snapshot
    placed: list[str] = []
    for _ in range(data.draw(st.integers(1, 40))):
        steps = ["place", "place", "place", "share", "share", "end", "node", "gone", "label", "ask", "ask"]
        what = data.draw(st.sampled_from(steps))
        name = f"n{data.draw(st.integers(0, 5))}"
        if what == "place":
            placed.append(world.place(name, requests={"cpu": data.draw(st.sampled_from(["1", "2"]))}).uid)
        elif what == "share" and name in world.ledger.rows:
            # On one device or on another, of which the amounts that are taken say nothing.
            pod = world.pod(requests={GPU: data.draw(st.sampled_from(["300", "600"]))})
            world.ledger.assume(pod, world.ledger.rows[name], (data.draw(st.integers(0, 1)),))
            placed.append(pod.uid)
        elif what == "label":
            labels = data.draw(st.frozensets(st.sampled_from(["zone", "disk", NODE_NAME])))
            world.ledger.columns.interns.tell_apart(data.draw(st.sampled_from("xy")), labels)
        elif what == "end" and placed:
            world.ledger.remove_pod(placed.pop(data.draw(st.integers(0, len(placed) - 1))))
        elif what == "node":
            world.ledger.set_node(node(name, **data.draw(st.sampled_from(SIZES))))
        elif what == "gone":
            world.ledger.remove_node(name)
        elif what == "ask":
            snapshot.refresh()
            check(snapshot)
    snapshot.refresh()
    check(snapshot)


def test_labels_that_somebody_names_tell_nodes_apart_until_it_names_others() -> None:
    world = World(node("a", labels={"zone": "x"}), node("b", labels={"zone": "y"}), node("c"))
    snapshot, interns = world.snapshot, world.ledger.columns.interns

    def number() -> int:
        check(snapshot)
        return len(set(snapshot.capacity_classes.of[:3].tolist()))

    assert number() == 1
    interns.tell_apart("first", frozenset({"zone"}))
    assert number() == 3
    interns.tell_apart("second", frozenset({"disk"}))
    world.ledger.set_node(node("b", labels={"zone": "x"}))
    snapshot.refresh()
    assert number() == 2
    interns.tell_apart("first", frozenset())
    assert number() == 1
    assert interns.telling_labels == ("disk",)


def test_many_classes_come_and_go_and_leave_no_more_than_there_are_rows() -> None:
    world = World(*(node(f"n{index}") for index in range(100)))
    snapshot = world.snapshot
    check(snapshot)
    for number in range(1, 400):
        placed = world.place(f"n{number % 100}", requests={"cpu": f"{number}m"})
        snapshot.refresh()
        check(snapshot)
        world.ledger.remove_pod(placed.uid)
        snapshot.refresh()
        check(snapshot)
    assert snapshot.capacity_classes.examples().shape[0] <= 3


@examples(100)
@given(data=st.data(), several=st.booleans())
def test_the_best_rows_are_found_among_classes_as_among_rows(data: st.DataObject, several: bool) -> None:
    """With `several`, more rows than are looked at first where a number has many."""
    rows = 300 if several else 9
    world = World(*(node(f"n{index}", cpu=f"{index % 5 + 1}") for index in range(rows)))
    for row in data.draw(st.lists(st.integers(0, rows - 1), max_size=6)):
        world.place(f"n{row}", requests={"cpu": "1"})
    snapshot = world.snapshot
    assert snapshot.capacity_classes.examples().size
    # Kinds come and go.
    for row in data.draw(st.lists(st.integers(0, rows - 1), max_size=4)):
        world.place(f"n{row}", requests={"cpu": data.draw(st.sampled_from(["1", "2"]))})
        snapshot.refresh()
        assert snapshot.capacity_classes.examples().size
    columns, classes = snapshot.columns, snapshot.capacity_classes
    numbers = classes.of[: columns.size]
    said = data.draw(st.lists(st.sampled_from([REFUSED, -3, 0, 7]), min_size=rows, max_size=rows))
    scores = classes.ask(
        lambda examples: np.array([said[number] for number in numbers[examples] % rows], dtype=np.int64)
    )
    of_rows = scores[numbers]

    def passing(examples: Rows) -> tuple[Rows, Ints]:
        found = scores[numbers[examples]]
        places = np.flatnonzero(found != REFUSED)
        return places, found[places]

    for offset in (0, data.draw(st.integers(0, rows))):
        for count in (1, 3, rows + 1):
            assert classes.best(passing, count, offset, columns.size) == best_of(of_rows, count, offset)


def test_what_a_plugin_says_of_an_example_it_says_of_all_that_are_alike() -> None:
    world = World(*(node(f"n{index}", **SIZES[index % 3]) for index in range(12)))
    for index in range(8):
        world.place(f"n{index}", requests={"cpu": "2", "memory": f"{index % 2 + 1}Gi"})
    snapshot = world.snapshot
    columns, classes = snapshot.columns, snapshot.capacity_classes
    of, rows, handle = classes.of[: columns.size], columns.all_rows(), world.handle
    asked = set()
    for profile in (PACK, SPREAD):
        for requests in ({"cpu": "1"}, {"cpu": "3", "memory": "1Gi"}, {"example.com/gpu": "1"}):
            pod = world.pod(requests=requests)
            asking: list[tuple[Filter | Score, Any]] = [
                *((each, each.feasible) for each in profile.filters),
                *((each.plugin, each.plugin.score) for each in profile.scores),
            ]
            for plugin, ask in asking:
                state = plugin.prepare(pod.cls, handle)
                if plugin.depends is Depends.ROOM and state is not None:
                    asked.add(type(plugin).__name__)
                    of_examples = ask(state, columns, classes.examples())
                    assert of_examples[of].tolist() == ask(state, columns, rows).tolist()
    assert asked == {"NodeResourcesFit", "MostAllocated", "LeastAllocated", "BalancedAllocation"}
