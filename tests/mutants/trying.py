"""Puts faults one at a time into copies of the tree, and reports which test detects each."""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .scratch import CannotRun, Scratch

T = TypeVar("T")

#: A failure counts only if that test fails once more alone, because a busy machine must not count as detection. A stage
#: runs this number of times until one does.
_TRIES = 2


@dataclass(frozen=True, slots=True)
class Trial:
    """A fault. `texts`: the changed files, by path; `stages`: paths of tests that are tried one after another."""

    name: str
    texts: Mapping[str, str]
    stages: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a trial. `verdict` is caught, survived, or broken: the fault could not be tried.

    `by`: the test, or the error. `why` is the test's message, which reveals a test that failed for another reason.
    """

    name: str
    verdict: str
    by: str
    seconds: float
    why: str = ""


async def tried(trials: Sequence[Trial], *, jobs: int, timeout: float) -> list[Verdict]:  # noqa: ASYNC109 - of one test
    """Return the verdicts, and print each at once. Raises CannotRun if the tests fail without any fault."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        whole = Scratch.of_the_tree(folder / "whole")
        await whole.check_imports()
        proven = Proven(whole, timeout)
        await proven.prove(sorted({path for trial in trials for path in (trial.stages or [[]])[0]}))
        waiting = list(reversed(trials))
        verdicts: list[Verdict] = []

        async def work(scratch: Scratch) -> None:
            while waiting:
                verdicts.append(await _try(waiting.pop(), scratch, timeout, proven))
                _print(verdicts[-1])

        async with asyncio.TaskGroup() as tasks:
            for job in range(jobs):
                tasks.create_task(work(whole.copy(folder / str(job))))
        return verdicts


class Proven:
    """The tests that pass without any fault, whose failures count. Owner of the unchanged copy.

    The first stage of every fault is run first. The rest is run when a fault reaches it: a simulation after the unit
    tests takes minutes, and few faults reach it.
    """

    def __init__(self, whole: Scratch, timeout: float) -> None:
        self._whole = whole
        self._timeout = timeout
        self._green: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    async def prove(self, paths: Sequence[str]) -> None:
        """Raise CannotRun if a test fails."""
        async with self._one_at_a_time:
            missing = [path for path in paths if path not in self._green]
            if not missing:
                return
            for _ in range(_TRIES):
                run = await self._whole.test(missing, timeout=self._timeout, keep_bytecode=True)
                if not run.failed:
                    self._green.update(missing)
                    return
                if run.hung or (await self._whole.test([run.failed], timeout=self._timeout)).failed:
                    break
            raise CannotRun(f"a test fails without any fault: {run.failed}: {run.why}")


async def _try(trial: Trial, scratch: Scratch, timeout: float, proven: Proven) -> Verdict:  # noqa: ASYNC109
    began = time.monotonic()

    def verdict(word: str, by: str = "", why: str = "") -> Verdict:
        return Verdict(trial.name, word, by, round(time.monotonic() - began, 1), why)

    before = scratch.put(trial.texts)
    try:
        for stage in trial.stages:
            await proven.prove(stage)
            for _ in range(_TRIES):
                run = await scratch.test(stage, timeout=timeout)
                if run.hung:
                    return verdict("caught", f"{run.failed} (it hangs: {run.why})", run.why)
                if not run.failed:
                    break
                if (await scratch.test([run.failed], timeout=timeout)).failed:
                    return verdict("caught", run.failed, run.why)
    except CannotRun as error:
        return verdict("broken", str(error))
    finally:
        scratch.put(before)
    return verdict("survived")


def _print(verdict: Verdict) -> None:
    word = verdict.verdict if verdict.verdict == "caught" else verdict.verdict.upper()
    print(f"{word:8} {verdict.seconds:6.1f} s  {verdict.name}\n{'':18} {verdict.by}".rstrip(), flush=True)


def sampled(given: Sequence[T], count: int, seed: str, *, fits: Callable[[T], bool] = lambda _: True) -> list[T]:
    """Return `count` of the fitting ones, or all: the same ones for the same seed."""
    drawn = list(given)
    random.Random(seed).shuffle(drawn)
    chosen: list[T] = []
    for each in drawn:
        if len(chosen) < count and fits(each):
            chosen.append(each)
    return chosen


def add_arguments(parser: argparse.ArgumentParser, *, timeout: float) -> None:
    """Add the arguments of both commands."""
    parser.add_argument("--sample", type=_positive, metavar="N", help="only N of them, drawn at random")
    parser.add_argument("--seed", default="", metavar="TEXT", help="what the sample is drawn from: a commit")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time (2)")
    parser.add_argument("--timeout", type=float, default=timeout, help="seconds after which a test hangs (%(default)g)")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def verdicts_of(trials: Sequence[Trial], options: argparse.Namespace) -> list[Verdict]:
    """Return the verdicts on the trials by the arguments of both commands. Ends the program if there is no result."""
    # Ended as by Ctrl-C, so that started processes and copies of the tree do not outlive it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        verdicts = asyncio.run(tried(trials, jobs=options.jobs, timeout=options.timeout))
    except CannotRun as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    caught = sum(verdict.verdict == "caught" for verdict in verdicts)
    print(f"{caught} of {len(verdicts)} faults caught")
    return verdicts
