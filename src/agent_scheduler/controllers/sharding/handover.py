"""In which order shards are written, so that at no moment two of them desire one node.

A shard gets a node only after the shard that had it was written without it. Where shards swap nodes, one of them is
written twice: first with what is free for it, which sets its own nodes free, and at last with all. A write that fails
leaves its shard as it was, and others do without its nodes until it succeeds; so they do without those of a write that
may have succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple


class Step(NamedTuple):
    """Write `shard` with `nodes`; `is_last`: these are all that it should have."""

    shard: str
    nodes: frozenset[str]
    is_last: bool


def next_step(
    wanted: Mapping[str, Set[str]],
    held: Mapping[str, Set[str]],
    doubted: Mapping[str, Set[str]] = MappingProxyType({}),
) -> Step | None:
    """What to write next, or None where nothing can be.

    `wanted`: what the shards should have that are still to be written, in the order of their turns. `held`: what each
    shard has now, those of others included; a shard without an entry is to be made, even if it gets nothing. `doubted`:
    what each may have besides.
    """
    partial: Step | None = None
    for shard, nodes in wanted.items():
        has = held.get(shard)
        gains = nodes - has if has is not None else nodes
        taken: set[str] = set()
        for other, theirs in chain(held.items(), doubted.items()):
            if other != shard:
                taken |= gains & theirs
        if not taken:
            if has is None or gains or len(nodes) != len(has):
                return Step(shard, frozenset(nodes), True)
            continue
        free = frozenset(nodes - taken)
        if partial is None and free != has:
            partial = Step(shard, free, False)
    return partial
