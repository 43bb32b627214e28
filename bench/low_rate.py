"""What a pod costs the scheduler when few come: CPU at so many pods a second, over TLS, beside what it costs to wait.

    python -m bench.low_rate [--rate 200 --seconds 10 --nodes 1000 --runs 5] [--no-tls] [--python PATH ...]

Pods are created evenly, each is bound and told of, and none is deleted. The CPU is that of the scheduler's process,
from the kernel; as long before nothing happens, and what that costs a second is shown apart and counted in. With
several `--python` the programs installed for these interpreters run in turn, so that two versions can be compared on a
machine that is busy.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from agent_scheduler.bench.embedded import cluster
from agent_scheduler.bench.manifests import pod_maker
from agent_scheduler.bench.measure import usage
from agent_scheduler.bench.model import Batch, Case, Nodes, Template
from agent_scheduler.bench.processes import child, free_port
from agent_scheduler.bench.requests import NOW, answers, ask
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint, Transport
from bench.tables import spread, table

PODS = "/api/v1/namespaces/default/pods"
_PATIENCE = 60.0


class Cost(NamedTuple):
    """CPU of the scheduler: milliseconds a pod, and milliseconds a second in which nothing happens."""

    pod: float
    idle: float


class _Pods(msgspec.Struct):
    class Pod(msgspec.Struct):
        class Spec(msgspec.Struct):
            nodeName: str = ""

        spec: Spec

    items: list[Pod]


async def run(python: str, transport: Transport, *, folder: Path, rate: float, seconds: float) -> Cost:
    """One run on a cluster that has its nodes. Raises ProcessError, RequestFailed, TimeoutError."""
    port = free_port()
    probe = Http1Transport(Endpoint(f"http://127.0.0.1:{port}"), pool_size=1)
    command = [
        *("run", "--kubeconfig", str(folder / "kubeconfig"), "--port", str(port)),
        *("--log-level", "warning", "--leader-elect=false"),
    ]
    make = pod_maker(Template(), scheduler_name="agent-scheduler")
    async with child(
        "scheduler", command, log=folder / "scheduler.log", grace=20.0, python=python
    ) as process:
        await process.ready(lambda: answers(probe), seconds=_PATIENCE)
        await probe.close()
        await _create(transport, make, "first", 20, rate)
        await asyncio.sleep(1)
        before = _cpu(process.pid)
        await asyncio.sleep(seconds)
        idle = (_cpu(process.pid) - before) / seconds
        before = _cpu(process.pid)
        await _create(transport, make, "pod", round(rate * seconds), rate)
        async with asyncio.timeout(_PATIENCE):
            while any(not pod.spec.nodeName for pod in await _pods(transport)):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        # The events of the last ones are written behind their binds.
        await asyncio.sleep(0.5)
        spent = _cpu(process.pid) - before
    await ask(transport, "DELETE", PODS, body=NOW)
    return Cost(1000 * spent / round(rate * seconds), 1000 * idle)


async def _create(transport: Transport, make: object, name: str, count: int, rate: float) -> None:
    assert callable(make)
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            tasks.create_task(ask(transport, "POST", PODS, body=make(f"{name}-{number}")))


async def _pods(transport: Transport) -> list[_Pods.Pod]:
    return msgspec.json.decode(await ask(transport, "GET", PODS), type=_Pods).items


def _cpu(pid: int) -> float:
    found = usage(pid)
    assert found is not None, "the scheduler runs"
    return found.cpu_seconds


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tls", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    options = parser.parse_args()
    costs: dict[str, list[Cost]] = {python: [] for python in options.python}
    case = Case(name="low rate", nodes=Nodes(count=options.nodes), load=Batch(name="pods", count=1))
    with tempfile.TemporaryDirectory(prefix="agent-scheduler-bench-") as name:
        folder = Path(name)
        arguments = ("--no-kubelets", "--tls" if options.tls else "--no-tls")
        async with cluster(case, folder=folder, arguments=arguments) as (_, transport):
            for _ in range(options.runs):
                for python, found in costs.items():
                    found.append(
                        await run(
                            python, transport, folder=folder, rate=options.rate, seconds=options.seconds
                        )
                    )
    print(
        table(
            ["program", "CPU ms a pod", "CPU ms a second, idle"],
            [
                [python, spread([each.pod for each in found]), spread([each.idle for each in found])]
                for python, found in costs.items()
            ],
        )
    )


if __name__ == "__main__":
    uvloop.run(main())
