"""Fragmentation: the free amounts of a node that the target workload cannot use.

For GPUs it is the measure of FGD (Weng et al., USENIX ATC'23, "Beware of Fragmentation", section 3): the free amount on
all devices of the node, as an expectation over the kinds of pods that request GPUs: all of it for a kind that does not
fit, otherwise the free amount on devices with too little left for it. CPU and memory only decide whether a kind fits.

That measure sees a lack of CPU only when the next pod no longer fits. So a second one is added to it: the free GPUs for
which the node has no CPU, at the CPU per GPU that the whole workload requests. It makes pods that request more CPU per
GPU than the average, and pods without GPUs, prefer nodes with CPU to spare.

Without GPUs the same idea is applied to divisible amounts: the node is filled with pods of one kind, and the remainder
is unusable. A kind is weighted by its number of pods and their size, so that a few large ones are not outweighed by
many small ones. The effect of a pod is relative to its size: 1 if all that it takes was of no use to others, below 0 if
it makes more unusable than it takes.

A decision compares a node before and after; the states of nodes recur, so their measures are kept.
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
from ..state.targetworkload import TargetPodKind

Floats = NDArray[np.float64]
Amounts = tuple[int, ...]
#: The numbers of distinct CPU and memory requests of kinds that fit, and the bits of the wishes that are met.
Level = tuple[int, int, int]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

#: Kept measures of each sort; beyond that all are dropped.
_KEPT: Final = 1 << 16
#: The value, in devices, if all that a pod takes of a node without GPUs was unusable before.
_WHOLE_POD: Final = 2.0

#: The bound of the CPU per GPU, as a multiple of that of the pods with GPUs. Pods without GPUs count, but many of them
#: may run on other nodes.
_CPU_AT_MOST: Final = 2.0

#: Ensures equal scores of nodes without a change, despite the rounding of their sums.
_ROUNDING: Final = 1e-9

#: The bound of unusable amounts, because e to the power of a few hundred overflows. A pod with tiny requests makes many
#: times as much unusable as it takes.
_FAR: Final = 100.0

#: A `reach` with every wish met.
EVERYWHERE: Final = -1


class Measure:
    """The measure of one target workload."""

    def __init__(self, kinds: Sequence[tuple[TargetPodKind, float]], weights: Mapping[str, int]) -> None:
        """Measure these kinds; `weights` are those of the resources on nodes without GPUs."""
        sharing = [(kind, share) for kind, share in kinds if dict(kind.requests).get(GPU)]
        dividing = [(kind, share) for kind, share in kinds if not dict(kind.requests).get(GPU)]
        #: The kinds' requirements for nodes: each such wish has a bit, and one of the kinds with it.
        self._wishes = {kind.wish: kind for kind, _ in kinds if kind.is_choosy}
        #: The labels by which it tells nodes apart.
        self.labels = frozenset().union(*(kind.reads for kind in self._wishes.values()))
        #: A string because it caches its hash: it is looked up for each row.
        self._reach_key = f"reach of a target workload: {list(self._wishes)}"
        self.resources = tuple(weights)
        self.gpus = _Gpus(sharing, self._bits(sharing), _total("cpu", kinds))
        self.amounts = _TargetAmounts(dividing, self._bits(dividing), weights)

    def _bits(self, kinds: Sequence[tuple[TargetPodKind, float]]) -> list[int]:
        """Return [kind] the bit of its wish; 0 without one."""
        place = {wish: bit for bit, wish in enumerate(self._wishes)}
        return [1 << place[kind.wish] if kind.is_choosy else 0 for kind, _ in kinds]

    def reach(self, nodes: Columns) -> Sequence[int]:
        """Return [row] the bits of the wishes that the node meets."""
        # The key is not this object, which would then be kept until a node changes.
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
    def __init__(self, kinds: Sequence[tuple[TargetPodKind, float]], bits: Sequence[int], cpu: float) -> None:
        """Measure these kinds; `cpu` is what all kinds of the workload request, those without GPUs, too."""
        asked = [dict(kind.requests) for kind, _ in kinds]
        amounts = sorted({each[GPU] for each in asked})
        self.is_empty = not kinds
        #: GPU per CPU, both in thousandths; 0 if the pods with GPUs request no CPU.
        cpu = min(cpu, _CPU_AT_MOST * _total("cpu", kinds))
        self._gpu_per_cpu = _total(GPU, kinds) / cpu if cpu else 0.0
        self._bits = bits
        #: [kind]
        self._shares = _shares([share for _, share in kinds])
        #: [kind] the index of its amount.
        self._which = np.array([amounts.index(each[GPU]) for each in asked], dtype=np.intp)
        #: The number of amounts on one device, [free] how many of these it has room for, and the numbers of devices of
        #: the other amounts.
        self._on_one = bisect_right(amounts, WHOLE)
        self._below = [bisect_right(amounts, free, hi=self._on_one) for free in range(WHOLE + 1)]
        self._devices = [amount // WHOLE for amount in amounts[self._on_one :]]
        #: The distinct requests of kinds in ascending order: between two of these nothing changes. And [kind] its
        #: index.
        self._cpu_levels, self._cpu_level = _levels([each.get("cpu", 0) for each in asked])
        self._memory_levels, self._memory_level = _levels([each.get("memory", 0) for each in asked])
        #: The sorted free shares of GPUs and both measures of current nodes; and FGD's by level.
        self._before: dict[tuple[Free, int, int, int], tuple[Free, float]] = {}
        self._found: dict[tuple[Free, int, int, int], float] = {}
        #: The sorted free shares after a pod, and their sum.
        self._beside: dict[tuple[Free, int], tuple[Free, int]] = {}
        self._fitting: dict[Level, tuple[list[float], list[tuple[int, float]]]] = {}

    def less(self, gpus: Free, cpu: int, memory: int, asked: tuple[int, int, int], reach: int) -> float:
        """Return by how many thousandths the two measures shrink with one more pod on a node.

        The node has `gpus`, `cpu` and `memory` free; `asked` has the pod's CPU, memory and GPU. Called for each changed
        row and each class, so results are cached.
        """
        key = (gpus, cpu, memory, reach)
        found = self._before.get(key)
        if found is None:
            free = tuple(sorted(gpus))
            before = self._unusable(free, *self._level(cpu, memory), reach) + self._without_cpu(sum(free), cpu)
            found = _keep(self._before, key, (free, before))
        free, before = found
        asked_cpu, asked_memory, amount = asked
        beside = self._beside.get((free, amount))
        if beside is None:
            then = after_best_fit(free, amount) if amount else free
            beside = _keep(self._beside, (free, amount), (then, sum(then)))
        then, left = beside
        cpu -= asked_cpu
        after = (
            then,
            bisect_right(self._cpu_levels, cpu),
            bisect_right(self._memory_levels, memory - asked_memory),
            reach,
        )
        unusable = self._found.get(after)
        if unusable is None:
            unusable = self._unusable(*after)
        return before - unusable - self._without_cpu(left, cpu)

    def _without_cpu(self, free: int, cpu: int) -> float:
        """Return the part of the free thousandths of GPUs for which there is no CPU."""
        per_cpu = self._gpu_per_cpu
        return max(free - max(cpu, 0) * per_cpu, 0.0) if per_cpu else 0.0

    def _level(self, cpu: int, memory: int) -> tuple[int, int]:
        """Return the number of distinct requests that fit: nodes of one level have room for the same kinds."""
        return bisect_right(self._cpu_levels, cpu), bisect_right(self._memory_levels, memory)

    def _unusable(self, free: Free, cpu: int, memory: int, reach: int) -> float:
        """Return the unusable amount at a level."""
        level = (cpu, memory, reach)
        fitting = self._fitting.get(level)
        if fitting is None:
            fitting = _keep(self._fitting, level, self._fitting_in(level))
        on_one, on_more = fitting
        below, usable = self._below, 0.0
        for left in free:
            if left > 0:
                usable += left * on_one[below[left]]
        if on_more and (whole := free.count(WHOLE)):
            usable += WHOLE * whole * sum(share for devices, share in on_more if devices <= whole)
        return _keep(self._found, (free, *level), sum(free) - usable)

    def unusable(self, gpus: Free, cpu: int, memory: int, reach: int) -> float:
        """Return the unusable thousandths on a node with these free amounts."""
        return self._unusable(tuple(sorted(gpus)), *self._level(cpu, memory), reach)

    def _fitting_in(self, level: Level) -> tuple[list[float], list[tuple[int, float]]]:
        """Return the shares of kinds that fit the other free amounts.

        First [number of amounts on one device] those that request one of so many smallest amounts, then for each amount
        of more devices their number and its share.
        """
        cpu, memory, reach = level
        fits = (self._cpu_level < cpu) & (self._memory_level < memory) & _reaching(self._bits, reach)
        size = self._on_one + len(self._devices)
        found = np.bincount(self._which, weights=self._shares * fits, minlength=size)
        on_one = [0.0, *np.cumsum(found[: self._on_one]).tolist()]
        on_more = zip(self._devices, found[self._on_one :].tolist(), strict=True)
        return on_one, [each for each in on_more if each[1]]


class _TargetAmounts:
    def __init__(
        self, kinds: Sequence[tuple[TargetPodKind, float]], bits: Sequence[int], weights: Mapping[str, int]
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
        """Return by how much the unusable amount shrinks with one more pod on a node, in devices."""
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
            # 0/0 occurs for resources that the kind does not request.
            pods = np.floor(np.nanmin(np.where(self._wanted > 0, left / self._wanted, np.inf), axis=1))
        pods = np.where(np.isfinite(pods) & _reaching(self._bits, reach), pods, 0.0)
        wasted = left - pods[:, None] * self._wanted
        whole = np.maximum(np.array(offered, dtype=np.float64), 1.0)
        return float(self._shares @ (wasted / whole @ self._weights))


def _levels(amounts: Sequence[int]) -> tuple[list[int], NDArray[np.int64]]:
    known = sorted(set(amounts))
    return known, np.array([known.index(each) for each in amounts], dtype=np.int64)


def _total(resource: str, kinds: Sequence[tuple[TargetPodKind, float]]) -> float:
    return sum(dict(kind.requests).get(resource, 0) * share for kind, share in kinds)


def _shares(numbers: Any) -> Floats:
    """Return the numbers divided by their sum; all 0 if it is 0."""
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
    """Return the score of a node whose unusable amount shrinks by `less` devices.

    The sigmoid, truncated to integers, is that of the authors' simulator (`fgd_score.go`). Truncation matters: nodes
    that are nearly equal tie, and another score decides between them.
    """
    return int(MAX_NODE_SCORE / (1.0 + math.exp(min(-less, _FAR))) + _ROUNDING)
