"""Nodes divided among processes: sizes, who keeps what, and how little moves."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.shards.division import divide

NODES = [f"n{number}" for number in range(12)]
PARTS = range(4)

# Drawn from whole choices: collections of a free size are mostly next to empty, and leave nothing to divide.
nodes = st.lists(st.booleans(), min_size=len(NODES), max_size=len(NODES)).map(
    lambda there: {name for name, is_there in zip(NODES, there, strict=True) if is_there}
)
parts = st.sampled_from(
    [list(some) for size in range(1, len(PARTS) + 1) for some in combinations(PARTS, size)]
)
#: Most nodes are held by somebody, and rarely evenly.
holders = st.lists(st.sampled_from([None, *PARTS, 0, 0]), min_size=len(NODES), max_size=len(NODES)).map(
    lambda parts: {name: part for name, part in zip(NODES, parts, strict=True) if part is not None}
)


def sizes(division: dict[str, int], among: list[int]) -> list[int]:
    count = Counter(division.values())
    return [count[part] for part in among]


def fewest_leaving(counts: list[int], total: int) -> int:
    """The nodes that must leave their parts for even sizes, whichever parts are the larger ones."""
    size, rest = divmod(total, len(counts))
    return min(
        sum(max(0, count - size - (place in larger)) for place, count in enumerate(counts))
        for larger in combinations(range(len(counts)), rest)
    )


@given(nodes, parts, holders)
def test_every_node_is_in_one_part_and_parts_differ_by_one_at_most(
    names: set[str], among: list[int], held: dict[str, int]
) -> None:
    division = divide(names, among, held)
    assert division.keys() == names
    assert set(division.values()) <= set(among)
    assert max(sizes(division, among)) - min(sizes(division, among)) <= 1


@given(nodes, parts, holders)
def test_no_division_into_even_parts_moves_fewer_nodes(
    names: set[str], among: list[int], held: dict[str, int]
) -> None:
    division = divide(names, among, held)
    mine = {name: part for name, part in held.items() if name in names and part in among}
    moved = sum(division[name] != part for name, part in mine.items())
    assert moved == fewest_leaving(sizes(mine, among), len(names))


@given(nodes, parts, holders, st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_does_not_matter(
    names: set[str], among: list[int], held: dict[str, int], rng: random.Random
) -> None:
    shuffled = sorted(names)
    rng.shuffle(shuffled)
    order = list(held.items())
    rng.shuffle(order)
    assert divide(shuffled, rng.sample(among, len(among)), dict(order)) == divide(names, among, held)


@given(nodes, parts, st.sampled_from(PARTS))
def test_a_part_that_comes_takes_nodes_and_no_other_part_gets_any(
    names: set[str], among: list[int], new: int
) -> None:
    before = divide(names, among, {})
    after = divide(names, sorted({*among, new}), before)
    assert {after[name] for name in names if after[name] != before[name]} <= {new}


@given(nodes, parts.filter(lambda among: len(among) > 1))
def test_of_a_part_that_goes_only_its_own_nodes_move(names: set[str], among: list[int]) -> None:
    before = divide(names, among, {})
    after = divide(names, among[1:], before)
    moved = {name for name in names if after[name] != before[name]}
    assert moved == {name for name in names if before[name] == among[0]}


@given(nodes, parts)
def test_a_division_that_is_even_stays_as_it_is(names: set[str], among: list[int]) -> None:
    division = divide(names, among, {})
    assert divide(names, among, division) == division


def test_nodes_that_are_named_alike_go_to_all_parts() -> None:
    names = [f"gpu-{number}" for number in range(4)] + [f"plain-{number}" for number in range(4)]
    division = divide(names, [0, 1], {})
    assert Counter(division[name] for name in names if name.startswith("gpu")) == {0: 2, 1: 2}


def test_without_parts_there_is_no_division() -> None:
    assert divide(["a"], [], {"a": 1}) == {}
