"""Pods with claim templates: what narrowing the events of claims gives, beside all else that such pods cost.

    python -m bench.claims [--pods 5000 --nodes 500 --runs 3 --arrival burst stream]

The workload of KEP-6132 (scheduler_perf's SchedulingWithResourceClaimTemplate): every pod has a ResourceClaim of its
own, made from a template by the cluster's claim controller, allocated by the scheduler from the simulated driver's
devices, and written before the bind. In a `burst` all pods are there and wait when the first claim is made: the
template comes last, and the clock starts with it. In a `stream` claims are made while pods are still being created,
and creating them counts. Cluster and scheduler are processes of their own, over HTTP, the scheduler with its default
settings; runs with the gate SchedulerPreQueueingHints on and off alternate. A run counts only if every pod is bound,
with its claim on its node and reserved for it, no device is in two allocations, and nobody was rescued by the flush.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from statistics import median
from typing import NamedTuple

import uvloop

from agent_scheduler.demo.asking import ask
from agent_scheduler.demo.measure import Exposition, usage
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint, Transport
from bench.scheduling import Shape, create, plane, settled
from bench.tables import spread, table

RESOURCE = "/apis/resource.k8s.io/v1"
TEMPLATES = f"{RESOURCE}/namespaces/default/resourceclaimtemplates"
GATE = "SchedulerPreQueueingHints"


class Run(NamedTuple):
    """CPU milliseconds are a pod's; `_HEADER` names the fields for people."""

    pods_per_second: float
    cpu_ms: float
    server_cpu_ms: float
    hints: float
    rescued: float


_HEADER = (
    "pods/s",
    "scheduler's CPU ms a pod",
    "cluster's CPU ms a pod",
    "hint calls a pod",
    "rescued by the flush",
)


async def run(shape: Shape, *, gate: bool, burst: bool) -> Run:
    per_node = -(-shape.pods // shape.nodes)
    async with plane(
        shape,
        workers=1,
        policy="revalidate",
        cluster_args=("--devices-per-node", str(per_node)),
        scheduler_args=(f"--feature-gates={GATE}={str(gate).lower()}",),
        all_events=False,
    ) as (transport, cluster, scheduler, port):
        device_class = await _published(transport, shape)
        spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": device_class}]}
        if burst:
            await create(transport, shape, spec)
            await _all_wait(port, shape.pods)
        before, server_before = usage(scheduler), usage(cluster)
        assert before is not None and server_before is not None
        began = time.monotonic()
        await _add_template(transport, device_class)
        if not burst:
            await create(transport, shape, spec)
        metrics = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"), pool_size=1)
        try:
            exposition = await settled(metrics, shape.pods, all_events=False)
        finally:
            await metrics.close()
        took = time.monotonic() - began
        after, server_after = usage(scheduler), usage(cluster)
        assert after is not None and server_after is not None
        await audit(transport, shape)
        rescued = exposition.total("scheduler_pod_scheduled_after_flush_total") or 0
        if rescued:
            raise RuntimeError(f"{rescued:g} pods were rescued by the flush")
        return Run(
            pods_per_second=shape.pods / took,
            cpu_ms=(after.cpu_seconds - before.cpu_seconds) / shape.pods * 1000,
            server_cpu_ms=(server_after.cpu_seconds - server_before.cpu_seconds) / shape.pods * 1000,
            hints=(exposition.total("scheduler_queueing_hint_execution_duration_seconds_count") or 0)
            / shape.pods,
            rescued=rescued,
        )


async def _published(transport: Transport, shape: Shape) -> str:
    """Waits until all nodes have published their devices. Gives the name of their class."""
    while True:
        slices = json.loads(await ask(transport, "GET", f"{RESOURCE}/resourceslices"))["items"]
        if len(slices) >= shape.nodes:
            break
        await asyncio.sleep(0.1)
    classes = json.loads(await ask(transport, "GET", f"{RESOURCE}/deviceclasses"))["items"]
    name: str = classes[0]["metadata"]["name"]
    return name


async def _all_wait(port: int, pods: int) -> None:
    """Returns once all pods wait behind the gate for their claims."""
    metrics = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"), pool_size=1)
    try:
        while True:
            exposition = Exposition((await ask(metrics, "GET", "/metrics")).decode())
            if exposition.by("scheduler_pending_pods", "queue").get("gated", 0) >= pods:
                return
            await asyncio.sleep(0.5)
    finally:
        await metrics.close()


async def _add_template(transport: Transport, name: str) -> None:
    """Named after the class whose devices it asks for."""
    request = {"name": "gpu", "exactly": {"deviceClassName": name}}
    template = {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    await ask(transport, "POST", TEMPLATES, body=json.dumps(template).encode())


async def audit(transport: Transport, shape: Shape) -> None:
    """By the API's own objects: every pod where its claim is, and no device twice."""
    pods = json.loads(await ask(transport, "GET", "/api/v1/pods"))["items"]
    claims = {
        each["metadata"]["name"]: each
        for each in json.loads(await ask(transport, "GET", f"{RESOURCE}/resourceclaims"))["items"]
    }
    used: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        (made,) = pod["status"]["resourceClaimStatuses"]
        status = claims[made["resourceClaimName"]].get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
        reserved = [each["uid"] for each in status.get("reservedFor") or ()]
        if (
            not node
            or [result["pool"] for result in results] != [node]
            or reserved != [pod["metadata"]["uid"]]
        ):
            raise RuntimeError(f"{name} is on {node!r} with {results}, reserved for {reserved}")
        used.update((result["pool"], result["device"]) for result in results)
    if len(pods) != shape.pods or max(used.values()) > 1:
        raise RuntimeError(f"{len(pods)} pods; a device is used {max(used.values())} times")


async def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--gate", nargs="+", default=["on", "off"], choices=["on", "off"])
    parser.add_argument("--arrival", nargs="+", default=["burst", "stream"], choices=["burst", "stream"])
    args = parser.parse_args(argv)
    shape = Shape(args.nodes, "32", 110, args.pods, "100m")
    results: dict[tuple[str, str], list[Run]] = {
        (arrival, gate): [] for arrival in args.arrival for gate in args.gate
    }
    for _ in range(args.runs):
        for (arrival, gate), runs in results.items():
            runs.append(await run(shape, gate=gate == "on", burst=arrival == "burst"))
    print(
        f"{shape.pods:,} pods with a claim each over {shape.nodes:,} nodes; "
        f"medians of {args.runs} runs (least to most)\n"
    )
    rows = [(*variant, *map(spread, zip(*runs, strict=True))) for variant, runs in results.items()]
    print(table(("arrival", GATE, *_HEADER), rows))
    if len(args.gate) == 2:
        for arrival in args.arrival:
            on, off = (
                median(each.pods_per_second for each in results[arrival, gate]) for gate in ("on", "off")
            )
            print(f"\nIn a {arrival}, on binds {on / off:.2f} times as many pods a second as off.")
    return 0


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
