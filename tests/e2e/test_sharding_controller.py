"""The sharding controller as a process, against a cluster of its own, over HTTP: shards follow the cluster and the
configuration, whatever happens to the controller and to its requests, and no node is ever in two of them.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_scheduler.kube.transport import Transport
from agent_scheduler.objects.shard import NODE_SHARDS
from tests.support.sharded import NAME, NAMESPACE, ShardedCluster, limits

from .conftest import VARIABLE
from .processes import PROGRAM, Served, cluster

pytestmark = [
    pytest.mark.skipif(
        VARIABLE in os.environ,
        reason=f"the controller divides all nodes of a cluster, and those that {VARIABLE} has are not ours",
    ),
]

#: Two shards by CPU, of any size: below 60 %, and from 70 % on.
BY_CPU = "low:volcano:0.0:0.6:false:0:0,high:agent:0.7:1.0:false:0:0"
SOON = ("--shard-sync-period", "1s")


class Controllers(Served):
    """`agent-scheduler controllers --enable sharding`."""

    def __init__(self, name: str, *, folder: Path, kubeconfig: Path, flags: Sequence[str]) -> None:
        arguments = ["controllers", "--enable", "sharding", "--kubeconfig", str(kubeconfig)]
        super().__init__(name, [*arguments, *flags], folder=folder)


class Divided(ShardedCluster):
    """A cluster process, and the controllers that a test starts on it."""

    def __init__(self, transport: Transport, kubeconfig: Path, folder: Path) -> None:
        super().__init__(transport)
        self._kubeconfig = kubeconfig
        self._folder = folder
        self.started: list[Controllers] = []

    def start(self, *flags: str) -> Controllers:
        """Its lease lies in the namespace default."""
        lease = (
            *("--leader-elect-resource-namespace", "default", "--leader-elect-retry-period", "200ms"),
            *("--leader-elect-lease-duration", "15s", "--leader-elect-renew-deadline", "12s"),
        )
        made = Controllers(
            f"controllers-{len(self.started)}",
            folder=self._folder,
            kubeconfig=self._kubeconfig,
            flags=[*lease, *flags],
        )
        self.started.append(made)
        return made

    async def command(self, *line: str) -> str:
        """What `agent-scheduler LINE` prints. Without it, or with another exit code than 0, the test fails."""
        running = await asyncio.create_subprocess_exec(
            *(*PROGRAM, *line, "--kubeconfig", str(self._kubeconfig)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await running.communicate()
        assert (running.returncode, err) == (0, b"")
        return out.decode()


@asynccontextmanager
async def divided(folder: Path, *, faults: list[dict[str, Any]] | None = None) -> AsyncIterator[Divided]:
    """A cluster without nodes. In the end nothing has failed, and every controller ends in order."""
    served = ("--nodes", "0", "--no-kubelets", "--tls", "--token", "e2e-token")
    async with cluster(folder, *served, faults=faults, seed=5) as (process, transport):
        made = Divided(transport, process.kubeconfig, folder)
        await made.prepare()
        try:
            async with made.shards:
                yield made
                for running in made.started:
                    if running.process.poll() is None:
                        assert await running.terminate() == 0
                    assert "Traceback" not in running.said()
                if made.shards.history:
                    made.assert_never_overlapped()
        finally:
            for running in made.started:
                running.kill()
        process.check()


async def test_shards_follow_the_cluster_and_the_configuration(tmp_path: Path) -> None:
    async with divided(tmp_path) as it:
        names = await it.add_nodes(6)
        await it.add_node("unready", ready=False)
        running = it.start("--scheduler-configs", BY_CPU, *SOON)
        await running.ready()
        await it.until_specs(low=names, high=[])
        # Utilisation rises and falls again.
        await it.load("n003", "9")
        await it.until_specs(low=[name for name in names if name != "n003"], high=["n003"])
        await it.load("n003", "1")
        await it.until_specs(low=names, high=[])
        # A shard is deleted; a node joins, and another leaves.
        await it.ask("DELETE", f"{NODE_SHARDS}/low")
        await it.until_specs(low=names, high=[])
        await it.add_node("n999")
        await it.delete_node("n000")
        now = [*names[1:], "n999"]
        await it.until_specs(low=now, high=[])
        # Nothing happens for two periods.
        before = (await it.ask("GET", NODE_SHARDS))["items"]
        plans = "agent_scheduler_sharding_plan_duration_seconds_count"
        planned = running.metric(plans)
        await running.until(lambda: running.metric(plans) >= planned + 2, "two more plans")
        assert (await it.ask("GET", NODE_SHARDS))["items"] == before
        # A configuration is applied while it runs.
        await it.configure(limits(low=1, high=2))
        specs = await it.until_counts(low=1, high=2)
        assert running.metric("agent_scheduler_config_reloads_total", result="applied") == 1
        shown = running.json("/configz")["configuration"]["sharding"]
        assert shown["source"] == "ConfigMap volcano-system/volcano-sharding-configmap, sharding.yaml"
        # The commands show the same.
        told = json.loads(await it.command("shards", "-o", "json"))["shards"]
        assert {each["name"]: each["desired"] for each in told} == specs
        places = ("--sharding-configmap-namespace", NAMESPACE, "--sharding-configmap", NAME)
        assert "no node would move" in await it.command("shards", "plan", *places)
        assert [line.split()[0] for line in (await it.command("shards", "--nodes")).splitlines()] == [
            *("NODE", *now, "unready")
        ]


@pytest.mark.wide
@pytest.mark.promise("S22", "L12")
async def test_shards_come_right_whatever_becomes_of_requests_and_watches(tmp_path: Path) -> None:
    def writes(fault: dict[str, Any], probability: float, *verbs: str) -> dict[str, Any]:
        return {
            "match": {"resource": "nodeshards", "verbs": list(verbs)},
            "probability": probability,
            "fault": fault,
        }

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
        {
            "match": {"resource": "pods", "verbs": ["watch"]},
            "count": 1,
            "fault": {"loseDelete": {}},
        },
    ]
    async with divided(tmp_path, faults=faults) as it:
        names = await it.add_nodes(8)
        running = it.start("--scheduler-configs", BY_CPU, *SOON)
        await it.until_specs(low=names, high=[])
        for number in range(6):
            busy = {f"n{(number * 3 + offset) % 8:03}" for offset in range(3)}
            for name in names:
                await (it.load(name, "9") if name in busy else it.unload(name))
            await it.until_specs(low=[name for name in names if name not in busy], high=sorted(busy))
        assert running.metric("agent_scheduler_sharding_writes_total", result="updated") >= 12
