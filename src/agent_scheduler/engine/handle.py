"""What plugins may ask about the cluster beside the columns of its nodes, when they compile a class."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

from .columns import Interns
from .ledger import Ledger
from .namespaces import Namespaces
from .podclass import PodClass
from .podcounts import Countable, PodsMatching
from .podterms import PodMatch


class Handle:
    """The same for all workers, on the live state: what is kept from it is compiled anew when `version` rises."""

    def __init__(self, ledger: Ledger, *, namespaces: Namespaces | None = None) -> None:
        self._ledger = ledger
        self.namespaces = namespaces or Namespaces()
        #: Kinds that somebody counts. Weak: what no view asks for any more is no longer counted.
        self._kinds: WeakValueDictionary[tuple[tuple[PodMatch, ...], bool], PodsMatching] = (
            WeakValueDictionary()
        )

    @property
    def interns(self) -> Interns:
        return self._ledger.columns.interns

    @property
    def version(self) -> int:
        """Rises with every change of an object that is no node and no pod."""
        return self.namespaces.version

    def count(self, matches: Iterable[PodMatch], *, alive_only: bool = False) -> PodsMatching:
        """The kind of pods that all of `matches` mean, with their namespaces as they are now; it is counted for as
        long as the answer is held, in `Columns.matching` of every snapshot that is brought up to date."""
        key = (tuple(match.resolved(self.namespaces) for match in matches), alive_only)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = PodsMatching(key[0], alive_only=alive_only)
        self._ledger.track(kind)
        return kind

    def class_of(self, pod: Countable) -> PodClass:
        """The class that a pod is decided in, while others run that have something to say about it."""
        terms = self._ledger.terms
        if not terms:
            return pod.cls
        return pod.cls.facing(terms.facing(pod.namespace, pod.labels, self.namespaces))
