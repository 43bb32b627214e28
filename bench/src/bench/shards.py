"""Measures several schedulers on one cluster: their common rate of binds, and their effects on one another.

   python -m bench.shards [--schedulers 1 2 4 --modes none soft hard --pods 16000 --nodes 400 --runs 3]

Every scheduler is a process with an equal number of pods of its own and, except in mode `none`, a NodeShard with an
equal part of the nodes. All pods exist and all schedulers have observed them before the first bind: each waits for a
lease, and all leases are released at the same moment. The rate is from the first bind to the last. The pods take nine
tenths of the cluster, and are packed, so without shards all schedulers choose the same nodes; the API server checks no
capacity, and a kubelet would reject the pods beyond a node's capacity. CPU is read from the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import uvloop
import yaml

from agent_scheduler.objects.shard import NODE_SHARDS
from bench.harness.audit import fetch
from bench.harness.embedded import cluster, scheduler
from bench.harness.load import Load
from bench.harness.manifest_files import manifest_file
from bench.harness.manifests import encode
from bench.harness.measure import Exposition, usage
from bench.harness.model import Batch, Case, Nodes, Template
from bench.harness.requests import ask
from bench.harness.result import rate
from bench.harness.run import until
from bench.harness.watching import FreeCapacity, Observer, Track
from bench.tables import spread, table
from kube_client.patch import MERGE
from kube_client.transport import Transport

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: The path of the CRD in the manifests.
CRD = "crd/shard.volcano.sh_nodeshards.yaml"

#: CPUs of a node, and how many pods fill nine tenths of one.
_NODE_CPU = 40
_PODS_A_NODE = 40
_POD_CPU = "900m"
#: Number of pods that a node has capacity for.
_ROOM = _NODE_CPU * 1000 // 900


class ShardsRun(NamedTuple):
    """The result of a run. CPU milliseconds are per pod; `_HEADER` has the names of the fields for readers."""

    pods_per_second: float
    cpu_ms: float
    busiest_ms: float
    server_cpu_ms: float
    conflicts: float
    outside: float
    over: float


_HEADER = (
    "pods/s",
    "schedulers' CPU ms per pod",
    "the busiest one's CPU ms per own pod",
    "API server's CPU ms per pod",
    "conflicts within schedulers",
    "pods outside their shard",
    "pods beyond a node's capacity",
)


async def run(number: int, mode: str, *, pods: int, nodes: int) -> ShardsRun:
    names = [f"s{each}" for each in range(number)]
    pod = Template(requests={"cpu": _POD_CPU, "memory": "128Mi"})
    tracks = [Track(Batch(name=name, count=pods // number, templates=(pod,))) for name in names]
    case = Case(name="", nodes=Nodes(count=nodes, cpu=str(_NODE_CPU), pods=250), load=tracks[0].batch)
    with TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        async with AsyncExitStack() as stack:
            server, transport = await stack.enter_async_context(
                cluster(case.nodes, folder=folder, arguments=("--no-kubelets",))
            )
            shards = await _share(transport, names) if mode != "none" else {}
            for name, track in zip(names, tracks, strict=True):
                await ask(transport, "POST", LEASES, body=_lease(name))
                await Load(transport, namespace="default", track=track, scheduler_name=name).run()
            started = [
                await stack.enter_async_context(scheduler(_arguments(name, mode, folder), folder=folder, name=name))
                for name in names
            ]
            processes = [server, *(process for process, _ in started)]
            observer = Observer(transport, "default", tracks, FreeCapacity({}))
            watching = asyncio.create_task(observer.run())
            await observer.ready.wait()
            before = [_cpu(process.pid) for process in processes]
            await asyncio.gather(*(_free(transport, name) for name in names))
            async with asyncio.timeout(600):
                await until(lambda: all(track.bound_count == track.batch.count for track in tracks))
            spent = [_cpu(process.pid) - then for process, then in zip(processes, before, strict=True)]
            watching.cancel()
            texts = [await ask(metrics, "GET", "/metrics") for _, metrics in started]
            placed = [
                (pod["spec"]["schedulerName"], pod["spec"]["nodeName"])
                for pod in await fetch(transport, "/api/v1/pods")
            ]
    each_node = Counter(node for _, node in placed)
    return ShardsRun(
        pods_per_second=rate([moment for track in tracks for moment in track.bound], since=None) or 0.0,
        cpu_ms=sum(spent[1:]) / pods * 1000,
        busiest_ms=max(spent[1:]) / (pods / number) * 1000,
        server_cpu_ms=spent[0] / pods * 1000,
        conflicts=sum(Exposition(text.decode()).total("agent_scheduler_conflicts_total") or 0 for text in texts),
        outside=sum(node not in shards[name] for name, node in placed) if shards else 0,
        over=sum(max(0, count - _ROOM) for count in each_node.values()),
    )


async def _share(transport: Transport, names: Sequence[str]) -> dict[str, set[str]]:
    """Create a shard of equal size for each scheduler; return the shards by name."""
    await ask(transport, "POST", CRDS, body=encode(yaml.safe_load(manifest_file(CRD).read_text())))
    nodes = sorted(node["metadata"]["name"] for node in await fetch(transport, "/api/v1/nodes"))
    shards = {name: nodes[place :: len(names)] for place, name in enumerate(names)}
    for name, desired in shards.items():
        body = {
            "apiVersion": "shard.volcano.sh/v1alpha1",
            "kind": "NodeShard",
            "metadata": {"name": name},
            "spec": {"nodesDesired": desired},
        }
        await ask(transport, "POST", NODE_SHARDS, body=encode(body))
    return {name: set(desired) for name, desired in shards.items()}


def _lease(name: str) -> bytes:
    """Return a lease whose holder never renews it."""
    spec = {"holderIdentity": "bench", "leaseDurationSeconds": 3600}
    return encode({"metadata": {"name": name, "namespace": "default"}, "spec": spec})


async def _free(transport: Transport, name: str) -> None:
    body = encode({"spec": {"holderIdentity": ""}})
    answer = await transport.request("PATCH", f"{LEASES}/{name}", body=body, content_type=MERGE, timeout=10)
    if answer.status != 200:
        raise RuntimeError(f"lease {name}: {answer.status}")


def _arguments(name: str, mode: str, folder: Path) -> list[str]:
    """Return the arguments of a scheduler's command."""
    config: dict[str, Any] = {
        "apiVersion": "agent-scheduler/v1",
        "kind": "SchedulerConfiguration",
        "profiles": [{"schedulerName": name}],
        "events": {"qps": 0},
        "logging": {"level": "warning"},
        "sharding": {"mode": mode, **({"leaseNamespace": "default"} if mode != "none" else {})},
        "leaderElection": {
            "leaderElect": True,
            "resourceNamespace": "default",
            "leaseDuration": "60s",
            "renewDeadline": "40s",
            "retryPeriod": "100ms",
        },
    }
    file = folder / f"{name}.json"
    file.write_text(json.dumps(config))
    return ["--kubeconfig", str(folder / "kubeconfig"), "--config", str(file)]


def _cpu(pid: int) -> float:
    found = usage(pid)
    if found is None:
        raise RuntimeError(f"process {pid} has ended")
    return found.cpu_seconds


async def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedulers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--modes", nargs="+", default=["none", "soft", "hard"], choices=["none", "soft", "hard"])
    parser.add_argument("--pods", type=int, default=16_000)
    parser.add_argument("--nodes", type=int, help=f"default: one for {_PODS_A_NODE} pods")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args(argv)
    nodes = args.nodes or -(-args.pods // _PODS_A_NODE)
    variants = [(mode, number) for number in args.schedulers for mode in args.modes]
    results: dict[tuple[str, int], list[ShardsRun]] = {variant: [] for variant in variants}
    for _ in range(args.runs):
        for mode, number in variants:
            results[mode, number].append(await run(number, mode, pods=args.pods, nodes=nodes))
    print(f"{args.pods:,} pods over {nodes:,} nodes; medians of {args.runs} runs (least to most)\n")
    rows = [(mode, number, *map(spread, zip(*runs, strict=True))) for (mode, number), runs in results.items()]
    print(table(("mode", "schedulers", *_HEADER), rows))
    return 0


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
