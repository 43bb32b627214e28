"""Several schedulers on one cluster: how many pods they bind together, and what they do to one another.

    python -m bench.shards [--schedulers 1 2 4 --modes none soft hard --pods 16000 --nodes 400 --runs 3]

Every scheduler is a process with pods of its own, equally many, and, but for the mode `none`, a NodeShard with an equal
part of the nodes. All pods are there and all schedulers have seen them before the first may bind: each waits for a
lease that is free at one moment for all. The clock runs from the first bind to the last. The pods take nine tenths of
the cluster, and are packed, so that without shards all schedulers want the same nodes; the API server checks no
capacity, and what is over a node's room a kubelet would refuse. CPU is read from the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
import yaml

from agent_scheduler.demo.asking import ask
from agent_scheduler.demo.measure import Exposition, usage
from agent_scheduler.demo.processes import Child, child, free_port
from agent_scheduler.kube.errors import RequestFailed
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.patch import MERGE
from agent_scheduler.kube.transport import Endpoint, Transport
from agent_scheduler.objects.shard import NODE_SHARDS
from bench.scenarios.embedded import embedded
from bench.scenarios.model import Batch, Case, Nodes
from bench.tables import spread, table

PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CRD = Path(__file__).resolve().parent.parent / "config/crd/shard.volcano.sh_nodeshards.yaml"

#: CPUs of a node, and how many pods fill nine tenths of one.
_NODE_CPU = 40
_PODS_A_NODE = 40
_POD_CPU = "900m"
#: Pods that a node has room for.
_ROOM = _NODE_CPU * 1000 // 900


class Run(NamedTuple):
    """CPU milliseconds are a pod's; `_HEADER` names the fields for people."""

    pods_per_second: float
    cpu_ms: float
    busiest_ms: float
    server_cpu_ms: float
    conflicts: float
    outside: float
    over: float


_HEADER = (
    "pods/s",
    "schedulers' CPU ms a pod",
    "the busiest one's CPU ms a pod of its own",
    "API server's CPU ms a pod",
    "conflicts within schedulers",
    "pods outside their shard",
    "pods over a node's room",
)


class _Scheduler(NamedTuple):
    name: str
    process: Child
    metrics: Transport


async def run(number: int, mode: str, *, pods: int, nodes: int) -> Run:
    case = Case(
        name="", nodes=Nodes(count=nodes, cpu=str(_NODE_CPU), pods=250), load=Batch(name="pod", count=pods)
    )
    with tempfile.TemporaryDirectory() as folder:
        async with embedded(case, folder=Path(folder)) as site, AsyncExitStack() as stack:
            transport, (server,) = site.transport, site.meter.server
            names = [f"s{each}" for each in range(number)]
            shards = await _share(transport, names) if mode != "none" else {}
            for name in names:
                await ask(transport, "POST", LEASES, body=_lease(name))
            await _create(transport, names, pods)
            schedulers = [
                await stack.enter_async_context(_started(name, mode, Path(folder))) for name in names
            ]
            await asyncio.gather(*(_ready(each) for each in schedulers))
            before, server_before = [_cpu(each.process.pid) for each in schedulers], _cpu(server)
            await asyncio.gather(*(_free(transport, name) for name in names))
            took, expositions = await _all_bound(schedulers, pods)
            spent = [_cpu(each.process.pid) - then for each, then in zip(schedulers, before, strict=True)]
            server_spent = _cpu(server) - server_before
            placed = await _placed(transport, pods)
    outside = sum(node not in shards[name] for name, node in placed) if shards else 0
    over = sum(max(0, count - _ROOM) for count in Counter(node for _, node in placed).values())
    return Run(
        pods_per_second=pods / took,
        cpu_ms=sum(spent) / pods * 1000,
        busiest_ms=max(spent) / (pods / number) * 1000,
        server_cpu_ms=server_spent / pods * 1000,
        conflicts=sum(each.total("agent_scheduler_conflicts_total") or 0 for each in expositions),
        outside=outside,
        over=over,
    )


async def _share(transport: Transport, names: Sequence[str]) -> dict[str, set[str]]:
    """A shard of equal size for each, by name."""
    await ask(transport, "POST", CRDS, body=json.dumps(yaml.safe_load(_CRD.read_text())).encode())
    listed = json.loads(await ask(transport, "GET", "/api/v1/nodes"))["items"]
    nodes = sorted(node["metadata"]["name"] for node in listed)
    shards = {name: nodes[place :: len(names)] for place, name in enumerate(names)}
    for name, desired in shards.items():
        body = {
            "apiVersion": "shard.volcano.sh/v1alpha1",
            "kind": "NodeShard",
            "metadata": {"name": name},
            "spec": {"nodesDesired": desired},
        }
        await ask(transport, "POST", NODE_SHARDS, body=json.dumps(body).encode())
    return {name: set(desired) for name, desired in shards.items()}


def _lease(name: str) -> bytes:
    """One that is held by nobody who would ever renew it."""
    spec = {"holderIdentity": "bench", "leaseDurationSeconds": 3600}
    return json.dumps({"metadata": {"name": name, "namespace": "default"}, "spec": spec}).encode()


async def _free(transport: Transport, name: str) -> None:
    body = json.dumps({"spec": {"holderIdentity": ""}}).encode()
    answer = await transport.request("PATCH", f"{LEASES}/{name}", body=body, content_type=MERGE, timeout=10)
    if answer.status != 200:
        raise RuntimeError(f"lease {name}: {answer.status}")


async def _create(transport: Transport, names: Sequence[str], pods: int) -> None:
    numbers = iter(range(pods))

    async def sender() -> None:
        for number in numbers:
            container = {
                "name": "agent",
                "image": "agent",
                "resources": {"requests": {"cpu": _POD_CPU, "memory": "128Mi"}},
            }
            body = {
                "metadata": {"name": f"pod-{number:06d}"},
                "spec": {"schedulerName": names[number % len(names)], "containers": [container]},
            }
            await ask(transport, "POST", PODS, body=json.dumps(body).encode())

    async with asyncio.TaskGroup() as tasks:
        for _ in range(16):
            tasks.create_task(sender())


def _started(name: str, mode: str, folder: Path) -> Any:
    """The context of a scheduler's process; gives what is known of it."""
    port = free_port()
    config = {
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
    arguments = [
        "run",
        "--kubeconfig",
        str(folder / "kubeconfig"),
        "--config",
        str(file),
        "--port",
        str(port),
    ]
    return _Running(name, arguments, folder / f"{name}.log", port)


class _Running:
    def __init__(self, name: str, arguments: Sequence[str], log: Path, port: int) -> None:
        self._name = name
        self._child = child(name, arguments, log=log, grace=20.0)
        self._metrics = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"), pool_size=1)

    async def __aenter__(self) -> _Scheduler:
        return _Scheduler(self._name, await self._child.__aenter__(), self._metrics)

    async def __aexit__(self, *error: Any) -> None:
        await self._metrics.close()
        await self._child.__aexit__(*error)


async def _ready(scheduler: _Scheduler) -> None:
    async def probe() -> bool:
        try:
            await ask(scheduler.metrics, "GET", "/readyz")
        except RequestFailed:
            return False
        return True

    await scheduler.process.ready(probe, seconds=120)


async def _all_bound(schedulers: Sequence[_Scheduler], pods: int) -> tuple[float, list[Exposition]]:
    """Seconds from the first bind to the last, as their metrics tell, and these metrics then."""
    began: float | None = None
    ends = time.monotonic() + 600
    while time.monotonic() < ends:
        read = await asyncio.gather(*(ask(each.metrics, "GET", "/metrics") for each in schedulers))
        now = time.monotonic()
        found = [Exposition(body.decode()) for body in read]
        done = sum(
            each.by("scheduler_schedule_attempts_total", "result").get("scheduled", 0) for each in found
        )
        if done and began is None:
            began = now
        if done >= pods and began is not None:
            return now - began, found
        await asyncio.sleep(0.1 if began is None else 0.25)
    raise RuntimeError(f"only {done:g} of {pods} pods were bound in ten minutes")


async def _placed(transport: Transport, pods: int) -> list[tuple[str, str]]:
    """Scheduler and node of each pod, by the API's own objects."""
    items = json.loads(await ask(transport, "GET", "/api/v1/pods"))["items"]
    placed = [(pod["spec"]["schedulerName"], pod["spec"].get("nodeName")) for pod in items]
    if len(placed) != pods or not all(node for _, node in placed):
        raise RuntimeError(f"{len(placed)} pods, {sum(not node for _, node in placed)} without a node")
    return placed


def _cpu(pid: int) -> float:
    found = usage(pid)
    if found is None:
        raise RuntimeError(f"process {pid} has ended")
    return found.cpu_seconds


async def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schedulers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument(
        "--modes", nargs="+", default=["none", "soft", "hard"], choices=["none", "soft", "hard"]
    )
    parser.add_argument("--pods", type=int, default=16_000)
    parser.add_argument("--nodes", type=int, help=f"default: one for {_PODS_A_NODE} pods")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args(argv)
    nodes = args.nodes or -(-args.pods // _PODS_A_NODE)
    variants = [(mode, number) for number in args.schedulers for mode in args.modes]
    results: dict[tuple[str, int], list[Run]] = {variant: [] for variant in variants}
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
