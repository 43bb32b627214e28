"""One decision of kube-scheduler's default profile, node by node and rule by rule.

From `schedule_one.go`: every node is filtered; with none left, preemption is tried and the message has the reason; with
one left, it is chosen and nothing is scored; with more, invalid preferences are an error, else each plugin's normalized
score times its weight is added up and the best node is any of those with the largest sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.decisions.plain import (
    balanced_allocation,
    filters,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_resources_fit,
    pod_topology_spread,
    taint_toleration,
)
from tests.decisions.plain.preemption import Candidate, fit_error, preempt
from tests.decisions.plain.world import Obj, World, name

#: The first half of a refusal's second sentence: DynamicResources' PostFilter runs before preemption and reports this
#: if there is no claim that it could release.
NO_CLAIMS = "no new claims to deallocate"


def _without_claims(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    """Return DynamicResources' scores for a pod without claims: 0 for every node.

    Pods with claims are not decided by these rules.
    """
    if pod["spec"].get("resourceClaims"):
        raise NotImplementedError("a pod with resource claims")
    return {name(node): 0 for node in feasible}


#: Score plugins and their weights, from `apis/config/v1/default_plugins.go` (1.36).
SCORES = {
    "TaintToleration": (taint_toleration.score, 3),
    "NodeAffinity": (node_affinity.score, 2),
    "NodeResourcesFit": (node_resources_fit.score, 1),
    "PodTopologySpread": (pod_topology_spread.score, 2),
    "InterPodAffinity": (inter_pod_affinity.score, 2),
    "DynamicResources": (_without_claims, 2),
    "NodeResourcesBalancedAllocation": (balanced_allocation.score, 1),
    "ImageLocality": (image_locality.score, 1),
}


@dataclass(frozen=True)
class Decision:
    """The result for a pod: the best nodes, or the message and the nodes between which preemption would choose."""

    feasible: tuple[str, ...]
    best: frozenset[str] = frozenset()
    message: str | None = None
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    final: dict[str, int] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()


def decide(pod: Obj, world: World, budgets: Sequence[Obj] = ()) -> Decision:
    verdicts = {name(node): filters.refuse(pod, node, world) for node in world.nodes}
    feasible = [node for node in world.nodes if verdicts[name(node)] is None]
    if not feasible:
        refusals = {node: refusal for node, refusal in verdicts.items() if refusal is not None}
        whole = node_affinity.conflict(pod)
        message = fit_error(len(world.nodes), refusals.values())
        if whole:
            message = f"0/{len(world.nodes)} nodes are available: {whole}."
        outcome = preempt(pod, world, refusals, budgets)
        if not outcome.best:
            message = f"{message} {NO_CLAIMS}, {outcome.message}"
        return Decision((), message=message, candidates=outcome.best)
    names = tuple(name(node) for node in feasible)
    if len(names) == 1:
        return Decision(names, best=frozenset(names))
    if why := node_affinity.unrankable(pod):
        return Decision((), message=why)
    scores = _weighted(pod, feasible, world)
    final = {node: sum(of.values()) for node, of in scores.items()}
    best = frozenset(node for node, total in final.items() if total == max(final.values()))
    return Decision(names, best=best, scores=scores, final=final)


def _weighted(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, dict[str, int]]:
    """Return the score by node and plugin, for the plugins that score the pod."""
    scores: dict[str, dict[str, int]] = {name(node): {} for node in feasible}
    for plugin, (score, weight) in SCORES.items():
        for node, value in (score(pod, feasible, world) or {}).items():
            scores[node][plugin] = value * weight
    return scores
