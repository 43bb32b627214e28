"""Measures what Volcano Jobs cost from their creation to their end: CPU of the controllers per job, and writes per pod.

   python -m bench.jobs [--jobs 5000 --pods 10 --nodes 500 --rate 50 --live 2]

An embedded cluster with RBAC and simulated kubelets, controllers (job, podgroup, queue) and the batch scheduler, each a
process with the rights of an installed one. `--rate` jobs a second are created, each of `--pods` pods that are bound
together, run for `--live` seconds and succeed; the run ends when all jobs are Completed. CPU is that of the processes,
from the kernel; writes are counted in the API server's audit log, for all clients with their own rights: simulated
kubelets have none, and the load is an administrator.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvloop
import yaml

from agent_scheduler.objects.batch import QUEUES, queue_path
from agent_scheduler.objects.job import JOB_VERSION, JOBS, jobs
from bench.demo.job_story import KINDS
from bench.harness.embedded import cluster, component, configuration, scheduler
from bench.harness.install import CONTROLLERS, NAMESPACE, SCHEDULER, kubeconfig_of
from bench.harness.manifest_files import manifest_file
from bench.harness.manifests import RUN_SECONDS, encode
from bench.harness.measure import usage
from bench.harness.model import Nodes, Tuning
from bench.harness.processes import Child, ProcessError
from bench.harness.requests import ask, create_all, retry
from bench.harness.site import CRDS, until_served
from bench.tables import table
from kube_client.transport import Transport

#: Verbs that write.
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
#: Seconds without a completed job after which a run is given up.
_PATIENCE = 120.0
#: Seconds until the last writes are done.
_SETTLE = 3.0
#: Seconds between two checks of how many jobs have ended, each of which costs the API server a list.
_LOOK = 2.0


class _AuditEvent(msgspec.Struct):
    verb: str
    user: Mapping[str, Any] = {}
    objectRef: Mapping[str, str] = {}


class JobCost(NamedTuple):
    """The cost of a run.

    `cpu`: milliseconds per job, by process. `writes`: the total by writer and resource. `seconds` from the first job to
    the end of the last.
    """

    cpu: Mapping[str, float]
    writes: Mapping[tuple[str, str], int]
    seconds: float


def job(name: str, pods: int, live: float) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "registry.invalid/none:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    template = {
        "metadata": {"annotations": {RUN_SECONDS: str(live)}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    task = {"name": "worker", "replicas": pods, "minAvailable": pods, "template": template}
    return {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "volcano", "queue": "default", "minAvailable": pods, "tasks": [task]},
    }


async def _define(transport: Transport) -> None:
    definitions = [yaml.safe_load(manifest_file(name).read_text()) for name in KINDS]
    await create_all(transport, CRDS, map(encode, definitions))
    await until_served(transport, QUEUES)
    await until_served(transport, JOBS)


async def _completed(transport: Transport) -> int:
    """Return the number of completed jobs. Raises ProcessError for one that has ended otherwise."""
    found: Counter[str] = Counter()
    token = ""
    while True:
        page = json.loads(await ask(transport, "GET", f"{JOBS}?limit=1000&continue={token}"))
        for each in page["items"]:
            found[((each.get("status") or {}).get("state") or {}).get("phase", "")] += 1
        token = page["metadata"].get("continue", "")
        if not token:
            break
    if lost := found.keys() & {"Failed", "Aborted", "Terminated"}:
        raise ProcessError(f"jobs are {', '.join(sorted(lost))}: {dict(found)}")
    return found["Completed"]


async def _load(transport: Transport, options: argparse.Namespace) -> None:
    began = time.monotonic()
    collection = jobs("default")
    async with asyncio.TaskGroup() as sending:
        for number in range(options.jobs):
            await asyncio.sleep(max(0.0, began + number / options.rate - time.monotonic()))
            body = encode(job(f"job-{number:05d}", options.pods, options.live))
            sending.create_task(retry(transport, "POST", collection, body))


async def _ended(transport: Transport, count: int) -> None:
    """Wait until `count` jobs have ended. Raises ProcessError if none ends any longer."""
    seen, since = 0, time.monotonic()
    while (done := await _completed(transport)) < count:
        if done > seen:
            seen, since = done, time.monotonic()
        if time.monotonic() - since > _PATIENCE:
            raise ProcessError(f"{done} of {count} jobs are Completed, and none has been for {_PATIENCE:g} s")
        await asyncio.sleep(_LOOK)


def _cpu(process: Child) -> float:
    found = usage(process.pid)
    assert found is not None, f"the {process.name} runs"
    return found.cpu_seconds


def _written(log: Path, since: int) -> Iterator[tuple[str, str]]:
    """Yield the writer and the resource of each write."""
    prefix = f"system:serviceaccount:{NAMESPACE}:"
    names = {SCHEDULER.account: "scheduler", CONTROLLERS.account: "controllers"}
    decode = msgspec.json.Decoder(_AuditEvent).decode
    with log.open("rb") as file:
        file.seek(since)
        for line in file:
            event = decode(line)
            user = str(event.user.get("username", ""))
            if event.verb in _WRITES and user.startswith(prefix):
                what = "/".join(filter(None, (event.objectRef.get("resource", ""), event.objectRef.get("subresource"))))
                yield names[user.removeprefix(prefix)], f"{event.verb} {what}"


async def run(options: argparse.Namespace) -> JobCost:
    """Play the run. Raises ProcessError and RequestFailed."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        log = folder / "audit.log"
        secured = ("--authorization-mode", "RBAC", "--no-tls", "--audit-log-path", str(log))
        server, transport = await stack.enter_async_context(
            cluster(Nodes(count=options.nodes), folder=folder, arguments=secured)
        )
        await _define(transport)
        admin = folder / "kubeconfig"
        own = await kubeconfig_of(transport, admin, CONTROLLERS)
        flags = (
            *("--enable", "job,podgroup,queue", "--kubeconfig", str(own), "--log-level", "warning"),
            # The role allows leases only there.
            *("--leader-elect-resource-namespace", NAMESPACE),
        )
        controllers, _ = await stack.enter_async_context(
            component("controllers", flags, folder=folder, name="controllers")
        )
        await until_served(transport, queue_path("default"))
        file = folder / "scheduler.json"
        file.write_text(json.dumps(configuration(Tuning(batch={}), "agent-scheduler")))
        own = await kubeconfig_of(transport, admin, SCHEDULER)
        batch, _ = await stack.enter_async_context(
            scheduler(("--kubeconfig", str(own), "--config", str(file)), folder=folder)
        )
        processes = {"controllers": controllers, "scheduler": batch, "API server and kubelets": server}
        await asyncio.sleep(_SETTLE)
        before, size = {name: _cpu(each) for name, each in processes.items()}, log.stat().st_size
        began = time.monotonic()
        await _load(transport, options)
        await _ended(transport, options.jobs)
        seconds = time.monotonic() - began
        await asyncio.sleep(_SETTLE)
        cpu = {name: 1000 * (_cpu(each) - before[name]) / options.jobs for name, each in processes.items()}
        return JobCost(cpu, Counter(_written(log, size)), seconds)


def report(cost: JobCost, options: argparse.Namespace) -> str:
    pods = options.jobs * options.pods
    of_cpu = [(name, f"{ms:.3g}", f"{ms / options.pods:.3g}") for name, ms in cost.cpu.items()]
    of_writes = [
        (f"{who}: {what}", f"{count:,}", f"{count / pods:.3g}") for (who, what), count in sorted(cost.writes.items())
    ]
    total = sum(cost.writes.values())
    of_writes.append(("all", f"{total:,}", f"{total / pods:.3g}"))
    return "\n\n".join(
        (
            f"{options.jobs:,} jobs of {options.pods} pods on {options.nodes:,} nodes, {options.rate:g} jobs/s, "
            f"pods run for {options.live:g} s: {cost.seconds:.0f} s",
            table(("CPU", "ms per job", "ms per pod"), of_cpu),
            table(("writes", "total", "per pod"), of_writes),
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=10, help="of each job")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50.0, help="jobs per second")
    parser.add_argument("--live", type=float, default=2.0, help="seconds that each pod runs")
    options = parser.parse_args()
    try:
        cost = uvloop.run(run(options))
    except ProcessError as error:
        print(f"python -m bench.jobs: {error}", file=sys.stderr)
        return 1
    print(report(cost, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
