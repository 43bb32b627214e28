"""Runs scenarios and the benchmarks of single parts, and writes one report of them: `python -m bench`, or `make bench`.

Each runs in its own process. The report is rewritten after each, from everything that its folder holds: an interrupted
run keeps its results, and a later run into the same folder adds to them. Exit codes: 0 if all ran and every run counts,
1 if not, 2 for invalid arguments, 130 after Ctrl-C, 143 after SIGTERM. Only whether a run counts is judged: the reader
compares figures with their limits.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .parts import Part, read_parts, run_part
from .programs import BENCHMARKS
from .report import write_report
from .scenarios.catalogue import SCENARIOS, TRACE
from .scenarios.options import add_arguments, options_of

#: The subfolder of a report's parts.
PARTS = "parts"


class _Stopped(BaseException):
    """Raised when a signal asks the program to end; the argument is its number."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench", description="Runs the benchmarks and writes a report.")
    made.add_argument("--list", action="store_true", help="list the names and run nothing")
    made.add_argument(
        "--only", action="append", choices=sorted(known()), metavar="NAME",
        help="run this scenario, part or group (repeatable)",
    )  # fmt: skip
    made.add_argument(
        "--out", type=Path, default=Path("out/bench"), metavar="FOLDER",
        help="the report's folder; existing parts are kept unless they run again (default: %(default)s)",
    )  # fmt: skip
    made.add_argument("--render", action="store_true", help="run nothing, only write the report of --out again")
    add_arguments(made)
    return made


def known() -> dict[str, list[str]]:
    """Return the runs for each name of `--only`: itself, or the members of a group."""
    names = {scenario.name: [scenario.name] for scenario in SCENARIOS}
    names |= {benchmark.name: [benchmark.name] for benchmark in BENCHMARKS} | {TRACE: [TRACE]}
    for scenario in SCENARIOS:
        names.setdefault(scenario.group, [])
        if scenario.group != scenario.name:
            names[scenario.group].append(scenario.name)
    names["parts"] = [benchmark.name for benchmark in BENCHMARKS]
    return names


def chosen(args: argparse.Namespace) -> list[str]:
    """Return the chosen names in the order of running: scenarios, then single parts, which need no other cluster."""
    every = [scenario.name for scenario in SCENARIOS] + [TRACE] * bool(args.trace)
    if args.kubeconfig is None:
        every += [benchmark.name for benchmark in BENCHMARKS]
    if args.only is None:
        return every
    names = known()
    wanted = {name for only in args.only for name in names[only]}
    return [name for name in [*every, TRACE] if name in wanted]


def command_of(name: str, args: argparse.Namespace, given: Sequence[str]) -> list[str]:
    """Return the command of a run; a scenario also gets the arguments of `given`."""
    for benchmark in BENCHMARKS:
        if benchmark.name == name:
            return benchmark.command(quick=args.quick)
    return ["python", "-m", "bench.scenarios", name, *given]


def passed_on(argv: Sequence[str]) -> list[str]:
    """Return the arguments that belong to the scenarios."""
    mine = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    mine.add_argument("--only", action="append")
    mine.add_argument("--out")
    mine.add_argument("--list", action="store_true")
    mine.add_argument("--render", action="store_true")
    return mine.parse_known_args(list(argv))[1]


def _stop(number: int, _frame: object) -> None:
    raise _Stopped(number)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _list() -> None:
    for scenario in SCENARIOS:
        print(f"{scenario.name:20}{scenario.group:16}{scenario.measures}")
    print(f"{TRACE:20}{'traces':16}the traces of --trace")
    for benchmark in BENCHMARKS:
        print(f"{benchmark.name:20}{'parts':16}{benchmark.measures}; limits: {benchmark.limits}")


def _run_all(names: Sequence[str], args: argparse.Namespace, given: Sequence[str]) -> list[Part]:
    done: list[Part] = []
    scenarios = {scenario.name for scenario in SCENARIOS} | {TRACE}
    for name in names:
        command = command_of(name, args, given)
        _say(f"{name}: {shlex.join(command)}")
        part = run_part(name, command, folder=args.out / PARTS, scenario=name in scenarios)
        done.append(part)
        write_report(args.out, read_parts(args.out / PARTS))
        _say(f"{name}: {part.seconds:.0f} s" + ("" if part.ok else f", exit code {part.code}"))
    return done


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = parser()
    args = made.parse_args(argv)
    if args.list:
        _list()
        return 0
    try:
        options_of(args)
    except ValueError as error:
        made.error(str(error))
    names = [] if args.render else chosen(args)
    if not names and not args.render:
        made.error("nothing to run: single parts do not run on another cluster")
    if TRACE in names and not args.trace:
        made.error("the scenario `trace` needs --trace KIND:FILES")
    try:
        (args.out / PARTS).mkdir(parents=True, exist_ok=True)
        (args.out / "README.md").touch()
    except OSError as error:
        _say(f"python -m bench: --out {args.out}: cannot be written: {error.strerror or error}")
        return 2
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    began = time.monotonic()
    try:
        done = _run_all(names, args, passed_on(argv))
        page = write_report(args.out, read_parts(args.out / PARTS))
    except _Stopped as stopped:
        write_report(args.out, read_parts(args.out / PARTS))
        return 128 + int(stopped.args[0])
    _say(f"report: {page} ({time.monotonic() - began:.0f} s)")
    return 1 if any(not part.ok for part in done) else 0


if __name__ == "__main__":
    sys.exit(main())
