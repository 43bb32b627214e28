"""What a pod says about other pods: terms of (anti-)affinity and topology spread constraints, compiled.

Everything that depends on the pod itself is worked in here: its namespace where a term names none, and the values of
its labels for `matchLabelKeys` and `mismatchLabelKeys`. (kube-apiserver merges these into the selectors when a pod is
made; merging them again changes nothing, and a server that does not merge is served, too.) So a term stands alone: it
is compared by value, and pods that say the same share it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import NamedTuple

from agent_scheduler.objects import wire

from .labelselector import Labels, LabelSelector, Requirement, label_selector
from .namespaces import Namespaces
from .podspec import SpecError, check_word


class PodMatch(NamedTuple):
    """Which pods are meant: those of some namespaces whose labels match. No selector matches no pod."""

    #: By name, beside those that `namespace_selector` finds.
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    selector: LabelSelector | None

    @property
    def is_resolved(self) -> bool:
        """Whether it says by itself which namespaces are meant: by name, or all, known to us or not."""
        return self.namespace_selector is None or not self.namespace_selector.requirements

    def means(self, namespace: str, labels: Labels) -> bool:
        """`matches`, of one that is resolved."""
        anywhere = self.namespace_selector is not None
        return (
            (anywhere or namespace in self.namespaces)
            and self.selector is not None
            and self.selector.matches(labels)
        )

    def matches(self, namespace: str, labels: Labels, namespaces: Namespaces) -> bool:
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        found = self.namespace_selector
        return found is not None and found.matches(namespaces.labels(namespace))

    def resolved(self, namespaces: Namespaces) -> PodMatch:
        """The same for the namespaces as they are now."""
        if self.is_resolved or self.namespace_selector is None:
            return self
        return PodMatch(self.namespaces | namespaces.matching(self.namespace_selector), None, self.selector)


class PodTerm(NamedTuple):
    """Pods, and the node label whose values are the domains in which they are looked for."""

    match: PodMatch
    topology_key: str


class TermKind(enum.Enum):
    """What a pod that runs says of those that come: keeps them away, or makes its neighbourhood better or worse."""

    #: Required anti-affinity: who matches may not come near.
    REPELS = enum.auto()
    #: Required affinity, which counts as a preference of a fixed weight.
    REQUIRES = enum.auto()
    #: Preferred affinity, weight above 0, and preferred anti-affinity, below.
    PREFERS = enum.auto()

    # A member equals itself alone, and is hashed with each term some times a pod: by its name that is slow.
    __hash__ = object.__hash__


class ExistingTerm(NamedTuple):
    """A term as it stands against pods that come."""

    kind: TermKind
    term: PodTerm
    weight: int = 0


class PodTerms(NamedTuple):
    """`spec.affinity.podAffinity` and `.podAntiAffinity`. Weights are 1 to 100."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred: tuple[tuple[int, PodTerm], ...] = ()
    preferred_anti: tuple[tuple[int, PodTerm], ...] = ()

    def existing(self) -> tuple[ExistingTerm, ...]:
        """What it says of others once it runs."""
        return (
            *(ExistingTerm(TermKind.REPELS, term) for term in self.anti_affinity),
            *(ExistingTerm(TermKind.REQUIRES, term) for term in self.affinity),
            *(ExistingTerm(TermKind.PREFERS, term, weight) for weight, term in self.preferred),
            *(ExistingTerm(TermKind.PREFERS, term, -weight) for weight, term in self.preferred_anti),
        )


NO_TERMS = PodTerms()


class SpreadConstraint(NamedTuple):
    """One of `spec.topologySpreadConstraints`. `min_domains` is 1 where none is given."""

    max_skew: int
    topology_key: str
    #: DoNotSchedule; otherwise ScheduleAnyway.
    required: bool
    selector: LabelSelector | None
    min_domains: int = 1
    #: nodeAffinityPolicy and nodeTaintsPolicy: whether nodes that the pod cannot go to are left out of the count.
    honors_affinity: bool = True
    honors_taints: bool = False


def pod_terms(affinity: wire.Affinity | None, namespace: str, labels: Labels) -> PodTerms:
    """Raises `SpecError` at the first term that has no meaning."""
    if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
        return NO_TERMS
    near, far = affinity.pod_affinity, affinity.pod_anti_affinity

    def required(terms: Sequence[wire.PodAffinityTerm] | None, kind: str) -> tuple[PodTerm, ...]:
        return tuple(
            _term(term, namespace, labels, f"spec.affinity.{kind}.required[{index}]")
            for index, term in enumerate(terms or ())
        )

    def preferred(
        terms: Sequence[wire.WeightedPodAffinityTerm] | None, kind: str
    ) -> tuple[tuple[int, PodTerm], ...]:
        return tuple(
            (
                each.weight,
                _term(each.pod_affinity_term, namespace, labels, f"spec.affinity.{kind}.preferred[{index}]"),
            )
            for index, each in enumerate(terms or ())
        )

    return PodTerms(
        affinity=required(near.required if near else None, "podAffinity"),
        anti_affinity=required(far.required if far else None, "podAntiAffinity"),
        preferred=preferred(near.preferred if near else None, "podAffinity"),
        preferred_anti=preferred(far.preferred if far else None, "podAntiAffinity"),
    )


def _term(term: wire.PodAffinityTerm, namespace: str, labels: Labels, place: str) -> PodTerm:
    if not term.topology_key:
        raise SpecError(f"{place}.topologyKey: must not be empty")
    selector = label_selector(term.label_selector, f"{place}.labelSelector")
    if selector is not None:
        selector = selector.also(
            *_of_labels(term.match_label_keys, "In", labels),
            *_of_labels(term.mismatch_label_keys, "NotIn", labels),
        )
    by_label = label_selector(term.namespace_selector, f"{place}.namespaceSelector")
    names = frozenset(term.namespaces or ())
    if not names and by_label is None:
        names = frozenset((namespace,))
    return PodTerm(PodMatch(names, by_label, selector), term.topology_key)


def spread_constraints(
    constraints: Sequence[wire.TopologySpreadConstraint] | None, labels: Labels
) -> tuple[SpreadConstraint, ...]:
    """Raises `SpecError` at the first constraint that has no meaning."""
    return tuple(
        _constraint(each, labels, f"spec.topologySpreadConstraints[{index}]")
        for index, each in enumerate(constraints or ())
    )


def _constraint(each: wire.TopologySpreadConstraint, labels: Labels, place: str) -> SpreadConstraint:
    if not each.topology_key:
        raise SpecError(f"{place}.topologyKey: must not be empty")
    if each.max_skew < 1:
        raise SpecError(f"{place}.maxSkew: {each.max_skew} is out of range; allowed: 1 or more")
    if each.min_domains is not None and each.min_domains < 1:
        raise SpecError(f"{place}.minDomains: {each.min_domains} is out of range; allowed: 1 or more")
    selector = label_selector(each.label_selector, f"{place}.labelSelector")
    if selector is not None:
        selector = selector.also(*_of_labels(each.match_label_keys, "In", labels))
    return SpreadConstraint(
        max_skew=each.max_skew,
        topology_key=each.topology_key,
        required=_one_of(
            each.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway"), f"{place}.whenUnsatisfiable"
        ),
        selector=selector,
        min_domains=each.min_domains or 1,
        honors_affinity=_one_of(
            each.node_affinity_policy or "Honor", ("Honor", "Ignore"), f"{place}.nodeAffinityPolicy"
        ),
        honors_taints=_one_of(
            each.node_taints_policy or "Ignore", ("Honor", "Ignore"), f"{place}.nodeTaintsPolicy"
        ),
    )


def _one_of(value: str, words: tuple[str, str], place: str) -> bool:
    """Whether it is the first of two words."""
    check_word(value, words, place)
    return value == words[0]


def _of_labels(keys: Collection[str] | None, operator: str, labels: Labels) -> list[Requirement]:
    """A requirement for each of `keys` that the pod itself carries; the others are passed over."""
    return [Requirement(key, operator, frozenset((labels[key],))) for key in keys or () if key in labels]
