"""Pods behind the gate of their queue's capacity, and the node groups of an autoscaler; all drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .gang_load import GROUP_NAME, NAME, NATIVE_OF_DEFAULT, QUEUE_NAME, Gangs

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
            _send_to_special(body)
        if rng.random() < 0.05:
            body["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
    return replace(gates, off=rng.random() < 0.06, timeout=rng.choice((0, 0, 0, 0, 5, 30)))


def add_native(
    rng: random.Random,
    gangs: Gangs,
    gates: Gates,
    pods: list[tuple[float, Body]],
    acts: list[tuple[float, str, str, Body | None]],
    pod: Callable[..., Body],
) -> None:
    """Gangs of Kubernetes' own groups, each of one of the two schedulers. Their groups name no queue: members for the
    fast path do, for the batch scheduler it makes no difference."""
    gangs.native = True
    names = [each["metadata"]["name"] for each in gangs.queues if not _is_above(each)]
    for number in range(rng.randrange(2, 7)):
        size = rng.choice((1, 2, 2, 3, 4, 6))
        # Groups of either kind may have the same name.
        name = rng.choice((f"own-{number}", f"g{number}"))
        least = rng.choice((size, size, size, max(1, size - 1), max(1, size // 2)))
        policy: Body = {"basic": {}} if rng.random() < 0.1 else {"gang": {"minCount": least}}
        at, late = rng.uniform(0, 12), rng.choice((0.0, 0.0, 0.0, rng.uniform(0, 4)))
        body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}
        acts.append((at + late, "POST", NATIVE_OF_DEFAULT, body))
        scheduler = rng.choice(("agent-scheduler", "agent-scheduler", NAME))
        queues = rng.choice((names, names, [])) if rng.random() < 0.1 else [rng.choice(names)]
        asks, special = rng.random() < gates.asked, len(gates.rules) > 1 and rng.random() < 0.2
        cpu, lives = rng.choice((0, 300, 500, 1000)), rng.choice((None, None, 4.0, 12.0))
        spread = rng.choice((0.0, 0.0, 0.05, 4.0))
        for member in range(size):
            own = cpu if rng.random() < 0.9 else 2 * cpu
            made = pod(f"own-{number}-{member}", cpu=own, lives=lives, schedulingGroup={"podGroupName": name})
            made["spec"]["schedulerName"] = scheduler
            said = made["metadata"]["annotations"]
            if queues:
                said[QUEUE_NAME] = rng.choice(queues)
            if asks if rng.random() < 0.95 else not asks:
                said[GATE] = "true"
            if special:
                _send_to_special(made)
            if rng.random() < 0.03:
                made["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
            pods.append((at + rng.uniform(0, spread), made))


def _send_to_special(pod: Body) -> None:
    pod["spec"]["nodeSelector"] = {POOL: SPECIAL}
    pod["spec"]["tolerations"] = [{"key": POOL, "operator": "Exists"}]


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
