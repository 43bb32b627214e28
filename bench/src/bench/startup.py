"""Measures how long a start takes: from a process's start to its first bind, and to the end of a short command.

   python -m bench.startup [--nodes 1000 --bound 4000 --pending 1000 --runs 5] [--python PATH ...]

The cluster has its nodes and pods before the scheduler starts; some pods are on nodes, the others wait for it. A watch
of this process observes the first bind and the last. CPU is that of the scheduler's process, from the kernel, at the
first bind. After each run the scheduler ends and its pods are recreated. With several `--python` the programs installed
for these interpreters start alternately on the same cluster, to compare two versions on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from bench.harness.embedded import cluster
from bench.harness.load import Load
from bench.harness.manifests import pod_maker
from bench.harness.measure import Usage, usage
from bench.harness.model import Batch, Case, Nodes, Template
from bench.harness.processes import Child, ProcessError, child, free_port
from bench.harness.requests import BULK, NOW, ask, create_all, for_each, retry
from bench.harness.watching import FreeCapacity, Observer, Track
from bench.tables import spread, table
from kube_client.transport import Transport

PODS = "/api/v1/namespaces/default/pods"
#: Seconds until a run is given up.
_PATIENCE = 120.0
COMMANDS = (("--help",), ("--version",), ("run", "--help"), ("explain", "--help"), ("check", "--help"))
LEASE = {True: "with a lease", False: "without"}


class Start(NamedTuple):
    """Seconds since the start of the process; `cpu` is its CPU time."""

    first: float
    cpu: float
    last: float


class Command(NamedTuple):
    """Seconds of wall time and CPU."""

    wall: float
    cpu: float


async def start(python: str, transport: Transport, *, folder: Path, pending: int, lease: bool) -> Start:
    """Measure one start on a cluster with its nodes and bound pods. Raises ProcessError, TimeoutError."""
    track = Track(Batch(name="pending", count=pending))
    await Load(transport, namespace="default", track=track, scheduler_name="agent-scheduler").run()
    observer = Observer(transport, "default", [track], FreeCapacity({}))
    spent: list[Usage | None] = []
    scheduler: list[Child] = []
    observer.on_bound = lambda *_: None if spent else spent.append(usage(scheduler[0].pid))
    arguments = [
        *("run", "--kubeconfig", str(folder / "kubeconfig"), "--port", str(free_port())),
        *("--log-level", "warning", f"--leader-elect={str(lease).lower()}"),
    ]
    watching = asyncio.create_task(observer.run())
    try:
        await observer.ready.wait()
        began = time.monotonic()
        async with (
            asyncio.timeout(_PATIENCE),
            child("scheduler", arguments, log=folder / "scheduler.log", grace=20.0, python=python) as process,
        ):
            scheduler.append(process)
            while track.bound_count < pending:
                process.check()
                await asyncio.sleep(0.01)
    finally:
        watching.cancel()
    await for_each(
        map(track.name, range(pending)),
        lambda name: retry(transport, "DELETE", f"{PODS}/{name}", NOW, ignore=404),
        parallel=BULK,
    )
    (used,) = spent
    return Start(min(track.bound) - began, used.cpu_seconds if used else 0.0, max(track.bound) - began)


def command(python: str, arguments: tuple[str, ...]) -> Command:
    """Run one command to its end. Raises ProcessError if it fails."""
    began = time.monotonic()
    process = subprocess.Popen([python, "-m", "agent_scheduler", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise ProcessError(f"{' '.join(arguments)} ended with {process.returncode}")
    return Command(time.monotonic() - began, used.ru_utime + used.ru_stime)


async def starts(args: argparse.Namespace) -> dict[tuple[str, bool], list[Start]]:
    """Measure all starts, by interpreter, and by whether there is a lease to acquire."""
    case = Case(name="", nodes=Nodes(count=args.nodes), load=Batch(name="pending", count=args.pending))
    found: dict[tuple[str, bool], list[Start]] = {(python, lease): [] for lease in LEASE for python in args.python}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        async with cluster(case.nodes, folder=folder, arguments=("--no-kubelets",)) as (_, transport):
            nodes = msgspec.json.decode(await ask(transport, "GET", "/api/v1/nodes"))["items"]
            makers = [
                pod_maker(Template(spec={"nodeName": node["metadata"]["name"]}), scheduler_name="agent-scheduler")
                for node in nodes
            ]
            bound = (makers[number % len(makers)](f"bound-{number:06d}") for number in range(args.bound))
            await create_all(transport, PODS, bound)
            for _ in range(args.runs):
                for (python, lease), runs in found.items():
                    runs.append(await start(python, transport, folder=folder, pending=args.pending, lease=lease))
    return found


async def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--bound", type=int, default=4_000, help="pods that are on nodes")
    parser.add_argument("--pending", type=int, default=1_000, help="pods that wait for the scheduler")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--python", nargs="+", default=[sys.executable], help="interpreters that have agent-scheduler installed"
    )
    args = parser.parse_args(argv)
    several = len(args.python) > 1
    commands: dict[tuple[str, tuple[str, ...]], list[Command]] = {
        (python, arguments): [] for arguments in COMMANDS for python in args.python
    }
    for _ in range(args.runs):
        for (python, arguments), took in commands.items():
            took.append(command(python, arguments))
    found = await starts(args)
    print(
        f"{args.nodes:,} nodes, {args.bound:,} bound and {args.pending:,} pending pods; "
        f"medians of {args.runs} runs (least to most)\n"
    )
    rows = [
        (_named(LEASE[lease], python, several), *map(spread, zip(*runs, strict=True)))
        for (python, lease), runs in found.items()
    ]
    print(table(("`run`", "first bind, s", "CPU until then, s", "last bind, s"), rows))
    rows = [
        (_named(f"`{' '.join(arguments)}`", python, several), *map(spread, zip(*took, strict=True)))
        for (python, arguments), took in commands.items()
    ]
    print("\n" + table(("command", "s", "CPU s"), rows))
    return 0


def _named(what: str, python: str, several: bool) -> str:
    return f"{what}, {python}" if several else what


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
