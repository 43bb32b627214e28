"""What the sharding controller is told: its flags and its ConfigMap, those that can be used and those that cannot."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .shard_load import PEER, Shards

Body = dict[str, Any]

WARM = "node.volcano.sh/warmup"
#: What cannot be used, made of what can.
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
    """How the controller is run. `first`: what its ConfigMap says at the beginning, which `is_usable` or not; None:
    there is none, and what `flags` say, `--scheduler-configs`, is in effect."""

    #: Shards that a configuration may have.
    names: list[str]
    flags: str
    sync_period: float
    event_trigger: bool
    #: Seconds that the lease is good for, that it is renewed within, and between attempts.
    lease: tuple[int, float, float]
    replicas: int = 1
    has_first: bool = True
    first: str | None = None
    is_usable: bool = True


def follow(rng: random.Random, pods: list[tuple[float, Body]]) -> Shards:
    """Two to four schedulers whose shards somebody else makes; pods by chance."""
    names = [f"agent-{number}" for number in range(rng.choice((2, 2, 3, 4)))]
    modes = rng.choice((("hard",), ("hard",), ("hard",), ("soft",), ("hard", "soft")))
    for _, pod in pods:
        pod["spec"]["schedulerName"] = rng.choice(names)
    return Shards(
        modes={name: rng.choice(modes) for name in names},
        peer=rng.random() < 0.15,
        kind_after=rng.choice((0.0, 0.0, 0.0, rng.uniform(0.0, 8.0))),
    )


def told(rng: random.Random, shards: Shards) -> Plans:
    names = [*shards.modes, *([PEER] if shards.peer else [])]
    flags = ",".join(f"{name}:agent:0.0:{rng.choice((0.3, 1.0))}:false:0:0" for name in names)
    plans = Plans(
        names=names,
        flags=flags,
        sync_period=rng.choice((2.0, 10.0, 60.0)),
        event_trigger=rng.random() < 0.7,
        lease=rng.choice(((15, 10.0, 2.0), (5, 3.0, 0.5))),
        replicas=rng.choice((1, 2, 2)),
    )
    chance = rng.random()
    plans.has_first, plans.is_usable = chance < 0.85, chance < 0.7
    plans.first = usable(rng, names) if plans.is_usable else unusable(rng, names)
    return plans


def unusable(rng: random.Random, names: list[str]) -> str | None:
    """None: without the key."""
    return rng.choice(_UNUSABLE)(usable(rng, names))


def usable(rng: random.Random, names: list[str]) -> str:
    """What a `sharding.yaml` may say, for most of the shards."""
    chosen = rng.sample(names, len(names) if rng.random() < 0.6 else rng.randint(1, len(names)))
    said: Body = {
        "schedulerConfigs": [{"name": name, "policies": _policies(rng)} for name in chosen],
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


def _policies(rng: random.Random) -> list[Body]:
    policies: list[Body] = []
    if rng.random() < 0.6:
        kind = rng.choice(("CPU", "CPU", "Memory"))
        low, high = rng.choice(((0, 0.2), (0, 0.5), (0, 1), (0.1, 0.4), (0.2, 1)))
        policies.append(
            {"name": "allocation-rate", "arguments": {f"min{kind}Util": low, f"max{kind}Util": high}}
        )
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
