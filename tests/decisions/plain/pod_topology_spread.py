"""PodTopologySpread: matching pods are spread over the domains of a topology key.

From `plugins/podtopologyspread` and KEPs 895, 3022 (minDomains), 3094 (inclusion policies) and 3243
(matchLabelKeys). Only pods of the pod's own namespace that are not being deleted count.

Hard (DoNotSchedule): a node that lacks a constraint's key is refused for good. Nodes that carry the keys of all
hard constraints and that the policies include are counted; the domain's count plus one for the pod itself, if its
own labels match, may exceed the least domain's count by maxSkew. With fewer domains than minDomains that least
count is 0.

Soft (ScheduleAnyway): the raw score is the sum of `count * ln(domains + 2) + maxSkew - 1`, rounded half up; the
domains are those of the feasible nodes that carry the keys of all soft constraints, and counts come from all nodes
that do and that the policies include. A hostname is counted on its node alone, whatever the policies say. Each node
gets `100 * (largest + least - raw) // largest`; 100 where the largest is 0, and 0 where it lacks a key. Weight 2.

Constraints by default (`defaultConstraints`) need a Service or a controller, which no recorded case has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.decisions.plain import node_affinity, taint_toleration
from tests.decisions.plain.selectors import requirements, selects
from tests.decisions.plain.world import Obj, Refusal, World, labels, name, namespace

HOSTNAME = "kubernetes.io/hostname"
MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"
SKEWED = "node(s) didn't match pod topology spread constraints"


def constraints(pod: Obj, when: str) -> list[Obj]:
    """Return the pod's hard or soft constraints, with their matchLabelKeys in their selectors."""
    found: list[Obj] = []
    for constraint in pod["spec"].get("topologySpreadConstraints") or []:
        if constraint["whenUnsatisfiable"] == when:
            keys = [key for key in constraint.get("matchLabelKeys") or [] if key in labels(pod)]
            own = [{"key": key, "operator": "In", "values": [labels(pod)[key]]} for key in keys]
            selector = constraint.get("labelSelector")
            if own:
                selector = {"matchExpressions": [*requirements(selector or {}), *own]}
            found.append({**constraint, "labelSelector": selector})
    return found


def included(constraint: Obj, pod: Obj, node: Obj) -> bool:
    """Return whether the constraint's policies count `node`: by default whatever its taints, if its labels match."""
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not node_affinity.matches(pod, node):
        return False
    is_any_taint_ignored = constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore"
    return is_any_taint_ignored or not taint_toleration.untolerated(pod, node)


def matching(constraint: Obj, pod: Obj, node: Obj, world: World) -> int:
    """Return the number of pods on `node` that match; a selector without requirements matches none."""
    selector = constraint["labelSelector"]
    if selector is not None and not requirements(selector):
        return 0
    return sum(
        namespace(placed) == namespace(pod)
        and not placed["metadata"].get("deletionTimestamp")
        and selects(selector, labels(placed))
        for placed in world.on(node)
    )


def has_keys(node: Obj, of: Sequence[Obj]) -> bool:
    return all(constraint["topologyKey"] in labels(node) for constraint in of)


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    hard = constraints(pod, "DoNotSchedule")
    for constraint in hard:
        key = constraint["topologyKey"]
        if key not in labels(node):
            return Refusal((MISSING,), unresolvable=True)
        counts: dict[str, int] = {}
        for other in world.nodes:
            if has_keys(other, hard) and included(constraint, pod, other):
                domain = labels(other)[key]
                counts[domain] = counts.get(domain, 0) + matching(constraint, pod, other, world)
        enough = len(counts) >= (constraint.get("minDomains") or 1)
        least = min(counts.values()) if enough else 0
        itself = int(selects(constraint["labelSelector"], labels(pod)))
        if counts.get(labels(node)[key], 0) + itself - least > constraint["maxSkew"]:
            return Refusal((SKEWED,), unresolvable=False)
    return None


def score(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    soft = constraints(pod, "ScheduleAnyway")
    if not soft:
        return None
    scored = [node for node in feasible if has_keys(node, soft)]
    raw = {name(node): 0.0 for node in scored}
    for constraint in soft:
        key = constraint["topologyKey"]
        domains = {labels(node)[key] for node in scored}
        size = len(scored) if key == HOSTNAME else len(domains)
        for node in scored:
            if key == HOSTNAME:
                count = matching(constraint, pod, node, world)
            else:
                count = sum(
                    matching(constraint, pod, other, world)
                    for other in world.nodes
                    if has_keys(other, soft)
                    and included(constraint, pod, other)
                    and labels(other)[key] == labels(node)[key]
                )
            raw[name(node)] += count * math.log(size + 2) + (constraint["maxSkew"] - 1)
    return _spread_evenly({node: math.floor(value + 0.5) for node, value in raw.items()}, feasible)


def _spread_evenly(raw: dict[str, int], feasible: Sequence[Obj]) -> dict[str, int]:
    largest, least = max(raw.values(), default=0), min(raw.values(), default=0)
    scores = {}
    for node in map(name, feasible):
        if node not in raw:
            scores[node] = 0
        elif largest == 0:
            scores[node] = 100
        else:
            scores[node] = 100 * (largest + least - raw[node]) // largest
    return scores
