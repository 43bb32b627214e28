"""The command line of `agent-scheduler check`: a running scheduler compares its state with the cluster.

Exit codes: 0 without differences, 1 with differences, 2 for wrong usage, if no scheduler can be asked, or if the
scheduler could not list everything.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from apimachinery.plural import counted
from apimachinery.visible import visible

from .explain import add_ways, ways_of
from .outputs import complain, dumped, show
from .reach import CHECK, Unreachable, ask_page

SAME, DIFFERENT, FAILED = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_ways(parser)


def main(args: argparse.Namespace) -> int:
    try:
        found = asyncio.run(ask_page(CHECK, ways_of(args)))
    except Unreachable as error:
        complain("check", error)
        return FAILED
    if args.output == "json":
        show(dumped(found, "json"))
    else:
        for line in rendered(found):
            show(f"{visible(line)}\n")
    if found["differences"]:
        return DIFFERENT
    return FAILED if found["not_listed"] else SAME


def rendered(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each difference and each unknown result, then a summary."""
    for each in found["differences"]:
        what = " ".join(filter(None, (each["kind"], each["name"])))
        yield f"{each['where']}: {what + ': ' if what else ''}{each['problem']}"
    for name in found["unsettled"]:
        yield f"unsettled: {name}: changed during every comparison"
    for kind, why in found["not_listed"].items():
        yield f"not listed: {kind}: {why}"
    objects = sum(number for kind, number in found["checked"].items() if kind != "ClassView")
    classes = found["checked"].get("ClassView", 0)
    state = "leads" if found["leading"] else "stands by"
    yield (
        f"{counted(len(found['differences']), 'difference')} among {counted(objects, 'object')} and the cached answers "
        f"for {classes} pod {'class' if classes == 1 else 'classes'}; this scheduler {state}"
    )
