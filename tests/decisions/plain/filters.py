"""The filters of the default profile in their order; the first to refuse a node is the one whose reason counts.

From `apis/config/v1/default_plugins.go` (1.36). The filters for volumes and claims are left out: a pod without
either passes them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.decisions.plain import (
    gpu_share,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    pod_topology_spread,
    taint_toleration,
)
from tests.decisions.plain.world import Obj, Refusal, World, name

FILTERS = {
    "NodeAffinity's names": node_affinity.unnamed,
    "NodeUnschedulable": node_unschedulable.refuse,
    "NodeName": node_name.refuse,
    "TaintToleration": taint_toleration.refuse,
    "NodeAffinity": node_affinity.refuse,
    "NodePorts": node_ports.refuse,
    "NodeResourcesFit": node_resources_fit.refuse,
    "PodTopologySpread": pod_topology_spread.refuse,
    "InterPodAffinity": inter_pod_affinity.refuse,
    "NodeDeclaredFeatures": node_declared_features.refuse,
    # Not kube-scheduler's, and about pods that no recording has.
    "GPUShare": gpu_share.refuse,
}


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    """Why the first filter that refuses `node` does so; None where all let it pass."""
    return _first(pod, node, world)[1]


def reasons(pod: Obj, node: Obj, placed: Iterable[Obj]) -> tuple[str, list[str]]:
    """The plugin that refuses `node`, the only one of its cluster, and its reasons; ("", []) where none does."""
    there = tuple({**each, "spec": {**each["spec"], "nodeName": name(node)}} for each in placed)
    filter_, refusal = _first(pod, node, World((node,), there))
    return filter_.partition("'")[0], [] if refusal is None else list(refusal.reasons)


def _first(pod: Obj, node: Obj, world: World) -> tuple[str, Refusal | None]:
    for called, filter_ in FILTERS.items():
        refusal = filter_(pod, node, world)
        if refusal is not None:
            return called, refusal
    return "", None
