"""Nodes divided among processes: sizes, who keeps what, and how little moves."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.shards.division import divide

NODES = [f"n{number}" for number in range(40)]
PARTS = range(6)

nodes = st.sets(st.sampled_from(NODES))
parts = st.sets(st.sampled_from(PARTS), min_size=1).map(sorted)
holders = st.dictionaries(st.sampled_from(NODES), st.sampled_from(PARTS))


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


@given(nodes, st.sets(st.sampled_from(PARTS), min_size=2).map(sorted))
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
