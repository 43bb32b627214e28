"""Dividing nodes among the processes of one host: parts of one size, and no node moves that need not.

Parts are balanced by the number of their nodes, not by what these offer: nodes come and go far more often than they
are of many sizes, and a pod that finds no room in one part goes to another (`fastpath.lending`). Nodes that are handed
out together go to the parts in turn, in the order of their names, so that those of one group or zone, which are often
named alike, are in every part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace


def divide(nodes: Iterable[str], parts: Sequence[int], held: Mapping[str, int]) -> dict[str, int]:
    """Node -> its part. `held`: the part that a node is in now; parts that are not among `parts` count as gone.

    The sizes of any two parts differ by one at most, and of all divisions for which that is so this is one with the
    fewest nodes that leave a part. The same arguments give the same division, in whatever order they come.
    """
    names = sorted(set(nodes))
    if not parts:
        return {}
    kept: dict[int, list[str]] = {part: [] for part in sorted(set(parts))}
    free: list[str] = []
    for name in names:
        part = held.get(name)
        (free if part is None or part not in kept else kept[part]).append(name)
    size, rest = divmod(len(names), len(kept))
    # What cannot be divided evenly stays with those that have most, which then need not give it up.
    largest_first = sorted(kept, key=lambda part: (-len(kept[part]), part))
    sizes = {part: size + (place < rest) for place, part in enumerate(largest_first)}
    division: dict[str, int] = {}
    for part, mine in kept.items():
        division.update(dict.fromkeys(mine[: sizes[part]], part))
        free += mine[sizes[part] :]
    wanting = [(len(mine) - sizes[part], part) for part, mine in kept.items() if len(mine) < sizes[part]]
    heapify(wanting)
    for name in sorted(free):
        short, part = wanting[0]
        division[name] = part
        if short < -1:
            heapreplace(wanting, (short + 1, part))
        else:
            heappop(wanting)
    return division
