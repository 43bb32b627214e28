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
from ..state.columns import Bools, Columns, Ints
from ..state.gpus import RESOURCE as GPU
from ..state.gpus import WHOLE, Free, after_best_fit
from ..state.nodeselection import match_labels, match_selector
from ..state.targetworkload import TargetPodKind

Floats = NDArray[np.float64]
Amounts = tuple[int, ...]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

#: Kept measures of each sort; beyond that all are dropped.
_KEPT: Final = 1 << 16
#: The bits of a number of free shares, and the largest one.
_NUMBERS: Final = 32
_NUMBER: Final = (1 << _NUMBERS) - 1
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
        self._cpu_array = np.array(self._cpu_levels, dtype=np.int64)
        self._memory_array = np.array(self._memory_levels, dtype=np.int64)
        self._levels = len(self._cpu_levels) + 1, len(self._memory_levels) + 1
        self._forget()

    def _forget(self) -> None:
        #: The free shares of GPUs are numbered from 1, the reaches from 0. [number] the shares in ascending order, and
        #: their sum.
        self._number: dict[Free, int] = {}
        self._free: list[Free] = [()]
        self._sum = [0]
        self._reaches: dict[int, int] = {}
        #: Request -> number of free shares -> their number after a pod with this request.
        self._then: dict[int, dict[int, int]] = {}
        #: FGD's measure by level and number of free shares.
        self._found: dict[int, float] = {}
        self._fitting: dict[int, tuple[list[float], list[tuple[int, float]]]] = {}

    def less(self, gpus: Free, cpu: int, memory: int, asked: tuple[int, int, int], reach: int) -> float:
        """Return by how many thousandths the two measures shrink with one more pod on a node.

        The node has `gpus`, `cpu` and `memory` free; `asked` has the pod's CPU, memory and GPU, and fits.
        """
        self._limit()
        number = self._number.get(gpus) or self._number_of(gpus)
        asked_cpu, asked_memory, amount = asked
        then = number
        if amount:
            known = self._then.setdefault(amount, {})
            then = known.get(number) or self._number_after(known, number, amount)
        cpu_left, per_cpu, found = cpu - asked_cpu, self._gpu_per_cpu, self._found
        cpus, memories = self._cpu_levels, self._memory_levels
        base, width = self._reach_number(reach) * self._levels[0], self._levels[1]
        level = (base + bisect_right(cpus, cpu)) * width + bisect_right(memories, memory)
        before = found.get(level << _NUMBERS | number)
        if before is None:
            before = self._work_out(number, level)
        level = (base + bisect_right(cpus, cpu_left)) * width + bisect_right(memories, memory - asked_memory)
        after = found.get(level << _NUMBERS | then)
        if after is None:
            after = self._work_out(then, level)
        if per_cpu:
            left = self._sum[number]
            before += max(left - max(cpu, 0) * per_cpu, 0.0)
            after += max(left - amount - max(cpu_left, 0) * per_cpu, 0.0)
        return before - after

    def less_of_each(
        self,
        gpus: Sequence[Free],
        cpu: Ints,
        memory: Ints,
        asked: tuple[int, int, int],
        reach: Sequence[int] | None = None,
    ) -> Floats:
        """Return [node] the same as `less`; without `reach`, the nodes meet every wish."""
        self._limit()
        known, count = self._number, len(gpus)
        numbers = [known.get(each) or self._number_of(each) for each in gpus]
        sums = self._sum
        left = np.array([sums[number] for number in numbers], dtype=np.int64)
        asked_cpu, asked_memory, amount = asked
        if amount:
            after = self._then.setdefault(amount, {})
            numbers += [after.get(each) or self._number_after(after, each, amount) for each in numbers]
        else:
            numbers += numbers
        # The nodes as they are, and then with the pod.
        cpu = np.concatenate((cpu, cpu - asked_cpu))
        memory = np.concatenate((memory, memory - asked_memory))
        cpus, memories = self._levels
        levels = self._cpu_array.searchsorted(cpu, "right") * memories
        levels += self._memory_array.searchsorted(memory, "right")
        if reach is None:
            levels += self._reach_number(EVERYWHERE) * cpus * memories
        else:
            levels += np.array([self._reach_number(each) for each in reach] * 2) * (cpus * memories)
        codes = (levels << _NUMBERS | np.array(numbers)).tolist()
        values = list(map(self._found.get, codes))
        if None in values:
            known_or_not = zip(codes, values, strict=True)
            values = [self._work_out(code & _NUMBER, code >> _NUMBERS) if v is None else v for code, v in known_or_not]
        unusable = np.array(values)
        if self._gpu_per_cpu:
            left = np.concatenate((left, left - amount))
            unusable += np.maximum(left - np.maximum(cpu, 0) * self._gpu_per_cpu, 0.0)
        less: Floats = unusable[:count] - unusable[count:]
        return less

    def unusable(self, gpus: Free, cpu: int, memory: int, reach: int) -> float:
        """Return the unusable thousandths by FGD's measure on a node with these free amounts."""
        self._limit()
        number, (cpus, memories) = self._number_of(gpus), self._levels
        level = self._reach_number(reach) * cpus + bisect_right(self._cpu_levels, cpu)
        return self._work_out(number, level * memories + bisect_right(self._memory_levels, memory))

    def _limit(self) -> None:
        """Drop all that is kept if it is too much. Only before a question, because numbers are in use until its end."""
        if len(self._found) >= _KEPT or len(self._number) >= _KEPT:
            self._forget()

    def _number_of(self, gpus: Free) -> int:
        free = tuple(sorted(gpus))
        number = self._number.get(free)
        if number is None:
            number = self._number[free] = len(self._free)
            self._free.append(free)
            self._sum.append(sum(free))
        self._number[gpus] = number
        return number

    def _number_after(self, known: dict[int, int], number: int, amount: int) -> int:
        found = known[number] = self._number_of(after_best_fit(self._free[number], amount))
        return found

    def _reach_number(self, reach: int) -> int:
        return self._reaches.setdefault(reach, len(self._reaches))

    def _work_out(self, number: int, level: int) -> float:
        """Return the unusable amount of numbered free shares at a level.

        Nodes of one level have room for the same kinds, apart from their GPUs.
        """
        fitting = self._fitting.get(level)
        if fitting is None:
            fitting = self._fitting[level] = self._fitting_in(level)
        on_one, on_more = fitting
        below, free, usable = self._below, self._free[number], 0.0
        for left in free:
            if left > 0:
                usable += left * on_one[below[left]]
        if on_more and (whole := free.count(WHOLE)):
            usable += WHOLE * whole * sum(share for devices, share in on_more if devices <= whole)
        found = self._found[level << _NUMBERS | number] = self._sum[number] - usable
        return found

    def _fitting_in(self, level: int) -> tuple[list[float], list[tuple[int, float]]]:
        """Return the shares of kinds that fit the other free amounts, by their requests.

        First [count] the share of those that request one of the `count` smallest amounts on one device, then the
        number of devices and the share of each amount of more devices.
        """
        rest, memory = divmod(level, self._levels[1])
        number, cpu = divmod(rest, self._levels[0])
        reach = next(reach for reach, each in self._reaches.items() if each == number)
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


def scores_of(less: Floats) -> Ints:
    """Return [node] the same as `score_of`."""
    scores: Ints = (MAX_NODE_SCORE / (1.0 + np.exp(np.minimum(-less, _FAR))) + _ROUNDING).astype(np.int64)
    return scores
