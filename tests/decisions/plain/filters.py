"""The filters of the default profile in their order; the first that refuses a node has the reason that counts.

From `apis/config/v1/default_plugins.go` (1.36). The filters for volumes and claims are left out, as a pod without
either passes them. Filters of a few lines are here.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.decisions.plain import (
    gpu_share,
    inter_pod_affinity,
    node_affinity,
    node_ports,
    node_resources_fit,
    pod_topology_spread,
    taint_toleration,
)
from tests.decisions.plain.taint_toleration import tolerated
from tests.decisions.plain.world import Obj, Refusal, World, name

CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def unschedulable(pod: Obj, node: Obj, world: World) -> Refusal | None:
    """Refuse a cordoned node to pods that do not tolerate its taint, whether or not it has that taint.

    From `plugins/nodeunschedulable`.
    """
    cordoned = (node.get("spec") or {}).get("unschedulable")
    if cordoned and not tolerated(CORDONED, pod["spec"].get("tolerations") or []):
        return Refusal(("node(s) were unschedulable",), unresolvable=True)
    return None


def another_name(pod: Obj, node: Obj, world: World) -> Refusal | None:
    """Refuse all nodes but the one that the pod names. From `plugins/nodename`."""
    if pod["spec"].get("nodeName") not in (None, "", name(node)):
        return Refusal(("node(s) didn't match the requested node name",), unresolvable=True)
    return None


def undeclared_features(pod: Obj, node: Obj, world: World) -> Refusal | None:
    """Refuse a node that has not declared a feature of the kubelet that the pod needs.

    From `plugins/nodedeclaredfeatures` and `component-helpers/nodedeclaredfeatures`. Of the features that 1.36 knows,
    two matter to placement.
    """
    spec, needed = pod["spec"], set()
    containers = (*spec["containers"], *(spec.get("initContainers") or ()))
    rules = [rule for each in containers for rule in each.get("restartPolicyRules") or ()]
    if any(rule["action"] == "RestartAllContainers" for rule in rules):
        needed.add("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        needed.add("UserNamespacesHostNetworkSupport")
    if needed <= set(node["status"].get("declaredFeatures") or ()):
        return None
    return Refusal(("node(s) didn't match Pod's required features",), unresolvable=True)


FILTERS = {
    "NodeAffinity's names": node_affinity.unnamed,
    "NodeUnschedulable": unschedulable,
    "NodeName": another_name,
    "TaintToleration": taint_toleration.refuse,
    "NodeAffinity": node_affinity.refuse,
    "NodePorts": node_ports.refuse,
    "NodeResourcesFit": node_resources_fit.refuse,
    "PodTopologySpread": pod_topology_spread.refuse,
    "InterPodAffinity": inter_pod_affinity.refuse,
    "NodeDeclaredFeatures": undeclared_features,
    # Not a filter of kube-scheduler, and about pods that no recording has.
    "GPUShare": gpu_share.refuse,
}


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    """Return the refusal of the first filter that refuses `node`; None if all accept it."""
    return _first(pod, node, world)[1]


def reasons(pod: Obj, node: Obj, placed: Iterable[Obj]) -> tuple[str, list[str]]:
    """Return the plugin that refuses `node`, the only one of its cluster, and its reasons; ("", []) if none does."""
    there = tuple({**each, "spec": {**each["spec"], "nodeName": name(node)}} for each in placed)
    filter_, refusal = _first(pod, node, World((node,), there))
    return filter_.partition("'")[0], [] if refusal is None else list(refusal.reasons)


def _first(pod: Obj, node: Obj, world: World) -> tuple[str, Refusal | None]:
    for called, filter_ in FILTERS.items():
        refusal = filter_(pod, node, world)
        if refusal is not None:
            return called, refusal
    return "", None
