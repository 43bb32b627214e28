"""One invocation of the demo: from its arguments to the table, the report and the exit code."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

import orjson
import uvloop
from rich.console import Console

from agent_scheduler.kube.errors import RequestFailed

from .command import workload_of
from .outcome import Outcome
from .processes import ProcessError
from .report import write_report
from .run import Settings, run
from .traces import TraceError
from .view import LineView, LiveView, View, final_table

#: Columns of tables where there is no terminal to say how many fit.
_WIDTH = 110


class _Terminated(Exception):
    """SIGTERM."""


def execute(args: argparse.Namespace) -> int:
    """Runs the demo as `command` documents it, and returns its exit code."""
    try:
        workload, nodes = workload_of(args)
    except TraceError as error:
        print(f"agent-scheduler demo: {error}", file=sys.stderr)
        return 2
    settings = Settings(
        workload=workload,
        nodes=nodes,
        workers=args.workers,
        scheduler_name=args.scheduler_name,
        patience=args.timeout,
        scheduler_arguments=tuple(args.scheduler_arg),
    )
    # With --json, standard output is for the one object.
    console = Console(stderr=args.json)
    if not console.is_terminal:
        console.width = _WIDTH
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(_run(settings, _view(args, console)))
    except KeyboardInterrupt:
        print("agent-scheduler demo: interrupted", file=sys.stderr)
        return 130
    except _Terminated:
        print("agent-scheduler demo: terminated", file=sys.stderr)
        return 143
    except (ProcessError, RequestFailed, OSError) as error:
        print(f"agent-scheduler demo: {error}", file=sys.stderr)
        return 1
    return _finish(args, console, outcome)


def _view(args: argparse.Namespace, console: Console) -> View:
    if args.json:
        return LineView(lambda text: None)
    if console.is_terminal:
        return LiveView(console)
    return LineView(lambda text: print(text, flush=True))


async def _run(settings: Settings, view: View) -> Outcome:
    task = asyncio.current_task()
    assert task is not None
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        with tempfile.TemporaryDirectory(prefix="agent-scheduler-demo-") as folder, view:
            return await run(settings, view=view, folder=Path(folder))
    except asyncio.CancelledError:
        if terminated:
            raise _Terminated from None
        raise


def _finish(args: argparse.Namespace, console: Console, outcome: Outcome) -> int:
    report: Path | None = None
    if not args.no_report:
        report = args.report or Path("out/demo-report.html")
        try:
            write_report(outcome, report)
        except OSError as error:
            print(f"agent-scheduler demo: --report {report}: {error.strerror or error}", file=sys.stderr)
            return 1
    if args.json:
        values = outcome.as_json() | {"report": str(report) if report else None}
        sys.stdout.write(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        console.print(final_table(outcome))
        if report is not None:
            console.print(f"report: {report}", soft_wrap=True, highlight=False)
    return 0 if outcome.ok else 1
