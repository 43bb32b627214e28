"""Several schedulers on one cluster: their nodes and pods at the start, and the sharding controller's configurations.

The configurations are its flags and its ConfigMap, valid and invalid.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from agent_scheduler.config.sharding import parse_scheduler_configs
from agent_scheduler.controllers.sharding.configuration import ShardingSettings

from . import gang_reading as read
from .api import Body, Load, name_of
from .gang_load import GROUP_NAME, QUEUE_NAME, Gangs, Gates

#: The namespace of the leases of all shards.
LEASE_NAMESPACE = "kube-system"
#: Seconds after the end of a lease in which a request of its holder may still be carried out. No request of a world
#: takes longer (`network`).
FENCE = 60.0
#: The shard of a scheduler without a lease, such as Volcano's. The world itself acts as that scheduler.
PEER = "volcano"


@dataclass
class Shards:
    """The part of a `Shape` that is about shards.

    `modes` and `desired` are by the name of the scheduler, which is that of its shard. `peer`: `PEER` exists, too.
    `kind_after`: seconds from the start after which the cluster has the CRD, and with it the first shards.
    """

    modes: dict[str, str] = field(default_factory=dict)
    desired: dict[str, list[str]] = field(default_factory=dict)
    peer: bool = False
    kind_after: float = 0.0
    #: The scheduler with a batch scheduler; empty: all are as the rest of the shape defines.
    batch: str = ""
    #: Whether a scheduler that ends returns sooner or later.
    all_return: bool = False


def _shards(rng: random.Random, modes: dict[str, str], desired: dict[str, list[str]]) -> Shards:
    peer, after = rng.random() < 0.15, rng.choice((0.0, 0.0, 0.0, rng.uniform(0.0, 8.0)))
    return Shards(modes, desired, peer, after)


def share_out(rng: random.Random, load: Load) -> Shards:
    """Share the nodes between two to five schedulers: roughly evenly, some to none or to two; the pods randomly."""
    names = [f"agent-{number}" for number in range(rng.choice((2, 2, 2, 3, 3, 4, 5)))]
    modes = rng.choice((("hard",), ("hard",), ("hard",), ("soft",), ("hard", "soft")))
    shards = _shards(rng, {name: rng.choice(modes) for name in names}, {name: [] for name in names})
    if shards.peer:
        shards.desired[PEER] = []
    owners = list(shards.desired)
    for index, node in enumerate(load.nodes):
        chance = rng.random()
        if chance < 0.05:
            continue
        owner = owners[index % len(owners)] if chance < 0.8 else rng.choice(owners)
        shards.desired[owner].append(name_of(node))
        if chance > 0.93 and (other := rng.choice(owners)) != owner:
            shards.desired[other].append(name_of(node))
    for _, pod in load.pods:
        pod["spec"]["schedulerName"] = rng.choice(names)
    return shards


WARM = "node.volcano.sh/warmup"
#: Invalid configurations, made from valid ones.
_UNUSABLE: tuple[Callable[[str], str | None], ...] = (
    lambda _text: "",
    lambda _text: None,
    lambda _text: "schedulerConfigs: []\n",
    lambda _text: "schedulerConfigs:\n",
    lambda text: text[: len(text) // 2] + "\n: [",
    lambda text: text.replace('"policies": [', '"policies": [{"name": "no-such-policy"}, ', 1),
    lambda text: text.replace('"name"', '"name": "twice"}, {"name": "twice"}, {"name"', 1),
    lambda text: text.replace('{"schedulerConfigs"', '{"leftover": "no-such-shard", "schedulerConfigs"', 1),
)


@dataclass
class Plans:
    """The part of a `Shape` that is about the sharding controller.

    `first`: the initial content of its ConfigMap, which is valid if `is_usable`; None: there is none, and `flags`
    (`--scheduler-configs`) are in effect.
    """

    #: Shards that a configuration may have.
    names: list[str]
    flags: str
    sync_period: float
    event_trigger: bool
    #: The lease's duration in seconds, its renew deadline, and the time between attempts.
    lease: tuple[int, float, float]
    replicas: int = 1
    has_first: bool = True
    first: str | None = None
    is_usable: bool = True


def follow(rng: random.Random, load: Load) -> Shards:
    """Draw two to four schedulers whose shards are created by others, and their pods randomly."""
    names = [f"agent-{number}" for number in range(rng.choice((2, 2, 3, 4)))]
    modes = rng.choice((("hard",), ("hard",), ("hard",), ("soft",), ("hard", "soft")))
    for _, pod in load.pods:
        pod["spec"]["schedulerName"] = rng.choice(names)
    return _shards(rng, {name: rng.choice(modes) for name in names}, {})


def told(rng: random.Random, shards: Shards) -> Plans:
    names = [*shards.modes, *([PEER] if shards.peer else [])]
    flags = ",".join(f"{name}:agent:0.0:{rng.choice((0.3, 1.0))}:false:0:0" for name in names)
    plans = _plans(rng, names, flags, (1, 2, 2))
    chance = rng.random()
    plans.has_first, plans.is_usable = chance < 0.85, chance < 0.7
    plans.first = usable(rng, names) if plans.is_usable else unusable(rng, names)
    return plans


def _plans(rng: random.Random, names: list[str], flags: str, replicas: tuple[int, ...], **more: Any) -> Plans:
    period, trigger = rng.choice((2.0, 10.0, 60.0)), rng.random() < 0.7
    lease = rng.choice(((15, 10.0, 2.0), (5, 3.0, 0.5)))
    return Plans(names, flags, period, trigger, lease, replicas=rng.choice(replicas), **more)


def unusable(rng: random.Random, names: list[str]) -> str | None:
    """Return an invalid content; None: without the key."""
    return rng.choice(_UNUSABLE)(usable(rng, names))


def usable(rng: random.Random, names: list[str]) -> str:
    """Return a valid content of `sharding.yaml`, for most of the shards."""
    chosen = rng.sample(names, len(names) if rng.random() < 0.6 else rng.randint(1, len(names)))
    said: Body = {
        "schedulerConfigs": [{"name": name, "policies": _plan_policies(rng)} for name in chosen],
        "leftover": rng.choice(("", "none", rng.choice(chosen))),
        "stickiness": {"gain": rng.choice((0, 0.1, 0.5)), "margin": rng.choice((0, 0.05, 0.3))},
    }
    for key in ("cordonedNodes", "notReadyNodes"):
        said[key] = rng.choice(("exclude", "exclude", "keep", "include"))
    if rng.random() < 0.5:
        said["shardSyncPeriod"] = rng.choice(("2s", "10s", "45s"))
    if rng.random() < 0.5:
        said["enableNodeEventTrigger"] = rng.random() < 0.6
    return json.dumps(said)


def _plan_policies(rng: random.Random) -> list[Body]:
    policies: list[Body] = []
    if rng.random() < 0.6:
        kind = rng.choice(("CPU", "CPU", "Memory"))
        low, high = rng.choice(((0, 0.2), (0, 0.5), (0, 1), (0.1, 0.4), (0.2, 1)))
        between = {f"min{kind}Util": low, f"max{kind}Util": high}
        policies.append({"name": "allocation-rate", "arguments": between})
    if rng.random() < 0.3:
        policies.append({"name": "warmup", "weight": rng.choice((0, 1, 3))})
    if rng.random() < 0.4:
        least = rng.randrange(3)
        limit: Body = {"minNodes": least, "maxNodes": rng.choice((0, 0, least + 1, least + 3))}
        if rng.random() < 0.3:
            limit["maxPercent"] = rng.choice((20, 50))
        if rng.random() < 0.2:
            limit["maxCapacity"] = {"cpu": rng.choice((4, 9))}
        policies.append({"name": "node-limit", "arguments": limit})
    return policies


FAST, BATCH = "agent-fast", "agent-batch"
#: Seconds for which an unused node stays, where none is removed.
FOR_EVER = 1_000_000


def divide(rng: random.Random, load: Load, gangs: Gangs) -> Shards:
    """Divide the nodes in turn, some to none or to both; pods of the fast path are mostly of `FAST`."""
    fast, batch = rng.choice((*(("hard", "hard"),) * 3, ("soft", "soft"), ("hard", "soft")))
    shards = Shards(
        modes={FAST: fast, BATCH: batch},
        desired={FAST: [], BATCH: []},
        kind_after=rng.choice((0.0, 0.0, 0.0, rng.uniform(0.0, 8.0))),
        batch=BATCH,
        all_return=True,
    )
    for number, each in enumerate(load.nodes):
        for owner in rng.choice((*(((FAST,), (BATCH,))[number % 2],) * 8, (), (FAST, BATCH))):
            shards.desired[owner].append(name_of(each))
    for _, body in load.pods:
        said = body["metadata"].setdefault("annotations", {})
        if not read.is_batch(body):
            body["spec"]["schedulerName"] = rng.choice((FAST, FAST, FAST, BATCH))
        elif QUEUE_NAME not in said:
            # A process without a batch scheduler does not know groups (docs/gates.md#limits).
            said[QUEUE_NAME] = read.queue_of_group(gangs.groups.get(said.get(GROUP_NAME, ""), {}))
    return shards


def plan(rng: random.Random, shards: Shards) -> Plans:
    """Let the sharding controller divide the nodes, and assign those of the autoscaler to either scheduler."""
    shards.desired = {}
    names = list(shards.modes)
    flags = ",".join(f"{name}:agent:0.0:1.0:false:0:0" for name in names)
    return _plans(rng, names, flags, (1, 2), has_first=False)


def keep_nodes(gates: Gates) -> Gates:
    """Return the gates with an autoscaler that removes no node.

    A new node may be assigned to a shard whose pods did not request it: it would be removed, and the pods for which it
    was added would request another, endlessly (docs/sharding.md#modes).
    """
    rules = (re.sub(r"idle=[0-9.]+", f"idle={FOR_EVER}", each) for each in gates.rules)
    return replace(gates, rules=tuple(rules))


def flags_of(plans: Plans) -> ShardingSettings:
    return settings_of(plans.flags, plans.sync_period, plans.event_trigger)


def settings_of(flags: str, period: float, trigger: bool) -> ShardingSettings:
    return ShardingSettings(parse_scheduler_configs(flags).plan, period, trigger, "--scheduler-configs")
