"""What is asked of a scheduler where every rule for nodes and neighbours matters: labels, taints and cordons that
change under it, ports of all kinds, spread, and pods that want to be near others or apart.

Pods come in a few kinds, each with one rule or two, so that many share a rule and meet in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Body = dict[str, Any]
Acts = list[tuple[float, str, str, Body | None]]

HOST, ZONE, DISK, AGE = "kubernetes.io/hostname", "zone", "disk", "age"
_TAINTS = ("example.com/0", "example.com/1")
_EFFECTS = ("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
_APPS = ("a0", "a1", "a2")
#: Seconds in which nodes change.
_UNTIL = 16.0
_NODES = "/api/v1/nodes/"


def fill(
    rng: random.Random,
    nodes: list[Body],
    pods: list[tuple[float, Body]],
    acts: Acts,
    pod: Callable[..., Body],
) -> None:
    """Draw labels and taints of the `nodes` that there are, what becomes of these, and the pods; `pod` makes a body."""
    for index, each in enumerate(nodes):
        each["metadata"]["labels"] = _labels(rng, each["metadata"]["name"], index)
        if taints := _taints(rng):
            each["spec"]["taints"] = taints
        if rng.random() < 0.15:
            each["spec"]["unschedulable"] = True
    names = [each["metadata"]["name"] for each in nodes]
    for _ in range(rng.randrange(4, 24)):
        path = _NODES + rng.choice(names)
        acts.append((rng.uniform(0.1, _UNTIL), "PATCH", path, _change(rng, nodes)))
    # Whoever needs a node that is not cordoned finds one in the end.
    for name in names[: len(names) // 2]:
        acts.append((_UNTIL, "PATCH", _NODES + name, {"spec": {"unschedulable": None, "taints": None}}))
    kinds = [_kind(rng, names) for _ in range(rng.randrange(2, 6))]
    for number in range(rng.randrange(8, 50)):
        labels, spec = rng.choice(kinds)
        at = rng.choice((rng.uniform(0, 0.3), rng.uniform(0, _UNTIL)))
        lives = rng.choice((None, 2.0, 6.0))
        body = pod(f"p{number}", cpu=rng.choice((10, 100, 500)), lives=lives, **spec)
        body["metadata"]["labels"] = labels
        if "ports" in body["spec"]:
            body["spec"]["containers"][0]["ports"] = body["spec"].pop("ports")
        pods.append((at, body))


def _labels(rng: random.Random, name: str, index: int) -> dict[str, str]:
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


def _change(rng: random.Random, nodes: list[Body]) -> Body:
    """Of a node: a label, its taints, or whether it is cordoned."""
    kind = rng.random()
    if kind < 0.35:
        return {"spec": {"taints": _taints(rng) or None}}
    if kind < 0.6:
        return {"spec": {"unschedulable": rng.choice((True, None))}}
    key, value = rng.choice(
        (
            (ZONE, rng.choice(("z0", "z1", "z2", None))),
            (DISK, rng.choice(("ssd", "hdd", None))),
            (AGE, str(rng.randrange(10))),
        )
    )
    return {"metadata": {"labels": {key: value}}}


def _kind(rng: random.Random, names: list[str]) -> tuple[dict[str, str], Body]:
    """Labels and spec of one kind of pod: one or two rules."""
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
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec.setdefault("affinity", {})["nodeAffinity"] = affinity


def _node_term(rng: random.Random, names: list[str]) -> Body:
    if rng.random() < 0.15:
        named = {"key": "metadata.name", "operator": "In", "values": [rng.choice(names)]}
        return {"matchFields": [named]}
    requirement = rng.choice(
        (
            {"key": ZONE, "operator": "In", "values": ["z0", "z1"]},
            {"key": ZONE, "operator": "NotIn", "values": ["z0"]},
            {"key": DISK, "operator": "Exists"},
            {"key": DISK, "operator": "DoesNotExist"},
            {"key": AGE, "operator": "Gt", "values": ["4"]},
            {"key": AGE, "operator": "Lt", "values": ["6"]},
        )
    )
    return {"matchExpressions": [requirement]}


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
    spec.setdefault("affinity", {})["podAntiAffinity"] = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            _pod_term(rng, from_whom, (HOST, HOST, ZONE, DISK))
        ]
    }


def _together(rng: random.Random, spec: Body, app: str, _names: list[str]) -> None:
    whom = app if rng.random() < 0.7 else rng.choice(_APPS)
    spec.setdefault("affinity", {})["podAffinity"] = {
        "requiredDuringSchedulingIgnoredDuringExecution": [_pod_term(rng, whom, (ZONE, HOST, DISK))]
    }


def _pod_term(rng: random.Random, app: str, keys: tuple[str, ...]) -> Body:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": rng.choice(keys)}


_RULES = (_selected, _near_nodes, _near_nodes, _ports, _spread, _spread, _apart, _apart, _together)
