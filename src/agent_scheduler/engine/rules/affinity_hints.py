"""Which events may cure a refusal by InterPodAffinity, and whom they can concern (KEP-4247, KEP-6132).

A term that chooses namespaces by their labels is taken to speak of any: which namespaces it means is not known here.
Whom a term speaks of is narrowed down by one label that it requires, if it requires one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ByKeys, Key, PodIndex, own_pod
from ..state.labelselector import LabelSelector
from ..state.namespaces import NamespaceInfo
from ..state.nodeinfo import NodeInfo
from ..state.podinfo import PodInfo
from ..state.podterms import PodTerm

#: Words that keys begin with: whom the waiting pod's terms speak of, and what other pods' terms find it by.
_WANTS, _IS = "wants", "is"
#: What stands for every namespace.
_ANYWHERE = None
#: A key of pods whose terms choose namespaces by their labels.
_BY_NAMESPACE = "by-namespace"
#: A word before each topology key of a pod's own terms.
_TOPOLOGY = "topology"
#: A key of pods that any node can suit, whatever domains it belongs to.
_UNTIED = "untied"


def affinity_events() -> Sequence[ClusterEventWithHint]:
    changes = ActionType.ADD | ActionType.UPDATE_POD_LABEL | ActionType.DELETE
    return (
        ClusterEventWithHint(
            ClusterEvent(Resource.ASSIGNED_POD, changes), _other_pod, ByKeys(_INDEX, _keys_of_pods)
        ),
        ClusterEventWithHint(
            ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE_POD_LABEL), _own_label, own_pod
        ),
        ClusterEventWithHint(
            ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL),
            _node,
            ByKeys(_INDEX, _keys_of_node, once=True),
        ),
        ClusterEventWithHint(
            ClusterEvent(Resource.NAMESPACE, ActionType.ADD | ActionType.UPDATE | ActionType.DELETE),
            _namespace,
            ByKeys(_INDEX, _keys_of_namespace, once=True),
        ),
    )


# ---- hints


def _means(term: PodTerm, pod: PodInfo) -> bool:
    """Whether a term may speak of `pod`. One that chooses namespaces by their labels is taken to speak of any."""
    match = term.match
    return (
        match.selector is not None
        and match.selector.matches(pod.labels)
        and (pod.namespace in match.namespaces or match.namespace_selector is not None)
    )


def _gone_terms(before: PodInfo | None, after: PodInfo | None) -> Iterable[PodTerm]:
    """Anti-affinity that a pod on a node had and has no more: terms may be made of its labels."""
    if before is None:
        return ()
    had = before.cls.terms.anti_affinity
    return had if after is None else (term for term in had if term not in after.cls.terms.anti_affinity)


def _other_pod(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """A pod on a node came, changed its labels or went: it is now whom affinity wants, or it no longer stands in the
    way of anti-affinity, the pod's or its own. The last of a kind that goes excuses the next: a pod that needs its
    like finds any node while there is none of them."""
    assert isinstance(pod, PodInfo)
    terms = pod.cls.terms
    before, after = (each if isinstance(each, PodInfo) else None for each in (old, new))

    def wanted(other: PodInfo | None) -> bool:
        return (
            other is not None and bool(terms.affinity) and all(_means(term, other) for term in terms.affinity)
        )

    def in_the_way(other: PodInfo | None) -> bool:
        return other is not None and any(_means(term, other) for term in terms.anti_affinity)

    helps = (
        wanted(before) != wanted(after)
        or (in_the_way(before) and not in_the_way(after))
        or any(_means(term, pod) for term in _gone_terms(before, after))
    )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _own_label(pod: object, old: object | None, new: object | None) -> QueueingHint:
    assert isinstance(pod, PodInfo) and isinstance(new, PodInfo)
    return QueueingHint.QUEUE if new.uid == pod.uid else QueueingHint.SKIP


def _node(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """A node that is new, or whose domain is another, for a key of the pod's own terms: it may do, and whoever runs on
    it stands elsewhere for the pod, whichever other keys the node has. The keys of other pods' terms are not known
    here: who has no terms itself was refused by those, and any label may be one of them."""
    assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
    terms = pod.cls.terms
    if not isinstance(old, NodeInfo):
        needed = {term.topology_key for term in terms.affinity}
        return QueueingHint.SKIP if needed and needed.isdisjoint(new.labels) else QueueingHint.QUEUE
    keys = {term.topology_key for term in (*terms.affinity, *terms.anti_affinity)}
    moved = not keys or any(old.labels.get(key) != new.labels.get(key) for key in keys)
    return QueueingHint.QUEUE if moved else QueueingHint.SKIP


def _namespace(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """A namespace came, went or has other labels, and with that terms may speak of other pods: the pod's own terms of
    those in it, or those of others of the pod, if it is in it."""
    assert isinstance(pod, PodInfo)
    infos = [each if isinstance(each, NamespaceInfo) else None for each in (old, new)]

    def chosen(selector: LabelSelector) -> list[bool]:
        return [each is not None and selector.matches(each.labels) for each in infos]

    terms = pod.cls.terms
    selectors = (term.match.namespace_selector for term in (*terms.affinity, *terms.anti_affinity))
    helps = any(each is not None and each.name == pod.namespace for each in infos) or any(
        selector is not None and len({*chosen(selector)}) == 2 for selector in selectors
    )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


# ---- pre-hints


def _keys_of_term(word: str, term: PodTerm) -> Iterable[Key]:
    """One for each namespace that it speaks of; every pod that it means has one of them among `_keys_of_traits`."""
    match = term.match
    if match.selector is None:
        return ()
    pins = match.selector.pins
    if match.namespace_selector is not None:
        return ((word, _ANYWHERE, pins),)
    return [(word, namespace, pins) for namespace in match.namespaces]


def _keys_of_traits(word: str, pod: PodInfo) -> Iterable[Key]:
    """What terms find a pod by: with and without its namespace, with each of its labels or none."""
    labels = (None, *pod.labels.items())
    return [(word, namespace, label) for namespace in (pod.namespace, _ANYWHERE) for label in labels]


def _keys_of_waiting(pod: PodInfo) -> Iterable[Key]:
    terms = pod.cls.terms
    # All terms of affinity have to speak of a pod, so the first finds whomever they all do.
    for term in (*terms.affinity[:1], *terms.anti_affinity):
        yield from _keys_of_term(_WANTS, term)
    yield from _keys_of_traits(_IS, pod)
    for term in (*terms.affinity, *terms.anti_affinity):
        yield _TOPOLOGY, term.topology_key
    if not terms.affinity:
        yield _UNTIED
    if any(term.match.namespace_selector is not None for term in (*terms.affinity, *terms.anti_affinity)):
        yield _BY_NAMESPACE


def _keys_of_pods(event: ClusterEvent, old: PodInfo | None, new: PodInfo | None) -> Iterable[Key]:
    found: list[Key] = []
    for each in (old, new):
        if each is not None:
            found += _keys_of_traits(_WANTS, each)
    for term in _gone_terms(old, new):
        found += _keys_of_term(_IS, term)
    return found


def _keys_of_node(event: ClusterEvent, old: NodeInfo | None, new: NodeInfo) -> Iterable[Key]:
    before = {} if old is None else old.labels
    moved = (key for key in {**before, **new.labels} if before.get(key) != new.labels.get(key))
    return [_UNTIED, *((_TOPOLOGY, key) for key in moved)]


def _keys_of_namespace(
    event: ClusterEvent, old: NamespaceInfo | None, new: NamespaceInfo | None
) -> Iterable[Key]:
    return [_BY_NAMESPACE, *((_IS, each.name, None) for each in (old, new) if each is not None)]


def _shared(pod: PodInfo) -> Hashable:
    return pod.cls, pod.namespace, frozenset(pod.labels.items())


_INDEX = PodIndex(keys_of=_keys_of_waiting, shared=_shared)
