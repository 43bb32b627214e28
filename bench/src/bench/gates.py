"""Measures what the gate of a queue's capacity costs the scheduler, against the same pods without it in the same queue.

   python -m bench.gates [--rate 200 --seconds 10 --nodes 1000 --held 5000 --runs 5]

Alternately, with a scheduler for each: pods arrive evenly, without the gate and with it, as the webhook would add it;
first in a queue that has room, then in one that is full until all pods exist. Then, with the scheduler of the gated
pods, `--held` pods wait behind the gate of a full queue, and nothing happens. CPU is that of the scheduler's process,
from the kernel; its writes are counted in the API server's audit log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop
import yaml

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, QUEUE_NAME, QUEUES, queue_path
from bench.harness.arrivals import Arrival, Even
from bench.harness.embedded import cluster, configuration, scheduler
from bench.harness.load import Load
from bench.harness.manifest_files import manifest_file
from bench.harness.manifests import encode, queue
from bench.harness.measure import usage
from bench.harness.model import AS_ANSWERED, Batch, Nodes, Template, Tuning
from bench.harness.processes import Child
from bench.harness.requests import NOW, ask, create_all, retry
from bench.harness.run import until
from bench.harness.site import BATCH_KINDS, CRDS, until_served
from bench.harness.watching import FreeCapacity, Observer, Track
from bench.tables import spread, table
from kube_client.transport import Transport

PODS = "/api/v1/namespaces/default/pods"
OPEN, FULL = "open", "full"
_ROOM, _NONE = {"cpu": "1000000", "memory": "1000Ti"}, {"cpu": "1m", "memory": "1000Ti"}
_MERGE = "application/merge-patch+json"
_PATIENCE = 120.0
#: Seconds without any request after which all writes are considered done.
_SETTLE = 1.0
_HELD = re.compile(rb'agent_scheduler_queue_gated_pods\{standing="held"\} (\d+)')


class GateCost(NamedTuple):
    """The cost of one run, per pod: CPU milliseconds and writes, in a queue with room and in one that is full first."""

    cpu: float
    writes: float
    cpu_of_full: float
    writes_of_full: float


class Waiting(NamedTuple):
    """Milliseconds of the scheduler's CPU per idle second: without held pods, and with them."""

    without: float
    held: float


class _Verb(msgspec.Struct):
    verb: str
    objectRef: Mapping[str, str] = {}


class World:
    """A cluster with nodes and two queues, for schedulers that run one after another."""

    def __init__(self, transport: Transport, folder: Path) -> None:
        self.transport = transport
        self.folder = folder

    @property
    def log(self) -> Path:
        return self.folder / "audit.log"

    async def prepare(self) -> None:
        definitions = [yaml.safe_load(manifest_file(name).read_text()) for name in BATCH_KINDS]
        await create_all(self.transport, CRDS, map(encode, definitions))
        await until_served(self.transport, QUEUES)
        for name, capability in ((OPEN, _ROOM), (FULL, _NONE)):
            await retry(self.transport, "POST", QUEUES, encode(queue(name, {"capability": capability})))
            state = encode({"status": {"state": "Open"}})
            path = f"{queue_path(name)}/status"
            await retry(self.transport, "PATCH", path, state, content_type=_MERGE)

    async def limit(self, capability: Mapping[str, str]) -> None:
        """Set the capability of the queue that is full first."""
        body = encode({"spec": {"capability": capability}})
        await retry(self.transport, "PATCH", queue_path(FULL), body, content_type=_MERGE)

    def written(self, since: int) -> int:
        """Return the number of writes without those of the load, which creates and deletes pods."""
        with self.log.open("rb") as file:
            file.seek(since)
            asked = [msgspec.json.decode(line, type=_Verb) for line in file]
        return sum(
            each.verb in ("create", "update", "patch")
            and not (
                each.verb == "create"
                and each.objectRef.get("resource") == "pods"
                and not each.objectRef.get("subresource")
            )
            for each in asked
        )

    async def settle(self) -> None:
        """Wait until no request was sent for a while."""
        size = -1
        while size != self.log.stat().st_size:
            size = self.log.stat().st_size
            await asyncio.sleep(_SETTLE)

    async def create(self, batch: Batch) -> None:
        """Create the pods as the batch's arrival requires."""
        await Load(self.transport, namespace="default", track=Track(batch), scheduler_name="agent-scheduler").run()

    async def bind(self, batch: Batch, *, at_last: Mapping[str, str] | None = None) -> None:
        """Create the pods, and return once all are bound. `at_last`: the capability of their queue once all exist."""
        track = Track(batch)
        load = Load(self.transport, namespace="default", track=track, scheduler_name="agent-scheduler")
        observer = Observer(self.transport, "default", [track], FreeCapacity({}))
        watching = asyncio.create_task(observer.run())
        try:
            await observer.ready.wait()
            await load.run()
            if at_last is not None:
                await self.settle()
                await self.limit(at_last)
            async with asyncio.timeout(_PATIENCE):
                await until(lambda: track.bound_count == batch.count, tick=0.2)
        finally:
            watching.cancel()

    async def clear(self) -> None:
        await ask(self.transport, "DELETE", PODS, body=NOW, within=_PATIENCE)


def template(queue_name: str, *, gated: bool) -> Template:
    annotations, spec = {QUEUE_NAME: queue_name}, {}
    if gated:
        annotations[QUEUE_ALLOCATION_GATE] = "true"
        spec = {"schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}]}
    return Template(annotations=annotations, spec=spec)


def _batch(name: str, count: int, queue_name: str, *, gated: bool, arrival: Arrival = AS_ANSWERED) -> Batch:
    return Batch(name=name, count=count, templates=(template(queue_name, gated=gated),), arrival=arrival)


def _cpu(pid: int) -> float:
    found = usage(pid)
    assert found is not None, "the scheduler runs"
    return found.cpu_seconds


async def run(world: World, *, gated: bool, options: argparse.Namespace) -> tuple[GateCost, Waiting | None]:
    """Play one run; `Waiting` only with gates. Raises ProcessError, RequestFailed, TimeoutError."""
    file = world.folder / "scheduler.json"
    file.write_text(json.dumps(configuration(Tuning(batch={}), "agent-scheduler")))
    arguments = ("--kubeconfig", str(world.folder / "kubeconfig"), "--config", str(file))
    count, arrival = round(options.rate * options.seconds), Even(options.rate)
    await world.limit(_NONE)
    async with scheduler(arguments, folder=world.folder) as (process, probe):
        await world.bind(_batch("first", 20, OPEN, gated=gated))
        found: list[float] = []
        for name, of_queue in (("pod", OPEN), ("waiting", FULL)):
            await world.settle()
            before, size = _cpu(process.pid), world.log.stat().st_size
            batch = _batch(name, count, of_queue, gated=gated, arrival=arrival)
            await world.bind(batch, at_last=_ROOM if of_queue == FULL else None)
            await world.settle()
            found += [1000 * (_cpu(process.pid) - before) / count, world.written(size) / count]
        waiting = None
        if gated and options.held:
            await world.clear()
            await world.limit(_NONE)
            waiting = await _waiting(world, process, probe, options)
        await world.clear()
    return GateCost(*found), waiting


async def _waiting(world: World, process: Child, probe: Transport, options: argparse.Namespace) -> Waiting:
    await world.settle()
    without = await _idle(process.pid, options.seconds)
    await world.create(_batch("held", options.held, FULL, gated=True))

    async def all_held() -> bool:
        found = _HELD.search(await ask(probe, "GET", "/metrics"))
        return found is not None and int(found[1]) == options.held

    await process.ready(all_held, seconds=_PATIENCE)
    await world.settle()
    return Waiting(without, await _idle(process.pid, options.seconds))


async def _idle(pid: int, seconds: float) -> float:
    before = _cpu(pid)
    await asyncio.sleep(seconds)
    return 1000 * (_cpu(pid) - before) / seconds


def report(plain: Sequence[GateCost], gated: Sequence[GateCost], waiting: Sequence[Waiting], held: int) -> str:
    rows = [
        (name, *map(spread, zip(*found, strict=True))) for name, found in (("quota", plain), ("quota and gates", gated))
    ]
    ratios = [
        [with_gates[field] / without[field] for with_gates, without in zip(gated, plain, strict=True)]
        for field in range(len(GateCost._fields))
    ]
    rows.append(("the pair's ratio", *map(spread, ratios)))
    head = (
        "pods",
        "CPU ms per pod",
        "writes per pod",
        "CPU ms per pod, full at first",
        "writes per pod, full at first",
    )
    text = table(head, rows)
    if waiting:
        names = ("none", f"{held:,}")
        columns = zip(*waiting, strict=True)
        of_held = [(name, spread(found)) for name, found in zip(names, columns, strict=True)]
        text += "\n\n" + table(("held pods", "CPU ms per second, idle"), of_held)
    return text


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--held", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    plain: list[GateCost] = []
    gated: list[GateCost] = []
    waiting: list[Waiting] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        arguments = ("--no-kubelets", "--audit-log-path", str(folder / "audit.log"))
        async with cluster(Nodes(count=options.nodes), folder=folder, arguments=arguments) as (_, transport):
            world = World(transport, folder)
            await world.prepare()
            for _ in range(options.runs):
                plain.append((await run(world, gated=False, options=options))[0])
                cost, idle = await run(world, gated=True, options=options)
                gated.append(cost)
                waiting += [] if idle is None else [idle]
    print(report(plain, gated, waiting, options.held))


if __name__ == "__main__":
    uvloop.run(main())
