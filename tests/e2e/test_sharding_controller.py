"""The sharding controller as a process on its own cluster: shards follow the use of nodes despite faults.

Faults concern its requests and watches, and no node is ever in two shards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.sharded import ShardedCluster

from .processes import Served, cluster
from .test_installed import embedded_alone

#: Two shards by CPU, of any size: below 60 %, and from 70 % on. The lease is in the namespace default.
COMMAND = (
    *("controllers", "--enable", "sharding", "--shard-sync-period", "1s"),
    *("--scheduler-configs", "low:volcano:0.0:0.6:false:0:0,high:agent:0.7:1.0:false:0:0"),
    *("--leader-elect-resource-namespace", "default", "--kubeconfig"),
)


@pytest.mark.wide
@embedded_alone
@pytest.mark.promise("S22", "L12")
async def test_shards_come_right_whatever_becomes_of_requests_and_watches(tmp_path: Path) -> None:
    def writes(fault: dict[str, Any], probability: float, *verbs: str) -> dict[str, Any]:
        return {"match": {"resource": "nodeshards", "verbs": list(verbs)}, "probability": probability, "fault": fault}

    faults = [
        writes({"lose": {}}, 0.2, "create", "patch"),
        writes({"drop": {}}, 0.1, "create", "patch"),
        writes({"error": {"status": 429, "retryAfter": 1}}, 0.1, "patch"),
        writes({"error": {"status": 500, "commit": True}}, 0.1, "patch"),
        writes({"error": {"status": 409}}, 0.1, "patch"),
        {
            "match": {"resource": "nodes", "verbs": ["watch"]},
            "first": 6,
            "fault": {"close": {"events": 3, "spread": 3}},
        },
        {"match": {"resource": "pods", "verbs": ["watch"]}, "count": 1, "fault": {"loseDelete": {}}},
    ]
    flags = ("--nodes", "0", "--no-kubelets", "--tls", "--token", "e2e-token")
    async with cluster(tmp_path, *flags, faults=faults, seed=5) as (process, transport):
        it = ShardedCluster(transport)
        await it.prepare()
        running = Served("controllers", [*COMMAND, str(process.kubeconfig)], folder=tmp_path)
        try:
            async with it.shards:
                await rises_and_falls(it)
                assert running.metric("agent_scheduler_sharding_writes_total", result="updated") >= 12
                assert await running.terminate() == 0
                assert "Traceback" not in running.said()
                it.assert_never_overlapped()
        finally:
            running.kill()
        process.check()


async def rises_and_falls(it: ShardedCluster) -> None:
    """Make other three nodes busy each time."""
    names = await it.add_nodes(8)
    await it.until_specs(low=names, high=[])
    for number in range(6):
        busy = {f"n{(number * 3 + offset) % 8:03}" for offset in range(3)}
        for name in names:
            await (it.load(name, "9") if name in busy else it.unload(name))
        await it.until_specs(low=[name for name in names if name not in busy], high=sorted(busy))
