"""What plugins may ask about the cluster beside the columns of its nodes, when they compile a class."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, Protocol
from weakref import WeakValueDictionary

from ..dra.catalogue import Devices
from ..dra.demand import demand_of
from ..state.interns import Interns
from ..state.labelselector import Labels
from ..state.ledger import Ledger
from ..state.namespaces import Namespaces
from ..state.owners import Owners
from ..state.podclass import PodClass
from ..state.podcounts import PodsMatching
from ..state.podinfo import PodInfo
from ..state.podterms import ExistingTerm, PodMatch
from ..state.targetworkload import TargetWorkload
from ..state.volumeusage import VolumeUse
from ..volumes.catalogue import Catalogue

#: Labels of pods for which matching terms are kept.
_MATCHING_KEPT: Final = 1024


class Source(Protocol):
    """Objects of some kinds as last seen. Compared by identity."""

    @property
    def version(self) -> int:
        """Rises whenever an answer may have changed."""


class Handle:
    """The same for all workers, on the live state.

    Objects that are neither nodes nor pods come in `sources`, each with a version. Which of them a class was compiled
    from is written down as they are read, so that it is compiled anew when one of these has changed, and only then.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        namespaces: Namespaces | None = None,
        owners: Owners | None = None,
        catalogue: Catalogue | None = None,
        devices: Devices | None = None,
        target_workload: TargetWorkload | None = None,
    ) -> None:
        self._ledger = ledger
        self._namespaces = namespaces or Namespaces()
        self._owners = owners or Owners()
        self._catalogue = catalogue or Catalogue()
        self._devices = devices or Devices()
        self._target_workload = target_workload or TargetWorkload()
        self._read: dict[Source, int] = {}
        #: Kinds that somebody counts. Weak: what no view asks for any more is no longer counted.
        self._kinds: WeakValueDictionary[tuple[tuple[PodMatch, ...], bool], PodsMatching] = (
            WeakValueDictionary()
        )
        #: Namespace and labels of a pod -> matching terms of existing pods, at these versions.
        self._matching: dict[Hashable, tuple[ExistingTerm, ...]] = {}
        self._matching_at: tuple[int, int] | None = None

    @property
    def interns(self) -> Interns:
        return self._ledger.columns.interns

    @property
    def catalogue(self) -> Catalogue:
        """The storage objects. What was compiled from them holds until one of them changes."""
        self._reads(self._catalogue)
        return self._catalogue

    @property
    def devices(self) -> Devices:
        """What resource claims are allocated from. What was compiled from its classes holds until one of them changes;
        what else changes there changes rows."""
        self._reads(self._devices)
        return self._devices

    @property
    def target_workload(self) -> TargetWorkload:
        """What pods come, as it was last drawn."""
        self._reads(self._target_workload)
        return self._target_workload

    @property
    def largest(self) -> Mapping[str, int]:
        """Resource -> the most that a node has offered."""
        self._reads(self._ledger.largest)
        return self._ledger.largest.amounts

    @property
    def volume_use(self) -> VolumeUse:
        """The volumes of the pods on nodes. Not to be compiled from: it changes with rows, and is asked about rows."""
        return self._ledger.volume_use

    def reads(self) -> dict[Source, int]:
        """Begin a new record: the sources that are read from now on, with their versions."""
        self._read = {}
        return self._read

    def _reads(self, source: Source) -> None:
        self._read.setdefault(source, source.version)

    def resolve(self, match: PodMatch) -> PodMatch:
        """A match for the namespaces as they are now."""
        if match.is_resolved:
            return match
        self._reads(self._namespaces)
        return match.resolved(self._namespaces)

    def count(self, matches: Iterable[PodMatch], *, alive_only: bool = False) -> PodsMatching:
        """The kind of pods that all of `matches` mean, with their namespaces as they are now; it is counted for as
        long as the answer is held, in `Columns.matching` of every snapshot that is brought up to date."""
        key = (tuple(self.resolve(match) for match in matches), alive_only)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = PodsMatching(key[0], alive_only=alive_only)
        self._ledger.track(kind)
        return kind

    def class_of(self, pod: PodInfo, *, beside: Sequence[PodInfo] = ()) -> PodClass:
        """The class that a pod is decided in, while others run that have something to say about it.

        `beside`: pods that are thought of as running, too. Columns for terms that only these have are the caller's
        to make.
        """
        terms = self._ledger.terms
        plain = not (pod.claims or pod.cls.extended)
        if plain and not (terms.counts or beside) and pod.scheduler_name not in self._owners.schedulers:
            # Most pods of most clusters.
            return pod.cls
        matching = self._matching_terms(pod.namespace, pod.labels) if terms.counts else ()
        said = [term for other in beside for term in other.cls.existing if term not in terms]
        if said:
            new = dict.fromkeys(
                term for term in said if term.term.match.matches(pod.namespace, pod.labels, self._namespaces)
            )
            matching = (*matching, *new)
        siblings = self._owners.siblings(pod)
        claims = None if plain else demand_of(pod, self._devices)
        return pod.cls.in_context(matching, siblings, claims) if matching or siblings or claims else pod.cls

    def _matching_terms(self, namespace: str, labels: Labels) -> tuple[ExistingTerm, ...]:
        """`TermIndex.matching`, kept until terms or namespaces change."""
        terms, namespaces, kept = self._ledger.terms, self._namespaces, self._matching
        versions = (terms.version, namespaces.version)
        if versions != self._matching_at or len(kept) >= _MATCHING_KEPT:
            kept.clear()
            self._matching_at = versions
        key = (namespace, *labels.items())
        found = kept.get(key)
        if found is None:
            found = kept[key] = terms.matching(namespace, labels, namespaces)
        return found
