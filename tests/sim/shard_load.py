"""Several schedulers on one cluster: whose the nodes and the pods are at the beginning."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]

#: Where the leases of all shards are.
LEASE_NAMESPACE = "kube-system"
#: Seconds after the end of a lease in which a request of its holder may still be carried out. No request of a world
#: takes longer (`network`).
FENCE = 60.0
#: A shard of somebody who holds no lease, as Volcano's schedulers do not. The world itself is behind it.
PEER = "volcano"


@dataclass
class Shards:
    """`modes` and `desired` are by the name of the scheduler, which is that of its shard. `peer`: there is `PEER`, too.

    `kind_after`: seconds from the start after which the cluster has the kind, and with it the first shards.
    """

    modes: dict[str, str] = field(default_factory=dict)
    desired: dict[str, list[str]] = field(default_factory=dict)
    peer: bool = False
    kind_after: float = 0.0
    #: The one that has a batch scheduler beside; empty: all are as the rest of the shape says.
    batch: str = ""
    #: Whether a scheduler that ends comes back sooner or later.
    all_return: bool = False


def share_out(rng: random.Random, nodes: list[Body], pods: list[tuple[float, Body]]) -> Shards:
    """Between two to five schedulers: nodes more or less evenly, some to nobody or to two; pods by chance."""
    names = [f"agent-{number}" for number in range(rng.choice((2, 2, 2, 3, 3, 4, 5)))]
    modes = rng.choice((("hard",), ("hard",), ("hard",), ("soft",), ("hard", "soft")))
    shards = Shards(
        modes={name: rng.choice(modes) for name in names},
        desired={name: [] for name in names},
        peer=rng.random() < 0.15,
        kind_after=rng.choice((0.0, 0.0, 0.0, rng.uniform(0.0, 8.0))),
    )
    if shards.peer:
        shards.desired[PEER] = []
    owners = list(shards.desired)
    for index, node in enumerate(nodes):
        chance = rng.random()
        if chance < 0.05:
            continue
        owner = owners[index % len(owners)] if chance < 0.8 else rng.choice(owners)
        shards.desired[owner].append(node["metadata"]["name"])
        if chance > 0.93:
            other = rng.choice(owners)
            if other != owner:
                shards.desired[other].append(node["metadata"]["name"])
    for _, pod in pods:
        pod["spec"]["schedulerName"] = rng.choice(names)
    return shards
