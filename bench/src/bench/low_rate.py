"""Measures what a pod costs the scheduler at a low rate: CPU over TLS, and the cost of idle seconds.

   python -m bench.low_rate [--rate 200 --seconds 10 --nodes 1000 --runs 5] [--no-tls] [--python PATH ...]

Pods are created evenly, and each is bound and reported. CPU is that of the scheduler's process, from the kernel;
before, nothing happens for the same time, and that cost per second is printed separately and included. With several
`--python` the programs installed for these interpreters run alternately, to compare two versions on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.harness.arrivals import Even
from bench.harness.embedded import cluster
from bench.harness.load import Load
from bench.harness.measure import usage
from bench.harness.model import Batch, Case, Nodes
from bench.harness.processes import child, free_port
from bench.harness.requests import NOW, answers, ask
from bench.harness.run import until
from bench.harness.watching import FreeCapacity, Observer, Track
from bench.tables import spread, table
from kube_client.http1 import Http1Transport
from kube_client.transport import Endpoint, Transport

PODS = "/api/v1/namespaces/default/pods"
_PATIENCE = 60.0


class IdleCost(NamedTuple):
    """CPU of the scheduler: milliseconds per pod, and milliseconds per idle second."""

    pod: float
    idle: float


async def run(python: str, transport: Transport, *, folder: Path, rate: float, seconds: float) -> IdleCost:
    """Play one run on a cluster that has its nodes. Raises ProcessError, RequestFailed, TimeoutError."""
    port = free_port()
    probe = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"), pool_size=1)
    command = [
        *("run", "--kubeconfig", str(folder / "kubeconfig"), "--port", str(port)),
        *("--log-level", "warning", "--leader-elect=false"),
    ]
    log = folder / "scheduler.log"
    async with child("scheduler", command, log=log, grace=20.0, python=python) as process:
        await process.ready(lambda: answers(probe), seconds=_PATIENCE)
        await probe.close()
        await bind(transport, "first", 20, rate)
        await asyncio.sleep(1)
        before = cpu(process.pid)
        await asyncio.sleep(seconds)
        idle = (cpu(process.pid) - before) / seconds
        before = cpu(process.pid)
        await bind(transport, "pod", round(rate * seconds), rate)
        # The events of the last pods are written after their binds.
        await asyncio.sleep(0.5)
        spent = cpu(process.pid) - before
    await ask(transport, "DELETE", PODS, body=NOW)
    return IdleCost(1000 * spent / round(rate * seconds), 1000 * idle)


async def bind(transport: Transport, name: str, count: int, rate: float) -> None:
    """Create `rate` pods a second, and return once all are bound."""
    track = Track(Batch(name=name, count=count, arrival=Even(rate)))
    observer = Observer(transport, "default", [track], FreeCapacity({}))
    watching = asyncio.create_task(observer.run())
    try:
        await observer.ready.wait()
        await Load(transport, namespace="default", track=track, scheduler_name="agent-scheduler").run()
        async with asyncio.timeout(_PATIENCE):
            await until(lambda: track.bound_count == count, tick=0.2)
    finally:
        watching.cancel()


def cpu(pid: int) -> float:
    found = usage(pid)
    assert found is not None, "the scheduler runs"
    return found.cpu_seconds


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tls", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    options = parser.parse_args()
    costs: dict[str, list[IdleCost]] = {python: [] for python in options.python}
    case = Case(name="low rate", nodes=Nodes(count=options.nodes), load=Batch(name="pods", count=1))
    arguments = ("--no-kubelets", "--tls" if options.tls else "--no-tls")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        async with cluster(case.nodes, folder=folder, arguments=arguments) as (_, transport):
            for _ in range(options.runs):
                for python, found in costs.items():
                    found.append(
                        await run(python, transport, folder=folder, rate=options.rate, seconds=options.seconds)
                    )
    rows = [(python, *map(spread, zip(*found, strict=True))) for python, found in costs.items()]
    print(table(("program", "CPU ms per pod", "CPU ms per second, idle"), rows))


if __name__ == "__main__":
    uvloop.run(main())
