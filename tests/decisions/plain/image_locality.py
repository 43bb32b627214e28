"""ImageLocality: prefers nodes that have the pod's images already.

From `plugins/imagelocality`. Each image counts its size times the share of all nodes that have it, so that one node
does not attract every pod. The sum, with init containers and image volumes, is limited to between 23 MiB and 1000 MiB
for each container and scaled to 0..100. Weight 1, without normalization.

An image has one size in the whole cluster: that of the node which reported it first.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.decisions.plain.world import Obj, World, name

MIB = 2**20
LEAST = 23 * MIB
MOST_A_CONTAINER = 1000 * MIB


def with_tag(image: str) -> str:
    """Return the image's name with the tag that a runtime adds if there is none."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def reported(node: Obj) -> dict[str, int]:
    """Return size by name of the images that `node` reports."""
    images = node["status"].get("images") or []
    return {image_name: image["sizeBytes"] for image in images for image_name in image.get("names") or []}


def counted(image: str, world: World) -> int:
    """Return the amount of an image for each node that has it."""
    sizes = [reported(node)[image] for node in world.nodes if image in reported(node)]
    return int(sizes[0] * (len(sizes) / len(world.nodes)))


def score(pod: Obj, feasible: Sequence[Obj], world: World) -> dict[str, int] | None:
    containers = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
    mounted = [volume["image"] for volume in pod["spec"].get("volumes") or () if volume.get("image")]
    images = [with_tag(container["image"]) for container in containers]
    images += [with_tag(image["reference"]) for image in mounted]
    most = MOST_A_CONTAINER * len(containers)
    scores = {}
    for node in feasible:
        held = sum(counted(image, world) for image in images if image in reported(node))
        scores[name(node)] = 100 * (min(max(held, LEAST), most) - LEAST) // (most - LEAST)
    return scores
