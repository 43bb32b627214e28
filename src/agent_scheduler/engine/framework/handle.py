"""The cluster data, beside the columns of nodes, that plugins may read when they compile a class."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, Protocol
from weakref import WeakValueDictionary

from apimachinery.labels import Labels

from ..dra.catalogue import Devices
from ..dra.demand import demand_of
from ..ledger import Ledger
from ..state.interns import Interns
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


class ObjectSource(Protocol):
    """Objects of some kinds in their last known state. Compared by identity."""

    @property
    def version(self) -> int:
        """Increases whenever an answer may have changed."""


class Handle:
    """Access to the live state, the same for all workers.

    Objects that are neither nodes nor pods are in `sources`, each with a version. The sources that a class was compiled
    from are recorded as they are read, so that it is compiled again only after one of them has changed.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        namespaces: Namespaces,
        owners: Owners,
        catalogue: Catalogue,
        devices: Devices,
        target_workload: TargetWorkload,
    ) -> None:
        self._ledger = ledger
        self._namespaces = namespaces
        self._owners = owners
        self._catalogue = catalogue
        self._devices = devices
        self._target_workload = target_workload
        self._read: dict[ObjectSource, int] = {}
        #: Kinds of pods that are counted. Weak: a kind that no view holds is no longer counted.
        self._kinds: WeakValueDictionary[tuple[tuple[PodMatch, ...], bool], PodsMatching] = WeakValueDictionary()
        #: Namespace and labels of a pod -> matching terms of existing pods, at these versions.
        self._matching: dict[Hashable, tuple[ExistingTerm, ...]] = {}
        self._matching_at: tuple[int, int] | None = None

    @property
    def interns(self) -> Interns:
        return self._ledger.columns.interns

    @property
    def catalogue(self) -> Catalogue:
        """The storage objects. A compiled state that read them holds until one of them changes."""
        self._reads(self._catalogue)
        return self._catalogue

    @property
    def devices(self) -> Devices:
        """The sources of allocations for resource claims.

        A compiled state that read them holds until a class changes. Other changes of devices change rows.
        """
        self._reads(self._devices)
        return self._devices

    @property
    def target_workload(self) -> TargetWorkload:
        """The expected pods as last estimated."""
        self._reads(self._target_workload)
        return self._target_workload

    @property
    def largest(self) -> Mapping[str, int]:
        """Resource -> the largest amount that a node has offered."""
        self._reads(self._ledger.largest)
        return self._ledger.largest.amounts

    @property
    def volume_use(self) -> VolumeUse:
        """The volumes of the pods on nodes. Must not be read by `prepare`: it changes with rows."""
        return self._ledger.volume_use

    def reads(self) -> dict[ObjectSource, int]:
        """Begin a new record of the sources that are read from now on, with their versions, and return it."""
        self._read = {}
        return self._read

    def _reads(self, source: ObjectSource) -> None:
        self._read.setdefault(source, source.version)

    def resolve(self, match: PodMatch) -> PodMatch:
        """Return the match for the current namespaces."""
        if match.is_resolved:
            return match
        self._reads(self._namespaces)
        return match.resolved(self._namespaces)

    def count(self, matches: Iterable[PodMatch], *, alive_only: bool = False) -> PodsMatching:
        """Return the kind of the pods that match all of `matches` in the current namespaces.

        The kind is counted as long as the return value is referenced, in `Columns.matching` of every refreshed
        snapshot.
        """
        key = (tuple(self.resolve(match) for match in matches), alive_only)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = PodsMatching(key[0], alive_only=alive_only)
        self._ledger.track(kind)
        return kind

    def class_of(self, pod: PodInfo, *, beside: Sequence[PodInfo] = ()) -> PodClass:
        """Return the class in which a pod is decided beside the running pods that have terms about it.

        `beside` are hypothetically running pods. The caller creates columns for terms that only these have.
        """
        terms = self._ledger.terms
        plain = not (pod.claims or pod.cls.extended)
        if plain and not (terms.counts or beside) and pod.scheduler_name not in self._owners.schedulers:
            # The usual case.
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
        """Return the result of `TermIndex.matching`, kept until terms or namespaces change."""
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
