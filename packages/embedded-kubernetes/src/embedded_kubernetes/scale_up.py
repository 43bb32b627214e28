"""The autoscaler's decision: how many nodes to add per group for pending pods. Pure.

Follows Cluster Autoscaler and Karpenter: a pod that fits an existing or upcoming node needs no new one. The other
pods share new nodes by first-fit bin packing, in scheduling order. Constraints between pods (affinity, spread) and
resource claims are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from .kubelet_admission import Demand, NodeBook, amounts_of, demand_of
from .node_groups import NodeGroup
from .node_selection import may_go_to
from .resource import Object

_FINAL = ("Succeeded", "Failed")
#: The fields of a pod's spec that select nodes.
_PLACES = ("nodeSelector", "affinity", "tolerations")


class Pending(NamedTuple):
    """A pod that needs a node. Pods with equal `kind` have the same requirements."""

    uid: str
    namespace: str
    name: str
    #: The sort key in scheduling order.
    turn: tuple[int, str, str]
    demand: Demand
    spec: Object
    kind: bytes


def is_unschedulable(pod: Object) -> bool:
    """Return whether the pod is reported as unschedulable and has neither a node nor a nomination."""
    status = pod.get("status") or {}
    if pod["spec"].get("nodeName") or status.get("nominatedNodeName"):
        return False
    if "deletionTimestamp" in pod["metadata"] or status.get("phase") in _FINAL:
        return False
    return any(
        each["type"] == "PodScheduled" and each["status"] == "False" and each.get("reason") == "Unschedulable"
        for each in status.get("conditions") or ()
    )


def pending(pod: Object) -> Pending:
    """Return the pod in the form that `scale_up` takes."""
    metadata, spec, demand = pod["metadata"], pod["spec"], demand_of(pod)
    places = {name: spec[name] for name in _PLACES if name in spec}
    return Pending(
        metadata["uid"],
        metadata.get("namespace", ""),
        metadata["name"],
        (-(spec.get("priority") or 0), metadata.get("creationTimestamp", ""), metadata["uid"]),
        demand,
        spec,
        orjson.dumps([demand.amounts, demand.ports, places], option=orjson.OPT_SORT_KEYS),
    )


@dataclass(slots=True)
class Bin:
    """An existing or upcoming node with its use."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]] = ()
    book: NodeBook = field(default_factory=NodeBook)

    def admit(self, pod: Pending) -> bool:
        """Add the pod if it selects the node and fits; return whether it does."""
        return (
            may_go_to(pod.spec, self.labels, name=self.name, taints=self.taints)
            and self.book.admit(pod.uid, pod.demand) is None
        )


def template(group: NodeGroup) -> Bin:
    """Return an empty node of the group."""
    name = f"template-node-for-{group.name}"
    return Bin(name, group.labels_of(name), group.taints, NodeBook(amounts_of(group.amounts)))


class NewNode(NamedTuple):
    """A node to create with its pods. `size` is the group's size including it."""

    group: NodeGroup
    size: int
    pods: list[Pending]


class ScaleUp(NamedTuple):
    """The decision: `new` nodes to create, and the names of given bins that pending pods will use."""

    new: list[NewNode]
    used: set[str]


def scale_up(
    waiting: Iterable[Pending], bins: Sequence[Bin], groups: Sequence[NodeGroup], sizes: Mapping[str, int]
) -> ScaleUp:
    """Decide which nodes these pods need in addition to `bins`.

    `sizes` are the sizes of the groups, including upcoming nodes. A pod that needs a node gets one of the first group
    that fits and is below its limit. `bins` are unchanged afterwards.
    """
    counts, all_bins = Counter(sizes), list(bins)
    new: dict[int, NewNode] = {}
    taken: list[tuple[Bin, str]] = []
    used: set[str] = set()
    # Bins only fill up, so a bin that rejected a pod rejects all later ones of its kind.
    searched: dict[bytes, int] = {}
    for pod in sorted(waiting, key=lambda each: each.turn):
        at = searched.get(pod.kind, 0)
        while at < len(all_bins) and not all_bins[at].admit(pod):
            at += 1
        searched[pod.kind] = at
        if at < len(all_bins):
            if at in new:
                new[at].pods.append(pod)
            else:
                taken.append((all_bins[at], pod.uid))
                used.add(all_bins[at].name)
            continue
        for group in groups:
            empty = template(group)
            if counts[group.name] < group.most and empty.admit(pod):
                counts[group.name] += 1
                new[at] = NewNode(group, counts[group.name], [pod])
                all_bins.append(empty)
                break
    for each, uid in taken:
        each.book.release(uid)
    return ScaleUp(list(new.values()), used)
