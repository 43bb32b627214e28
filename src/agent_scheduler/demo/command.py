"""`agent-scheduler demo`: shows the scheduler at work on an embedded cluster, and judges what it did.

Exit codes: 0 when every pod that fits is bound and, by the API's own objects, no node is over its allocatable;
1 when that does not hold or the demo could not run; 2 for arguments that make no sense; 130 after Ctrl-C, 143
after SIGTERM.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from .specs import NodeSpec, PodSpec, Workload, compressed, paced
from .traces import TRACE_FORMS, read_trace
from .workloads import agent_burst

# The libraries of the live view and the report are large and only `main` needs them; a process that merely offers
# the command must not carry them, but has to know at once that one is missing.
for _library in ("rich", "matplotlib"):
    if find_spec(_library) is None:
        raise ModuleNotFoundError(f"No module named {_library!r}", name=_library)

GIB = 1 << 30
_NODES = 500
_PODS = 5000
#: A trace that took longer to arrive is compressed to this by default, seconds.
_ARRIVALS_WITHIN = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's flags."""
    parser.add_argument(
        "--nodes", type=_at_least(1), metavar="N", help=f"simulated nodes (default: {_NODES})"
    )
    parser.add_argument(
        "--pods", type=_at_least(1), metavar="N", help=f"pods (default: {_PODS}, or the trace's)"
    )
    parser.add_argument("--workers", type=_at_least(1), default=4, metavar="N", help="(default: %(default)s)")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument("--rate", type=_positive, metavar="R", help="create R pods a second, in order")
    pace.add_argument("--speedup", type=_positive, metavar="X", help="arrivals and lives X times as fast")
    parser.add_argument("--trace", metavar="KIND:FILES", help=f"replay a trace: {TRACE_FORMS}")
    parser.add_argument(
        "--gpu-sharing",
        choices=("cards", "sum"),
        default="cards",
        help="openb: count GPU shares so that single cards can hold them, or by their sum (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the generated burst (default: %(default)s)")
    parser.add_argument("--waves", type=_at_least(1), default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="(default: out/demo-report.html)")
    parser.add_argument("--no-report", action="store_true", help="write no report")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--scheduler-name", default="agent-scheduler", help="(default: %(default)s)")
    parser.add_argument(
        "--scheduler-arg", action="append", default=[], metavar="ARG", help="pass ARG on to the scheduler"
    )
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=600.0,
        metavar="S",
        help="seconds for the run (default: %(default)g)",
    )


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, found {text!r}")
        return value

    return number


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return value


def simulated_nodes(count: int) -> tuple[NodeSpec, ...]:
    """`count` equal nodes of 32 CPUs, 128 GiB and 110 pods, over three zones."""
    return tuple(
        NodeSpec(
            name=f"node-{number:05d}",
            cpu_milli=32_000,
            memory=128 * GIB,
            labels={
                "topology.kubernetes.io/region": "local",
                "topology.kubernetes.io/zone": f"local-{'abc'[number % 3]}",
            },
        )
        for number in range(count)
    )


def workload_of(args: argparse.Namespace) -> tuple[Workload, tuple[NodeSpec, ...]]:
    """What to run, and on which nodes. Raises `TraceError`."""
    if args.trace is None:
        workload = agent_burst(pods=args.pods or _PODS, seed=args.seed, waves=args.waves)
        return _paced(workload, args), simulated_nodes(args.nodes or _NODES)
    workload = read_trace(args.trace, mapping=args.gpu_sharing)
    if args.pods is not None:
        workload = replace(workload, pods=workload.pods[: args.pods])
    if not workload.nodes:
        return _paced(workload, args), simulated_nodes(args.nodes or _NODES)
    nodes = workload.nodes if args.nodes is None else workload.nodes[: args.nodes]
    return _paced(workload, args), nodes


def _paced(workload: Workload, args: argparse.Namespace) -> Workload:
    pods, note = workload.pods, ""
    last = max((pod.arrival for pod in pods), default=0.0)
    if args.rate is not None:
        pods, note = (
            paced(pods, args.rate),
            f"Arrivals: {args.rate:g} pods a second, in the workload's order.",
        )
    elif args.speedup is not None:
        pods, note = compressed(pods, args.speedup), f"Arrivals and lives are {args.speedup:g} times as fast."
    elif workload.nodes:
        pods, note = paced(pods, None), "Arrivals: all at once, in the trace's order."
    elif args.trace is not None and last > _ARRIVALS_WITHIN:
        speedup = last / _ARRIVALS_WITHIN
        pods = compressed(pods, speedup)
        note = f"Arrivals and lives are {speedup:.3g} times as fast, so that all arrive in {_ARRIVALS_WITHIN:g} s."
    if workload.nodes and args.speedup is None:
        pods = tuple(_immortal(pod) for pod in pods)
        note += " Pods stay once they are placed."
    return replace(workload, pods=pods, notes=(*workload.notes, note) if note else workload.notes)


def _immortal(pod: PodSpec) -> PodSpec:
    return replace(pod, life=None)


def main(args: argparse.Namespace) -> int:
    """Runs the demo and returns its exit code."""
    from .session import execute

    return execute(args)
