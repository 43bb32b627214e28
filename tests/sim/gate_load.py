"""Pods behind the gate of their queue's capacity, and the node groups of an autoscaler; all drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .gang_load import GROUP_NAME, QUEUE_NAME, Gangs

Body = dict[str, Any]

#: The annotation by which a pod takes part, and the gate.
GATE = "scheduling.volcano.sh/queue-allocation-gate"
#: Label and taint of nodes that few pods may go to.
POOL, SPECIAL = "example.com/pool", "special"


@dataclass(frozen=True, slots=True)
class Gates:
    """`rules`: the autoscaler's. By `asked` so many of the pods ask for the gate. `off`: gates are removed whatever
    queues have room for. `timeout`: seconds after which room without a node is given back; 0: never."""

    rules: tuple[str, ...]
    asked: float
    off: bool = False
    timeout: int = 0

    @property
    def text(self) -> str:
        """Of the configuration."""
        return (
            f"queueReservationTimeout: {self.timeout}s\n"
            f"featureGates: {{SchedulingGatesQueueAdmission: {str(not self.off).lower()}}}\n"
        )


def hold(rng: random.Random, gangs: Gangs, pods: list[tuple[float, Body]], pod: Callable[..., Body]) -> Gates:
    """Has pods ask for the gate, tightens queues, and adds pods of the fast path that are in some."""
    _tighten(rng, gangs)
    names = [each["metadata"]["name"] for each in gangs.queues if not _is_above(each)]
    for number in range(rng.choice((0, 3, 8, 15))):
        body = pod(f"fast-{number}", cpu=rng.choice((0, 300, 700, 1500)), lives=rng.choice((None, 2.0, 9.0)))
        if rng.random() < 0.85:
            body["metadata"]["annotations"][QUEUE_NAME] = rng.choice(names)
        pods.append((rng.uniform(0, 15), body))
    gates = Gates(_rules(rng), rng.choice((1.0, 1.0, 0.7, 0.3)))
    choices: dict[str, tuple[bool, bool]] = {}
    for _, body in pods:
        said = body["metadata"].setdefault("annotations", {})
        gang = said.get(GROUP_NAME, "")
        drawn = rng.random() < gates.asked, len(gates.rules) > 1 and rng.random() < 0.2
        # Most gangs ask as a whole, and all of each go to the same nodes.
        asks, special = choices.setdefault(gang, drawn) if gang else drawn
        if asks if rng.random() < 0.95 else drawn[0]:
            said[GATE] = "true" if rng.random() < 0.97 else "True"
        if special:
            body["spec"]["nodeSelector"] = {POOL: SPECIAL}
            body["spec"]["tolerations"] = [{"key": POOL, "operator": "Exists"}]
        if rng.random() < 0.05:
            body["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
    return replace(gates, off=rng.random() < 0.06, timeout=rng.choice((0, 0, 0, 0, 5, 30)))


def _is_above(queue: Body) -> bool:
    return str(queue["metadata"]["name"]).startswith(("root", "above"))


def _tighten(rng: random.Random, gangs: Gangs) -> None:
    for each in gangs.queues:
        if each["metadata"]["name"] == "root" or rng.random() < 0.3:
            continue
        each["spec"]["capability"] = rng.choice(
            ({"cpu": "1"}, {"cpu": "2"}, {"cpu": "3"}, {"cpu": "6"}, {"cpu": "2", "memory": "256Mi"})
        )


def _rules(rng: random.Random) -> tuple[str, ...]:
    more = f"pods=20,delay={rng.choice((0.5, 3, 10))},idle={rng.choice((5, 20, 100))}"
    plain = f"cpu=4,memory=8Gi,name=plain,max={rng.choice((40, 40, 40, 2))},{more}"
    special = f"cpu=4,memory=8Gi,name=special,max=40,label:{POOL}={SPECIAL},taint:{POOL}:NoSchedule,{more}"
    return rng.choice(((plain,), (plain, special), (special, plain)))
