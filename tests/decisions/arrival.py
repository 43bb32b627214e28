"""In which order the scheduler may have seen a case's nodes, as far as that shows.

An image has one size in kube-scheduler's cache: that which the first node to arrive reported (`image_locality`).
The recorded nodes report different sizes for an image, they were made at the same time, and the order in which
they arrived was not recorded. So it is inferred: the recorded order, unless ImageLocality's scores contradict it;
then one with other nodes first, for each of the pod's images one that reports it. One size for each image has to
explain the scores of all nodes; `test_arrival.py` shows how much that says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

from tests.decisions.plain import Obj, image_locality
from tests.decisions.plain.image_locality import reported, with_tag
from tests.decisions.plain.world import name
from tests.decisions.recording import Case


def in_order_of_arrival(case: Case) -> Case:
    """The case with its nodes in an order that explains ImageLocality's scores, if one does."""
    for nodes in _orders(case):
        arrived = replace(case, nodes=nodes)
        if explains(arrived):
            return arrived
    return case


def explains(case: Case) -> bool:
    """Whether ImageLocality's scores are what they would be if the nodes had arrived in the case's order."""
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
