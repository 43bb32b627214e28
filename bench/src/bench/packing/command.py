"""The command `agent-scheduler bench packing`: measures how well policies fill a cluster, by a trace of a real one.

Exit codes: 0 if all runs counted, 1 if one was refused, 2 for invalid arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..harness.specs import Workload
from ..harness.traces import TRACE_FORMS, TraceError, read_trace
from . import gangs, lives
from .demand import DEMAND, Filled, fill
from .gangs import Fitted, fit_gangs
from .lives import Lived, live
from .pages import curves, table_of
from .policies import POLICIES, Policy
from .through_http import Scheduled, schedule

Outcome = Filled | Lived | Fitted | Scheduled

#: The seeds of the published runs.
_SEEDS: Final = "42-51"
_NAMES: Final = {policy.name: policy for policy in POLICIES}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--lives", action="store_true", help=f"replay arrivals and departures, on {lives.GPUS} GPUs or more"
    )
    what.add_argument(
        "--gangs", action="store_true", help="count the gangs that fit beside small pods; without a trace"
    )
    what.add_argument(
        "--http", action="store_true", help="send the pods through a whole scheduler, on the embedded cluster over HTTP"
    )
    parser.add_argument(
        "--trace",
        action="append",
        default=[],
        metavar="KIND:FILES",
        help=f"a trace with nodes (repeatable): {TRACE_FORMS}",
    )
    parser.add_argument(
        "--policy", action="append", default=[], choices=sorted(_NAMES), help="a policy (repeatable; default: all)"
    )
    parser.add_argument("--seeds", type=_seeds, default=_SEEDS, metavar="A-B", help="(default: %(default)s)")
    parser.add_argument(
        "--demand",
        type=_positive,
        default=DEMAND,
        metavar="X",
        help="requested GPUs per existing GPU (default: %(default)s)",
    )
    parser.add_argument(
        "--copies", type=int, default=1, metavar="N", help="copies of the trace's nodes (default: %(default)s)"
    )
    parser.add_argument(
        "--gpus",
        type=int,
        default=lives.GPUS,
        metavar="N",
        help="--lives: minimum number of GPUs of the nodes (default: %(default)s)",
    )
    parser.add_argument(
        "--load",
        type=_positive,
        default=lives.LOAD,
        metavar="X",
        help="--lives: average requested GPUs per existing GPU (default: %(default)s)",
    )
    parser.add_argument(
        "--share",
        type=_positive,
        default=gangs.SHARE,
        metavar="X",
        help="--gangs: share of all CPU that small pods use (default: %(default)s)",
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="--http: (default: %(default)s)")
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="runs at a time, except with --http (default: one per core)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write all figures as JSON to this folder, and plots of the demand as SVG",
    )


def main(args: argparse.Namespace) -> int:
    try:
        workloads = [_copied(read_trace(text), args.copies) for text in args.trace]
        _check(args, workloads)
    except (TraceError, ValueError) as error:
        print(f"agent-scheduler bench packing: {error}", file=sys.stderr)
        return 2
    policies = [_NAMES[name] for name in args.policy] or list(POLICIES)
    found: list[Outcome] = []
    try:
        for outcome in _outcomes(args, workloads, policies):
            found.append(outcome)
            print(_progress(outcome), file=sys.stderr, flush=True)
    except ValueError as error:
        print(f"agent-scheduler bench packing: {error}", file=sys.stderr)
        return 2
    print(table_of(found))
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "packing.json").write_text(json.dumps([asdict(each) for each in found]) + "\n")
        filled = [each for each in found if isinstance(each, Filled)]
        for name, text in curves(filled).items() if filled else ():
            (args.out / name).write_text(text)
    return int(any(isinstance(each, Scheduled) and bool(each.refused) for each in found))


def _check(args: argparse.Namespace, workloads: Sequence[Workload]) -> None:
    if args.gangs:
        if workloads:
            raise ValueError("--gangs makes its own nodes and pods; leave --trace out")
        return
    if not workloads:
        raise ValueError(f"expected --trace with one of {TRACE_FORMS}")
    for workload in workloads:
        if not any(node.gpus for node in workload.nodes):
            raise ValueError(f"{workload.name}: expected a trace with nodes that have GPUs")


def _copied(workload: Workload, copies: int) -> Workload:
    if copies < 1:
        raise ValueError(f"--copies {copies}: expected at least 1")
    more = (replace(node, name=f"{node.name}-{copy}") for copy in range(1, copies) for node in workload.nodes)
    return replace(workload, nodes=(*workload.nodes, *more))


def _outcomes(args: argparse.Namespace, workloads: Sequence[Workload], policies: Sequence[Policy]) -> Iterable[Outcome]:
    seeds: Sequence[int] = args.seeds
    if args.http:
        for workload in workloads:
            for policy in policies:
                for seed in () if policy.is_random else seeds:
                    yield asyncio.run(schedule(workload, policy, seed, demand=args.demand, workers=args.workers))
        return
    runs: list[Callable[[], Outcome]]
    if args.gangs:
        runs = [partial(fit_gangs, policy, seed, share=args.share) for policy in policies for seed in seeds]
    else:
        ask: Any = partial(live, gpus=args.gpus, load=args.load) if args.lives else partial(fill, demand=args.demand)
        runs = [partial(ask, workload, policy, seed) for workload in workloads for policy in policies for seed in seeds]
    with ProcessPoolExecutor(max_workers=max(1, args.jobs)) as pool:
        yield from pool.map(_call, runs)


def _call(run: Callable[[], Outcome]) -> Outcome:
    return run()


def _progress(outcome: Outcome) -> str:
    match outcome:
        case Fitted():
            said = f"{outcome.gangs} of {outcome.without} gangs"
        case Scheduled(refused=[first, *_]):
            said = f"refused: {first}"
        case Scheduled():
            said = f"{outcome.allocated:.2%} allocated, {outcome.pods_per_second:,.0f} pods/s"
        case _:
            said = f"{outcome.allocated:.2%} allocated"
    return f"{outcome.policy}, seed {outcome.seed}: {said}"


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1000:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return value


def _seeds(text: str) -> list[int]:
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise argparse.ArgumentTypeError(f"{text}: expected a number, or two with - between")
    found = list(range(int(first), int(last or first) + 1))
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: expected the lower number first")
    return found
