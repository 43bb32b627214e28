"""The devices of a world and its pods that use them: pools, classes, claims, templates, and the pods that name them.

There are two drivers: the simulated one of the embedded cluster, with a pool on each node, and one of the world's own,
whose pools many nodes can use: network cards that several claims can share, and cards that can be allocated as a whole,
in halves or in quarters, of which a half uses more memory than two quarters, and a link that both cards share. Claims
and templates may be created after the pods that name them, and pods are deleted at any time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from embedded_kubernetes.admission.plugins import ADMIN_ACCESS
from embedded_kubernetes.device_driver import DRIVER, EXTENDED_RESOURCE
from embedded_kubernetes.resource_claims import DELETE_PROTECTION

from .api import PODS_PATH, Body, Load, is_named, limit, name_of, pod
from .gang_load import GROUP_NAME
from .loads import MADE, STORAGE, attach_limit

GROUP = "/apis/resource.k8s.io/v1"
CLAIMS_PATH = f"{GROUP}/namespaces/default/resourceclaims"
TEMPLATES = f"{GROUP}/namespaces/default/resourceclaimtemplates"
CLASSES_PATH = f"{GROUP}/deviceclasses"
#: Share of worlds whose devices must be made ready after their allocation.
_ATTACHED = 0.4
#: The driver of the pools that many nodes can use, and the label that selects these nodes.
FABRIC = "fabric.example.com"
ZONE = "zone"


@dataclass
class Devices:
    """The part of a `Shape` that is about devices.

    `per_node`: number of devices of the simulated driver per node. `copies`: (seconds from the start, name) of pods
    that name a claim which was generated for another pod.
    """

    per_node: int = 2
    #: Whether these devices must be made ready after their allocation.
    attached: bool = False
    copies: list[tuple[float, str]] = field(default_factory=list)


def pools() -> dict[str, list[Body]]:
    """Return the pools of the world's own driver -> the contents of their slices, for any generation."""
    zone_a = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
    in_zone: Body = {"nodeSelector": {"nodeSelectorTerms": [zone_a]}}
    shared = {"allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10"}}}
    kind = {"attributes": {"kind": {"string": "nic"}}}
    return {
        "cards": [
            {"allNodes": True, "devices": [{"name": "nic-0", **kind, **shared}]},
            {"allNodes": True, "devices": [{"name": "nic-1", **kind, **shared}, {"name": "nic-2", **kind}]},
        ],
        "parts": [
            {**in_zone, "sharedCounters": [_counters(name, amounts) for name, amounts in _CARDS.items()]},
            {**in_zone, "devices": [part for number in (0, 1) for part in _parts(f"card-{number}")]},
        ],
    }


#: Counter set -> its counters: engines and memory of each card, and the links that they share.
_CARDS = {**{card: {"engines": 4, "memory": 40} for card in ("card-0", "card-1")}, "links": {"links": 3}}
#: What a part of a card consumes: engines, memory and links.
_SIZES = {"whole": (4, 40, 2), "half": (2, 20, 1), "quarter": (1, 5, 0)}


def _counters(name: str, amounts: dict[str, int]) -> Body:
    return {"name": name, "counters": {key: {"value": str(value)} for key, value in amounts.items()}}


def _taken(name: str, amounts: dict[str, int]) -> Body:
    return {"counterSet": name, "counters": _counters(name, amounts)["counters"]}


def _parts(card: str) -> list[Body]:
    """Return all parts of the card; they overlap, as partitions do."""
    found = []
    for kind, (engines, memory, links) in _SIZES.items():
        for number in range(4 // engines):
            takes = [_taken(card, {"engines": engines, "memory": memory})]
            if links:
                takes.append(_taken("links", {"links": links}))
            attributes = {"kind": {"string": kind}}
            name = f"{card}-{kind}-{number}"
            found.append({"name": name, "attributes": attributes, "consumesCounters": takes})
    return found


def slice_body(pool: str, generation: int, index: int, count: int, spec: Body) -> Body:
    of = {"name": pool, "generation": generation, "resourceSliceCount": count}
    return named(f"{pool}-{generation}-{index}", {"driver": FABRIC, "pool": of, **spec})


def class_bodies() -> list[Body]:
    """Return the classes of the world's own driver; the simulated driver creates its class."""
    is_kind = f"device.driver == '{FABRIC}' && device.attributes['{FABRIC}'].kind == "
    return [named(kind, {"selectors": [_selector(f"{is_kind}'{kind}'")]}) for kind in ("nic", *_SIZES)]


def named(name: str, spec: Body) -> Body:
    return {"metadata": {"name": name}, "spec": spec}


def _selector(expression: str) -> Body:
    return {"cel": {"expression": expression}}


def _option(name: str = DRIVER, number: int = 1, **more: Any) -> Body:
    return {"deviceClassName": name, "allocationMode": "ExactCount", "count": number, **more}


def simple(number: int) -> Body:
    """Return the spec of a claim for this number of any devices of the simulated driver."""
    return {"devices": {"requests": [{"name": "r", "exactly": _option(number=number)}]}}


def _spec(rng: random.Random) -> Body:
    """Return a drawn spec of a claim."""
    large = _selector(f"device.attributes['{DRIVER}'].model == 'large'")
    model = rng.choice(
        (
            *("one", "one", "two", "large", "first", "all", "alike", "nic", "nic"),
            *("half", "part", "part", "quarter", "parts", "admin"),
        )
    )
    constraints: list[Body] = []
    requests: list[Body]
    match model:
        case "first":
            choices = [{"name": "big", **_option(selectors=[large], number=2)}, {"name": "any", **_option()}]
            requests = [{"name": "r", "firstAvailable": choices}]
        case "part":
            choices = [{"name": kind, **_option(kind)} for kind in _SIZES]
            requests = [{"name": "r", "firstAvailable": choices[rng.randrange(2) :]}]
        case "parts":
            quarters = _option("quarter", number=rng.choice((1, 2)))
            requests = [{"name": "r", "exactly": _option("half")}, {"name": "q", "exactly": quarters}]
        case "all":
            exactly: Body = {"deviceClassName": DRIVER, "allocationMode": "All"}
            requests = [{"name": "r", "exactly": exactly}]
        case "alike":
            constraints = [{"requests": ["r"], "matchAttribute": f"{DRIVER}/numa"}]
            requests = [{"name": "r", "exactly": _option(number=2)}]
        case "nic":
            wanted = {"requests": {"bandwidth": str(rng.choice((2, 4, 10)))}}
            requests = [{"name": "r", "exactly": _option("nic", capacity=wanted)}]
            if rng.random() < 0.3:
                requests.append({"name": "g", "exactly": _option()})
        case "admin":
            requests = [{"name": "r", "exactly": _option(adminAccess=True)}]
        case "large":
            requests = [{"name": "r", "exactly": _option(selectors=[large])}]
        case _:
            parts = {"half": _option("half"), "quarter": _option("quarter", number=rng.choice((1, 1, 3)))}
            exactly = parts.get(model) or _option(number=2 if model == "two" else 1)
            requests = [{"name": "r", "exactly": exactly}]
    return {"devices": {"requests": requests, **({"constraints": constraints} if constraints else {})}}


def fill(rng: random.Random, load: Load) -> Devices:
    """Draw the load of a world whose `nodes` exist already; `pod` returns a pod's body."""
    for index, each in enumerate(load.nodes):
        each["metadata"]["labels"] = {ZONE: "ab"[index % 2]}
    admin = {"metadata": {"labels": {ADMIN_ACCESS: "true"}}}
    load.act(-1.0, "PATCH", "/api/v1/namespaces/default", admin)
    templates = [f"t{number}" for number in range(rng.randrange(1, 4))]
    for name in templates:
        load.act(_late(rng, 6), "POST", TEMPLATES, named(name, {"spec": _spec(rng)}))
    claims = [f"c{number}" for number in range(rng.randrange(1, 6))]
    for name in claims:
        load.act(_late(rng, 8), "POST", CLAIMS_PATH, named(name, _spec(rng)))
        if rng.random() < 0.15:
            load.act(rng.uniform(2, 15), "DELETE", f"{CLAIMS_PATH}/{name}", None)
    per_node = rng.choice((1, 2, 2, 4))
    for number in range(rng.randrange(6, 8 + 5 * per_node * len(load.nodes))):
        entries = _entries(rng, templates, claims)
        spec = {"resourceClaims": entries} if entries else {}
        lives = rng.choice((None, 0.5, 2.0, 5.0, 5.0))
        name = f"p{number}"
        at = rng.choice((0.1, rng.uniform(0, 3), rng.uniform(0, 12)))
        body = pod(name, cpu=rng.choice((10, 100, 100, 1500)), lives=lives, **spec)
        if rng.random() < 0.15:
            limit(body, EXTENDED_RESOURCE, rng.choice((1, 1, 2)))
        load.pods.append((at, body))
        if rng.random() < 0.25:
            grace = {"gracePeriodSeconds": rng.choice((0, 0, 30))}
            at += rng.choice((0.003, 0.01, 0.02, 0.5, 6.0))
            load.act(at, "DELETE", f"{PODS_PATH}/{name}", grace)
    if rng.random() < 0.4:
        _kept(rng, load)
    copies = [(rng.uniform(1, 10), f"copy-{number}") for number in range(rng.randrange(4))]
    # A separate generator, so that everything else is drawn as without this.
    attached = random.Random(f"{rng.random()} attached").random() < _ATTACHED
    return Devices(per_node, attached, copies)


def _kept(rng: random.Random, load: Load) -> None:
    """Add a claim that another client allocated on the first node, and pods that name it and fit other nodes."""
    node = name_of(load.nodes[0])
    result = {"request": "r", "driver": DRIVER, "pool": node, "device": "gpu-0"}
    selector = {"nodeSelectorTerms": [{"matchFields": [is_named(node)]}]}
    allocation: Body = {"devices": {"results": [result]}, "nodeSelector": selector}
    metadata = {"name": "kept", "finalizers": [DELETE_PROTECTION]}
    load.act(0.0, "POST", CLAIMS_PATH, {"metadata": metadata, "spec": simple(1)})
    load.act(0.01, "PATCH", f"{CLAIMS_PATH}/kept/status", {"status": {"allocation": allocation}})
    for number in range(rng.randrange(1, 4)):
        entries = [{"name": "e0", "resourceClaimName": "kept"}]
        body = pod(f"keeper-{number}", cpu=10, lives=2.0, resourceClaims=entries, nodeSelector={ZONE: "b"})
        load.pods.append((rng.uniform(0.1, 8), body))


def _late(rng: random.Random, most: float) -> float:
    return rng.choice((0.0, 0.0, rng.uniform(0, most)))


def _entries(rng: random.Random, templates: Sequence[str], named: Sequence[str]) -> list[Body]:
    kind = rng.random()
    made = {"resourceClaimTemplateName": rng.choice(templates)}
    shared = {"resourceClaimName": rng.choice(named)}
    if kind < 0.5:
        chosen = [made]
    elif kind < 0.8:
        chosen = [shared]
    elif kind < 0.9:
        chosen = rng.choice(([made, shared], [shared, made], [made, made]))
    else:
        chosen = []
    return [{"name": f"e{index}", **each} for index, each in enumerate(chosen)]


VOLUMES = "/api/v1/namespaces/default/persistentvolumeclaims"
#: StorageClass of the volumes.
_CLASS = "made"
_KINDS = ("template", "template", "extended", "extended", "shared", "volumes", "volumes", "none", "both")


def equip(rng: random.Random, load: Load) -> Devices:
    """Draw what each gang of `pods` needs in addition to capacity: the same for all its members."""
    devices = Devices(rng.choice((1, 2, 2, 4)))
    for number in (1, 2):
        load.act(0.0, "POST", TEMPLATES, named(f"of-{number}", {"spec": simple(number)}))
    body = {"metadata": {"name": _CLASS}, "provisioner": MADE, "volumeBindingMode": "WaitForFirstConsumer"}
    load.act(0.0, "POST", f"{STORAGE}/storageclasses", body)
    attaches = rng.choice((None, 1, 2, 4))
    if attaches is not None:
        load.acts += [attach_limit(name_of(node), attaches) for node in load.nodes]
    chosen: dict[str, tuple[str, int]] = {}
    for at, body in load.pods:
        gang = body["metadata"]["annotations"].get(GROUP_NAME) or name_of(body)
        if gang not in chosen:
            chosen[gang] = rng.choice(_KINDS), rng.choice((1, 1, 1, 2))
            if chosen[gang][0] == "shared":
                claim = named(f"of-{gang}", simple(chosen[gang][1]))
                load.act(at + _late(rng, 3), "POST", CLAIMS_PATH, claim)
        _equip(rng, gang, *chosen[gang], body, at, load)
    return devices


def _equip(rng: random.Random, gang: str, kind: str, number: int, pod: Body, at: float, load: Load) -> None:
    spec, name = pod["spec"], name_of(pod)
    if kind in ("template", "both"):
        spec["resourceClaims"] = [{"name": "e0", "resourceClaimTemplateName": f"of-{number}"}]
    if kind == "shared":
        spec["resourceClaims"] = [{"name": "e0", "resourceClaimName": f"of-{gang}"}]
    if kind == "extended":
        limit(pod, EXTENDED_RESOURCE, number)
    if kind in ("volumes", "both"):
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-of-{name}"}}]
        late = rng.choice((0.0, 0.0, 0.0, rng.uniform(0, 3)))
        resources = {"requests": {"storage": "1Gi"}}
        wanted = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": _CLASS}
        load.act(at + late, "POST", VOLUMES, named(f"data-of-{name}", wanted))


#: Maximum seconds until a device is attached, and the time after which no pod waits for one any longer.
ATTACHED_WITHIN, TIMEOUT = 2.0, 8.0
