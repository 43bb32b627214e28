"""The order of arrival is read off the scores of images, which say more than it takes to choose it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.decisions.arrival import explains, in_order_of_arrival
from tests.decisions.plain import image_locality
from tests.decisions.plain.image_locality import reported, with_tag
from tests.decisions.plain.world import name
from tests.decisions.recording import Case


def test_one_size_for_each_image_explains_the_scores_of_all_nodes(original: list[Case]) -> None:
    scored = [case for case in original if case.scores]
    assert [case.id for case in scored if not explains(in_order_of_arrival(case))] == []


def test_the_order_cannot_explain_scores_of_another_rule(
    original: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share of the nodes that is a little off, say: no order makes up for it in more than a few cases."""
    images = [case for case in original if case.scores and _shared(case)]
    monkeypatch.setattr(image_locality, "MOST_A_CONTAINER", 900 * 2**20)
    explained = [case for case in images if explains(in_order_of_arrival(case))]
    assert len(explained) < len(images) / 2


def test_a_recorded_order_that_explains_the_scores_is_kept(original: list[Case]) -> None:
    explained = [case for case in original if case.scores and explains(case)]
    assert explained
    assert all(in_order_of_arrival(case).nodes == case.nodes for case in explained)


def test_scores_that_no_order_explains_leave_the_order_as_it_is(original: list[Case]) -> None:
    case = next(case for case in original if case.scores)
    wrong = {node: {**scores, "ImageLocality": 101} for node, scores in case.scores.items()}
    assert in_order_of_arrival(replace(case, scores=wrong)).nodes == case.nodes


def _shared(case: Case) -> bool:
    """Whether two feasible nodes have an image of the pod's."""
    containers = [*(case.pending["spec"].get("initContainers") or []), *case.pending["spec"]["containers"]]
    wanted = {with_tag(container["image"]) for container in containers}
    having = Counter(
        image
        for node in case.nodes
        if name(node) in case.scores
        for image in reported(node)
        if image in wanted
    )
    return max(having.values(), default=0) > 1
