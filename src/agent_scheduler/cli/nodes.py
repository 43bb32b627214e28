"""The command line of `agent-scheduler nodes`: what every node offers to pods, and what of it is taken.

Amounts are those that the scheduler decides by: `status.allocatable`, and of pods what their containers, init
containers and overhead request together. Pods that have ended take nothing.

Exit codes: 0, or 2 where the command is used wrongly or the cluster cannot be read, with one line on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.engine.state.ledger import Ledger
from agent_scheduler.engine.state.nodeinfo import NodeInfo, is_ready, node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.kube.auth import load_endpoint
from agent_scheduler.kube.credentials import KubeConfigError
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint
from agent_scheduler.objects import wire

from .amounts import of_bytes, percent, short
from .listing import Unreadable, list_all
from .outputs import PROGRAMS, add_output, dumped
from .tables import table

FAILED: Final = 2
_PODS: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="}
_HEAD: Final = ("NAME", "STATUS", "PODS", "CPU", "CPU%", "MEMORY", "MEMORY%")

_decode_node = msgspec.json.Decoder(wire.Node).decode


class Row(NamedTuple):
    """`offers` and `taken` by resource, in the ledger's units: cpu in millicores, others as they are counted."""

    node: NodeInfo
    pods: int
    offers: Mapping[str, int]
    taken: Mapping[str, int]

    @property
    def status(self) -> str:
        ready = "Ready" if is_ready(self.node) else "NotReady"
        return f"{ready},SchedulingDisabled" if self.node.unschedulable else ready


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NODE", help="only these (default: all)")
    parser.add_argument("--kubeconfig", metavar="FILE", type=Path, help="as for kubectl")
    parser.add_argument(
        "--sort-by",
        choices=("name", "cpu", "memory", "pods"),
        default="name",
        help="fullest first, or by name",
    )
    add_output(parser, wide="one with all resources")


def main(args: argparse.Namespace) -> int:
    try:
        found = asyncio.run(_read(load_endpoint(kubeconfig=args.kubeconfig)))
        chosen = _chosen(found, args.names)
    except (KubeConfigError, Unreadable) as error:
        _say(str(error))
        return FAILED
    if args.sort_by != "name":
        chosen.sort(key=lambda row: -_share(row, args.sort_by))
    if args.output in PROGRAMS:
        print(dumped({"nodes": [plain(row) for row in chosen]}, args.output), end="")
    else:
        if not chosen:
            _say("there are no nodes")
        print(text(chosen, wide=args.output == "wide"), end="")
    return 0


def _say(problem: str) -> None:
    print(f"agent-scheduler nodes: {' '.join(problem.split())}", file=sys.stderr)


async def _read(endpoint: Endpoint) -> list[Row]:
    """By name."""
    transport = Http1Transport(endpoint)
    try:
        nodes = await list_all(transport, "/api/v1/nodes", _decode_node)
        pods = await list_all(transport, "/api/v1/pods", PodReader(PodClasses()), _PODS)
    finally:
        await transport.close()
    return rows(map(node_info, nodes), pods)


def rows(nodes: Any, pods: Sequence[PodInfo]) -> list[Row]:
    """By name. `nodes`: NodeInfos; `pods`: those on a node that have not ended."""
    ledger = Ledger()
    for node in nodes:
        ledger.set_node(node)
    for pod in pods:
        ledger.set_pod(pod, pod.node_name)
    columns = ledger.columns
    found = []
    for name, row in sorted(ledger.rows.items()):
        info = columns.nodes[row]
        assert info is not None
        offers = {key: columns.offers[row][index] for key, index in columns.interns.resources.items()}
        taken = {key: columns.taken[row][index] for key, index in columns.interns.resources.items()}
        shown = [key for key in offers if offers[key]]
        found.append(
            Row(
                info,
                len(ledger.pods_on(name)),
                {key: offers[key] for key in shown},
                {key: taken[key] for key in shown},
            )
        )
    return found


def _chosen(found: list[Row], names: Sequence[str]) -> list[Row]:
    """Raises Unreadable for a name of no node."""
    if not names:
        return found
    by_name = {row.node.name: row for row in found}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise Unreadable(f"there is no node {missing[0]}; there are {len(found)}")
    return [by_name[name] for name in names]


def _share(row: Row, resource: str) -> float:
    return row.taken.get(resource, 0) / row.offers.get(resource, 0) if row.offers.get(resource) else 0.0


def text(found: Sequence[Row], *, wide: bool) -> str:
    more: list[str] = []
    if wide:
        more = sorted({key for row in found for key in row.offers} - {"cpu", "memory", "pods"})
    lines = []
    for row in found:
        pods, cpu, memory = (row.offers.get(key, 0) for key in ("pods", "cpu", "memory"))
        lines.append(
            (
                row.node.name,
                row.status,
                f"{row.pods}/{pods}",
                f"{short(row.taken.get('cpu', 0) / 1000)}/{short(cpu / 1000)}",
                percent(row.taken.get("cpu", 0), cpu),
                f"{of_bytes(row.taken.get('memory', 0))}/{of_bytes(memory)}",
                percent(row.taken.get("memory", 0), memory),
                *(f"{row.taken.get(key, 0)}/{row.offers[key]}" if key in row.offers else "" for key in more),
            )
        )
    return table((*_HEAD, *(key.upper() for key in more)), lines)


def plain(row: Row) -> dict[str, Any]:
    """For programs: cpu in millicores, the rest as the node counts it."""
    return {
        "name": row.node.name,
        "ready": is_ready(row.node),
        "unschedulable": row.node.unschedulable,
        "pods": row.pods,
        "allocatable": dict(row.offers),
        "requested": dict(row.taken),
    }
