"""InterPodAffinity: pods that are placed near one another, or apart.

From `plugins/interpodaffinity` and KEPs 2249 (namespaceSelector) and 3633 (matchLabelKeys, mismatchLabelKeys). A term
selects pods of its namespaces, of those that its namespaceSelector selects, or, with neither, of the namespace of the
pod that has it. Two nodes are near if they have the same value of the topology key; a node without the key is near
nothing.

Refusals have this order: by the pod's own affinity (unresolvable, because evictions add no pod), by its own
anti-affinity, by the anti-affinity of placed pods. The pods of the affinity match all the terms together. If no such
pod exists in the cluster, a pod that matches its own terms is the first of them and may use any node that has the keys.

The raw score of a node adds the weights of the pod's preferred terms for each placed pod near the node that matches,
subtracts those of its preferred anti-affinity, and does the same for the preferred terms of placed pods that match the
pod; each required affinity term of a placed pod that matches counts 1 (`hardPodAffinityWeight`). Raw scores are scaled
from least to largest to 0 to 100 (cut, not rounded; all 0 if they are equal). If no term matched anything, nothing is
scored. Weight 2.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.decisions.plain.selectors import requirements, selects
from tests.decisions.plain.world import Obj, Refusal, World, labels, name, namespace

HARD_POD_AFFINITY_WEIGHT = 1
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


def terms(pod: Obj, kind: str, strength: str) -> list[Obj]:
    return ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(strength) or []


def matches(term: Obj, owner: Obj, other: Obj, world: World) -> bool:
    """Return whether `term` of the pod `owner` matches `other`."""
    named, selector = term.get("namespaces") or [], term.get("namespaceSelector")
    there = namespace(other)
    if not named and selector is None:
        in_namespace = there == namespace(owner)
    else:
        in_namespace = there in named or selects(selector, world.namespaces.get(there, {}))
    return in_namespace and selects(_selector(term, owner), labels(other))


def _selector(term: Obj, owner: Obj) -> Obj | None:
    """Return the term's selector with its label keys, whose values the API server takes from the new pod."""
    selector = term.get("labelSelector")
    if selector is None:
        return None
    keys = [("In", key) for key in term.get("matchLabelKeys") or []]
    keys += [("NotIn", key) for key in term.get("mismatchLabelKeys") or []]
    own = labels(owner)
    added = [{"key": key, "operator": how, "values": [own[key]]} for how, key in keys if key in own]
    return {"matchExpressions": [*requirements(selector), *added]}


def near(one: Obj, other: Obj, key: str) -> bool:
    return key in labels(one) and labels(one)[key] == labels(other).get(key)


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    if not _affinity_holds(pod, node, world):
        return Refusal((AFFINITY,), unresolvable=True)
    for term in terms(pod, "podAntiAffinity", REQUIRED):
        for placed, where in world.placed():
            if matches(term, pod, placed, world) and near(node, where, term["topologyKey"]):
                return Refusal((ANTI_AFFINITY,), unresolvable=False)
    for placed, where in world.placed():
        for term in terms(placed, "podAntiAffinity", REQUIRED):
            if matches(term, placed, pod, world) and near(node, where, term["topologyKey"]):
                return Refusal((EXISTING,), unresolvable=False)
    return None


def _affinity_holds(pod: Obj, node: Obj, world: World) -> bool:
    required = terms(pod, "podAffinity", REQUIRED)
    keys = {term["topologyKey"] for term in required}
    if not keys <= labels(node).keys():
        return False

    def is_meant(other: Obj) -> bool:
        return all(matches(term, pod, other, world) for term in required)

    homes = [where for placed, where in world.placed() if is_meant(placed)]
    if all(any(near(node, home, key) for home in homes) for key in keys):
        return True
    counted_somewhere = any(keys & labels(home).keys() for home in homes)
    return not counted_somewhere and is_meant(pod)


def score(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    weights: dict[tuple[str, str], int] = {}

    def add(term: Obj, owner: Obj, other: Obj, where: Obj, weight: int) -> None:
        key = term["topologyKey"]
        if key in labels(where) and matches(term, owner, other, world):
            domain = key, labels(where)[key]
            weights[domain] = weights.get(domain, 0) + weight

    for placed, where in world.placed():
        for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
            for term in terms(pod, kind, PREFERRED):
                add(term["podAffinityTerm"], pod, placed, where, sign * term["weight"])
            for term in terms(placed, kind, PREFERRED):
                add(term["podAffinityTerm"], placed, pod, where, sign * term["weight"])
        for term in terms(placed, "podAffinity", REQUIRED):
            add(term, placed, pod, where, HARD_POD_AFFINITY_WEIGHT)
    if not weights:
        return None

    raw = {
        name(node): sum(weight for (key, value), weight in weights.items() if labels(node).get(key) == value)
        for node in feasible
    }
    least, largest = min(raw.values()), max(raw.values())
    if least == largest:
        return dict.fromkeys(raw, 0)
    return {node: int(100.0 * ((value - least) / (largest - least))) for node, value in raw.items()}
