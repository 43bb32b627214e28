"""One invocation of the demo: its case played on an embedded cluster, the live view, and table and report at the end.

The run ends when nothing more can happen: every pod is bound, or the others fit nowhere by the audit and no running pod
will end. Faults end it early, with the reason in the outcome: a child that dies, or the timeout.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import orjson
import uvloop
from rich.console import Console

from apimachinery.plural import counted
from apimachinery.visible import visible_lines
from bench.harness.embedded import embedded
from bench.harness.install import kubeconfig_of
from bench.harness.measure import machine
from bench.harness.model import Case, Tuning
from bench.harness.processes import ProcessError
from bench.harness.result import Run, percentiles, waits
from bench.harness.run import Play, run_once
from bench.harness.specs import Refusals, Workload
from bench.harness.traces import TraceError
from kube_client.errors import RequestFailed
from kube_client.transport import Transport

from . import job_story, story
from .outcome import Outcome, Sample, rate
from .report import write_report
from .scenario import case_of, workload_of
from .summary import summary
from .view import Frame, LineView, LiveView, View, final_table

_T = TypeVar("_T")
#: Seconds between two samples.
_TICK = 0.25
#: Columns of tables without a terminal.
_WIDTH = 110


class _Terminated(Exception):
    """Raised on SIGTERM."""


def execute(args: argparse.Namespace) -> int:
    """Run the demo as `command` documents it, and return its exit code."""
    if args.story is not None:
        play = {"gates": story.play, "jobs": job_story.play}[args.story]
        return _ended(lambda: play(_say), lambda _: 0)
    try:
        workload = workload_of(args)
    except TraceError as error:
        print(f"agent-scheduler demo: {visible_lines(str(error))}", file=sys.stderr)
        return 2
    # With --json, standard output contains only the JSON object.
    console = Console(stderr=args.json)
    if not console.is_terminal:
        console.width = _WIDTH
    view = _view(args, console)

    async def shown() -> Outcome:
        with view:
            return await run(args, workload, view)

    return _ended(shown, lambda outcome: _finish(args, console, outcome))


def _ended(work: Callable[[], Awaitable[_T]], finish: Callable[[_T], int]) -> int:
    """Do the work, finish it, and return the exit code."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(_until_terminated(work))
        return finish(found)
    except KeyboardInterrupt:
        print("agent-scheduler demo: interrupted", file=sys.stderr)
        return 130
    except _Terminated:
        print("agent-scheduler demo: terminated", file=sys.stderr)
        return 143
    except BrokenPipeError:
        # The output has no reader. The interpreter would write the rest at its end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ProcessError, RequestFailed, OSError) as error:
        print(f"agent-scheduler demo: {visible_lines(str(error))}", file=sys.stderr)
        return 1


def _view(args: argparse.Namespace, console: Console) -> View:
    if args.json:
        return LineView(lambda text: None)
    if console.is_terminal:
        return LiveView(console)
    return LineView(_say)


def _say(text: str) -> None:
    print(visible_lines(text), flush=True)


async def _until_terminated(work: Callable[[], Awaitable[_T]]) -> _T:
    task = asyncio.current_task()
    assert task is not None
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await work()
    except asyncio.CancelledError:
        if terminated:
            raise _Terminated from None
        raise


async def run(args: argparse.Namespace, workload: Workload, view: View) -> Outcome:
    """Play the case. The scheduler has a token of its service account; the demo itself is an administrator.

    Raises `ProcessError` when no pod could be created.
    """
    gangs = args.gangs if args.trace is None else 0
    case = case_of(workload, workers=args.workers, patience=args.timeout, gangs=gangs)
    sampler = Sampler(case, view)
    # Tokens over plain HTTP on the loopback interface: the demo measures scheduling, not TLS.
    secured = ("--authorization-mode", "RBAC", "--no-tls")
    flags = (
        *("--scheduler-name", args.scheduler_name),
        *("--scheduler-worker-count", str(args.workers)),
        *("--log-level", "warning"),
        # It is the only scheduler of its cluster.
        "--leader-elect=false",
        *args.scheduler_arg,
    )

    async def installed(transport: Transport, kubeconfig: Path) -> Path:
        own = await kubeconfig_of(transport, kubeconfig)
        view.say(f"{counted(len(workload.nodes), 'node')} created; starting the scheduler")
        return own

    with TemporaryDirectory(prefix="agent-scheduler-demo-") as folder:
        file = Path(folder) / "scheduler.json"
        file.write_bytes(orjson.dumps(_configuration(case.tuning)))
        site = embedded(
            case,
            scheduler_name=args.scheduler_name,
            cluster_arguments=secured,
            scheduler_arguments=("--config", str(file), *flags),
            install=installed,
        )
        view.say("starting the cluster")
        played = await run_once(case, site, watch=sampler.run)
    if sampler.play is None:
        raise ProcessError("\n".join(played.refused))
    return _outcome(workload, args.workers, played, sampler.play, sampler.samples)


def _configuration(tuning: Tuning) -> dict[str, Any]:
    """Return the configuration file; everything else is set by flags."""
    batch = {} if tuning.batch is None else {"batch": dict(tuning.batch)}
    return {"apiVersion": "agent-scheduler/v1", "kind": "SchedulerConfiguration", **batch}


def _outcome(workload: Workload, workers: int, played: Run, play: Play, samples: list[Sample]) -> Outcome:
    return Outcome(
        workload=workload,
        workers=workers,
        start=play.began,
        track=play.track,
        gangs=[track for track in play.tracks.values() if track.batch.gang is not None],
        observer=play.observer,
        latest=play.load.latest,
        audit=play.verdict.state,
        figures=play.figures,
        failures=played.refused,
        samples=samples,
        hopeless=Refusals(workload.nodes).counted(workload.pods),
        machine=machine(),
    )


class Sampler:
    """Samples a run and displays it, from the first pod on. `play` is None until then."""

    def __init__(self, case: Case, view: View) -> None:
        self._case = case
        self._view = view
        self.samples: list[Sample] = []
        self.play: Play | None = None

    async def run(self, play: Play) -> None:
        self.play = play
        while True:
            self.samples.append(Sample.of(play, await play.site.meter.read()))
            self._view.show(self._frame(play))
            await asyncio.sleep(_TICK)

    def _frame(self, play: Play) -> Frame:
        samples = self.samples
        sample, before = samples[-1], (samples[-9:-1] or samples[-1:])[0]
        seconds = max(sample.at - before.at, 1e-9)
        return Frame(
            title=self._case.name,
            total=self._case.load.count,
            sample=sample,
            bound_rate=rate(samples),
            created_rate=(sample.created - before.created) / seconds if len(samples) > 1 else 0.0,
            latency=percentiles(waits(play.track.sent, play.track.bound)),
            fill=play.free.fill("cpu"),
            history=[
                (later.bound - earlier.bound) / max(later.at - earlier.at, 1e-9)
                for earlier, later in pairwise(samples[-72:])
            ],
        )


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
        console.print(summary(outcome, report))
    return 0 if outcome.ok else 1
