"""The benchmarks of single parts: each is a program that prints Markdown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One program with its arguments. `limits` are the limits of its figures."""

    name: str
    module: str
    measures: str
    limits: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()

    def command(self, *, quick: bool) -> list[str]:
        return ["python", "-m", self.module, *(self.quick if quick else self.full)]


BENCHMARKS = (
    Benchmark(
        name="apiserver",
        module="bench.apiserver_cost",
        measures="server CPU per request of the embedded API server, nearly empty and with 100,000 pods",
        limits="create <= 150 us, bind <= 80 us, also at 100,000 objects; <= 10 us per event and watcher",
        full=("--objects", "100000", "--requests", "5000"),
        quick=("--objects", "5000", "--requests", "1000"),
    ),
    Benchmark(
        name="queue",
        module="bench.queue_moves",
        measures="the scheduling queue: adding, popping and failing pods, and what one event costs while pods wait",
        limits="none",
        quick=("--runs", "1"),
    ),
    Benchmark(
        name="events",
        module="bench.events_waiting",
        measures="hints and CPU per event while 1,000, 10,000 and 100,000 pods wait, with pre-hints and as a full scan",
        limits="own claim: at 100,000 at most 2 times what it is at 1,000; at 10,000 at least 100 times faster",
        quick=("--waiting", "200,400", "--batches", "2"),
    ),
    Benchmark(
        name="decision",
        module="bench.decision",
        measures="CPU of a decision in the engine alone, without queue and requests, on 1,000 to 100,000 nodes",
        limits="us per pod: plain <= 15 at 5,000 nodes and <= 30 at 100,000; every pod a class of its own <= 150, "
        "spread or (anti-)affinity <= 100, both at 5,000",
        quick=("--nodes", "100", "--batches", "1"),
    ),
    Benchmark(
        name="victims",
        module="bench.preemption",
        measures="CPU of the choice of victims alone, on full clusters of 500 and 5,000 nodes",
        limits="none",
        quick=("--nodes", "50", "--preemptors", "10"),
    ),
    Benchmark(
        name="watch",
        module="bench.watch_decode",
        measures="scheduler CPU per watch event, from its bytes to a delivered change",
        limits="none",
        quick=("--pods", "500", "--repeat", "2"),
    ),
    Benchmark(
        name="transport",
        module="bench.transport_cost",
        measures="client CPU per request, compared with a bare protocol as the lower bound",
        limits="none",
        quick=("--requests", "400", "--runs", "2", "--in-flight", "16"),
    ),
    Benchmark(
        name="low-rate",
        module="bench.low_rate",
        measures="scheduler CPU per pod at 200 pods per second over TLS, and a second in which nothing happens",
        limits="own claim: <= 0.45 ms per pod",
        quick=("--seconds", "1", "--nodes", "20", "--runs", "1"),
    ),
    Benchmark(
        name="startup",
        module="bench.startup",
        measures="from a process's start to the first bind, with 1,000 nodes and 5,000 pods; `--help`",
        limits="own claim: first bind <= 1 s, --help <= 0.15 s",
        quick=("--nodes", "50", "--bound", "200", "--pending", "50", "--runs", "1"),
    ),
    Benchmark(
        name="webhook",
        module="bench.webhook",
        measures="CPU of the webhook's process per review over TLS: pods, and a queue among 1,000",
        limits="pods: 2,000 reviews per second and core",
        quick=("--reviews", "1000", "--queues", "50"),
    ),
    Benchmark(
        name="gates",
        module="bench.gates",
        measures="scheduler CPU and writes per pod with gates of queues and without, and with 5,000 held pods at rest",
        limits="with gates <= 1.03 times the CPU, and one more write per pod; held pods at rest cost nothing",
        full=("--runs", "3"),
        quick=("--seconds", "1", "--nodes", "20", "--held", "50", "--runs", "1"),
    ),
    Benchmark(
        name="jobs",
        module="bench.jobs",
        measures="controllers' CPU per job, and writes per pod, of Volcano's Jobs from creation to end",
        limits="controllers <= 2 ms per job of ten pods; <= 4 writes per pod beside the kubelet's",
        quick=("--jobs", "20", "--nodes", "20"),
    ),
    Benchmark(
        name="shards",
        module="bench.shards",
        measures="1, 2 and 4 schedulers on one cluster, with shards and without; pods beyond a node's capacity",
        limits="hard: no pod outside its shard, none beyond a node's capacity",
        quick=("--pods", "400", "--schedulers", "2", "--runs", "1"),
    ),
    Benchmark(
        name="console",
        module="bench.console",
        measures="what the console costs the scheduler with five viewers at 5,000 nodes, idle and at 200 pods/s",
        limits="at most 1 % of a core more than without viewers",
        quick=("--nodes", "500", "--seconds", "3"),
    ),
    Benchmark(
        name="hostile",
        module="bench.hostile",
        measures="binds of ordinary pods at 100 pods/s beside each input of a hostile tenant; memory, longest steps",
        limits="p99 < 100 ms; memory below the limits of the manifests; all bound, no exit, leases kept",
        quick=("--seconds", "1", "--nodes", "20", "--only", "nothing"),
    ),
    Benchmark(
        name="shard-planning",
        module="bench.sharding",
        measures="CPU of planning shards, from scratch and after a change, with 5,000 and 1,000,000 nodes",
        limits="1,000,000 nodes: from scratch < 10 s, 100 changes < 100 ms; 5,000 nodes and 4 shards: one pod < 1 ms",
        quick=("--nodes", "1000", "--changes", "5"),
    ),
    Benchmark(
        name="sizing",
        module="bench.sizing",
        measures="start, memory and CPU of a scheduler on 1,000 to 100,000 nodes; a simulation of 1 to 16 shards",
        limits="none",
        quick=("--nodes", "50", "--lives", "100", "--pods", "400", "--runs", "1", "--seconds", "0.5"),
    ),
)
