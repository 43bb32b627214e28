"""The target workload: what kinds of pods come to the cluster, and how often, learnt from the pods that are seen.

Fragmentation is measured against it (the ATC'23 paper on FGD, section 3): what is free on a node is worth what pods of
these kinds can make of it. Taints are not looked at.

What is learnt is used as it was when it was last drawn. It is drawn anew when the shares of the kinds have changed by a
tenth altogether, as each time all that was answered by it has to be asked again.
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

#: Of how many pods, at most, the counts are: at twice as many all are halved, so that what came long ago is forgotten.
WINDOW: Final = 8192
#: Kinds that are used, the most frequent; four times as many are counted.
KINDS_USED: Final = 256
#: Pods between two looks at whether the shares have changed, and by how much they have to.
LOOK_EVERY: Final = 256
CHANGED: Final = 0.1


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods that ask for the same of the same nodes. Equal by what they ask for."""

    #: In the ledger's units, but for the place of a pod.
    requests: tuple[tuple[str, int], ...]
    #: What a node has to be like: labels, and a selector with its bytes, which stand for it when kinds are compared.
    labels: tuple[tuple[str, str], ...] = ()
    selector: NodeSelector | None = field(default=None, compare=False)
    _selector: bytes = b""

    @property
    def is_choosy(self) -> bool:
        """Whether it may not go to every node."""
        return bool(self.labels or self._selector)

    @property
    def wish(self) -> Hashable:
        """Equal for kinds that may go to the same nodes."""
        return self.labels, self._selector

    @property
    def reads(self) -> frozenset[str]:
        """The labels of a node that it looks at."""
        terms = (self.selector.node_selector_terms or ()) if self.selector is not None else ()
        asked = {each.key for term in terms for each in term.match_expressions or ()}
        named = {NODE_NAME} if any(term.match_fields for term in terms) else set()
        return frozenset(key for key, _ in self.labels) | asked | named

    @property
    def order(self) -> tuple[object, ...]:
        """For an order that does not depend on who came first."""
        return self.requests, self.labels, self._selector


def kind_of(
    requests: Mapping[str, int], labels: Mapping[str, str], selector: NodeSelector | None = None
) -> Kind:
    asked = tuple(sorted((name, amount) for name, amount in requests.items() if name != PODS))
    written = b"" if selector is None else msgspec.json.encode(selector)
    return Kind(asked, tuple(sorted(labels.items())), selector, written)


class TargetWorkload:
    """Owner of the counts. Invariant: `kinds` are as they were when `version` last rose."""

    def __init__(self) -> None:
        #: Whether anybody asks for it; while nobody does, nothing is counted.
        self.wanted = False
        self.version = 0
        #: Each with its share of all pods, the most frequent first.
        self.kinds: tuple[tuple[Kind, float], ...] = ()
        #: What others have worked out of `kinds`, by whatever names it.
        self.derived: dict[Hashable, Any] = {}
        #: What was counted when `kinds` were drawn, which may be more kinds than are used.
        self._drawn: dict[Kind, float] = {}
        self._counts: dict[Kind, int] = {}
        self._total = 0
        self._look_at = 1
        self._of_class: WeakKeyDictionary[PodClass, Kind] = WeakKeyDictionary()

    def derive(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """What `work_out` makes of `kinds`, kept under `key` until they are drawn anew."""
        found: T | None = self.derived.get(key)
        if found is None:
            found = self.derived[key] = work_out()
        return found

    def begin(self, classes: Iterable[PodClass]) -> None:
        """Somebody asks from now on. `classes`: of the pods that there are, in the place of all that was counted
        before, which may have been some of them."""
        self.wanted = True
        self._keep(())
        self._look_at = 1
        for each in classes:
            self.seen(each)

    def seen(self, cls: PodClass) -> None:
        """A pod of the class has come. To be said once of each."""
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
        # The first pods change shares the most.
        self._look_at = min(2 * self._total, self._total + LOOK_EVERY)
        shares = {kind: count / self._total for kind, count in self._counts.items()}
        before = self._drawn
        moved = sum(abs(share - before.get(kind, 0.0)) for kind, share in shares.items())
        moved += sum(share for kind, share in before.items() if kind not in shares)
        # What moves from one kind to another is in the sum twice.
        if moved / 2 >= CHANGED:
            self._drawn = shares
            self.kinds = tuple(sorted(shares.items(), key=_frequency)[:KINDS_USED])
            self.derived.clear()
            self.version += 1

    def _keep(self, counts: Iterable[tuple[Kind, int]]) -> None:
        self._counts = dict(counts)
        self._total = sum(self._counts.values())


def _frequency(entry: tuple[Kind, float]) -> tuple[float, tuple[object, ...]]:
    kind, count = entry
    return -count, kind.order
