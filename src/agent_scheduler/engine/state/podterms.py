"""Compiles a pod's terms about other pods: inter-pod (anti-)affinity and topology spread constraints.

The compiled terms contain all that depends on the pod itself: its namespace if a term names none, and the values of its
labels for `matchLabelKeys` and `mismatchLabelKeys`. (kube-apiserver merges these into the selectors when a pod is
created. Merging them again changes nothing, and servers that do not merge are supported too.) So terms do not refer to
a pod: they are compared by value, and pods with equal terms share them.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import NamedTuple

from agent_scheduler.objects import wire
from apimachinery.labels import Labels, LabelSelector, Requirement

from .labelselector import label_selector
from .namespaces import Namespaces
from .podspec import SpecError, check_word


class PodMatch(NamedTuple):
    """Selects pods by namespace and labels. Without a selector it matches no pod."""

    #: Names, in addition to the namespaces that `namespace_selector` matches.
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    selector: LabelSelector | None

    @property
    def is_resolved(self) -> bool:
        """Whether the namespaces are known without their labels: given by name, or all."""
        return self.namespace_selector is None or not self.namespace_selector.requirements

    def means(self, namespace: str, labels: Labels) -> bool:
        """Return the result of `matches` for a resolved match."""
        anywhere = self.namespace_selector is not None
        return (
            (anywhere or namespace in self.namespaces) and self.selector is not None and self.selector.matches(labels)
        )

    def matches(self, namespace: str, labels: Labels, namespaces: Namespaces) -> bool:
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        found = self.namespace_selector
        return found is not None and found.matches(namespaces.labels(namespace))

    def resolved(self, namespaces: Namespaces) -> PodMatch:
        """Return this match resolved for the current labels of namespaces."""
        if self.is_resolved or self.namespace_selector is None:
            return self
        return PodMatch(self.namespaces | namespaces.matching(self.namespace_selector), None, self.selector)


class PodTerm(NamedTuple):
    """A term of (anti-)affinity: the pods, and the node label whose values are the topology domains."""

    match: PodMatch
    topology_key: str


class TermKind(enum.Enum):
    """The effect of a running pod's term on new pods that match it."""

    #: Required anti-affinity: a matching pod must not be placed in the domain.
    REPELS = enum.auto()
    #: Required affinity, which counts as a preference with a fixed weight.
    REQUIRES = enum.auto()
    #: Preferred affinity with a positive weight, and preferred anti-affinity with a negative one.
    PREFERS = enum.auto()

    # Terms are hashed several times per pod, and Enum's hash by name is slow.
    __hash__ = object.__hash__


class ExistingTerm(NamedTuple):
    """A running pod's term, as it applies to new pods."""

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
        """Return the terms as they apply to new pods once this pod runs."""
        return (
            *(ExistingTerm(TermKind.REPELS, term) for term in self.anti_affinity),
            *(ExistingTerm(TermKind.REQUIRES, term) for term in self.affinity),
            *(ExistingTerm(TermKind.PREFERS, term, weight) for weight, term in self.preferred),
            *(ExistingTerm(TermKind.PREFERS, term, -weight) for weight, term in self.preferred_anti),
        )


NO_TERMS = PodTerms()


class SpreadConstraint(NamedTuple):
    """One of `spec.topologySpreadConstraints`. `min_domains` is 1 if it is not set."""

    max_skew: int
    topology_key: str
    #: Whether it is DoNotSchedule; otherwise it is ScheduleAnyway.
    required: bool
    selector: LabelSelector | None
    min_domains: int = 1
    #: nodeAffinityPolicy and nodeTaintsPolicy: whether nodes that are infeasible by these are not counted.
    honors_affinity: bool = True
    honors_taints: bool = False


def pod_terms(affinity: wire.Affinity | None, namespace: str, labels: Labels) -> PodTerms:
    """Compile the inter-pod (anti-)affinity. Raises `SpecError` for the first invalid term."""
    if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
        return NO_TERMS
    near, far = affinity.pod_affinity, affinity.pod_anti_affinity

    def required(terms: Sequence[wire.PodAffinityTerm] | None, kind: str) -> tuple[PodTerm, ...]:
        return tuple(
            _term(term, namespace, labels, f"spec.affinity.{kind}.required[{index}]")
            for index, term in enumerate(terms or ())
        )

    def preferred(terms: Sequence[wire.WeightedPodAffinityTerm] | None, kind: str) -> tuple[tuple[int, PodTerm], ...]:
        return tuple(
            (each.weight, _term(each.pod_affinity_term, namespace, labels, f"spec.affinity.{kind}.preferred[{index}]"))
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
            *_of_labels(term.match_label_keys, "In", labels), *_of_labels(term.mismatch_label_keys, "NotIn", labels)
        )
    by_label = label_selector(term.namespace_selector, f"{place}.namespaceSelector")
    names = frozenset(term.namespaces or ())
    if not names and by_label is None:
        names = frozenset((namespace,))
    return PodTerm(PodMatch(names, by_label, selector), term.topology_key)


def spread_constraints(
    constraints: Sequence[wire.TopologySpreadConstraint] | None, labels: Labels
) -> tuple[SpreadConstraint, ...]:
    """Compile the topology spread constraints. Raises `SpecError` for the first invalid one."""
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
        required=_one_of(each.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway"), f"{place}.whenUnsatisfiable"),
        selector=selector,
        min_domains=each.min_domains or 1,
        honors_affinity=_one_of(
            each.node_affinity_policy or "Honor", ("Honor", "Ignore"), f"{place}.nodeAffinityPolicy"
        ),
        honors_taints=_one_of(each.node_taints_policy or "Ignore", ("Honor", "Ignore"), f"{place}.nodeTaintsPolicy"),
    )


def _one_of(value: str, words: tuple[str, str], place: str) -> bool:
    """Return whether `value` is the first of two words. Raises `SpecError` if it is neither."""
    check_word(value, words, place)
    return value == words[0]


def _of_labels(keys: Collection[str] | None, operator: str, labels: Labels) -> list[Requirement]:
    """Return a requirement for each of `keys` that the pod's labels have; other keys are ignored."""
    return [Requirement(key, operator, frozenset((labels[key],))) for key in keys or () if key in labels]
