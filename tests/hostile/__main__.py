"""Prints the longest step by kind that hostile objects cause: in calls of functions, and in milliseconds of CPU here.

python -m tests.hostile [--seed SEED] [KIND...]
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from contextlib import ExitStack
from time import thread_time
from typing import Any

from kube_client.testing.virtual import virtual_time

from .kinds import HOSTILE_KINDS
from .objects import of_kind
from .playing import beside, counting_calls, hearing, timing_steps, together
from .reviews import REVIEWERS, reviews


def main() -> None:
    made = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("kinds", nargs="*", metavar="KIND", help="by default all")
    given = made.parse_args()
    print(f"{'kind':48} {'calls':>7} {'case':28} {'ms':>7} case")
    for resource in given.kinds or HOSTILE_KINDS:
        calls, milliseconds = (_longest(resource, given.seed, measure) for measure in (counting_calls, timing_steps))
        _print(resource, calls, milliseconds)
        if resource in REVIEWERS:
            _print(f"{resource} (review)", *_reviews(resource, given.seed))


def _print(name: str, calls: tuple[float, str], seconds: tuple[float, str]) -> None:
    print(f"{name:48} {calls[0]:7.0f} {calls[1]:28} {1000 * seconds[0]:7.1f} {seconds[1]}", flush=True)


def _longest(resource: str, seed: int, measure: Any) -> tuple[float, str]:
    found: list[tuple[float, str]] = []

    @virtual_time
    async def run() -> None:
        async with beside() as others:
            for objects in together(of_kind(resource, random.Random(seed), nodes=("n0", "n1"))):
                with measure() as longest:
                    await others.goes_on(objects)
                    step = longest()
                    found.append((step[0] if isinstance(step, tuple) else step, objects[0].case))

    with hearing():
        run()
    return max(found)


def _reviews(resource: str, seed: int) -> Iterator[tuple[float, str]]:
    calls, seconds = (0.0, ""), (0.0, "")
    for each in of_kind(resource, random.Random(seed)):
        for reviewed in reviews(each):
            with ExitStack() as measuring:
                longest = measuring.enter_context(counting_calls())
                reviewed()
                calls = max(calls, (longest()[0], each.case))
            began = thread_time()
            reviewed()
            seconds = max(seconds, (thread_time() - began, each.case))
    yield calls
    yield seconds


if __name__ == "__main__":
    main()
