"""Plays worlds: many (`--seeds FROM:TO`), for some time (`--minutes`), or a single one (`--seed`, with `--trace`).

Exit codes: 0 if there was no violation; 1 for a violation, which is shrunk and printed as one command; 2 for invalid
arguments. With `--seeds` or `--minutes` a summary has the worlds per second, the faults that fired, the rare states
that were reached, and how often each invariant was checked.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .faults import KINDS
from .gang_load import SET_UPS
from .many import Summary, run_many
from .scenarios import DRAWN, SCENARIOS
from .states import WANTED
from .world import Options, Verdict, run, shrink


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.sim", description="Play worlds from seeds.")
    what = made.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="one world")
    what.add_argument("--seeds", metavar="FROM:TO", help="the worlds of these seeds, without TO")
    minutes = "play worlds for this time, with seeds from the clock"
    what.add_argument("--minutes", type=float, help=minutes)
    add, named = made.add_argument, {"metavar": "NAME"}
    add("--scenario", choices=sorted(SCENARIOS), default="", help="by default drawn from the seed", **named)
    add("--set-up", choices=sorted(SET_UPS), default="", help="by default drawn from the seed", **named)
    add("--fault", action="append", choices=KINDS, help="inject only this kind (repeatable)", **named)
    add("--no-faults", action="store_true", help="nothing goes wrong")
    add("--pods", type=int, help="create only this number of pods")
    add("--nodes", type=int, help="create only this number of nodes")
    add("--trace", action="store_true", help="with --seed: print all requests, commits and faults")
    add("--no-shrink", action="store_true", help="report a failing world without shrinking it")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    return made


def _range(text: str) -> range:
    first, colon, last = text.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal() or int(first) >= int(last):
        raise ValueError(f"--seeds {text}: expected FROM:TO, two numbers of which the first is smaller")
    return range(int(first), int(last))


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if args.jobs < 1:
        print(f"--jobs {args.jobs}: must be at least 1", file=sys.stderr)
        return 2
    faults = () if args.no_faults else (tuple(args.fault) if args.fault else None)
    common = {
        "scenario": args.scenario,
        "faults": faults,
        "pods": args.pods,
        "nodes": args.nodes,
        "set_up": args.set_up,
    }
    if args.seed is not None:
        return _one(Options(seed=args.seed, keep_trace=args.trace, **common), shrinks=not args.no_shrink)
    seeds: Iterable[int]
    try:
        seeds = _range(args.seeds) if args.seeds else itertools.count(int(time.time()) * 1000)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    until = time.monotonic() + args.minutes * 60 if args.minutes else None
    worlds = _worlds(seeds, common, mixed=bool(args.minutes))
    summary = run_many(worlds, jobs=args.jobs, until=until, failed=_tell)
    print(summary.text(WANTED))
    for verdict in summary.failed[:3]:
        _report(verdict, shrinks=not args.no_shrink)
    return 1 if summary.failed else 0


#: Scenarios that are never drawn from a seed: if many worlds are played, half of them have these, in turn.
_NOT_DRAWN = tuple(name for name in SCENARIOS if name not in DRAWN)


def _worlds(seeds: Iterable[int], common: dict[str, Any], *, mixed: bool) -> Iterator[Options]:
    """Yield the options of each world. `mixed`: without a requested scenario, also play those that are never drawn."""
    for seed in seeds:
        other = ""
        if mixed and not common["scenario"] and seed % 2:
            other = _NOT_DRAWN[seed // 2 % len(_NOT_DRAWN)]
        yield Options(seed=seed, **{**common, "scenario": other or common["scenario"]})


def _one(options: Options, *, shrinks: bool) -> int:
    began = time.perf_counter()
    verdict = run(options)
    for line in verdict.trace:
        print(line)
    print(
        f"seed {options.seed}: {verdict.scenario}, {verdict.pods} pods, {verdict.nodes} nodes, "
        f"{verdict.seconds:.1f} s in {time.perf_counter() - began:.2f} s; trace {verdict.digest}\n"
        f"faults: {', '.join(verdict.faults) or 'none'}\n"
        f"fired: {Summary.counts(verdict.fired)}\nreached: {Summary.counts(verdict.states)}"
    )
    if verdict.violations:
        _report(verdict, shrinks=shrinks and not options.keep_trace)
        return 1
    return 0


def _tell(verdict: Verdict) -> None:
    """Print a failed world's command and first violation at once; the first few are reported in detail at the end."""
    print(f"{verdict.options.command()}\n  {verdict.violations[0]}", file=sys.stderr, flush=True)


def _report(verdict: Verdict, *, shrinks: bool) -> None:
    smaller = shrink(verdict) if shrinks else verdict
    faults = ", ".join(verdict.faults) or "no faults"
    print(f"\nFAILED seed {verdict.options.seed} ({verdict.scenario}; {faults})")
    for line in verdict.violations[:5]:
        print(f"  {line}")
    print(f"again: {smaller.options.command()}")
    if smaller is not verdict:
        print(f"  (smaller: {smaller.pods} pods, {smaller.nodes} nodes: {smaller.violations[0]})")


if __name__ == "__main__":
    sys.exit(main())
