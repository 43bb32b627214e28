"""Measures and simulates what clusters of 1,000, 10,000 and 100,000 nodes need: docs/sizing.md has the results.

   python -m bench.sizing [--keep FILE]        # measure (15 minutes) and simulate
   python -m bench.sizing --costs FILE         # simulate with kept costs

`bench.sizing_costs` measures one scheduler's process at each size, and `bench.shards` measures 1, 2 and 4 schedulers,
with which the model is compared. `bench.shard_model` is the simulation. All simulations have a fixed seed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import uvloop

from bench import shards
from bench.harness.real_plane import WRITES
from bench.shard_model import EventCost, Plane, ShardResult, ShardWorld, most_pods, simulate
from bench.sizing_costs import SizeCosts, measure
from bench.tables import short, table

#: Nodes, and running pods on them. A cluster without pods tells the memory of a node from that of a pod.
_SIZES = ((1_000, 30_000), (10_000, 200_000), (100_000, 0), (100_000, 200_000))
_SHARDS = (1, 2, 4, 8, 16)
#: Simulated loads: pods per second, by nodes.
_RATES = {1_000: (500.0,), 10_000: (1_000.0, 3_000.0), 100_000: (1_000.0, 4_000.0)}
#: Seconds between two reports of an unchanged node, a kubelet's default.
_REPORT_SECONDS = 300.0
#: Seconds for which an API server's process needs its CPU to send one event to one watch: the embedded server's.
_FAN_OUT = 5e-6
#: Writes for a pod: create, bind, event, two reports, the end, deletion.
_WRITES = 7
#: Share of the API server's writes that a simulated load uses.
_PLANE = 0.7
#: Pods of a wave, and seconds of a pod in the simulation of little room.
_WAVE, _LIFE = 1_000, 3.0
#: Utilization above which a scheduler, or the API server with its watches, cannot keep up.
_FULL = 0.95
_MODES: tuple[Literal["soft", "hard"], ...] = ("soft", "hard")
#: Watches of pods besides the schedulers'.
_OTHERS = 5


class Several(msgspec.Struct, frozen=True, kw_only=True):
    """A run of `bench.shards` in mode `hard`; CPU seconds are per pod."""

    schedulers: int
    pods_per_second: float
    cpu: float
    server_cpu: float


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements."""

    sizes: list[SizeCosts]
    several: list[Several]

    def of(self, nodes: int) -> SizeCosts:
        """Return the costs in a cluster with that number of nodes and with pods."""
        return next(each for each in self.sizes if each.nodes == nodes and each.pods)


def memory_of(sizes: Sequence[SizeCosts]) -> tuple[float, float, float]:
    """Return the bytes of a process without nodes, and those of each node and of each running pod."""
    rows = np.array([(1, each.nodes, each.pods) for each in sizes], dtype=float)
    found, *_ = np.linalg.lstsq(rows, np.array([each.memory for each in sizes]), rcond=None)
    base, node, pod = (float(each) for each in found)
    return base, node, pod


def predicted(several: Sequence[Several], schedulers: int) -> tuple[float, float]:
    """Return pods per second and CPU per pod of that many schedulers, from the runs with one and two.

    Each further scheduler costs what the second one does. All processes share the cores of this machine, as many as the
    run with two used: other processes have the rest.
    """
    one, two = (next(each for each in several if each.schedulers == number) for number in (1, 2))
    cores = two.pods_per_second * (two.cpu + two.server_cpu)
    cpu = one.cpu + (schedulers - 1) * (two.cpu - one.cpu)
    return cores / (cpu + two.server_cpu), cpu


def world(size: SizeCosts, shards: int, rate: float, seconds: float) -> ShardWorld:
    """Return the world of a cluster of that size: costs, reports of nodes, and an API server that is large enough."""
    lanes = math.ceil(rate * _WRITES / _PLANE * sum(duration * share for duration, share in WRITES))
    return ShardWorld(
        shards=shards,
        own=EventCost(size.own_pod, min(size.own_pod, size.own_pod_together)),
        foreign=EventCost(size.foreign_pod, min(size.foreign_pod, size.foreign_pod_together)),
        plane=Plane(lanes=lanes, writes=WRITES, fan_out=_FAN_OUT, others=_OTHERS),
        rate=rate,
        seconds=seconds,
        life=1.0,
        nodes=size.nodes,
        reports=size.nodes / _REPORT_SECONDS,
        report=EventCost(size.node_report, size.node_report),
    )


def _measured(sizes: Iterable[SizeCosts]) -> str:
    rows = [
        (
            f"{each.nodes:,} nodes, {each.pods:,} pods",
            short(each.start),
            short(each.start_cpu),
            short(each.memory / 1e6),
            short(each.memory_batch / 1e6),
            short(each.peak / 1e6),
            short(each.idle * 1e3),
            short(each.node_report * 1e6),
            f"{short(each.own_pod * 1e6)}, {short(each.own_pod_together * 1e6)}",
            f"{short(each.foreign_pod * 1e6)}, {short(each.foreign_pod_together * 1e6)}",
            short(each.gang_pod * 1e6),
        )
        for each in sizes
    ]
    header = (
        *(
            "cluster",
            "start s",
            "CPU s",
            "memory MB",
            "with gangs MB",
            "peak MB",
            "idle, CPU ms/s",
            "report of a node, CPU us",
        ),
        *("own pod, CPU us: paced, together", "foreign pod, CPU us: paced, together", "pod of a gang, CPU us"),
    )
    return table(header, rows)


def _compared(costs: Costs) -> str:
    rows = []
    for each in costs.several:
        rate, cpu = predicted(costs.several, each.schedulers)
        rows.append(
            (
                each.schedulers,
                *(short(value) for value in (each.cpu * 1e6, cpu * 1e6)),
                f"{(cpu / each.cpu - 1):+.0%}",
                *(short(value) for value in (each.pods_per_second, rate)),
                f"{(rate / each.pods_per_second - 1):+.0%}",
            )
        )
    header = ("schedulers", "CPU us per pod", "predicted", "deviation", "pods/s", "predicted", "deviation")
    return table(header, rows)


def _latency(result: ShardResult) -> str:
    if result.events_per_second * _FAN_OUT > _FULL:
        return "too many events"
    if result.busiest > _FULL:
        return "too many pods"
    return f"{short(result.p99 * 1e3)} ({result.busiest:.0%})"


def report(costs: Costs, seconds: float) -> str:
    """Return all tables; `seconds` are simulated for each row."""
    sizes = [size for size in costs.sizes if size.pods]
    base, node, pod = memory_of(costs.sizes)
    limits = [(number, *(short(most_pods(world(size, number, 1.0, seconds))) for size in sizes)) for number in _SHARDS]
    rows, sent = [], []
    for size in sizes:
        for rate in _RATES.get(size.nodes, (500.0,)):
            load = f"{size.nodes:,} nodes, {rate:,.0f} pods/s"
            worlds = [world(size, number, rate, seconds) for number in _SHARDS]
            single = [simulate(each) for each in worlds]
            waves = [simulate(replace(each, wave=_WAVE)) for each in worlds]
            rows += [(load, *map(_latency, single)), (f"{load}, in waves of {_WAVE:,}", *map(_latency, waves))]
            sent.append((load, short(rate * _WRITES), *(short(each.events_per_second) for each in single)))
    numbers = [f"{number} scheduler{'s' if number > 1 else ''}" for number in _SHARDS]
    return "\n\n".join(
        (
            "One process",
            _measured(costs.sizes),
            f"Memory: {short(base / 1e6)} MB, {short(node)} B per node, {short(pod)} B per running pod",
            "Several schedulers that share the cores of this machine",
            _compared(costs),
            "Pods per second at which all schedulers are always busy",
            table(("schedulers", *(f"{size.nodes:,} nodes" for size in sizes)), limits),
            "p99 of the latency in ms, and the CPU of the busiest scheduler",
            table(("load", *numbers), rows),
            "Writes for pods, and watch events of pods and nodes that the API server sends",
            table(("load", "writes/s", *(f"events/s, {number}" for number in numbers)), sent),
            f"Little room: 500 pods/s in waves of 100 that run for {_LIFE:g} s, on 1,000 nodes",
            _little_room(sizes[0], seconds),
        )
    )


def _little_room(size: SizeCosts, seconds: float) -> str:
    rows = []
    for room in (1.5, 1.2, 1.05):
        for number in (1, 2, 8):
            found = []
            for mode in _MODES:
                # Long enough for as many to end as begin. A place is taken from the decision to the end.
                base = replace(world(size, number, 500.0, 8 * seconds), life=_LIFE, wave=100, nodes=1_000)
                found.append(simulate(replace(base, mode=mode, places=round(500 * (_LIFE + 0.6) * room))))
            soft, hard = found
            shares = (soft.delayed / soft.pods, soft.rejected / soft.pods, hard.delayed / hard.pods)
            rows.append(
                (
                    f"{room:.0%} of the places that are used on average, {number} scheduler{'s' if number > 1 else ''}",
                    *(f"{share:.2%}" for share in shares),
                    *(short(each.p99 * 1e3) for each in found),
                )
            )
    header = ("room", "soft: delayed", "soft: beyond capacity", "hard: delayed", "soft: p99 ms", "hard: p99 ms")
    return table(header, rows)


async def measured(sizes: Sequence[tuple[int, int]], *, lives: int, pods: int, runs: int) -> Costs:
    """Measure everything; `runs` of `bench.shards`, of which the median counts. Raises ProcessError, RequestFailed."""
    found = []
    for nodes, running in sizes:
        print(f"{nodes:,} nodes, {running:,} pods", file=sys.stderr)
        found.append(await measure(nodes, running, lives=lives, rate=250.0, reports=lives, idle=10))
    several = []
    for number in (1, 2, 4):
        print(f"{number} schedulers", file=sys.stderr)
        all_runs = [await shards.run(number, "hard", pods=pods, nodes=-(-pods // 40)) for _ in range(runs)]
        rate, cpu, _, server, *_ = np.median(np.array(all_runs), axis=0)
        several.append(
            Several(
                schedulers=number, pods_per_second=float(rate), cpu=float(cpu) / 1e3, server_cpu=float(server) / 1e3
            )
        )
    return Costs(sizes=found, several=several)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--costs", type=Path, help="a file of --keep; without it everything is measured")
    parser.add_argument("--keep", type=Path, help="write the measured costs to this file")
    parser.add_argument("--nodes", type=int, help="measure clusters with up to this number of nodes and pods instead")
    parser.add_argument("--lives", type=int, default=3000, help="pods and reports of nodes that a cost is the mean of")
    parser.add_argument("--pods", type=int, default=8000, help="pods of the runs with several schedulers")
    parser.add_argument("--runs", type=int, default=3, help="runs with each number of schedulers")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds in which pods of a simulation begin")
    args = parser.parse_args(argv)
    if args.costs is not None:
        try:
            costs = msgspec.json.decode(args.costs.read_bytes(), type=Costs)
        except (OSError, msgspec.MsgspecError) as error:
            parser.error(f"--costs: {error}")
    else:
        try:
            if args.keep is not None:
                args.keep.touch()
        except OSError as error:
            parser.error(f"--keep: {error}")
        sizes = ((args.nodes, 0), (args.nodes // 2, args.nodes), (args.nodes, args.nodes)) if args.nodes else _SIZES
        costs = uvloop.run(measured(sizes, lives=args.lives, pods=args.pods, runs=args.runs))
        if args.keep is not None:
            args.keep.write_bytes(msgspec.json.format(msgspec.json.encode(costs)) + b"\n")
    print(report(costs, args.seconds))


if __name__ == "__main__":
    main()
