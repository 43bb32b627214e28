"""The command `agent-scheduler demo`: runs the scheduler on an embedded cluster, and verifies the result.

Exit codes: 0 if every pod that fits is bound and, by the API's own objects, no node is over its allocatable; 1 if that
does not hold or the demo could not run; 2 for invalid arguments; 130 after Ctrl-C, 143 after SIGTERM.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection
from importlib.util import find_spec
from pathlib import Path

from bench.harness.traces import TRACE_FORMS

from .scenario import GANGS, NODES, PODS, STORIES

# The libraries of the live view and the report are large and only `main` needs them. A process that only lists the
# command must not import them, but must detect at once that one is missing.
for _library in ("rich", "matplotlib"):
    if find_spec(_library) is None:
        raise ModuleNotFoundError(f"No module named {_library!r}", name=_library)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("--nodes", type=_at_least(1), metavar="N", help=f"simulated nodes (default: {NODES})")
    parser.add_argument("--pods", type=_at_least(1), metavar="N", help=f"pods (default: {PODS}, or the trace's)")
    parser.add_argument("--workers", type=_at_least(1), default=4, metavar="N", help="(default: %(default)s)")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument("--rate", type=_positive, metavar="R", help="create R pods per second, in order")
    pace.add_argument("--speedup", type=_positive, metavar="X", help="make arrivals and lives X times as fast")
    parser.add_argument("--trace", metavar="KIND:FILES", help=f"replay a trace: {TRACE_FORMS}")
    parser.add_argument("--seed", type=int, default=1, help="seed of the generated burst (default: %(default)s)")
    parser.add_argument(
        "--waves", type=_at_least(1), metavar="N", help="create the burst in N waves, one every 2 s (default: at once)"
    )
    parser.add_argument(
        "--gangs",
        type=_at_least(0),
        default=GANGS,
        metavar="N",
        help="gangs of 8 pods in each of two queues, with a generated burst (default: %(default)s)",
    )
    parser.add_argument(
        "--story",
        choices=STORIES,
        help="play a story instead of a burst: pods with the gate of their queue, or a job with stages",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="(default: out/demo-report.html)")
    parser.add_argument("--no-report", action="store_true", help="write no report")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--scheduler-name", default="agent-scheduler", help="(default: %(default)s)")
    parser.add_argument("--scheduler-arg", action="append", default=[], metavar="ARG", help="pass ARG to the scheduler")
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=600.0,
        metavar="S",
        help="maximum seconds of the run (default: %(default)g)",
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


def ineffective(args: argparse.Namespace) -> str:
    """Return what is wrong with flags that would have no effect; empty if there are none."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = [name for name, usual in vars(parser.parse_args([])).items() if getattr(args, name) != usual]
    flags = {name: f"--{name.replace('_', '-')}" for name in given}
    if args.story is not None:
        del flags["story"]
        return _refusal(flags.values(), "--story, which has its own cluster and objects")
    burst = [flag for name, flag in flags.items() if name in ("seed", "waves", "gangs") and args.trace is not None]
    report = ["--report"] if args.report is not None and args.no_report else []
    return _refusal(burst, "--trace, which has its own pods") or _refusal(report, "--no-report")


def _refusal(flags: Collection[str], beside: str) -> str:
    return f"{', '.join(flags)}: not allowed with {beside}" if flags else ""


def main(args: argparse.Namespace) -> int:
    """Run the demo and return its exit code."""
    if problem := ineffective(args):
        print(f"agent-scheduler demo: {problem}", file=sys.stderr)
        return 2
    from .run import execute

    return execute(args)
