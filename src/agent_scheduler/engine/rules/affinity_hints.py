"""The events that may resolve a refusal by InterPodAffinity, and the pods that they can concern (KEP-4247, KEP-6132).

A term that selects namespaces by their labels is assumed to match any: the matching namespaces are unknown here. The
pods of a term are narrowed down by one label that it requires, if any.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from apimachinery.labels import LabelSelector

from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ByKeys, Key, PodIndex, own_pod
from ..state.namespaces import NamespaceInfo
from ..state.nodeinfo import NodeInfo
from ..state.podinfo import PodInfo
from ..state.podterms import PodTerm

#: First words of keys: for the pods that the waiting pod's terms match, and for the terms that match it.
_WANTS, _IS = "wants", "is"
#: Represents every namespace.
_ANYWHERE = None
#: A key of pods whose terms select namespaces by their labels.
_BY_NAMESPACE = "by-namespace"
#: The first word of keys with the topology keys of a pod's own terms.
_TOPOLOGY = "topology"
#: A key of pods that any node may suit, whatever its domains.
_UNTIED = "untied"


def affinity_events() -> Sequence[ClusterEventWithHint]:
    changes = ActionType.ADD | ActionType.UPDATE_POD_LABEL | ActionType.DELETE
    return (
        ClusterEventWithHint(ClusterEvent(Resource.ASSIGNED_POD, changes), _other_pod, ByKeys(_INDEX, _keys_of_pods)),
        ClusterEventWithHint(ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE_POD_LABEL), _own_label, own_pod),
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
    """Return whether a term may match `pod`. One that selects namespaces by their labels is assumed to match any."""
    match = term.match
    return (
        match.selector is not None
        and match.selector.matches(pod.labels)
        and (pod.namespace in match.namespaces or match.namespace_selector is not None)
    )


def _gone_terms(before: PodInfo | None, after: PodInfo | None) -> Iterable[PodTerm]:
    """Return the anti-affinity that a pod on a node no longer has: terms may be derived from its labels."""
    if before is None:
        return ()
    had = before.cls.terms.anti_affinity
    return had if after is None else (term for term in had if term not in after.cls.terms.anti_affinity)


def _other_pod(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if a change of another pod may satisfy its affinity or end a conflict of anti-affinity.

    The deletion of the last matching pod helps, too: a pod that matches its own affinity may go to any node while no
    pod matches.
    """
    assert isinstance(pod, PodInfo)
    terms = pod.cls.terms
    before, after = (each if isinstance(each, PodInfo) else None for each in (old, new))

    def wanted(other: PodInfo | None) -> bool:
        return other is not None and bool(terms.affinity) and all(_means(term, other) for term in terms.affinity)

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
    """Queue the pod if the node is new, or its domain for a key of the pod's own terms has changed.

    The pod may fit there, and the pods on the node are then in another domain. The keys of other pods' terms are
    unknown here: a pod without terms was refused by those, so any label may matter.
    """
    assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
    terms = pod.cls.terms
    if not isinstance(old, NodeInfo):
        needed = {term.topology_key for term in terms.affinity}
        return QueueingHint.SKIP if needed and needed.isdisjoint(new.labels) else QueueingHint.QUEUE
    keys = {term.topology_key for term in (*terms.affinity, *terms.anti_affinity)}
    moved = not keys or any(old.labels.get(key) != new.labels.get(key) for key in keys)
    return QueueingHint.QUEUE if moved else QueueingHint.SKIP


def _namespace(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Queue the pod if a namespace was added, deleted or relabeled such that terms may match other pods.

    These are the pod's own terms about pods in it, or terms of other pods about this one, if it is in the namespace.
    """
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
    """Return a key for each namespace of a term; `_keys_of_traits` of every matching pod has one of them."""
    match = term.match
    if match.selector is None:
        return ()
    pins = match.selector.pins
    if match.namespace_selector is not None:
        return ((word, _ANYWHERE, pins),)
    return [(word, namespace, pins) for namespace in match.namespaces]


def _keys_of_traits(word: str, pod: PodInfo) -> Iterable[Key]:
    """Return the keys by which terms find a pod: with and without its namespace, with each of its labels or none."""
    labels = (None, *pod.labels.items())
    return [(word, namespace, label) for namespace in (pod.namespace, _ANYWHERE) for label in labels]


def _keys_of_waiting(pod: PodInfo) -> Iterable[Key]:
    terms = pod.cls.terms
    # All terms of affinity must match, so the keys of the first suffice.
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


def _keys_of_namespace(event: ClusterEvent, old: NamespaceInfo | None, new: NamespaceInfo | None) -> Iterable[Key]:
    return [_BY_NAMESPACE, *((_IS, each.name, None) for each in (old, new) if each is not None)]


def _shared(pod: PodInfo) -> Hashable:
    return pod.cls, pod.namespace, frozenset(pod.labels.items())


_INDEX = PodIndex(keys_of=_keys_of_waiting, shared=_shared)
