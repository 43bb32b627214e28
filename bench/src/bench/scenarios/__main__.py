"""Runs scenarios and prints their tables: `python -m bench.scenarios NAME [NAME ...]`.

Runs of a scenario's cases alternate. Each is reported on standard error with its duration; with `--json FILE` all are
written there, one per line. Exit codes: 0 if every run counts, 1 if one was refused, 2 for invalid arguments, 130 after
Ctrl-C and 143 after SIGTERM, once all created objects are removed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import uvloop

from bench.harness.embedded import embedded
from bench.harness.model import Case, Scenario
from bench.harness.result import Run, write_runs
from bench.harness.run import run_once
from bench.harness.site import Site, clean
from bench.harness.traces import TraceError
from kube_client.auth import load_endpoint
from kube_client.credentials import KubeConfigError
from kube_client.http1 import Http1Transport

from .catalogue import SCENARIOS, TRACE, cases, find, names
from .existing import NotHereError, existing
from .options import Options, add_arguments, options_of
from .tables import text_of


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.scenarios", description="Measures a scheduler under load.")
    made.add_argument("names", nargs="*", metavar="NAME", help="names of scenarios, see --list")
    made.add_argument("--list", action="store_true", help="list the scenarios with their cases, and run nothing")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all runs to this file, one JSON object per line")
    made.add_argument(
        "--clean", action="store_true", help="remove what a killed run left on the cluster of --kubeconfig"
    )
    add_arguments(made)
    return made


async def play(
    scenario: Scenario, chosen: Sequence[Case], options: Options, *, keep: Callable[[Run], None]
) -> list[Run]:
    """Play all runs of a scenario, one of each case in turn; `keep` is called with each at its end."""
    runs: list[Run] = []
    began = time.monotonic()
    for number in range(1, options.runs + 1):
        for case in chosen:
            if number > case.most_runs:
                continue
            if options.limit is not None and time.monotonic() - began > options.limit:
                _say(f"{scenario.name}: {options.limit:g} s are over; no further run is begun")
                return runs
            if options.kubeconfig is not None:
                site: AbstractAsyncContextManager[Site] = existing(case, options=options)
            else:
                site = embedded(case, scheduler_name=options.scheduler_name, like_real=options.like_real)
            run = await run_once(case, site, scenario=scenario.name, number=number, bare=options.bare)
            runs.append(run)
            keep(run)
            _say(_told(run, of=min(options.runs, case.most_runs)))
            gc.collect()
    return runs


def _told(run: Run, *, of: int) -> str:
    head = f"{run.scenario}, {run.case}, run {run.number} of {of}: {run.seconds:.1f} s"
    figures = run.figures
    if figures is None:
        return f"{head}, REFUSED: {'; '.join(run.refused)}"
    return f"{head} (set-up {figures.setup_seconds:.1f} s, measured {figures.measured_seconds:.1f} s)"


async def _main(args: argparse.Namespace, options: Options) -> int:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    # As for Ctrl-C, which asyncio turns into a cancellation: created objects are removed on the way out.
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    if args.clean:
        transport = Http1Transport(load_endpoint(kubeconfig=options.kubeconfig))
        try:
            found = await clean(transport)
        finally:
            await transport.close()
        print(f"removed: {', '.join(found) or 'nothing'}")
        return 0
    refused = False
    everything: list[Run] = []

    def keep(run: Run) -> None:
        everything.append(run)
        if args.json is not None:
            write_runs(args.json, everything)

    for name in args.names:
        scenario = find(name, options)
        try:
            chosen = cases(scenario, options)
        except NotHereError as error:
            _say(f"{name}: cannot be run on this cluster: {error}")
            continue
        runs = await play(scenario, chosen, options, keep=keep)
        refused = refused or any(run.refused for run in runs)
        print(f"## {name}\n\n{scenario.measures}\n\n{text_of(scenario, runs)}\n", flush=True)
    return 1 if refused else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _list() -> None:
    for scenario in SCENARIOS:
        print(f"{scenario.name:20}{scenario.measures}")
        print(f"{'':22}{'; '.join(case.name for case in scenario.cases)}")
    print(f"{TRACE:20}the traces of --trace")


def main(argv: Sequence[str] | None = None) -> int:
    made = parser()
    args = made.parse_args(argv)
    if args.list:
        _list()
        return 0
    known = names()
    unknown = [name for name in args.names if name not in known]
    if unknown:
        made.error(f"no scenario {unknown[0]!r}; there are {', '.join(known)}")
    if not args.names and not args.clean:
        made.error("name a scenario, or --list them")
    try:
        options = options_of(args)
        if args.clean and options.kubeconfig is None:
            raise ValueError("--clean needs --kubeconfig")
        for name in args.names:
            find(name, options)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_main(args, options))
    except (ValueError, TraceError, KubeConfigError) as error:
        made.error(str(error))
    except asyncio.CancelledError:
        return 143
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
