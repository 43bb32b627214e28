"""The command line of `agent-scheduler queues`: the tree of Queues with their limits and allocated resources.

Exit codes: 0, or 2 with one line on standard error for wrong usage or if the cluster cannot be read.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.objects.batch import QUEUES, ROOT_QUEUE, Queue
from kube_client.credentials import KubeConfigError
from kube_client.transport import Endpoint

from .amounts import of_quantities
from .clusters import add_cluster, endpoint_of
from .listing import ReadError, connected, list_all
from .outputs import PROGRAMS, add_output, complain, dumped, show
from .queue_gates import Gates, read_gates
from .tables import table

FAILED: Final = 2
_HEAD = ("QUEUE", "STATE", "CAPABILITY", "DESERVED", "ALLOCATED", "PENDING", "INQUEUE", "RUNNING", "HELD", "RESERVED")
_WIDE = (*_HEAD, "UNKNOWN", "COMPLETED", "GUARANTEE", "WEIGHT", "PRIORITY", "RECLAIMABLE")

#: Shown for unreadable values.
_UNKNOWN: Final = "?"

_decode = msgspec.json.Decoder(Queue).decode


class QueueListing(NamedTuple):
    """The queues of the cluster. `gates` is by queue; None if unreadable, with the reason in `problem`."""

    queues: list[Queue]
    gates: Mapping[str, Gates] | None
    problem: str = ""

    def gates_of(self, queue: str) -> Gates | None:
        return None if self.gates is None else self.gates.get(queue, Gates())


class IndentedQueue(NamedTuple):
    """A queue with its indentation.

    `last` tells for each ancestor below the top, and then for the queue itself, whether it is the last child.
    """

    queue: Queue
    last: tuple[bool, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="QUEUE", help="show only this queue and its descendants (default: all)"
    )
    add_cluster(parser)
    add_output(parser)


def main(args: argparse.Namespace) -> int:
    try:
        read = asyncio.run(_read(endpoint_of(args)))
        leaves = list(tree(read.queues, args.name))
    except (KubeConfigError, ReadError) as error:
        _say(str(error))
        return FAILED
    if args.output in PROGRAMS:
        shown = {"queues": [plain(leaf.queue, read.gates_of(leaf.queue.name)) for leaf in leaves]}
        text = dumped(shown, args.output)
    else:
        if not leaves:
            _say("there are no queues")
        wide = args.output == "wide"
        rows = [row(leaf, read.gates_of(leaf.queue.name), wide=wide) for leaf in leaves]
        text = table(_WIDE if wide else _HEAD, rows)
    if read.problem:
        _say(f"gated pods cannot be read: {read.problem}")
    show(text)
    return 0


def _say(text: str) -> None:
    complain("queues", text)


async def _read(endpoint: Endpoint) -> QueueListing:
    async with connected(endpoint) as transport:
        queues = await list_all(transport, QUEUES, _decode, say=_say)
        try:
            return QueueListing(queues, await read_gates(transport, _say))
        except ReadError as error:
            # Permission to read queues does not imply permission to read all pods.
            return QueueListing(queues, None, str(error))


def tree(queues: Sequence[Queue], top: str | None = None) -> Iterator[IndentedQueue]:
    """Yield parents before children, and siblings by name.

    A queue whose ancestors are missing or form a cycle is at the top; one without a parent is a child of root. Raises
    ReadError if there is no queue `top`.
    """
    by_name = {queue.name: queue for queue in queues}
    children: dict[str, list[str]] = {}
    tops = []
    for name, queue in sorted(by_name.items()):
        parent = _parent(queue)
        if parent in by_name and not _is_in_a_circle(name, by_name):
            children.setdefault(parent, []).append(name)
        else:
            tops.append(name)
    if top is not None:
        if top not in by_name:
            raise ReadError(f"queue {top} does not exist; found: {', '.join(sorted(by_name)) or 'none'}")
        tops = [top]

    def below(name: str, last: tuple[bool, ...]) -> Iterator[IndentedQueue]:
        yield IndentedQueue(by_name[name], last)
        if _is_in_a_circle(name, by_name):
            return
        for child in (there := children.get(name, [])):
            yield from below(child, (*last, child == there[-1]))

    for name in tops:
        yield from below(name, ())


def _parent(queue: Queue) -> str:
    return "" if queue.name == ROOT_QUEUE else queue.spec.parent or ROOT_QUEUE


def _is_in_a_circle(name: str, by_name: Mapping[str, Queue]) -> bool:
    seen: list[str] = []
    at: str = name
    while at in by_name and at not in seen:
        seen.append(at)
        at = _parent(by_name[at])
    return at == name


def row(leaf: IndentedQueue, gates: Gates | None, *, wide: bool) -> Sequence[object]:
    """Return the cells of a line of the table."""
    queue = leaf.queue
    spec, status = queue.spec, queue.status
    indent = "".join("   " if last else "│  " for last in leaf.last[:-1])
    branch = ("└─ " if leaf.last[-1] else "├─ ") if leaf.last else ""
    cells: list[object] = [
        indent + branch + queue.name,
        status.state,
        of_quantities(spec.capability),
        of_quantities(spec.deserved),
        of_quantities(status.allocated),
        status.pending,
        status.inqueue,
        status.running,
        *((_UNKNOWN, _UNKNOWN) if gates is None else gates),
    ]
    if wide:
        guarantee = spec.guarantee.resource if spec.guarantee is not None else None
        reclaimable = "false" if spec.reclaimable is False else "true"
        cells += [status.unknown, status.completed, of_quantities(guarantee), spec.weight, spec.priority, reclaimable]
    return cells


def plain(queue: Queue, gates: Gates | None) -> dict[str, Any]:
    """Return a queue for JSON and YAML; missing values are null."""
    spec, status = queue.spec, queue.status
    return {
        "name": queue.name,
        "parent": _parent(queue) or None,
        "state": status.state or None,
        "capability": spec.capability,
        "deserved": spec.deserved,
        "guarantee": spec.guarantee.resource if spec.guarantee is not None else None,
        "allocated": status.allocated,
        "weight": spec.weight,
        "priority": spec.priority,
        "reclaimable": spec.reclaimable is not False,
        "podGroups": {
            phase: getattr(status, phase) for phase in ("pending", "inqueue", "running", "unknown", "completed")
        },
        "gatedPods": None
        if gates is None
        else {
            standing: {"pods": amount.pods, "resources": dict(amount.resources)}
            for standing, amount in gates._asdict().items()
        },
    }
