"""How long a start takes: from a process's start to its first bind, and to the end of a command that has little to do.

    python -m bench.startup [--nodes 1000 --bound 4000 --pending 1000 --runs 5] [--python PATH ...]

The cluster has its nodes and pods before the scheduler starts; some pods are on nodes, the others wait for it. A watch
of this process shows the first bind and the last. CPU is that of the scheduler's process, from the kernel, when the
first bind is seen. After each run the scheduler ends and its pods are made anew. With several `--python` the programs
installed for these interpreters are started in turn, on the same cluster, so that two versions can be compared on a
machine that is busy.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from agent_scheduler.demo.asking import ask
from agent_scheduler.demo.measure import usage
from agent_scheduler.demo.processes import ProcessError, free_port
from agent_scheduler.kube.transport import Transport
from bench.scenarios import manifests
from bench.scenarios.embedded import embedded
from bench.scenarios.load import NOW, create_all, for_each, insist
from bench.scenarios.model import Batch, Case, Nodes
from bench.tables import spread, table

PODS = "/api/v1/namespaces/default/pods"
#: Seconds until a run is given up.
_PATIENCE = 120.0
COMMANDS = (("--help",), ("--version",), ("run", "--help"), ("explain", "--help"), ("check", "--help"))
LEASE = {True: "with a lease", False: "without"}


class Start(NamedTuple):
    """Seconds since the process was started; `cpu` is of its own."""

    first: float
    cpu: float
    last: float


class Command(NamedTuple):
    """Seconds."""

    wall: float
    cpu: float


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    object: _Pod


class _List(msgspec.Struct):
    metadata: _Metadata


def _pods(prefix: str, count: int, nodes: list[str]) -> Iterator[bytes]:
    """Pods `PREFIX-000000` and following; on these nodes in turn, or on none."""
    for number in range(count):
        spec = {
            "schedulerName": "agent-scheduler",
            "containers": [
                {
                    "name": "agent",
                    "image": "agent",
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                }
            ],
        }
        if nodes:
            spec["nodeName"] = nodes[number % len(nodes)]
        metadata = {"name": f"{prefix}-{number:06d}", "labels": {"app": prefix}}
        yield manifests.encode({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


async def start(python: str, transport: Transport, *, folder: Path, pending: int, lease: bool) -> Start:
    """One start on a cluster whose nodes and bound pods are there. Raises ProcessError, TimeoutError."""
    await create_all(transport, PODS, _pods("pending", pending, []))
    # Only its metadata counts: the watch goes on from there.
    listed = msgspec.json.decode(await ask(transport, "GET", f"{PODS}?limit=1"), type=_List)
    path = f"{PODS}?watch=1&labelSelector=app%3Dpending&resourceVersion={listed.metadata.resource_version}"
    seen: dict[str, float] = {}
    decode = msgspec.json.Decoder(_Event).decode
    arguments = [
        *(
            "run",
            "--kubeconfig",
            str(folder / "kubeconfig"),
            "--port",
            str(free_port()),
            "--log-level",
            "warning",
        ),
        f"--leader-elect={str(lease).lower()}",
    ]
    cpu = 0.0
    async with asyncio.timeout(_PATIENCE), transport.stream(path, read_timeout=_PATIENCE) as batches:
        with (folder / "scheduler.log").open("wb") as log:
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                *(python, "-m", "agent_scheduler", *arguments), stdout=log, stderr=log, start_new_session=True
            )
        try:
            async for lines in batches:
                now = time.monotonic() - began
                for pod in (decode(line).object for line in lines):
                    if pod.spec.node_name:
                        seen.setdefault(pod.metadata.name, now)
                if seen and not cpu:
                    spent = usage(process.pid)
                    cpu = spent.cpu_seconds if spent is not None else 0.0
                if len(seen) >= pending:
                    break
        finally:
            process.terminate()
            code = await process.wait()
    if code or len(seen) < pending:
        said = (folder / "scheduler.log").read_text(errors="replace")[-2000:]
        raise ProcessError(
            f"the scheduler bound {len(seen)} of {pending} pods, ended with {code}, and said:\n{said}"
        )

    async def delete(name: str) -> None:
        await insist(transport, "DELETE", f"{PODS}/{name}", NOW, ignore=404)

    await for_each(seen, delete, parallel=32)
    return Start(min(seen.values()), cpu, max(seen.values()))


def command(python: str, arguments: tuple[str, ...]) -> Command:
    """One command to its end. Raises ProcessError if it fails."""
    began = time.monotonic()
    process = subprocess.Popen([python, "-m", "agent_scheduler", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise ProcessError(f"{' '.join(arguments)} ended with {process.returncode}")
    return Command(time.monotonic() - began, used.ru_utime + used.ru_stime)


async def starts(args: argparse.Namespace) -> dict[tuple[str, bool], list[Start]]:
    """By interpreter, and whether there is a lease to win."""
    case = Case(name="", nodes=Nodes(count=args.nodes), load=Batch(name="pending", count=args.pending))
    found: dict[tuple[str, bool], list[Start]] = {
        (python, lease): [] for lease in LEASE for python in args.python
    }
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        async with embedded(case, folder=folder) as site:
            nodes = msgspec.json.decode(await ask(site.transport, "GET", "/api/v1/nodes"))["items"]
            names = [node["metadata"]["name"] for node in nodes]
            await create_all(site.transport, PODS, _pods("bound", args.bound, names))
            for _ in range(args.runs):
                for (python, lease), runs in found.items():
                    runs.append(
                        await start(python, site.transport, folder=folder, pending=args.pending, lease=lease)
                    )
    return found


async def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--bound", type=int, default=4_000, help="pods that are on nodes")
    parser.add_argument("--pending", type=int, default=1_000, help="pods that wait for the scheduler")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--python",
        nargs="+",
        default=[sys.executable],
        help="interpreters that have agent-scheduler installed",
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
