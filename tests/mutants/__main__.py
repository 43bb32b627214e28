"""`python -m tests.mutants`: seed each fault, run the tests that should notice, and say which one did.

Exit codes: 0 when every mutant was caught, 1 when one survived, 2 when nothing can be said: a mutant does not fit, or
the tests fail without any.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .catalogue import Mutant, MutantError, all_mutants
from .scratch import CannotRun, Scratch

#: A failure counts if that test fails once more by itself: a busy machine is no reason to call a mutant caught. So
#: often is a path run until one does.
_TRIES = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """`verdict` is caught, survived, or broken: the mutant could not be tried. `by`: which test, or what is wrong.

    `why` is what that test said, so that one that failed for a reason of its own is found out.
    """

    mutant: str
    breaks: str
    verdict: str
    by: str
    seconds: float
    why: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    started = time.monotonic()
    # Ended like by Ctrl-C, so that what it started and the copies of the tree do not outlive it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        mutants = _chosen(all_mutants(), options.only, options.by)
        if options.sample is not None:
            mutants = sampled(mutants, options.sample, options.seed)
            names = " ".join(mutant.name for mutant in mutants)
            print(
                f"a sample by seed {options.seed!r}; again: python -m tests.mutants --only {names}",
                flush=True,
            )
        verdicts = asyncio.run(
            _run(
                mutants,
                jobs=options.jobs,
                timeout=options.timeout,
                by=options.by,
                tell=(lambda _verdict: None) if options.json else _print_row,
                note=lambda text: print(text, file=sys.stderr, flush=True),
            )
        )
    except (MutantError, CannotRun) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    caught = sum(verdict.verdict == "caught" for verdict in verdicts)
    seconds = time.monotonic() - started
    if options.json:
        print(
            json.dumps(
                {"seconds": round(seconds, 1), "mutants": [asdict(each) for each in verdicts]}, indent=2
            )
        )
    else:
        print(f"{caught} of {len(verdicts)} mutants caught, in {seconds:.0f} s")
    if any(verdict.verdict == "broken" for verdict in verdicts):
        return 2
    return int(caught < len(verdicts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these faults, by name")
    parser.add_argument(
        "--by", metavar="PATH", help="only with the tests of PATH, and only mutants that name it"
    )
    parser.add_argument(
        "--sample",
        type=_positive,
        metavar="N",
        help="only N of them, drawn at random",
    )
    parser.add_argument("--seed", default="", metavar="TEXT", help="what the sample is drawn from: a commit")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds after which a test hangs (120)")
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def sampled(mutants: Sequence[Mutant], count: int, seed: str) -> list[Mutant]:
    """`count` of them, or all there are: the same ones for the same seed."""
    drawn = random.Random(seed).sample(list(mutants), min(count, len(mutants)))
    return sorted(drawn, key=lambda mutant: mutant.name)


def _chosen(mutants: list[Mutant], only: Sequence[str] | None, by: str | None) -> list[Mutant]:
    if by is not None:
        mutants = [mutant for mutant in mutants if by in mutant.caught_by]
    if only:
        if unknown := sorted(set(only) - {mutant.name for mutant in mutants}):
            raise MutantError(f"no such fault: {', '.join(unknown)}")
        mutants = [mutant for mutant in mutants if mutant.name in only]
    if not mutants:
        raise MutantError(f"no mutant names {by}" if by else "there are no mutants")
    return mutants


async def _run(
    mutants: list[Mutant],
    *,
    jobs: int,
    timeout: float,  # noqa: ASYNC109 - of one test
    by: str | None,
    tell: Callable[[Verdict], None],
    note: Callable[[str], None],
) -> list[Verdict]:
    """The verdicts, in the order of `mutants`. Raises CannotRun if the tests fail without any of them."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        whole = Scratch.of_the_tree(folder / "whole")
        paths = {mutant.name: _paths(mutant, whole, by) for mutant in mutants}
        began = time.monotonic()
        proven = Proven(whole, timeout)
        summary = await proven.prove(sorted({each[0] for each in paths.values()}))
        note(f"without a mutant: {summary}, {time.monotonic() - began:.0f} s")
        scratches = [whole.copy(folder / str(job)) for job in range(jobs)]
        waiting = list(reversed(mutants))
        verdicts: dict[str, Verdict] = {}

        async def work(scratch: Scratch) -> None:
            while waiting:
                mutant = waiting.pop()
                verdict = await _try(mutant, scratch, paths[mutant.name], timeout, proven)
                verdicts[mutant.name] = verdict
                tell(verdict)

        async with asyncio.TaskGroup() as tasks:
            for scratch in scratches:
                tasks.create_task(work(scratch))
        return [verdicts[mutant.name] for mutant in mutants]


def _paths(mutant: Mutant, scratch: Scratch, by: str | None) -> list[str]:
    """Where its tests are; a path that does not exist is passed over while another one does."""
    paths = [path for path in mutant.caught_by if by in (None, path) and (scratch.root / path).exists()]
    if not paths:
        raise MutantError(f"{mutant.name}: none of {', '.join(mutant.caught_by)} exists")
    return paths


class Proven:
    """Which tests are green without any mutant: a failure of others says nothing. Owner of the copy that stays whole.

    What every mutant is tried on first is proven first. The rest is proven when a mutant gets that far: a simulation
    that stands behind the unit tests takes minutes, and mostly nobody gets there.
    """

    def __init__(self, whole: Scratch, timeout: float) -> None:
        self._whole = whole
        self._timeout = timeout
        self._green: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    async def prove(self, paths: Sequence[str]) -> str:
        """What pytest says in the end. Raises CannotRun if a test fails."""
        async with self._one_at_a_time:
            missing = [path for path in paths if path not in self._green]
            if not missing:
                return "proven"
            for _ in range(_TRIES):
                run = await self._whole.test(missing, timeout=self._timeout, keep_bytecode=True)
                if not run.failed:
                    self._green.update(missing)
                    return run.output.strip().splitlines()[-1].strip("= ")
                if run.hung or (await self._whole.test([run.failed], timeout=self._timeout)).failed:
                    break
            raise CannotRun(f"a test fails without any mutant: {run.failed}: {run.why}")


async def _try(
    mutant: Mutant,
    scratch: Scratch,
    paths: list[str],
    timeout: float,  # noqa: ASYNC109
    proven: Proven,
) -> Verdict:
    began = time.monotonic()

    def verdict(word: str, by: str, why: str = "") -> Verdict:
        return Verdict(mutant.name, mutant.breaks, word, by, round(time.monotonic() - began, 1), why)

    try:
        before = await scratch.apply(mutant)
    except (MutantError, CannotRun) as error:
        return verdict("broken", str(error))
    try:
        for path in paths:
            await proven.prove([path])
            for _ in range(_TRIES):
                run = await scratch.test([path], timeout=timeout)
                if run.hung:
                    return verdict("caught", f"{run.failed} (it hangs: {run.why})", run.why)
                if not run.failed:
                    break
                if (await scratch.test([run.failed], timeout=timeout)).failed:
                    return verdict("caught", run.failed, run.why)
    except CannotRun as error:
        return verdict("broken", str(error))
    finally:
        scratch.restore(before)
    return verdict("survived", "")


def _print_row(verdict: Verdict) -> None:
    by = verdict.by or verdict.verdict.upper()
    if verdict.verdict == "broken":
        by = f"BROKEN: {by}"
    print(f"{verdict.mutant:<42} {verdict.seconds:6.1f} s  {verdict.breaks}\n{'':<52} {by}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
