"""NodeAffinity: the node selector and required terms refuse, preferred terms add up.

From `plugins/nodeaffinity` and `component-helpers/scheduling/corev1/nodeaffinity`. The raw score is the sum of the
weights of the preferred terms that match, 100 for the largest; a pod without preferred terms is not scored. Weight 2.
A node that a required term excludes by its name is refused with this message too; kube-scheduler skips it earlier,
with another message, which no recorded case shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.decisions.plain.normalize import by_largest
from tests.decisions.plain.selectors import any_term_matches, term_matches
from tests.decisions.plain.world import Obj, Refusal, World, labels, name


def _affinity(pod: Obj) -> Obj:
    return (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}


def matches(pod: Obj, node: Obj) -> bool:
    """Whether `node` meets the pod's node selector and its required terms."""
    selector = pod["spec"].get("nodeSelector") or {}
    if any(labels(node).get(key) != value for key, value in selector.items()):
        return False
    required = _affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any_term_matches(required["nodeSelectorTerms"], node)


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    if not matches(pod, node):
        return Refusal(("node(s) didn't match Pod's node affinity/selector",), unresolvable=True)
    return None


def score(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    preferred = _affinity(pod).get("preferredDuringSchedulingIgnoredDuringExecution")
    if not preferred:
        return None
    raw = {
        name(node): sum(term["weight"] for term in preferred if term_matches(term["preference"], node))
        for node in feasible
    }
    return by_largest(raw)
