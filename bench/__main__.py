"""Runs the benchmarks one after another, and writes one report of them all: `python -m bench`, or `make bench`.

Each benchmark is a program of its own (`python -m bench.NAME`) that prints Markdown; here it runs in a process of its
own, so that none inherits what another left in memory. The report says what they ran on and how they were called.
Exit codes: 0 when all of them ran to their end, 1 when one did not, 2 for arguments that make no sense, 130 after
Ctrl-C, 143 after SIGTERM. Nothing is judged: a figure above its limit is for a reader to see.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent_scheduler.demo.machine import machine
from agent_scheduler.objects.times import time_text

#: How long a benchmark gets to end its own children once it is told to stop, seconds.
_GRACE = 30.0
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One run of a benchmark. `limits` is what its figures are held to."""

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
        measures="server CPU a request of the embedded API server, nearly empty and with 100,000 pods",
        limits="create <= 150 us, bind <= 80 us, also at 100,000 objects; an event <= 10 us a watcher",
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
        measures="hints and CPU an event while 1,000, 10,000 and 100,000 pods wait, with pre-hints and as a full scan",
        limits="own claim: at 100,000 at most 2 times what it is at 1,000; at 10,000 at least 100 times faster",
        quick=("--waiting", "200,400", "--batches", "2"),
    ),
    Benchmark(
        name="watch",
        module="bench.watch_decode",
        measures="scheduler CPU a watch event, from its bytes to a change that was handed over",
        limits="none",
        quick=("--pods", "500", "--repeat", "2"),
    ),
    Benchmark(
        name="transport",
        module="bench.transport_cost",
        measures="client CPU a request, beside a general HTTP client and beside the floor",
        limits="none",
        quick=("--requests", "400", "--runs", "2", "--in-flight", "16"),
    ),
    Benchmark(
        name="scheduling",
        module="bench.scheduling",
        measures="scheduler CPU a pod, end to end over HTTP: 10,000 pods over 1,000 nodes",
        limits="CPU <= 0.5 ms a pod, with 1 and with 8 workers; all bound, no node over its allocatable",
        full=("--pods", "10000", "--nodes", "1000", "--workers", "1", "8"),
        quick=("--pods", "1000", "--nodes", "100", "--workers", "1", "8", "--runs", "1"),
    ),
    Benchmark(
        name="claims",
        module="bench.claims",
        measures="pods a second with a claim each, with SchedulerPreQueueingHints on and off",
        limits=">= 711 pods/s with the gate on, >= 2.4 times as many as with it off",
        quick=("--pods", "300", "--nodes", "30", "--runs", "1"),
    ),
    Benchmark(
        name="tight",
        module="bench.scheduling",
        measures="the same where 2,000 pods exactly fill 10 nodes and 8 workers race for them",
        limits="all bound, no node over its allocatable, whatever the policy",
        full=("--tight",),
        quick=("--tight", "--runs", "1"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one benchmark. `text` is its Markdown, or its last words when `code` is not 0."""

    benchmark: Benchmark
    command: list[str]
    code: int
    text: str
    seconds: float


class _Stopped(BaseException):
    """A signal asked to end; the argument is its number."""


def run(benchmark: Benchmark, *, quick: bool) -> Result:
    """Runs it to its end. A signal that ends this process ends it first, and its children with it."""
    command = benchmark.command(quick=quick)
    began = time.monotonic()
    # In a session of its own: Ctrl-C reaches it once, from here, and so it ends its own children in order.
    process = subprocess.Popen(
        [sys.executable, *command[1:]],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
    text = out.strip() if process.returncode == 0 else (err.strip() or out.strip())[-2000:]
    return Result(
        benchmark=benchmark,
        command=command,
        code=process.returncode,
        text=text,
        seconds=time.monotonic() - began,
    )


def revision() -> str:
    """The commit that is checked out, `+` where files differ from it; empty outside of a checkout."""
    git = ["git", "-C", str(_ROOT)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def report(results: Sequence[Result], *, facts: Sequence[tuple[str, str]]) -> str:
    """The whole report, as Markdown."""
    parts = ["# Benchmarks", "\n".join(f"- {name}: {fact}" for name, fact in facts)]
    for result in results:
        benchmark = result.benchmark
        body = result.text
        if result.code:
            body = f"**Failed** with exit code {result.code}:\n\n```text\n{result.text}\n```"
        parts += [
            f"## {benchmark.name}",
            f"Measures {benchmark.measures}. Held to: {benchmark.limits}.",
            f"`{shlex.join(result.command)}` ({result.seconds:.0f} s)",
            body,
        ]
    return "\n\n".join(parts) + "\n"


def _facts(*, load: float) -> list[tuple[str, str]]:
    """Where and when: the load before the run tells a quiet machine from a busy one."""
    facts = [
        ("date", time_text(datetime.now(UTC))),
        ("commit", revision() or "unknown"),
        ("load average before", f"{load:.2f}"),
    ]
    return facts + list(machine().items())


def parser() -> argparse.ArgumentParser:
    names = [benchmark.name for benchmark in BENCHMARKS]
    made = argparse.ArgumentParser(
        prog="python -m bench", description="Runs the benchmarks and writes a report."
    )
    made.add_argument("--list", action="store_true", help="name them, and run none")
    made.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help="run this one (repeatable)"
    )
    made.add_argument(
        "--quick", action="store_true", help="small and few runs: whether they work, not what they say"
    )
    made.add_argument(
        "--out", type=Path, default=Path("out/bench.md"), help="the report (default: %(default)s)"
    )
    return made


def _stop(number: int, _frame: object) -> None:
    raise _Stopped(number)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    chosen = [each for each in BENCHMARKS if args.only is None or each.name in args.only]
    if args.list:
        for benchmark in chosen:
            print(f"{benchmark.name:12}{benchmark.measures}; held to: {benchmark.limits}")
        return 0
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.touch()
    except OSError as error:
        _say(f"python -m bench: --out {args.out}: cannot be written: {error.strerror or error}")
        return 2
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    facts = _facts(load=os.getloadavg()[0])
    results: list[Result] = []
    try:
        for benchmark in chosen:
            _say(f"{benchmark.name}: {shlex.join(benchmark.command(quick=args.quick))}")
            results.append(run(benchmark, quick=args.quick))
            # After each, so that a run that is ended early keeps what it has.
            args.out.write_text(report(results, facts=facts))
            if results[-1].code:
                _say(
                    f"{benchmark.name} failed: {results[-1].text.splitlines()[-1] if results[-1].text else ''}"
                )
    except _Stopped as stopped:
        return 128 + int(stopped.args[0])
    print(args.out.read_text(), end="")
    _say(f"report: {args.out}")
    return 1 if any(result.code for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
