"""The command line of `agent-scheduler top`: live statistics of a scheduler.

Rates and percentiles come from the increase of counters and buckets between two samples of `/debug/figures`. Exit
codes: 0, or 2 with one line on standard error for wrong usage or if no scheduler can be asked; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from apimachinery.quantity import text_of
from apimachinery.visible import visible

from .amounts import of_bytes, percent, short
from .explain import add_ways, ways_of
from .outputs import complain, dumped, show
from .reach import FIGURES, WAITING, Unreachable, Ways, ask_page
from .tables import cropped, table

FAILED: Final = 2
#: Terminal codes. The alternate screen keeps the previous content of the terminal.
_CLEAR, _ALTERNATE, _BACK = "\x1b[H\x1b[2J", "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_WAITING_SHOWN: Final = 10
#: Resources whose amounts are not in thousandths.
_WHOLE: Final = ("cpu", "memory", "pods")
_PLACES: Final = ("active", "backoff", "unschedulable", "gated", "batch")

Json = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--interval", type=_seconds, default=2.0, metavar="S", help="seconds between samples (default: 2)"
    )
    parser.add_argument(
        "--once", action="store_true", help="sample twice, print once and exit (default when stdout is not a TTY)"
    )
    add_ways(parser)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: seconds from 0.1 to 3600")
    return value


def main(args: argparse.Namespace) -> int:
    once = args.once or args.output == "json" or not sys.stdout.isatty()
    problem: Unreachable | None = None
    if not once:
        show(_ALTERNATE, styles=(_ALTERNATE,))
    try:
        asyncio.run(_watch(args, once=once))
    except Unreachable as error:
        problem = error
    finally:
        if not once:
            show(_BACK, styles=(_BACK,))
    if problem is not None:
        complain("top", problem)
    return 0 if problem is None else FAILED


async def _watch(args: argparse.Namespace, *, once: bool) -> None:
    ways = ways_of(args)
    before = await ask_page(FIGURES, ways)
    while True:
        await asyncio.sleep(args.interval)
        now, waiting = await ask_page(FIGURES, ways), await _waiting(ways)
        if now["attempts"]["scheduled"] < before["attempts"]["scheduled"]:
            # The leader has changed, and its counters start at zero.
            before = now
            continue
        if args.output == "json":
            show(dumped({**now, "rates": rates(before, now), "waiting": waiting}, "json"))
        else:
            size = shutil.get_terminal_size() if sys.stdout.isatty() else None
            # The cursor is below the last line.
            height = None if once or size is None else size.lines - 1
            shown = screen(before, now, waiting, width=None if size is None else size.columns, height=height)
            bold = not once and "NO_COLOR" not in os.environ
            text = "".join(
                f"{_BOLD}{line}{_PLAIN}\n" if bold and is_heading else f"{line}\n" for line, is_heading in shown
            )
            show(("" if once else _CLEAR) + text, styles=(_CLEAR, _BOLD, _PLAIN))
        if once:
            return
        before = now


async def _waiting(ways: Ways) -> Sequence[Json]:
    """Return the first unschedulable pods."""
    path = f"{WAITING.path}?place=unschedulable&limit={_WAITING_SHOWN}"
    found: Sequence[Json] = (await ask_page(WAITING._replace(path=path), ways))["items"]
    return found


def rates(before: Json, now: Json) -> dict[str, float | None]:
    """Return rates per second of attempt results and conflicts, and percentiles of the time from queue to bind.

    Percentiles are in seconds; None if nothing was bound.
    """
    seconds = max(now["time"] - before["time"], 1e-3)
    found: dict[str, float | None] = {
        result: (count - before["attempts"][result]) / seconds for result, count in now["attempts"].items()
    }
    found["conflicts"] = (now["conflicts"] - before["conflicts"]) / seconds
    rises = [one - other for one, other in zip(now["latency"]["counts"], before["latency"]["counts"], strict=True)]
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        found[name] = percentile(now["latency"]["bounds"], rises, share)
    return found


def percentile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return the quantile as Prometheus' `histogram_quantile`. `counts` are cumulative, one more than `bounds`."""
    total = counts[-1]
    if not total:
        return None
    below = 0
    for index, up_to in enumerate(counts):
        if up_to >= share * total:
            if index >= len(bounds):
                break
            low = bounds[index - 1] if index else 0.0
            return low + (bounds[index] - low) * (share * total - below) / (up_to - below)
        below = up_to
    return bounds[-1]


class ScreenLine(NamedTuple):
    text: str
    is_heading: bool = False


def screen(
    before: Json, now: Json, waiting: Sequence[Json], *, width: int | None = None, height: int | None = None
) -> list[ScreenLine]:
    """Return the lines of the screen: at most `height` of at most `width` characters, if these are given."""
    rows = [
        (each["key"], each["attempts"], ",".join((*each["pending_plugins"], *each["unschedulable_plugins"])))
        for each in waiting
    ]
    sections = [
        text.splitlines()
        for text in (
            _queues(now["queues"], width),
            _gangs(now["gangs"], width),
            _shards(now["shards"], width),
            table(("UNSCHEDULABLE POD", "ATTEMPTS", "REJECTED BY"), rows, width=width) if rows else "",
        )
        if text
    ]
    lines = [ScreenLine(line, not at) for at, line in enumerate(_totals(before, now, width))]
    left = None if height is None else height - len(lines) - sum(1 + len(section) for section in sections)
    if left is not None and left < 0:
        _shorten(sections, -left)
    for head, *others in sections:
        lines += [ScreenLine(""), ScreenLine(head, is_heading=True), *map(ScreenLine, others)]
    return [ScreenLine(line if width is None else cropped(line, width), head) for line, head in lines[:height]]


def _shorten(sections: list[list[str]], excess: int) -> None:
    """Remove rows from the longest sections, whose last line has the number of removed rows."""
    removed = [0] * len(sections)
    while excess > 0:
        longest = max(range(len(sections)), key=lambda at: len(sections[at]), default=0)
        if not sections or len(sections[longest]) <= 2 + (not removed[longest]):
            break
        # The first removal takes two rows, one of them for the number.
        count = 1 if removed[longest] else 2
        del sections[longest][-count:]
        removed[longest] += count
        excess -= 1
    for section, count in zip(sections, removed, strict=True):
        if count:
            section.append(f"and {count} more")


def _totals(before: Json, now: Json, width: int | None) -> Iterator[str]:
    """Yield the lines about the whole scheduler."""
    rate, about, pending = rates(before, now), now["about"], now["pending"]
    state = "leads" if now["leading"] else "stands by"
    if not now["synced"]:
        state = "is not synced yet"
    at = datetime.fromtimestamp(now["time"], UTC).strftime("%H:%M:%S")
    yield f"agent-scheduler {visible(about['version'])} {state}  {at}Z  {visible(about['identity'])}"
    yield (
        f"Scheduled {_number(rate['scheduled'])}/s   unschedulable {_number(rate['unschedulable'])}/s   "
        f"errors {_number(rate['error'])}/s   conflicts {_number(rate['conflicts'])}/s"
    )
    yield "Queue to bind " + "   ".join(f"{name} {_milliseconds(rate[name])}" for name in ("p50", "p95", "p99"))
    yield "Pending " + "   ".join(f"{place} {pending[place]}" for place in _PLACES)
    yield f"Scheduling {pending['in_flight']}   binding {now['binding']}   on nodes {now['placed']}"
    line = f"Nodes {now['nodes']['count']}"
    for part in _used(now["nodes"]["resources"]):
        if width is not None and len(f"{line}   {part}") > width:
            yield line
            line = "     "
        line += f"   {part}"
    yield line


def _number(value: float | None) -> str:
    return short(value or 0.0)


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{short(1000 * seconds)} ms"


def _used(resources: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for name, amount in resources.items():
        if name == "cpu":
            taken, offered = short(amount["taken"] / 1000), short(amount["offered"] / 1000)
        elif name in ("memory", "ephemeral-storage"):
            taken, offered = of_bytes(amount["taken"]), of_bytes(amount["offered"])
        else:
            taken, offered = str(amount["taken"]), str(amount["offered"])
        yield f"{visible(name)} {taken}/{offered} ({percent(amount['taken'], amount['offered'])})"


def _vector(amounts: Mapping[str, float] | None) -> str:
    """Format a vector of the quota book: cpu in millicores, memory in bytes, pods in pods, others in thousandths."""
    units = {name: amount if name in _WHOLE else amount / 1000 for name, amount in (amounts or {}).items()}
    return ",".join(f"{name}={text_of(name, round(amount))}" for name, amount in units.items())


def _queues(queues: Sequence[Json], width: int | None) -> str:
    rows = [
        (
            each["name"],
            each["state"],
            *(_vector(each[key]) for key in ("capability", "deserved", "allocated", "reserved")),
        )
        for each in queues
    ]
    head = ("QUEUE", "STATE", "CAPABILITY", "DESERVED", "ALLOCATED", "RESERVED")
    return table(head, rows, width=width) if rows else ""


def _gangs(gangs: Json, width: int | None) -> str:
    rows = [
        (
            each["name"],
            each["owner"],
            each["queue"],
            each["phase"],
            f"{each['has']}/{each['members']}",
            each["needs"],
            each["why"],
        )
        for each in gangs["shown"][:_WAITING_SHOWN]
    ]
    if not rows:
        return ""
    total = sum(gangs["phases"].values())
    head = "GANG" if total <= len(rows) else f"GANG ({len(rows)} of {total})"
    return table((head, "OWNER", "QUEUE", "PHASE", "PLACED", "NEEDS", "REASON"), rows, width=width)


def _shards(shards: Sequence[Json], width: int | None) -> str:
    rows = [[each[key] for key in ("name", "desired", "inUse", "toAdd", "toRemove")] for each in shards]
    return table(("SHARD", "DESIRED", "IN USE", "TO ADD", "TO REMOVE"), rows, width=width) if rows else ""
