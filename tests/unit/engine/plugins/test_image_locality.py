"""ImageLocality: which nodes have a pod's images, and what that is worth."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.framework.plugin import Profile, WeightedScore
from agent_scheduler.engine.plugins.image_locality import ImageLocality, with_tag
from agent_scheduler.engine.state.columns import COLUMNS_KEPT
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_change_events, node_info, same_for_scheduling
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects import wire
from tests.decisions import plain
from tests.decisions.plain import image_locality
from tests.support import objects
from tests.support.engine import World, node, pod_json, read_pod
from tests.support.examples import examples

MIB = 2**20
PROFILE = Profile("s", (), (WeightedScore(ImageLocality(), 1),))


def listed(**images: int) -> list[dict[str, Any]]:
    """MiB by name, each with a second name of the same size."""
    return [
        {"names": [f"{image}@sha256:1", f"{image}:latest"], "sizeBytes": size * MIB} for image, size in images.items()
    ]


def having(name: str, **images: int) -> NodeInfo:
    return node(name, images=listed(**images))


def using(*images: str, inits: tuple[str, ...] = ()) -> dict[str, Any]:
    return pod_json(
        containers=[{"name": f"c{index}", "image": image} for index, image in enumerate(images)],
        initContainers=[{"name": f"i{index}", "image": image} for index, image in enumerate(inits)],
    )


def read(body: dict[str, Any]) -> PodInfo:
    return read_pod(body, PodClasses(images_for=("agent-scheduler",)))


def scores(world: World, pod: PodInfo) -> list[int] | None:
    return world.scores(pod, ImageLocality())


def test_what_is_mounted_does_not_raise_what_the_best_score_takes() -> None:
    world = World(having("a", x=1000))
    body = using("x")
    body["spec"]["volumes"] = [{"name": "v", "image": {"reference": "unheard-of"}}]
    assert scores(world, read(body)) == [100]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("nginx", "nginx:latest"),
        ("nginx:1", "nginx:1"),
        ("registry:5000/nginx", "registry:5000/nginx:latest"),
        ("registry:5000/nginx:1", "registry:5000/nginx:1"),
        ("nginx@sha256:0af", "nginx@sha256:0af"),
        ("", ":latest"),
    ],
)
def test_a_name_without_a_tag_means_the_latest(image: str, name: str) -> None:
    assert with_tag(image) == name


def test_a_node_that_pulls_an_image_changes_only_where_somebody_asks() -> None:
    before, after = (
        msgspec.convert(objects.node("a", status={"images": listed(**images)}), wire.Node) for images in ({}, {"x": 1})
    )
    assert same_for_scheduling(node_info(after), node_info(before))
    asked = node_info(after, images=True), node_info(before, images=True)
    assert not same_for_scheduling(*asked)
    # It wakes nobody: no filter looks at images.
    assert node_change_events(*asked) == []


def test_images_that_come_and_go_are_seen_on_all_nodes() -> None:
    world = World(having("a"), having("b"))
    world.profile = PROFILE
    pod = read(using("x"))

    def totals() -> list[int]:
        view, columns = world.view(pod), world.snapshot.columns
        return view.totals(columns, view.feasible_rows(columns)).tolist()

    full, half = 100, 100 * (500 - 23) // (1000 - 23)
    assert totals() == [0, 0]
    world.ledger.set_node(having("a", x=1000))
    assert totals() == [half, 0]
    world.ledger.set_node(having("b", x=1000))
    assert totals() == [full, full]
    world.ledger.set_node(having("c"))
    world.ledger.set_node(having("d"))
    assert totals() == [half, half, 0, 0]
    world.ledger.remove_node("c")
    world.ledger.remove_node("d")
    world.ledger.remove_node("a")
    assert totals() == [full]
    world.ledger.set_node(having("b"))
    assert totals() == [0]


def test_pods_with_ever_new_images_do_not_fill_the_memory() -> None:
    world = World(having("a", x=5))
    columns = world.columns
    for number in range(2 * COLUMNS_KEPT):
        assert not columns.image(f"image-{number}").any()
    assert len(columns._images) == COLUMNS_KEPT
    for name in map(str, range(200)):
        world.ledger.set_node(having(name, x=5))
    assert np.count_nonzero(columns.image("x:latest")) == 201


IMAGES = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.integers(1, 2000), max_size=3)
USED = st.lists(st.sampled_from(["x", "y:latest", "z@sha256:1", "other"]), max_size=3)


@examples(300)
@given(nodes=st.lists(IMAGES, min_size=1, max_size=5), images=USED.filter(bool), inits=USED)
def test_scores_agree_with_a_plain_reading(nodes: list[dict[str, int]], images: list[str], inits: list[str]) -> None:
    bodies = [objects.node(f"n{index}", status={"images": listed(**held)}) for index, held in enumerate(nodes)]
    pod = using(*images, inits=tuple(inits))
    world = World(*(node_info(msgspec.convert(body, wire.Node), images=True) for body in bodies))
    expected = image_locality.score(pod, bodies, plain.World(tuple(bodies), ()))
    assert expected is not None
    assert scores(world, read(pod)) == list(expected.values())
