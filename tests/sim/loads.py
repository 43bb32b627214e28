"""Loads of worlds with constraints, with volumes, and with GPUs; all drawn from the seed.

Constraints: labels, taints and cordons that change, ports of all kinds, spread, and affinity and anti-affinity between
pods. Pods are of a few kinds, each with one or two rules, so that many share a rule.

Volumes: StorageClasses, volumes, claims, and limits of attached volumes. Volumes are provisioned for a pod, exist on
some node, belong to a zone, or were bound before; claims are shared by pods, or used by one pod at a time.

GPUs: devices of nodes, pods that request shares and whole ones, and the scores that rank nodes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.decisions.plain.gpu_share import RESOURCE, WHOLE

from .api import Body, Load, is_named, limit, name_of, pod

HOST, ZONE, DISK, AGE = "kubernetes.io/hostname", "zone", "disk", "age"
_TAINTS = ("example.com/0", "example.com/1")
_EFFECTS = ("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
_APPS = ("a0", "a1", "a2")
#: Seconds in which nodes change.
_UNTIL = 16.0
_NODES = "/api/v1/nodes/"


def constrain(rng: random.Random, load: Load) -> None:
    """Draw labels and taints of the existing `nodes`, their changes, and the pods; `pod` returns a body."""
    for index, each in enumerate(load.nodes):
        each["metadata"]["labels"] = _node_labels(rng, name_of(each), index)
        if taints := _taints(rng):
            each["spec"]["taints"] = taints
        if rng.random() < 0.15:
            each["spec"]["unschedulable"] = True
    names = [name_of(each) for each in load.nodes]
    for _ in range(rng.randrange(4, 24)):
        path = _NODES + rng.choice(names)
        load.act(rng.uniform(0.1, _UNTIL), "PATCH", path, _change(rng))
    # A pod that needs an uncordoned node finds one in the end.
    for name in names[: len(names) // 2]:
        load.act(_UNTIL, "PATCH", _NODES + name, {"spec": {"unschedulable": None, "taints": None}})
    kinds = [_pod_kind(rng, names) for _ in range(rng.randrange(2, 6))]
    for number in range(rng.randrange(8, 50)):
        labels, spec = rng.choice(kinds)
        at = rng.choice((rng.uniform(0, 0.3), rng.uniform(0, _UNTIL)))
        lives = rng.choice((None, 2.0, 6.0))
        body = pod(f"p{number}", cpu=rng.choice((10, 100, 500)), lives=lives, **spec)
        body["metadata"]["labels"] = labels
        if "ports" in body["spec"]:
            body["spec"]["containers"][0]["ports"] = body["spec"].pop("ports")
        load.pods.append((at, body))


def _node_labels(rng: random.Random, name: str, index: int) -> dict[str, str]:
    found = {HOST: name, AGE: str(rng.randrange(10))}
    if rng.random() < 0.9:
        found[ZONE] = f"z{index % 3}"
    if rng.random() < 0.6:
        found[DISK] = rng.choice(("ssd", "hdd"))
    return found


def _taints(rng: random.Random) -> list[Body]:
    return [
        {"key": key, "value": rng.choice(("x", "y")), "effect": rng.choice(_EFFECTS)}
        for key in _TAINTS
        if rng.random() < 0.25
    ]


def _change(rng: random.Random) -> Body:
    """Draw a change of a node: a label, its taints, or whether it is cordoned."""
    kind = rng.random()
    if kind < 0.35:
        return {"spec": {"taints": _taints(rng) or None}}
    if kind < 0.6:
        return {"spec": {"unschedulable": rng.choice((True, None))}}
    zone, disk = rng.choice(("z0", "z1", "z2", None)), rng.choice(("ssd", "hdd", None))
    key, value = rng.choice(((ZONE, zone), (DISK, disk), (AGE, str(rng.randrange(10)))))
    return {"metadata": {"labels": {key: value}}}


def _pod_kind(rng: random.Random, names: list[str]) -> tuple[dict[str, str], Body]:
    """Draw labels and spec of one kind of pod, with one or two rules."""
    app = rng.choice(_APPS)
    spec: Body = {}
    for rule in rng.sample(_RULES, rng.choice((1, 1, 2))):
        rule(rng, spec, app, names)
    if rng.random() < 0.6:
        spec.setdefault("tolerations", []).append(_toleration(rng))
    return {"app": app}, spec


def _toleration(rng: random.Random) -> Body:
    key = rng.choice((*_TAINTS, "node.kubernetes.io/unschedulable"))
    found: Body = {"key": key, "operator": rng.choice(("Exists", "Equal"))}
    if found["operator"] == "Equal":
        found["value"] = rng.choice(("x", "y", ""))
    if rng.random() < 0.6:
        found["effect"] = rng.choice(("NoSchedule", "NoExecute"))
    return found


def _selected(rng: random.Random, spec: Body, _app: str, _names: list[str]) -> None:
    spec["nodeSelector"] = rng.choice(({ZONE: "z0"}, {ZONE: "z1"}, {DISK: "ssd"}))


def _near_nodes(rng: random.Random, spec: Body, _app: str, names: list[str]) -> None:
    terms = [_node_term(rng, names) for _ in range(rng.choice((1, 1, 2)))]
    _require(spec, "nodeAffinity", {"nodeSelectorTerms": terms})


def _node_term(rng: random.Random, names: list[str]) -> Body:
    if rng.random() < 0.15:
        return {"matchFields": [is_named(rng.choice(names))]}
    return {"matchExpressions": [rng.choice(_REQUIREMENTS)]}


_REQUIREMENTS = (
    {"key": ZONE, "operator": "In", "values": ["z0", "z1"]},
    {"key": ZONE, "operator": "NotIn", "values": ["z0"]},
    {"key": DISK, "operator": "Exists"},
    {"key": DISK, "operator": "DoesNotExist"},
    {"key": AGE, "operator": "Gt", "values": ["4"]},
    {"key": AGE, "operator": "Lt", "values": ["6"]},
)


def _ports(rng: random.Random, spec: Body, _app: str, _names: list[str]) -> None:
    port = {"containerPort": 80, "hostPort": rng.choice((8080, 8081))}
    if rng.random() < 0.4:
        port["hostIP"] = rng.choice(("127.0.0.1", "127.0.0.2"))
    if rng.random() < 0.3:
        port["protocol"] = "UDP"
    spec["ports"] = [port]


def _spread(rng: random.Random, spec: Body, app: str, _names: list[str]) -> None:
    constraint = {
        "maxSkew": rng.choice((1, 1, 2)),
        "topologyKey": rng.choice((ZONE, HOST)),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    if rng.random() < 0.2:
        constraint["minDomains"] = 2
    if rng.random() < 0.3:
        constraint["nodeTaintsPolicy"] = "Honor"
    if rng.random() < 0.2:
        constraint["nodeAffinityPolicy"] = "Ignore"
    spec["topologySpreadConstraints"] = [constraint]


def _apart(rng: random.Random, spec: Body, app: str, _names: list[str]) -> None:
    from_whom = app if rng.random() < 0.6 else rng.choice(_APPS)
    _require(spec, "podAntiAffinity", [_pod_term(rng, from_whom, (HOST, HOST, ZONE, DISK))])


def _together(rng: random.Random, spec: Body, app: str, _names: list[str]) -> None:
    whom = app if rng.random() < 0.7 else rng.choice(_APPS)
    _require(spec, "podAffinity", [_pod_term(rng, whom, (ZONE, HOST, DISK))])


def _require(spec: Body, kind: str, terms: object) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    spec.setdefault("affinity", {})[kind] = required


def _pod_term(rng: random.Random, app: str, keys: tuple[str, ...]) -> Body:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": rng.choice(keys)}


_RULES = (_selected, _near_nodes, _near_nodes, _ports, _spread, _spread, _apart, _apart, _together)
ZONED = "topology.kubernetes.io/zone"
#: The CSI driver of provisioned volumes.
MADE = "made.example.com"
STORAGE = "/apis/storage.k8s.io/v1"
_CLASSES = (
    ("made", "WaitForFirstConsumer", MADE),
    ("hand", "WaitForFirstConsumer", "kubernetes.io/no-provisioner"),
    ("zonal", "Immediate", "kubernetes.io/no-provisioner"),
    ("now", "Immediate", MADE),
)


def store(rng: random.Random, load: Load) -> None:
    """Draw the load of a world whose `nodes` exist already; `pod` returns a pod's body."""
    zones = rng.random() < 0.5
    attaches = rng.choice((None, 2, 3, 4))
    for index, each in enumerate(load.nodes):
        name = name_of(each)
        each["metadata"]["labels"] = {HOST: name, **({ZONED: f"z{index % 2}"} if zones else {})}
        if attaches is not None and rng.random() < 0.8:
            load.acts.append(attach_limit(name, attaches))
    for name, mode, provisioner in _CLASSES:
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
        load.act(0.0, "POST", f"{STORAGE}/storageclasses", body)
    number_of_pods = rng.randrange(6, 40)
    for number in range(rng.choice((number_of_pods // 4, number_of_pods))):
        at = rng.choice((0.0, 0.0, rng.uniform(0, 10)))
        on = rng.choice(load.nodes)["metadata"]["name"]
        volume = _zonal(f"v{number}", f"z{rng.randrange(2)}") if number % 2 else _local(f"v{number}", on)
        load.act(at, "POST", "/api/v1/persistentvolumes", volume)
    for number in range(number_of_pods):
        spec: Body = {}
        if rng.random() < 0.8:
            shared = number if rng.random() < 0.6 else rng.randrange(number + 1)
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"c{shared}"}}]
        mode = "ReadWriteOncePod" if rng.random() < 0.4 else "ReadWriteOnce"
        wanted = _claim(f"c{number}", rng.choice(("made", "made", "hand", "zonal", "zonal", "now")), mode)
        at = rng.uniform(0, 5)
        load.act(at, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", wanted)
        body = pod(f"p{number}", cpu=rng.choice((10, 300)), lives=rng.choice((None, 3.0)), **spec)
        load.pods.append((rng.uniform(0, 8), body))


def attach_limit(node: str, count: int) -> tuple[float, str, str, Body | None]:
    """Return the act that limits the volumes of `MADE` that can be attached to the node."""
    driver = {"name": MADE, "nodeID": node, "allocatable": {"count": count}}
    body = {"metadata": {"name": node}, "spec": {"drivers": [driver]}}
    return 0.0, "POST", f"{STORAGE}/csinodes", body


def _volume(name: str, class_name: str, labels: Body, **more: Any) -> Body:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class_name}
    return {"metadata": {"name": name, "labels": labels}, "spec": {**spec, **more}}


def _local(name: str, on: str) -> Body:
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    return _volume(name, "hand", {}, local={"path": f"/mnt/{name}"}, nodeAffinity=affinity)


def _zonal(name: str, zone: str) -> Body:
    """Return a volume whose zone is only in a label."""
    return _volume(name, "zonal", {ZONED: zone}, hostPath={"path": f"/mnt/{name}"})


def _claim(name: str, class_name: str, mode: str) -> Body:
    if class_name in ("hand", "zonal"):
        mode = "ReadWriteOnce"
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": [mode], "resources": resources, "storageClassName": class_name}
    return {"metadata": {"name": name}, "spec": spec}


#: Additional scores of a profile.
_SCORES = (
    "{name: Fragmentation, weight: 100}, {name: BestFit, weight: 1}",
    "{name: Fragmentation, weight: 100}, {name: BestFit, weight: 1}",
    "{name: GPUPacking, weight: 5}, {name: DotProduct, weight: 2}",
    "",
)
_SHARES = (100, 250, 333, 500, 500, 700, 900)
_WHOLE = (1000, 1000, 2000, 4000)


@dataclass
class Gpus:
    """The part of a `Shape` that is about GPUs."""

    #: Entries of `plugins.score.enabled`.
    scores: str


def offer(rng: random.Random, nodes: Sequence[Body]) -> None:
    """Let some of the nodes offer GPUs, mostly in different numbers."""
    sizes = rng.choice(((1,), (2,), (4,), (1, 2, 4), (0, 1, 2, 3, 4), (2, 4)))
    for node in nodes:
        set_devices(node, rng.choice(sizes))
    if nodes and not any(RESOURCE in node["status"]["allocatable"] for node in nodes):
        set_devices(nodes[0], 2)


def set_devices(node: Body, devices: int) -> None:
    for amounts in (node["status"]["allocatable"], node["status"]["capacity"]):
        if devices:
            amounts[RESOURCE] = str(devices * WHOLE)


def share(rng: random.Random, load: Load) -> Gpus:
    """Let nodes offer GPUs, and most pods request some."""
    offer(rng, load.nodes)
    kinds = rng.choice((_SHARES, _SHARES + _WHOLE, _SHARES + _WHOLE, (500, 1000), (700, 333)))
    often = rng.choice((0.5, 0.8, 1.0))
    for _, body in load.pods:
        if rng.random() < often:
            limit(body, RESOURCE, 1500 if rng.random() < 0.01 else rng.choice(kinds))
            if rng.random() < 0.7:
                # GPUs are the scarce resource then.
                body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "50m"
    return Gpus(rng.choice(_SCORES))


def share_in_gangs(rng: random.Random, load: Load) -> Gpus:
    """Let nodes offer GPUs, and members of a gang request equal amounts."""
    offer(rng, load.nodes)
    chosen: dict[str, int] = {}
    for _, body in load.pods:
        gang = body["metadata"].get("labels", {}).get("gang") or name_of(body)
        amount = chosen.setdefault(gang, rng.choice((0, *_SHARES, *_WHOLE)))
        if amount:
            limit(body, RESOURCE, amount)
    return Gpus(rng.choice(_SCORES))
