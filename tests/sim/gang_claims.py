"""Devices and volumes of the members of gangs: claims of their own, one that a gang shares, extended resources, and
volumes that are made where the members go, of which a node can attach some."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from embedded_kubernetes.device_driver import DRIVER, EXTENDED_RESOURCE

from .device_load import CLAIMS, TEMPLATES, Devices, simple
from .device_reading import allocation_of, device_of, extended, is_made, owner_of, usable
from .gang_load import GROUP_NAME
from .volume_load import MADE, STORAGE, attach_limit
from .volumes import attachable, claims_of, has_its_volumes

if TYPE_CHECKING:
    from .world import World

Body = dict[str, Any]
Acts = list[tuple[float, str, str, Body | None]]

VOLUMES = "/api/v1/namespaces/default/persistentvolumeclaims"
#: Class of the volumes.
_CLASS = "made"
_KINDS = ("template", "template", "extended", "extended", "shared", "volumes", "volumes", "none", "both")


def equip(rng: random.Random, nodes: list[Body], pods: list[tuple[float, Body]], acts: Acts) -> Devices:
    """Draw what each gang of `pods` needs besides room: all its members the same."""
    devices = Devices(rng.choice((1, 2, 2, 4)))
    for number in (1, 2):
        body = {"metadata": {"name": f"of-{number}"}, "spec": {"spec": simple(number)}}
        acts.append((0.0, "POST", TEMPLATES, body))
    body = {"metadata": {"name": _CLASS}, "provisioner": MADE, "volumeBindingMode": "WaitForFirstConsumer"}
    acts.append((0.0, "POST", f"{STORAGE}/storageclasses", body))
    attaches = rng.choice((None, 1, 2, 4))
    if attaches is not None:
        acts += [attach_limit(node["metadata"]["name"], attaches) for node in nodes]
    chosen: dict[str, tuple[str, int]] = {}
    for at, pod in pods:
        gang = pod["metadata"]["annotations"].get(GROUP_NAME) or pod["metadata"]["name"]
        if gang not in chosen:
            chosen[gang] = rng.choice(_KINDS), rng.choice((1, 1, 1, 2))
            if chosen[gang][0] == "shared":
                late = rng.choice((0.0, 0.0, rng.uniform(0, 3)))
                claim = {"metadata": {"name": f"of-{gang}"}, "spec": simple(chosen[gang][1])}
                acts.append((at + late, "POST", CLAIMS, claim))
        _equip(rng, gang, *chosen[gang], pod, at, acts)
    return devices


def _equip(rng: random.Random, gang: str, kind: str, number: int, pod: Body, at: float, acts: Acts) -> None:
    spec, name = pod["spec"], pod["metadata"]["name"]
    if kind in ("template", "both"):
        spec["resourceClaims"] = [{"name": "e0", "resourceClaimTemplateName": f"of-{number}"}]
    if kind == "shared":
        spec["resourceClaims"] = [{"name": "e0", "resourceClaimName": f"of-{gang}"}]
    if kind == "extended":
        resources = spec["containers"][0]["resources"]
        resources["limits"] = {EXTENDED_RESOURCE: str(number)}
        resources["requests"] |= resources["limits"]
    if kind in ("volumes", "both"):
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-of-{name}"}}]
        late = rng.choice((0.0, 0.0, 0.0, rng.uniform(0, 3)))
        resources = {"requests": {"storage": "1Gi"}}
        wanted = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": _CLASS}
        acts.append((at + late, "POST", VOLUMES, {"metadata": {"name": f"data-of-{name}"}, "spec": wanted}))


# ---- read from the API's objects


def places_by_claims(world: World, pods: Sequence[Body], node: Body, placed: Sequence[Body]) -> Iterator[int]:
    """For how many of these pods, all members of one gang, the node has what they need besides room; by each of that.
    No world that has a claim which is not allocated gives a number for those who share it."""
    name = node["metadata"]["name"]
    if any(map(claims_of, pods)):
        yield len(pods) if all(has_its_volumes(world, pod, node) for pod in pods) else 0
        most = attachable(world, name, MADE)
        if most is not None:
            yield most - sum(len(claims_of(pod)) for pod in placed if pod["spec"]["nodeName"] == name)
    if world.devices is None:
        return
    number, uids = max(map(extended, pods)), {pod["metadata"]["uid"] for pod in pods}
    for claim in (claim for pod in pods for claim in world.devices.reading.claims_of(pod) or ()):
        allocation = allocation_of(claim)
        if allocation is not None:
            yield len(pods) if usable(allocation, node) else 0
        elif not owner_of(claim):
            yield 0
        else:
            number = max(number, _asked(claim))
    if number:
        if not all(world.devices.reading.could_have(pod, node) for pod in pods):
            yield 0
        cluster = world.devices.reading.cluster()
        free = {device for device in cluster.devices(cluster.node(name)) if device[0] == DRIVER}
        for claim in world.devices.reading.claims():
            if not is_made(claim) or owner_of(claim) not in uids:
                results = (allocation_of(claim) or {}).get("devices", {}).get("results", ())
                free -= {device_of(result) for result in results}
        yield len(free) // number


def _asked(claim: Body) -> int:
    return sum(int(each["exactly"]["count"]) for each in claim["spec"]["devices"]["requests"])
