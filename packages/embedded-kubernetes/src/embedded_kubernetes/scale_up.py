"""How many nodes of which group pods need that wait for one: the decision of the autoscaler alone, without I/O.

By the rule of Cluster Autoscaler and Karpenter: a pod that could go to a node that is there, or on its way, needs none;
of the others, as many share a node to come as fit on it (first-fit bin packing, in the order in which pods are
scheduled). What pods have to do with other pods (affinity, spread) is not looked at, nor is it which claims they have.
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
#: What of a pod's spec says where it may go.
_PLACES = ("nodeSelector", "affinity", "tolerations")


class Pending(NamedTuple):
    """A pod that waits for a node. Two of the same `kind` go to the same places."""

    uid: str
    namespace: str
    name: str
    #: Less comes first.
    turn: tuple[int, str, str]
    demand: Demand
    spec: Object
    kind: bytes


def is_unschedulable(pod: Object) -> bool:
    """Whether a scheduler says that no node has room for the pod, and nothing is under way that would make some."""
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
    """The pod as `scale_up` takes it."""
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
    """A node that is there or is to come, with what is taken of it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]] = ()
    book: NodeBook = field(default_factory=NodeBook)

    def admit(self, pod: Pending) -> bool:
        """Takes the pod in, if it may go there and fits."""
        return (
            may_go_to(pod.spec, self.labels, name=self.name, taints=self.taints)
            and self.book.admit(pod.uid, pod.demand) is None
        )


def template(group: NodeGroup) -> Bin:
    """An empty node of the group."""
    name = f"template-node-for-{group.name}"
    return Bin(name, group.labels_of(name), group.taints, NodeBook(amounts_of(group.amounts)))


class NewNode(NamedTuple):
    """A node to be made, and the pods that it is for. `size`: of the group, with it."""

    group: NodeGroup
    size: int
    pods: list[Pending]


class ScaleUp(NamedTuple):
    """`new`: the nodes to be made. `used`: names of given bins that pods wait to go to."""

    new: list[NewNode]
    used: set[str]


def scale_up(
    waiting: Iterable[Pending], bins: Sequence[Bin], groups: Sequence[NodeGroup], sizes: Mapping[str, int]
) -> ScaleUp:
    """What these pods need besides these nodes. `sizes`: how many nodes each group has, with those to come.

    A pod that needs a node gets one of the first group that it fits and that may have more. Leaves `bins` as they were.
    """
    counts, all_bins = Counter(sizes), list(bins)
    new: dict[int, NewNode] = {}
    taken: list[tuple[Bin, str]] = []
    used: set[str] = set()
    # Bins only fill up: where one pod has found no room no later one of its kind will.
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
