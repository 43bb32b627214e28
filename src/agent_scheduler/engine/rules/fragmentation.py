"""How much of what is free on a node the target workload cannot use.

For GPUs it is the measure of FGD (Weng et al., USENIX ATC'23, "Beware of Fragmentation", section 3): what is free on
all devices of the node, expected over the kinds of pods that ask for GPUs: all of it for a kind that does not fit,
else what is free on devices with too little left for it. CPU and memory say whether a kind fits, and count for
nothing else.

Where there are no GPUs it is the same idea for amounts that can be divided: as many pods of a kind are thought to
come as fit, and what is left then cannot be used. A kind counts by how many pods it has and how much each asks for,
so that a few large ones are not drowned by many small ones. What comes of a pod is measured by the size of the pod: 1
where all that it takes was of no use to others, less than 0 where it makes useless more than it takes.

A decision is about a node before and after; the states that nodes go through recur, so their measures are kept.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from operator import sub as subtract
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..framework.plugin import MAX_NODE_SCORE
from ..state.columns import Bools, Columns
from ..state.gpus import RESOURCE as GPU
from ..state.gpus import WHOLE, Free, after_best_fit
from ..state.nodeselection import match_labels, match_selector
from ..state.targetworkload import Kind

Floats = NDArray[np.float64]
Amounts = tuple[int, ...]
#: How many of the amounts of CPU and of memory that kinds ask for are there, and which wishes are met.
Level = tuple[int, int, int]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

#: States of which a measure is kept, of each sort; after so many all are forgotten.
_KEPT: Final = 1 << 16
#: What it counts, in devices, if all that a pod takes of a node without GPUs was of no use before.
_WHOLE_POD: Final = 2.0

#: So that nodes on which nothing changes are worth the same, whatever is lost when their sums are added up.
_ROUNDING: Final = 1e-9

#: So much more unusable is as bad as anything; e to the power of a few hundred is too large for a number. A pod that
#: asks for next to nothing makes useless many times as much as it takes.
_FAR: Final = 100.0

#: As `reach`: every wish is met.
EVERYWHERE: Final = -1


class Measure:
    """Of one target workload."""

    def __init__(self, kinds: Sequence[tuple[Kind, float]], weights: Mapping[str, int]) -> None:
        """`weights`: those of the resources that are looked at where there are no GPUs."""
        sharing = [(kind, share) for kind, share in kinds if dict(kind.requests).get(GPU)]
        dividing = [(kind, share) for kind, share in kinds if not dict(kind.requests).get(GPU)]
        #: What kinds ask of nodes: each such wish has a bit, and one of the kinds that have it.
        self._wishes = {kind.wish: kind for kind, _ in kinds if kind.is_choosy}
        #: The labels by which it tells nodes apart.
        self.labels = frozenset().union(*(kind.reads for kind in self._wishes.values()))
        #: A text, as that keeps its hash: it is looked up for each row.
        self._reach_key = f"reach of a target workload: {list(self._wishes)}"
        self.resources = tuple(weights)
        self.gpus = _Gpus(sharing, self._bits(sharing))
        self.amounts = _Amounts(dividing, self._bits(dividing), weights)

    def _bits(self, kinds: Sequence[tuple[Kind, float]]) -> list[int]:
        """[kind] the bit of its wish; 0 without any."""
        place = {wish: bit for bit, wish in enumerate(self._wishes)}
        return [1 << place[kind.wish] if kind.is_choosy else 0 for kind, _ in kinds]

    def reach(self, nodes: Columns) -> Sequence[int]:
        """[row] which of the wishes a node meets, a bit each."""
        # Not by this object: it would be kept for as long as no node changes.
        return nodes.derive(self._reach_key, lambda: self._reach(nodes))

    def _reach(self, nodes: Columns) -> Sequence[int]:
        rows = nodes.all_rows()
        found = [0] * rows.shape[0]
        for bit, kind in enumerate(self._wishes.values()):
            meets: Bools = match_labels(dict(kind.labels), nodes, rows)
            if kind.selector is not None:
                meets &= match_selector(kind.selector, nodes, rows)
            for row in np.flatnonzero(meets).tolist():
                found[row] |= 1 << bit
        return found


class _Gpus:
    def __init__(self, kinds: Sequence[tuple[Kind, float]], bits: Sequence[int]) -> None:
        asked = [dict(kind.requests) for kind, _ in kinds]
        amounts = sorted({each[GPU] for each in asked})
        self.is_empty = not kinds
        self._bits = bits
        #: [kind]
        self._shares = _shares([share for _, share in kinds])
        #: [kind] which of the amounts it asks for; [amount] of how many devices how much.
        self._which = np.array([amounts.index(each[GPU]) for each in asked], dtype=np.intp)
        self._each = np.array([min(amount, WHOLE) for amount in amounts], dtype=np.int64)
        self._devices = np.array([max(1, amount // WHOLE) for amount in amounts], dtype=np.int64)
        #: What kinds ask for, upwards: between two of these nothing changes for any. And [kind] its place among them.
        self._cpu_levels, self._cpu_level = _levels([each.get("cpu", 0) for each in asked])
        self._memory_levels, self._memory_level = _levels([each.get("memory", 0) for each in asked])
        #: Of nodes as they are: what GPUs have free, upwards, and how much is unusable; and by level.
        self._before: dict[tuple[Free, int, int, int], tuple[Free, float]] = {}
        self._found: dict[tuple[Free, int, int, int], float] = {}
        self._beside: dict[tuple[Free, int], Free] = {}
        self._usable: dict[Free, Floats] = {}
        self._fitting: dict[Level, Floats] = {}

    def less(self, gpus: Free, cpu: int, memory: int, asked: tuple[int, int, int], reach: int) -> float:
        """How many thousandths less are unusable with one pod more on a node that has `gpus` free, and so much CPU and
        memory, of which the pod asks for so much, and for so much of GPUs. Asked for each row that changes and each
        class, so what can be looked up is."""
        key = (gpus, cpu, memory, reach)
        found = self._before.get(key)
        if found is None:
            free = tuple(sorted(gpus))
            found = _keep(self._before, key, (free, self._unusable(free, *self._level(cpu, memory), reach)))
        free, before = found
        asked_cpu, asked_memory, amount = asked
        then = free
        if amount:
            beside = self._beside.get((free, amount))
            then = beside or _keep(self._beside, (free, amount), after_best_fit(free, amount))
        after = (
            then,
            bisect_right(self._cpu_levels, cpu - asked_cpu),
            bisect_right(self._memory_levels, memory - asked_memory),
            reach,
        )
        unusable = self._found.get(after)
        return before - (self._unusable(*after) if unusable is None else unusable)

    def _level(self, cpu: int, memory: int) -> tuple[int, int]:
        """How many of the amounts that kinds ask for are there: nodes of one level have room for the same kinds."""
        return bisect_right(self._cpu_levels, cpu), bisect_right(self._memory_levels, memory)

    def _unusable(self, free: Free, cpu: int, memory: int, reach: int) -> float:
        """Of a level."""
        usable = self._usable.get(free)
        if usable is None:
            usable = _keep(self._usable, free, self._usable_of(free))
        level = (cpu, memory, reach)
        fitting = self._fitting.get(level)
        if fitting is None:
            fitting = _keep(self._fitting, level, self._fitting_in(level))
        return _keep(self._found, (free, *level), sum(free) - float(fitting @ usable))

    def unusable(self, gpus: Free, cpu: int, memory: int, reach: int) -> float:
        """Thousandths, on a node that has these GPUs free and so much else."""
        return self._unusable(tuple(sorted(gpus)), *self._level(cpu, memory), reach)

    def _usable_of(self, free: Free) -> Floats:
        """[amount] what is free on the devices that are of use to who asks for it."""
        first = np.searchsorted(free, self._each)
        above = np.append(np.cumsum(free[::-1])[::-1], 0)[first]
        enough = len(free) - first >= self._devices
        usable: Floats = np.where(enough, above, 0).astype(np.float64)
        return usable

    def _fitting_in(self, level: Level) -> Floats:
        """[amount] the share of kinds that ask for it and fit into what else is free."""
        cpu, memory, reach = level
        fits = (self._cpu_level < cpu) & (self._memory_level < memory) & _reaching(self._bits, reach)
        found: Floats = np.bincount(
            self._which, weights=self._shares * fits, minlength=self._each.shape[0]
        ).astype(np.float64)
        return found


class _Amounts:
    def __init__(
        self, kinds: Sequence[tuple[Kind, float]], bits: Sequence[int], weights: Mapping[str, int]
    ) -> None:
        self._bits = bits
        wanted = [[dict(kind.requests).get(name, 0) for name in weights] for kind, _ in kinds]
        #: [kind, resource]
        self._wanted = np.array(wanted, dtype=np.float64).reshape(-1, len(weights))
        self._weights = np.array(list(weights.values()), dtype=np.float64) / sum(weights.values())
        sizes = self._wanted / np.maximum(self._wanted.max(axis=0, initial=0.0), 1.0) @ self._weights
        #: [kind]
        self._shares = _shares(np.array([share for _, share in kinds]) * sizes)
        self.is_empty = not self._shares.any()
        self._found: dict[tuple[Amounts, Amounts, int], float] = {}

    def less(self, free: Amounts, offered: Amounts, asked: Amounts, reach: int) -> float:
        """How much less is unusable with one pod more, on a node that offers so much of each resource and has so much
        of it free; as devices count."""
        size: float = sum(
            weight * amount / max(whole, 1)
            for weight, amount, whole in zip(self._weights.tolist(), asked, offered, strict=True)
        )
        if not size:
            return 0.0
        before = self._share(free, offered, reach)
        after = self._share(tuple(map(subtract, free, asked)), offered, reach)
        return _WHOLE_POD * (before - after) / size

    def _share(self, free: Amounts, offered: Amounts, reach: int) -> float:
        key = (free, offered, reach)
        found = self._found.get(key)
        return _keep(self._found, key, self._unusable(*key)) if found is None else found

    def _unusable(self, free: Amounts, offered: Amounts, reach: int) -> float:
        left = np.maximum(np.array(free, dtype=np.float64), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            # 0/0 is asked for by nobody.
            pods = np.floor(np.nanmin(np.where(self._wanted > 0, left / self._wanted, np.inf), axis=1))
        pods = np.where(np.isfinite(pods) & _reaching(self._bits, reach), pods, 0.0)
        wasted = left - pods[:, None] * self._wanted
        whole = np.maximum(np.array(offered, dtype=np.float64), 1.0)
        return float(self._shares @ (wasted / whole @ self._weights))


def _levels(amounts: Sequence[int]) -> tuple[list[int], NDArray[np.int64]]:
    known = sorted(set(amounts))
    return known, np.array([known.index(each) for each in amounts], dtype=np.int64)


def _shares(numbers: Any) -> Floats:
    """Of a whole; all 0 where there is none."""
    found = np.array(numbers, dtype=np.float64)
    total = found.sum()
    shares: Floats = found / total if total else found
    return shares


def _reaching(bits: Sequence[int], reach: int) -> Bools:
    return np.array([not bit or bool(bit & reach) for bit in bits], dtype=np.bool_)


def _keep(kept: dict[Key, Value], key: Key, value: Value) -> Value:
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = value
    return value


def score_of(less: float) -> int:
    """What a node is worth on which so much less is unusable afterwards, in devices.

    The sigmoid, cut to whole numbers, is that of the authors' simulator (`fgd_score.go`). The cut matters: nodes that
    are nearly as good tie, and another score tells them apart.
    """
    return int(MAX_NODE_SCORE / (1.0 + math.exp(min(-less, _FAR))) + _ROUNDING)
