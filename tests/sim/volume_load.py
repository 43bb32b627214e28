"""What is asked of a scheduler where pods use volumes: classes, volumes, claims, and how many a node can attach.

Volumes are made for a pod, lie ready on some node, belong to a zone, or were bound beforehand; claims are shared by
pods, or for one pod at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

Body = dict[str, Any]
Acts = list[tuple[float, str, str, Body | None]]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
#: The CSI driver of what is made.
MADE = "made.example.com"
STORAGE = "/apis/storage.k8s.io/v1"
_CLASSES = (
    ("made", "WaitForFirstConsumer", MADE),
    ("hand", "WaitForFirstConsumer", "kubernetes.io/no-provisioner"),
    ("zonal", "Immediate", "kubernetes.io/no-provisioner"),
    ("now", "Immediate", MADE),
)


def fill(
    rng: random.Random,
    nodes: Sequence[Body],
    pods: list[tuple[float, Body]],
    acts: Acts,
    pod: Callable[..., Body],
) -> None:
    """Draw the load of a world whose `nodes` are there already; `pod` makes a pod's body."""
    zones = rng.random() < 0.5
    attaches = rng.choice((None, 2, 3, 4))
    for index, each in enumerate(nodes):
        name = each["metadata"]["name"]
        each["metadata"]["labels"] = {HOST: name, **({ZONE: f"z{index % 2}"} if zones else {})}
        if attaches is not None and rng.random() < 0.8:
            acts.append(attach_limit(name, attaches))
    for name, mode, provisioner in _CLASSES:
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
        acts.append((0.0, "POST", f"{STORAGE}/storageclasses", body))
    number_of_pods = rng.randrange(6, 40)
    for number in range(rng.choice((number_of_pods // 4, number_of_pods))):
        at = rng.choice((0.0, 0.0, rng.uniform(0, 10)))
        on = rng.choice(nodes)["metadata"]["name"]
        volume = _zonal(f"v{number}", f"z{rng.randrange(2)}") if number % 2 else _local(f"v{number}", on)
        acts.append((at, "POST", "/api/v1/persistentvolumes", volume))
    for number in range(number_of_pods):
        spec: Body = {}
        if rng.random() < 0.8:
            shared = number if rng.random() < 0.6 else rng.randrange(number + 1)
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"c{shared}"}}]
        mode = "ReadWriteOncePod" if rng.random() < 0.4 else "ReadWriteOnce"
        wanted = _claim(f"c{number}", rng.choice(("made", "made", "hand", "zonal", "zonal", "now")), mode)
        at = rng.uniform(0, 5)
        acts.append((at, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", wanted))
        body = pod(f"p{number}", cpu=rng.choice((10, 300)), lives=rng.choice((None, 3.0)), **spec)
        pods.append((rng.uniform(0, 8), body))


def attach_limit(node: str, count: int) -> tuple[float, str, str, Body | None]:
    """So many volumes that are made can be attached to the node."""
    driver = {"name": MADE, "nodeID": node, "allocatable": {"count": count}}
    body = {"metadata": {"name": node}, "spec": {"drivers": [driver]}}
    return 0.0, "POST", f"{STORAGE}/csinodes", body


def _volume(name: str, class_name: str, labels: Body, **more: Any) -> Body:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            **more,
        },
    }


def _local(name: str, on: str) -> Body:
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    return _volume(name, "hand", {}, local={"path": f"/mnt/{name}"}, nodeAffinity=affinity)


def _zonal(name: str, zone: str) -> Body:
    """It says by a label alone where it is."""
    return _volume(name, "zonal", {ZONE: zone}, hostPath={"path": f"/mnt/{name}"})


def _claim(name: str, class_name: str, mode: str) -> Body:
    if class_name in ("hand", "zonal"):
        mode = "ReadWriteOnce"
    resources = {"requests": {"storage": "1Gi"}}
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": [mode], "resources": resources, "storageClassName": class_name},
    }
