"""The target workload: the kinds of pods in the cluster with their shares, counted from observed pods.

The measure of fragmentation uses it (the ATC'23 paper on FGD, section 3): the free resources of a node have the value
that pods of these kinds can use. Taints are ignored.

The published kinds and shares are a copy. They are updated when the shares have changed by a tenth in total, because
each update invalidates all results that depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from agent_scheduler.objects.wire import NodeSelector

from .columns import NODE_NAME
from .podclass import PODS, PodClass

T = TypeVar("T")

#: At twice this number of pods, all counts are halved, so that old pods lose their weight.
WINDOW: Final = 8192
#: The number of published kinds, the most frequent ones; up to four times as many are counted.
KINDS_USED: Final = 256
#: The number of pods between two comparisons of the shares, and the change that causes an update.
LOOK_EVERY: Final = 256
CHANGED: Final = 0.1


@dataclass(frozen=True, slots=True)
class TargetPodKind:
    """Pods with equal requests and equal requirements for nodes. Compared by these."""

    #: Amounts in the ledger's units, without the resource `PODS`.
    requests: tuple[tuple[str, int], ...]
    #: The required labels of a node, and a selector. Comparisons use the selector's bytes.
    labels: tuple[tuple[str, str], ...] = ()
    selector: NodeSelector | None = field(default=None, compare=False)
    _selector: bytes = b""

    @property
    def is_choosy(self) -> bool:
        """Whether it has requirements for nodes."""
        return bool(self.labels or self._selector)

    @property
    def wish(self) -> Hashable:
        """A value that is equal for kinds with equal requirements for nodes."""
        return self.labels, self._selector

    @property
    def reads(self) -> frozenset[str]:
        """The labels of a node that its requirements read."""
        terms = (self.selector.node_selector_terms or ()) if self.selector is not None else ()
        asked = {each.key for term in terms for each in term.match_expressions or ()}
        named = {NODE_NAME} if any(term.match_fields for term in terms) else set()
        return frozenset(key for key, _ in self.labels) | asked | named

    @property
    def order(self) -> tuple[object, ...]:
        """A sort key that does not depend on the order of arrival."""
        return self.requests, self.labels, self._selector


def kind_of(
    requests: Mapping[str, int], labels: Mapping[str, str], selector: NodeSelector | None = None
) -> TargetPodKind:
    asked = tuple(sorted((name, amount) for name, amount in requests.items() if name != PODS))
    written = b"" if selector is None else msgspec.json.encode(selector)
    return TargetPodKind(asked, tuple(sorted(labels.items())), selector, written)


class TargetWorkload:
    """Owner of the counts and the published kinds. Invariant: `version` increases with each change of `kinds`."""

    def __init__(self) -> None:
        #: Whether a plugin needs it; otherwise nothing is counted.
        self.wanted = False
        self.version = 0
        #: (kind, its share of all pods), the most frequent first.
        self.kinds: tuple[tuple[TargetPodKind, float], ...] = ()
        #: The values computed from `kinds`, by key; see `derive`.
        self.derived: dict[Hashable, Any] = {}
        #: The shares of all counted kinds at the last update of `kinds`.
        self._drawn: dict[TargetPodKind, float] = {}
        self._counts: dict[TargetPodKind, int] = {}
        self._total = 0
        self._look_at = 1
        self._of_class: WeakKeyDictionary[PodClass, TargetPodKind] = WeakKeyDictionary()

    def derive(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """Return what `work_out` computes from `kinds`; cached under `key` until they change."""
        found: T | None = self.derived.get(key)
        if found is None:
            found = self.derived[key] = work_out()
        return found

    def begin(self, classes: Iterable[PodClass]) -> None:
        """Begin to count. `classes` are those of the existing pods; they replace all earlier counts."""
        self.wanted = True
        self._keep(())
        self._look_at = 1
        for each in classes:
            self.seen(each)

    def seen(self, cls: PodClass) -> None:
        """Count a new pod of the class. Call this once per pod."""
        kind = self._of_class.get(cls)
        if kind is None:
            required = None if cls.affinity is None else cls.affinity.required
            kind = self._of_class[cls] = kind_of(cls.requests, cls.node_selector, required)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._total += 1
        if self._total >= self._look_at:
            self._look()

    def _look(self) -> None:
        if self._total >= 2 * WINDOW:
            self._keep((kind, count // 2) for kind, count in self._counts.items() if count > 1)
        if len(self._counts) > 4 * KINDS_USED:
            self._keep(sorted(self._counts.items(), key=_frequency)[: 2 * KINDS_USED])
        # Early pods change the shares most, so the first intervals are shorter.
        self._look_at = min(2 * self._total, self._total + LOOK_EVERY)
        shares = {kind: count / self._total for kind, count in self._counts.items()}
        before = self._drawn
        moved = sum(abs(share - before.get(kind, 0.0)) for kind, share in shares.items())
        moved += sum(share for kind, share in before.items() if kind not in shares)
        # A share that moves from one kind to another is in the sum twice.
        if moved / 2 >= CHANGED:
            self._drawn = shares
            self.kinds = tuple(sorted(shares.items(), key=_frequency)[:KINDS_USED])
            self.derived.clear()
            self.version += 1

    def _keep(self, counts: Iterable[tuple[TargetPodKind, int]]) -> None:
        self._counts = dict(counts)
        self._total = sum(self._counts.values())


def _frequency(entry: tuple[TargetPodKind, float]) -> tuple[float, tuple[object, ...]]:
    kind, count = entry
    return -count, kind.order
