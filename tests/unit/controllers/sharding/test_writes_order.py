"""The order of writes: no node is in two shards at any moment, whatever fails."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.controllers.sharding.writes import ShardWrite, next_step

NODES = [f"n{number}" for number in range(6)]
NAMES = ["a", "b", "c"]


def parts(owners: list[str]) -> dict[str, frozenset[str]]:
    """Shard -> nodes; a node whose owner is "" is in none."""
    return {name: frozenset(node for node, owner in zip(NODES, owners, strict=True) if owner == name) for name in NAMES}


divisions = st.lists(st.sampled_from(["", *NAMES]), min_size=len(NODES), max_size=len(NODES)).map(parts)


def test_a_node_is_taken_from_one_shard_before_another_gets_it() -> None:
    wanted = {"a": frozenset({"n1", "n2"}), "b": frozenset({"n3"})}
    held = {"a": frozenset({"n1"}), "b": frozenset({"n2", "n3"})}
    assert next_step(wanted, held) == ShardWrite("b", frozenset({"n3"}), True)
    held["b"] = frozenset({"n3"})
    assert next_step(wanted, held) == ShardWrite("a", frozenset({"n1", "n2"}), True)


def test_shards_that_swap_nodes_first_let_go_of_them() -> None:
    wanted = {"a": frozenset({"n2"}), "b": frozenset({"n1"})}
    held = {"a": frozenset({"n1"}), "b": frozenset({"n2"})}
    assert next_step(wanted, held) == ShardWrite("a", frozenset(), False)


def test_a_shard_that_is_missing_is_made_even_if_it_is_empty() -> None:
    assert next_step({"a": frozenset()}, {}) == ShardWrite("a", frozenset(), True)
    assert next_step({"a": frozenset()}, {"a": frozenset()}) is None


def test_what_another_holds_and_keeps_is_waited_for() -> None:
    held = {"a": frozenset({"n1"}), "foreign": frozenset({"n2"})}
    assert next_step({"a": frozenset({"n1", "n2"})}, held) is None


@given(before=divisions, after=divisions, missing=st.sets(st.sampled_from(NAMES)))
def test_every_division_is_reached_by_any_other_in_two_writes_a_shard_at_most(
    before: dict[str, frozenset[str]], after: dict[str, frozenset[str]], missing: set[str]
) -> None:
    held = {name: nodes for name, nodes in before.items() if name not in missing}
    writes: list[str] = []
    while (step := next_step(after, held)) is not None:
        writes.append(step.shard)
        held[step.shard] = step.nodes
        seen = [node for nodes in held.values() for node in nodes]
        assert len(seen) == len(set(seen)), (step, held)
        assert len(writes) <= 2 * len(NAMES)
    assert held == after
    assert all(writes.count(name) <= 2 for name in NAMES)


@given(before=divisions, after=divisions, stuck=st.sampled_from(NAMES))
def test_a_shard_that_cannot_be_written_keeps_its_nodes_and_the_others_get_all_else(
    before: dict[str, frozenset[str]], after: dict[str, frozenset[str]], stuck: str
) -> None:
    held = dict(before)
    wanted = {name: nodes for name, nodes in after.items() if name != stuck}
    while (step := next_step(wanted, held)) is not None:
        held[step.shard] = step.nodes
    assert held[stuck] == before[stuck]
    assert all(held[name] == after[name] - before[stuck] for name in wanted)
