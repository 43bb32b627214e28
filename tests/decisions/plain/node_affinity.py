"""NodeAffinity: the node selector and required terms refuse, preferred terms add up.

From `plugins/nodeaffinity` and `component-helpers/scheduling/corev1/nodeaffinity`. The raw score is the sum of the
weights of the preferred terms that match, 100 for the largest; a pod without preferred terms is not scored. Weight 2.

If every required term names nodes, as those of a DaemonSet's pods do, all other nodes are refused before the filters
(`unnamed`). Terms that all contradict themselves refuse the pod as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.decisions.plain.selectors import any_term_matches, faults, term_matches
from tests.decisions.plain.world import Obj, Refusal, World, by_largest, labels, name


def _affinity(pod: Obj) -> Obj:
    return (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}


def matches(pod: Obj, node: Obj) -> bool:
    """Return whether `node` meets the pod's node selector and its required terms."""
    selector = pod["spec"].get("nodeSelector") or {}
    if any(labels(node).get(key) != value for key, value in selector.items()):
        return False
    required = _affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any_term_matches(required["nodeSelectorTerms"], node)


def named(pod: Obj) -> set[str] | None:
    """Return the nodes that the required terms allow by name; None if they allow all."""
    required = _affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    found: set[str] = set()
    for term in (required or {}).get("nodeSelectorTerms", ()):
        fields = [each for each in term.get("matchFields") or [] if each["operator"] == "In"]
        if not fields:
            return None
        found |= set.intersection(*(set(each["values"]) for each in fields))
    return found if required else None


def unnamed(pod: Obj, node: Obj, world: World) -> Refusal | None:
    names = named(pod)
    if names is None or name(node) in names:
        return None
    return Refusal(("node(s) didn't satisfy plugin(s) [NodeAffinity]",), unresolvable=True)


def conflict(pod: Obj) -> str:
    """Return the reason to refuse the pod as a whole; empty if there is none."""
    return "pod affinity terms conflict" if named(pod) == set() else ""


def unrankable(pod: Obj) -> str:
    """Return the reason of PreScore's failure for the pod; empty if it succeeds."""
    preferred = _affinity(pod).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    terms = [(index, term["preference"]) for index, term in enumerate(preferred) if term["weight"]]
    found = [fault for index, term in terms for fault in faults(term, f"[{index}]")]
    if not found:
        return ""
    listed = ", ".join(found)
    return f'running PreScore plugin "NodeAffinity": {listed if len(found) == 1 else f"[{listed}]"}'


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    if not matches(pod, node):
        return Refusal(("node(s) didn't match Pod's node affinity/selector",), unresolvable=True)
    return None


def score(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    preferred = _affinity(pod).get("preferredDuringSchedulingIgnoredDuringExecution")
    if not preferred:
        return None

    def liked(node: Obj) -> int:
        return sum(term["weight"] for term in preferred if term_matches(term["preference"], node))

    return by_largest({name(node): liked(node) for node in feasible})
