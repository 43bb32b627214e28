"""Kept sums of domains are what adding up all counts gives, whichever counts have changed and by how much."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.rules import topology
from agent_scheduler.engine.rules.topology import Domains
from agent_scheduler.engine.state.rowlog import RowLog
from tests.support.engine import World, node
from tests.support.examples import examples


def plain(of: list[int], counts: list[int]) -> list[int]:
    span = max(of, default=0) + 1
    return [0, *(sum(c for d, c in zip(of, counts, strict=True) if d == at) for at in range(1, span))]


@examples(150)
@given(data=st.data(), size=st.integers(1, 80))
def test_sums_follow_their_counts(data: st.DataObject, size: int) -> None:
    of = data.draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
    domains, changes = Domains(np.array(of, dtype=np.int64)), RowLog()
    kinds = ["a", "b"]
    counts = {kind: np.zeros(size + 5, dtype=np.int64) for kind in kinds}
    for _ in range(data.draw(st.integers(1, 8))):
        kind = data.draw(st.sampled_from(kinds))
        changed = data.draw(st.sampled_from([0, 1, 3, size]))
        for _ in range(changed):
            row = data.draw(st.integers(0, size - 1))
            counts[kind][row] = data.draw(st.integers(0, 5))
            changes.append(row)
        assert domains.sums(counts[kind], changes).tolist() == plain(of, counts[kind][:size].tolist())


def test_sums_follow_when_the_log_has_forgotten_what_changed() -> None:
    domains, changes = Domains(np.array([1, 2, 1], dtype=np.int64)), RowLog(limit=4)
    counts = np.array([1, 2, 3], dtype=np.int64)
    assert domains.sums(counts, changes).tolist() == [0, 4, 2]
    for _ in range(3):
        for row in range(3):
            counts[row] += 1
            changes.append(row)
    assert domains.sums(counts, changes).tolist() == [0, 10, 5]


def test_sums_of_ever_new_columns_do_not_fill_the_memory() -> None:
    domains, changes = Domains(np.array([1, 2], dtype=np.int64)), RowLog()
    for number in range(3 * topology._SUMS_KEPT):
        assert domains.sums(np.array([number, 1]), changes).tolist() == [0, number, 1]
    assert len(domains._kept) <= topology._SUMS_KEPT


def test_domains_of_rows_are_counted_anew_for_other_rows_and_none_counts_as_one() -> None:
    domains = Domains(np.array([1, 0, 2, 1, 0], dtype=np.int64))
    every, some = np.arange(5), np.array([0, 3])
    assert [domains.distinct(rows) for rows in (every, every, some, some, every)] == [3, 3, 1, 1, 3]
    assert domains.here(some).tolist() == [1, 1]


def test_domains_are_those_of_the_nodes_as_they_are() -> None:
    world = World(node("a", labels={"zone": "x"}), node("b", labels={"zone": "y"}))
    columns, counts = world.ledger.columns, np.array([1, 2, 4] + [0] * 61, dtype=np.int64)
    domains = Domains.along("zone", columns)
    assert domains is Domains.along("zone", columns)
    assert domains.sums(counts, columns.counted)[domains.of].tolist() == [1, 2]
    world.ledger.set_node(node("b", labels={"zone": "x"}))
    world.ledger.set_node(node("c", labels={"zone": "x"}))
    domains = Domains.along("zone", columns)
    assert domains.sums(counts, columns.counted)[domains.of].tolist() == [7, 7, 7]
