"""The scenarios of worlds: nodes, pods over time, replicas, settings; all drawn from the seed.

To add one: a function that fills a `Shape`, and its name in `DRAWN`. That changes the histories of seeds; if these must
stay, in `SCENARIOS`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import yaml

from tests.support.places import CONFIG

from .api import PODS_PATH, Body, Json, Load, node, pod
from .device_load import Devices, equip, fill
from .gang_load import (
    SHIPPED,
    Gangs,
    Gates,
    Jobs,
    add_native,
    configure,
    count_in_queues,
    drawn_set_up,
    employ,
    gather,
    hold,
)
from .hostile import Hostility
from .loads import Gpus, constrain, share, store
from .loads import share_in_gangs as fill_gangs
from .shard_load import WARM, Plans, Shards, divide, follow, keep_nodes, plan, share_out, told


@dataclass
class Shape(Load):
    """A world before it begins."""

    replicas: int = 1
    workers: int = 1
    policy: str = "revalidate"
    #: Seconds that containers take to stop.
    stop_seconds: float = 0.2
    #: Faults with little effect in other scenarios.
    likely: tuple[str, ...] = ()
    #: Set if there are devices, with controllers for claims.
    devices: Devices | None = None
    #: Set if several schedulers share the nodes.
    shards: Shards | None = None
    #: Set if a controller plans the shards.
    plans: Plans | None = None
    #: Set if pods are in gangs with queues.
    gangs: Gangs | None = None
    #: Set if pods wait behind the gate of their queue's capacity, and an autoscaler adds nodes.
    gates: Gates | None = None
    #: Set if there are Jobs, with their controller.
    jobs: Jobs | None = None
    #: Set if nodes have GPUs that pods share.
    gpus: Gpus | None = None
    #: Set if there are hostile tenants.
    hostility: Hostility | None = None

    @property
    def schedulers(self) -> tuple[str, ...]:
        return ("agent-scheduler",) if self.shards is None else tuple(self.shards.modes)

    @property
    def shipped(self) -> Json:
        """Return the installed configuration file's content, if processes use it; otherwise an empty mapping.

        Without the parts that have no meaning in a simulated world: health checks and logs.
        """
        if self.gangs is None or self.gangs.set_up != SHIPPED:
            return {}
        # If nodes are shared, the shard's lease is the only one.
        other = {"serving", "logging"} | ({"leaderElection"} if self.shards is not None else set())
        return {key: value for key, value in _installed().items() if key not in other}

    def configure(self, seed: int, set_up: str) -> None:
        """Configure sessions, if there are any, by `set_up`; by one drawn from the seed if it is empty."""
        if self.gangs is None:
            return
        rng = random.Random(f"{seed} set-up")
        drawn = drawn_set_up(rng)
        configure(rng, self.gangs, set_up or drawn)
        if self.shipped and self.gates is not None:
            self.gates = replace(self.gates, off=False, timeout=0)

    def configuration(self, *, policy: str = "") -> str:
        """Return the configuration as text, without what a running process could change, except the conflict policy."""
        if shipped := self.shipped:
            changeable = ("profiles", "candidateNodeCount")
            kept = {key: value for key, value in shipped.items() if key not in changeable}
            kept |= {"conflictPolicy": policy} if policy else {}
            lines = [f"{key}: {in_one_line(value)}\n" for key, value in kept.items()]
            assert self.gangs is not None, "it has sessions"
            return f"{''.join(lines)}serving: {{port: 0}}\n{self.gangs.text}"
        lease = "true, resourceName: agent-scheduler, resourceNamespace: kube-system"
        elects = lease if self.replicas > 1 else "false"
        # If nodes are shared, the lease of the shard determines which replica of its scheduler works.
        election = f"leaderElection: {{leaderElect: {elects}}}\n" if self.shards is None else ""
        return (
            "apiVersion: agent-scheduler/v1\nkind: SchedulerConfiguration\nserving: {port: 0}\n"
            f"shutdownGracePeriod: 10s\nworkerCount: {self.workers}\n"
            f"conflictPolicy: {policy or self.policy}\n{election}"
            f"{'' if self.gangs is None else self.gangs.text}{'' if self.gates is None else self.gates.text}"
        )


@cache
def _installed() -> Json:
    """Return the configuration file of the manifests."""
    found: Json = yaml.safe_load((CONFIG / "default" / "configuration.yaml").read_text())
    return found


def in_one_line(value: Any) -> str:
    dumped = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return dumped.splitlines()[0]


def burst(rng: random.Random) -> Shape:
    """Draw many small pods at once, with capacity for all."""
    shape = _shape(rng, nodes=rng.randrange(2, 10))
    for number in range(rng.randrange(10, 120)):
        shape.pods.append((rng.uniform(0, 0.2), pod(f"p{number}", cpu=rng.choice((10, 50, 100)))))
    return shape


def tight(rng: random.Random) -> Shape:
    """Draw pods that exactly fill the nodes, or a few more, and many workers that compete for the last capacity."""
    shape = _shape(rng, nodes=rng.randrange(1, 5))
    shape.workers = rng.choice((4, 8))
    lives = rng.choice((None, None, 1.0, 3.0))
    for number in range(len(shape.nodes) * 8 + rng.choice((0, 0, 5))):
        shape.pods.append((rng.uniform(0, rng.choice((0.1, 4))), pod(f"p{number}", cpu=500, lives=lives)))
    return shape


def overfull(rng: random.Random) -> Shape:
    """Draw more pods than fit: the rest waits until pods end, are deleted, or nodes are added."""
    shape = _shape(rng, nodes=rng.randrange(1, 4))
    for number in range(len(shape.nodes) * 8 + rng.randrange(1, 25)):
        lives, at = rng.choice((None, 2.0, 8.0)), rng.uniform(0, 3)
        shape.pods.append((at, pod(f"p{number}", cpu=rng.choice((400, 500, 1000)), lives=lives)))
    if rng.random() < 0.5:
        shape.act(rng.uniform(5, 25), "POST", "/api/v1/nodes", node("late"))
    return shape


def churn(rng: random.Random) -> Shape:
    """Draw waves of short-lived pods, one after another."""
    shape = _shape(rng, nodes=rng.randrange(2, 6))
    for number in range(rng.randrange(30, 150)):
        at, cpu = rng.randrange(6) * 3 + rng.uniform(0, 0.3), rng.choice((100, 300, 700))
        shape.pods.append((at, pod(f"p{number}", cpu=cpu, lives=rng.choice((0.5, 2.0, 5.0)))))
    return shape


def mixed(rng: random.Random) -> Shape:
    """Draw all constraints: selectors, tolerations, ports, gates, priorities."""
    shape = Shape(workers=rng.choice((1, 2, 4, 8)), policy=rng.choice(("revalidate", "strict")))
    for number in range(rng.randrange(3, 8)):
        more: Body = {"labels": {"zone": f"z{number % 3}"}}
        if rng.random() < 0.3:
            more["taints"] = [{"key": f"example.com/{rng.randrange(3)}", "effect": "NoSchedule"}]
        shape.nodes.append(node(f"n{number}", cpu=rng.choice((2, 4)), pods=rng.choice((5, 20)), **more))
    for number in range(rng.randrange(10, 70)):
        spec: Body = {}
        if rng.random() < 0.2:
            spec["nodeSelector"] = {"zone": f"z{rng.randrange(4)}"}
        if rng.random() < 0.3:
            spec["tolerations"] = [{"key": f"example.com/{rng.randrange(3)}", "operator": "Exists"}]
        if rng.random() < 0.15:
            spec["host_port"] = rng.choice((8080, 8081))
        name = f"p{number}"
        if rng.random() < 0.2:
            spec["schedulingGates"] = [{"name": "example.com/gate"}]
            path = f"{PODS_PATH}/{name}"
            shape.act(rng.uniform(1, 20), "PATCH", path, {"spec": {"schedulingGates": None}})
        body = pod(name, cpu=rng.choice((0, 100, 500, 1500)), lives=rng.choice((None, 3.0)), **spec)
        if rng.random() < 0.3:
            body["spec"]["priorityClassName"] = f"system-{rng.choice(('cluster', 'node'))}-critical"
            body["metadata"]["namespace"] = "default"
        shape.pods.append((rng.uniform(0, 10), body))
    return shape


def constrained(rng: random.Random) -> Shape:
    """Draw node affinity, taints, cordons, ports, spread, affinity and anti-affinity, on nodes that keep changing."""
    shape = _shape(rng, nodes=rng.randrange(3, 8))
    for each in shape.nodes:
        each["status"]["allocatable"]["pods"] = rng.choice(("6", "20"))
    constrain(rng, shape)
    return shape


def claims(rng: random.Random) -> Shape:
    """Draw pods with volumes: provisioned for them, existing on some node, bound before, for one pod at a time."""
    shape = _shape(rng, nodes=rng.randrange(2, 5))
    store(rng, shape)
    return shape


def preempting(rng: random.Random) -> Shape:
    """Draw nodes full of pods of lower priority than later ones, and budgets for some of them."""
    shape = _shape(rng, nodes=rng.randrange(1, 5))
    shape.stop_seconds = rng.choice((0.2, 0.2, 2.0, 6.0))
    shape.likely = ("denied", "preemptor", "room_taken")
    for name, value in _PRIORITIES.items():
        policy = "Never" if name == "meek" else "PreemptLowerPriority"
        body: Body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        shape.act(0.0, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    for number in range(rng.choice((0, 0, 1, 2))):
        selector = {"matchLabels": {"app": f"a{number}"}}
        spec = {"selector": selector, "minAvailable": rng.choice((1, 3, "60%"))}
        body = {"metadata": {"name": f"budget-{number}"}, "spec": spec}
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        shape.act(0.0, "POST", path, body)
    alike = rng.random() < 0.3
    for number in range(rng.randrange(4, 9) * len(shape.nodes)):
        body = _prioritised(rng, f"low-{number}", rng.choice(("none", "low", "low", "mid")))
        if alike:
            body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
        shape.pods.append((rng.uniform(0.1, 1.5), body))
    for number in range(rng.randrange(2, 14)):
        at = rng.choice((4.0, 4.0, 8.0)) + rng.uniform(0, rng.choice((0.2, 4.0)))
        kind = rng.choice(("mid", "high", "high", "highest", "meek"))
        shape.pods.append((at, _prioritised(rng, f"high-{number}", kind, cpus=(500, 1000, 2000, 3900))))
    if rng.random() < 0.2:
        shape.act(rng.uniform(5, 15), "POST", "/api/v1/nodes", node("late"))
    return shape


_PRIORITIES = {"low": -5, "mid": 100, "high": 1000, "highest": 5000, "meek": 6000}


def _prioritised(rng: random.Random, name: str, priority: str, cpus: tuple[int, ...] = (400, 500, 1000)) -> Body:
    spec: Body = {"terminationGracePeriodSeconds": rng.choice((0, 1, 30, 30))}
    if priority != "none":
        spec["priorityClassName"] = priority
    if rng.random() < 0.1:
        spec["host_port"] = 8080
    lives = None if rng.random() < 0.8 else rng.uniform(2, 15)
    body = pod(name, cpu=rng.choice(cpus), lives=lives, **spec)
    body["metadata"]["labels"] = {"app": f"a{rng.randrange(3)}"}
    return body


def devices(rng: random.Random) -> Shape:
    """Draw pods that need devices, by their own claims, shared ones, and those of others."""
    shape = _shape(rng, nodes=rng.randrange(2, 5))
    shape.likely = ("claim_taken", "claim_changed", "pool_changed", "class_changed", "denied", "crash")
    shape.devices = fill(rng, shape)
    return shape


def replicas(rng: random.Random) -> Shape:
    """Draw two or three schedulers of which one leads, over any of the other loads."""
    shape = rng.choice((burst, overfull, churn, claims, preempting, devices))(rng)
    shape.replicas = rng.choice((2, 2, 3))
    # Some pod always waits, so that a process loses the lease during work.
    lives = rng.choice((1.0, 4.0, None))
    shape.pods += [
        (rng.uniform(0, 35), pod(f"late-{number}", cpu=10, memory="16Mi", lives=lives))
        for number in range(rng.choice((10, 60)))
    ]
    return shape


def sharded(rng: random.Random) -> Shape:
    """Draw two to five schedulers that share the nodes, over a load that continues while nodes are handed over."""
    shape = rng.choice((burst, overfull, churn, churn))(rng)
    del shape.pods[rng.choice((20, 40)) :]
    for number in range(len(shape.nodes), rng.choice((4, 6, 8))):
        shape.nodes.append(node(f"n{number}"))
    for start in (0.0, rng.choice((10.0, 60.0))):
        for number in range(rng.choice((5, 20))):
            lives, at = rng.choice((0.5, 2.0, None)), start + rng.uniform(0, 40)
            shape.pods.append((at, pod(f"late-{start:g}-{number}", cpu=200, lives=lives)))
    shape.shards = share_out(rng, shape)
    shape.replicas = rng.choice((1, 1, 1, 1, 1, 2))
    shape.likely = ("slow", "failed", "crash")
    return shape


def planned(rng: random.Random) -> Shape:
    """Draw two to four schedulers that share the nodes by the sharding controller's plan, which follows their usage."""
    shape = rng.choice((burst, overfull, churn))(rng)
    del shape.pods[rng.choice((10, 25)) :]
    del shape.nodes[8:]
    for number in range(len(shape.nodes), rng.choice((3, 5, 7))):
        shape.nodes.append(node(f"n{number}"))
    for each in shape.nodes:
        if rng.random() < 0.2:
            each["metadata"]["labels"] = {WARM: "true"}
    for number in range(rng.choice((10, 30))):
        lives = rng.choice((0.5, 2.0, 5.0, None))
        body = pod(f"late-{number}", cpu=rng.choice((100, 400, 900)), memory="512Mi", lives=lives)
        shape.pods.append((rng.uniform(0, rng.choice((20, 70))), body))
    shape.shards = follow(rng, shape)
    shape.plans = told(rng, shape.shards)
    shape.likely = ("slow", "failed", "crash", "lost_after", "stop", "held_back")
    return shape


def batch(rng: random.Random) -> Shape:
    """Draw gangs of pods in queues, more or fewer than fit, on nodes that are added and removed."""
    shape = _shape(rng, nodes=rng.randrange(1, 6))
    shape.replicas = rng.choice((1, 1, 1, 2))
    shape.stop_seconds = rng.choice((0.2, 0.2, 2.0))
    shape.likely = _OF_BATCH
    shape.gangs = gather(rng, shape, len(shape.nodes))
    if rng.random() < 0.3:
        shape.act(rng.uniform(5, 25), "POST", "/api/v1/nodes", node("late"))
    return shape


def mixed_batch(rng: random.Random) -> Shape:
    """Draw pods of another load and gangs, on the same nodes and in the same queues."""
    shape = rng.choice((burst, tight, overfull, churn, preempting))(rng)
    del shape.pods[rng.choice((15, 40)) :]
    shape.likely = (*_OF_BATCH, "preemptor")
    shape.gangs = gather(rng, shape, len(shape.nodes))
    if rng.random() < 0.6:
        count_in_queues(rng, shape.gangs, shape)
    return shape


def batch_claims(rng: random.Random) -> Shape:
    """Draw gangs whose members need devices and volumes in addition to capacity."""
    shape = batch(rng)
    shape.likely = (*_OF_BATCH, "claim_taken", "pool_changed")
    shape.devices = equip(rng, shape)
    return shape


def gates(rng: random.Random) -> Shape:
    """Draw gangs and single pods of both schedulers with their queue's gate, few nodes or none, and an autoscaler."""
    shape = _shape(rng, nodes=rng.choice((0, 0, 1, 2)))
    shape.replicas = rng.choice((1, 1, 2))
    shape.stop_seconds = rng.choice((0.2, 2.0))
    shape.likely = (*_OF_BATCH, "slow", "failed", "stop")
    shape.gangs = gather(rng, shape, rng.randrange(1, 6))
    shape.gates = hold(rng, shape.gangs, shape)
    return shape


def gates_slow(rng: random.Random) -> Shape:
    """Draw `gates` with a slow webhook. Kept seeds of `gates` have none."""
    shape = gates(rng)
    shape.likely = (*shape.likely, "webhook_slow")
    return shape


def gates_native(rng: random.Random) -> Shape:
    """Draw `gates` and gangs of Kubernetes PodGroups of both schedulers."""
    shape = gates(rng)
    assert shape.gangs is not None and shape.gates is not None, "it has both"
    add_native(rng, shape.gangs, shape.gates, shape)
    return shape


def gates_shards(rng: random.Random) -> Shape:
    """Draw `gates` with NodeShards that divide the nodes between two schedulers with a process each."""
    shape = gates(rng)
    shape.nodes += [node(f"more-{number}") for number in range(rng.choice((0, 1, 2, 3)))]
    assert shape.gangs is not None, "it has queues"
    shape.shards = divide(rng, shape, shape.gangs)
    if rng.random() < 0.3 and shape.gates is not None:
        shape.plans = plan(rng, shape.shards)
        shape.gates = keep_nodes(shape.gates)
    return shape


def jobs(rng: random.Random) -> Shape:
    """Draw Volcano Jobs whose tasks depend on one another, and a few gangs, on few nodes."""
    shape = _shape(rng, nodes=rng.randrange(1, 5))
    shape.replicas = rng.choice((1, 1, 2))
    shape.stop_seconds = rng.choice((0.2, 0.2, 2.0))
    shape.likely = (*_OF_BATCH, "slow", "failed", "stop")
    shape.gangs = gather(rng, shape, len(shape.nodes))
    del shape.pods[rng.choice((0, 5, 20)) :]
    shape.jobs = employ(rng, shape.gangs, shape)
    return shape


def gpus(rng: random.Random) -> Shape:
    """Draw pods that request shares of GPUs, or whole ones, over another load."""
    shape = rng.choice((burst, tight, overfull, churn, preempting))(rng)
    del shape.pods[rng.choice((30, 60)) :]
    shape.replicas = rng.choice((1, 1, 2))
    shape.likely = (*shape.likely, "crash", "lost_after", "denied", "held_back", "bound_elsewhere", "slow")
    shape.gpus = share(rng, shape)
    return shape


def gpus_batch(rng: random.Random) -> Shape:
    """Draw gangs whose members request GPUs, on nodes with few of them."""
    shape = batch(rng)
    shape.gpus = fill_gangs(rng, shape)
    return shape


def hostile(rng: random.Random) -> Shape:
    """Draw another load among hostile tenants."""
    loads = jobs, jobs, gates, gates_native, batch_claims, mixed_batch, gpus_batch
    shape = rng.choice((*loads, constrained, claims, devices, preempting, planned))(rng)
    del shape.pods[rng.choice((10, 30)) :]
    shape.hostility = Hostility(rng.choice((3, 6, 10)))
    return shape


_OF_BATCH = ("crash", "lost_after", "held_back", "pod_deleted", "node_changed", "node_again", "denied")


def _shape(rng: random.Random, *, nodes: int) -> Shape:
    return Shape(
        nodes=[node(f"n{number}") for number in range(nodes)],
        workers=rng.choice((1, 2, 4, 8)),
        policy=rng.choice(("revalidate", "revalidate", "strict")),
    )


#: Scenarios of which a seed draws one; the others are played only on request.
DRAWN: dict[str, Callable[[random.Random], Shape]] = {
    each.__name__: each
    for each in (burst, tight, overfull, churn, mixed, constrained, claims, preempting, devices, replicas)
}
SCENARIOS: dict[str, Callable[[random.Random], Shape]] = {
    **DRAWN,
    "sharded": sharded,
    "planned": planned,
    "batch": batch,
    "mixed-batch": mixed_batch,
    "batch-claims": batch_claims,
    "gates": gates,
    "gates-slow": gates_slow,
    "gates-native": gates_native,
    "gates-shards": gates_shards,
    "jobs": jobs,
    "gpus": gpus,
    "gpus-batch": gpus_batch,
    "hostile": hostile,
}
