"""What scheduling a pod costs: scheduler CPU a pod, end to end over HTTP, with all its writes.

    python -m bench.scheduling [--pods 10000 --nodes 1000 --workers 1 8] [--runs 3] [--policy revalidate strict]
    python -m bench.scheduling --tight        # 2,000 pods over 10 nodes that exactly fit

Cluster and scheduler are processes of their own; the scheduler's CPU is read from the kernel between the first
create and the last bind that the API server has, until its events are written. A run counts only if every pod is
bound and the API's own objects show no node over its allocatable. Runs of the variants are interleaved, and the
median of each is printed with its range.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from agent_scheduler.demo.asking import ask
from agent_scheduler.demo.measure import Exposition, usage
from agent_scheduler.kube.errors import RequestFailed
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint, Transport
from bench.scenarios.embedded import embedded
from bench.scenarios.model import Batch, Case, Nodes
from bench.tables import spread, table

PODS = "/api/v1/namespaces/default/pods"


class Shape(NamedTuple):
    nodes: int
    node_cpu: str
    node_pods: int
    pods: int
    pod_cpu: str


class Run(NamedTuple):
    """CPU milliseconds are a pod's; `_HEADER` names the fields for people."""

    cpu_ms: float
    pods_per_second: float
    conflicts: float
    urgent: float
    server_cpu_ms: float
    rss_mb: float


_HEADER = ("CPU ms a pod", "pods/s", "conflicts", "urgent retries", "server's CPU ms a pod", "scheduler's MB")


@asynccontextmanager
async def plane(
    shape: Shape,
    *,
    workers: int,
    policy: str,
    cluster_args: Sequence[str] = (),
    scheduler_args: Sequence[str] = (),
    all_events: bool = True,
) -> AsyncIterator[tuple[Transport, int, int, int]]:
    """A cluster without kubelets and a scheduler beside it: a way to it, the two PIDs, the scheduler's port.

    `all_events`: events have no limit; without, the limit that they have by default.
    """
    config = {
        "apiVersion": "agent-scheduler/v1",
        "kind": "SchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "conflictPolicy": policy,
        "workerCount": workers,
        **({"events": {"qps": 0}} if all_events else {}),
    }
    nodes = Nodes(count=shape.nodes, cpu=shape.node_cpu, pods=shape.node_pods)
    case = Case(name="", nodes=nodes, load=Batch(name="pod", count=shape.pods))
    with tempfile.TemporaryDirectory() as folder:
        async with embedded(
            case,
            folder=Path(folder),
            config=config,
            cluster_arguments=cluster_args,
            scheduler_arguments=scheduler_args,
        ) as site:
            await site.start_scheduler()
            (cluster,), (scheduler,) = site.meter.server, site.meter.scheduler
            yield site.transport, cluster, scheduler, site.port


async def run(shape: Shape, *, workers: int, policy: str) -> Run:
    async with plane(shape, workers=workers, policy=policy) as (transport, cluster, scheduler, port):
        before, server_before = usage(scheduler), usage(cluster)
        assert before is not None and server_before is not None
        began = time.monotonic()
        await create(transport, shape)
        metrics = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"), pool_size=1)
        try:
            exposition = await settled(metrics, shape.pods)
        finally:
            await metrics.close()
        took = time.monotonic() - began
        after, server_after = usage(scheduler), usage(cluster)
        assert after is not None and server_after is not None
        await audit(transport, shape)
        return Run(
            cpu_ms=(after.cpu_seconds - before.cpu_seconds) / shape.pods * 1000,
            pods_per_second=shape.pods / took,
            conflicts=exposition.total("agent_scheduler_conflicts_total") or 0,
            urgent=exposition.by("agent_scheduler_urgent_retries_total", "result").get("granted", 0),
            server_cpu_ms=(server_after.cpu_seconds - server_before.cpu_seconds) / shape.pods * 1000,
            rss_mb=after.rss / 2**20,
        )


async def create(transport: Transport, shape: Shape, spec: Mapping[str, object] | None = None) -> None:
    """All pods of the shape, 16 at a time. `spec` is what they have beside a container."""
    numbers = iter(range(shape.pods))

    async def sender() -> None:
        for number in numbers:
            container = {
                "name": "agent",
                "image": "agent",
                "resources": {"requests": {"cpu": shape.pod_cpu, "memory": "128Mi"}},
            }
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"pod-{number:06d}"},
                "spec": {"schedulerName": "agent-scheduler", "containers": [container], **(spec or {})},
            }
            await ask(transport, "POST", PODS, body=json.dumps(pod).encode())

    async with asyncio.TaskGroup() as tasks:
        for _ in range(16):
            tasks.create_task(sender())


async def settled(transport: Transport, pods: int, *, all_events: bool = True) -> Exposition:
    """Waits until the scheduler has bound every pod and, with `all_events`, written every event; its metrics then.

    Reading them costs the scheduler what it costs to place several pods, so this looks seldom at first.
    """
    began = time.monotonic()
    done = 0.0
    for _ in range(6000):
        try:
            exposition = Exposition((await ask(transport, "GET", "/metrics")).decode())
        except RequestFailed:
            # It is too busy to answer: the loop that serves them is the one that is measured.
            continue
        done = exposition.by("scheduler_schedule_attempts_total", "result").get("scheduled", 0)
        if all_events:
            done = min(done, sum(exposition.by("agent_scheduler_events_total", "result").values()))
        if done >= pods:
            return exposition
        left = (pods - done) * (time.monotonic() - began) / done if done else 0.2
        await asyncio.sleep(min(5.0, max(0.1, left / 2)))
    raise RuntimeError(f"only {done:g} of {pods} pods were scheduled in the end")


async def audit(transport: Transport, shape: Shape) -> None:
    """By the API's own objects: all bound, none over."""
    body = json.loads(await ask(transport, "GET", "/api/v1/pods"))
    nodes: dict[str, int] = {}
    for pod in body["items"]:
        name = pod["spec"].get("nodeName")
        if not name:
            raise RuntimeError(f"{pod['metadata']['name']} is not bound")
        nodes[name] = nodes.get(name, 0) + 1
    room = min(shape.node_pods, int(shape.node_cpu) * 1000 // int(shape.pod_cpu.rstrip("m")))
    over = {name: count for name, count in nodes.items() if count > room}
    if over or len(body["items"]) != shape.pods:
        raise RuntimeError(f"{len(body['items'])} pods; over: {over}")


async def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--policy", nargs="+", default=["revalidate"], choices=["revalidate", "strict"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tight", action="store_true", help="2,000 pods over 10 nodes that exactly fit")
    args = parser.parse_args(argv)
    shape = Shape(args.nodes, "32", 110, args.pods, "100m")
    if args.tight:
        shape = Shape(10, "20", 250, 2_000, "100m")
        args.workers, args.policy = [8], ["revalidate", "strict"]
    variants = [(policy, workers) for policy in args.policy for workers in args.workers]
    results: dict[tuple[str, int], list[Run]] = {variant: [] for variant in variants}
    for _ in range(args.runs):
        for policy, workers in variants:
            results[policy, workers].append(await run(shape, workers=workers, policy=policy))
    print(f"{shape.pods:,} pods over {shape.nodes:,} nodes; medians of {args.runs} runs (least to most)\n")
    rows = [(*variant, *map(spread, zip(*runs, strict=True))) for variant, runs in results.items()]
    print(table(("policy", "workers", *_HEADER), rows))
    return 0


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
