"""GPUs of nodes and pods, read from the API's objects: where pods are thought of as placed, and how many find room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.decisions.plain.gpu_share import ANNOTATION, WHOLE, asked, choice, devices, given, left

Json = dict[str, Any]


def with_devices(pod: Json, indices: Sequence[int]) -> Json:
    """The pod as if its annotation named these devices."""
    metadata = pod["metadata"]
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION: ",".join(map(str, indices))}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def as_placed(pod: Json, chosen: Sequence[int]) -> Json:
    """A pod on a node, for which a process has chosen these devices: what its annotation names counts before."""
    return with_devices(pod, chosen) if chosen and not given(pod) else pod


def beside(pods: Sequence[Json], node: Json, placed: Sequence[Json]) -> list[Json]:
    """`pods` with the devices that each would be given on the node, one after the other."""
    there, found = list(placed), []
    for pod in pods:
        each = with_devices(pod, choice(left(node, there), asked(pod))) if asked(pod) else pod
        there.append(each)
        found.append(each)
    return found


# ---- of gangs


def places_by_gpus(pods: Sequence[Json], node: Json, placed: Sequence[Json]) -> int | None:
    """For how many of these pods the node has devices, if each asks for as much as the largest; None: for all."""
    amount = max(map(asked, pods), default=0)
    if not amount:
        return None
    there = [pod for pod in placed if pod["spec"]["nodeName"] == node["metadata"]["name"]]
    free = left(node, there)
    # Those who name no device, or one that is not there, take some all the same.
    together = (devices(node) * WHOLE - sum(map(asked, there))) // amount
    if amount < WHOLE:
        return min(together, sum(max(0, each) // amount for each in free))
    return min(together, free.count(WHOLE) // (amount // WHOLE))


def are_enough(pods: Sequence[Json], nodes: Sequence[Json]) -> bool:
    """Whether nodes offer as many thousandths as these pods ask for."""
    return sum(map(asked, pods)) <= sum(devices(node) * WHOLE for node in nodes)
