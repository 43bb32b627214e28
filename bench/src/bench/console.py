"""Measures what the console costs a scheduler: CPU of its process with and without viewers, idle and under load.

   python -m bench.console [--viewers 5 --nodes 5000 --rate 200 --seconds 10]

Each viewer reads the stream over its own connection, as a page does. The scheduler computes changes once a second for
all of them. Both figures are of one run, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import uvloop

from bench.harness.embedded import cluster
from bench.harness.model import Batch, Case, Nodes
from bench.harness.processes import child, free_port
from bench.harness.requests import NOW, answers, ask
from bench.low_rate import PODS, bind, cpu
from bench.tables import table
from kube_client.http1 import Http1Transport
from kube_client.transport import Endpoint, Transport

_PATIENCE = 60.0


@asynccontextmanager
async def viewers(count: int, url: str) -> AsyncIterator[list[int]]:
    """Open this number of streams; yield the numbers of bytes that each has read."""
    read = [0] * count

    async def view(number: int, session: aiohttp.ClientSession) -> None:
        async with session.get(url) as answer:
            async for part in answer.content.iter_any():
                read[number] += len(part)

    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        viewing = [asyncio.create_task(view(number, session)) for number in range(count)]
        try:
            yield read
        finally:
            for task in viewing:
                task.cancel()
            await asyncio.gather(*viewing, return_exceptions=True)


async def idle(pid: int, seconds: float) -> float:
    """Return the percentage of a core that the process uses while nothing happens."""
    await asyncio.sleep(5)
    before = cpu(pid)
    await asyncio.sleep(seconds)
    return 100 * (cpu(pid) - before) / seconds


async def loaded(transport: Transport, pid: int, name: str, *, rate: float, seconds: float) -> float:
    """Return the percentage of a core that the process uses while it binds `rate` pods a second."""
    before, began = cpu(pid), asyncio.get_running_loop().time()
    await bind(transport, name, round(rate * seconds), rate)
    spent = 100 * (cpu(pid) - before) / (asyncio.get_running_loop().time() - began)
    await ask(transport, "DELETE", PODS, body=NOW)
    await asyncio.sleep(1)
    return spent


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    case = Case(name="console", nodes=Nodes(count=options.nodes), load=Batch(name="pods", count=1))
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        async with cluster(case.nodes, folder=folder, arguments=("--no-kubelets",)) as (_, transport):
            port = free_port()
            probe = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"), pool_size=1)
            command = [
                *("run", "--kubeconfig", str(folder / "kubeconfig"), "--port", str(port), "--console"),
                *("--log-level", "warning", "--leader-elect=false"),
            ]
            async with child("scheduler", command, log=folder / "scheduler.log", grace=20.0) as process:
                await process.ready(lambda: answers(probe), seconds=_PATIENCE)
                await probe.close()
                rate, seconds = options.rate, options.seconds
                # What is created once is created before the measurement.
                await loaded(transport, process.pid, "first", rate=rate, seconds=2)
                url, spent = (f"http://127.0.0.1:{port}/ui/stream", {0: [0.0, 0.0], options.viewers: [0.0, 0.0]})
                # Idle times first: after binds, further writes follow for a while.
                for count, costs in spent.items():
                    async with viewers(count, url) as read:
                        costs[0] = await idle(process.pid, seconds)
                        assert all(read), "every viewer has read"
                for count, costs in spent.items():
                    async with viewers(count, url):
                        costs[1] = await loaded(transport, process.pid, f"pod{count}", rate=rate, seconds=seconds)
    head = ("viewers", "CPU, % of a core, idle", f"CPU, % of a core, {options.rate:g} pods per second")
    rows = [(count, *(f"{cost:.2f}" for cost in costs)) for count, costs in spent.items()]
    print(table(head, rows))


if __name__ == "__main__":
    uvloop.run(main())
