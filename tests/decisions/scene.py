"""Recorded cases with the parts that the recording lacks: pods that were left over, and the order of new nodes.

On five node names of the first recording, the scores and refusals are those of a node with more pods than the case
lists, by the same amounts in every case from some point on: pods of another namespace that were not deleted, since each
case creates its nodes again under the same names (`LEFT_OVER`). The two scores and the result of each case agree with
these few numbers, so that they cannot hide a wrong rule.

An image has one size in kube-scheduler's cache: that of the first node that reported it (`image_locality`). The nodes
of a case report different sizes and were added in an order that was not recorded. The order of the case is used, unless
ImageLocality's scores contradict it; then one with other nodes first, for each of the pod's images one that reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import NamedTuple

from tests.decisions.plain import Obj, World, image_locality
from tests.decisions.plain.image_locality import reported, with_tag
from tests.decisions.plain.world import name
from tests.decisions.recording import FIRST, Case
from tests.support import objects

#: Node -> the id of the first case with left-over pods, and the requests of each of these.
LEFT_OVER: dict[str, tuple[int, list[dict[str, str]]]] = {
    "n1": (2, [{"cpu": "1200m", "memory": "1152Mi"}, *[{"cpu": "0", "memory": "0"}] * 2]),
    "n3": (230, [{"cpu": "100m", "memory": "64Mi"}]),
    "n4": (232, [{"cpu": "300m", "memory": "192Mi"}, *[{"cpu": "0", "memory": "0"}] * 2]),
    "n6": (230, [{}]),
    "n8": (3, [{"cpu": "100m", "memory": "64Mi"}]),
}


class Scene(NamedTuple):
    """A case, and the whole cluster in which it was decided."""

    case: Case
    world: World


def scenes(cases: Sequence[Case]) -> list[Scene]:
    arrived = map(in_order_of_arrival, cases)
    return [Scene(case, case.world(*left_over(case))) for case in arrived]


def left_over(case: Case) -> list[Obj]:
    return [
        objects.pod(f"left-over-{number}", namespace="left-over", node=node, requests=requests)
        for node, (since, pods) in LEFT_OVER.items()
        if case.recording == FIRST and since <= case.id and any(name(each) == node for each in case.nodes)
        for number, requests in enumerate(pods)
    ]


def in_order_of_arrival(case: Case) -> Case:
    """Return the case with its nodes in an order that explains ImageLocality's scores, if there is one."""
    arrived = (replace(case, nodes=nodes) for nodes in _orders(case))
    return next(filter(explains, arrived), case)


def explains(case: Case) -> bool:
    """Return whether ImageLocality's scores are those of nodes that were added in the case's order."""
    feasible = [node for node in case.nodes if name(node) in case.scores]
    recorded = {node: scores["ImageLocality"] for node, scores in case.scores.items()}
    return image_locality.score(case.pending, feasible, case.world()) == recorded


def _orders(case: Case) -> Iterator[tuple[Obj, ...]]:
    yield case.nodes
    containers = [*(case.pending["spec"].get("initContainers") or []), *case.pending["spec"]["containers"]]
    images = sorted({with_tag(container["image"]) for container in containers})
    reporters = [[node for node in case.nodes if image in reported(node)] for image in images]
    for firsts in product(*(nodes for nodes in reporters if nodes)):
        for first in permutations(firsts):
            yield (*first, *(node for node in case.nodes if node not in first))
