"""The command line of `agent-scheduler nodes`: the allocatable and the requested resources of every node.

The amounts are those of the scheduler's decisions: `status.allocatable`, and the combined requests of a pod's
containers, init containers and overhead. Finished pods request nothing.

Exit codes: 0, or 2 with one line on standard error for wrong usage or if the cluster cannot be read.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.state.nodeinfo import NodeInfo, is_ready, node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.objects import wire
from apimachinery.plural import counted
from kube_client.credentials import KubeConfigError
from kube_client.transport import Endpoint

from .amounts import of_bytes, percent, short
from .clusters import add_cluster, endpoint_of
from .listing import ReadError, connected, list_all
from .outputs import PROGRAMS, add_output, complain, dumped, show
from .tables import table

FAILED: Final = 2
_PODS: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="}
_HEAD: Final = ("NAME", "STATUS", "PODS", "CPU", "CPU%", "MEMORY", "MEMORY%")

_decode_node = msgspec.json.Decoder(wire.Node).decode


class Row(NamedTuple):
    """A node with `offers` and `taken` by resource, in the ledger's units: cpu in millicores, others as counted."""

    node: NodeInfo
    pods: int
    offers: Mapping[str, int]
    taken: Mapping[str, int]

    @property
    def status(self) -> str:
        ready = "Ready" if is_ready(self.node) else "NotReady"
        return f"{ready},SchedulingDisabled" if self.node.unschedulable else ready


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NODE", help="show only these nodes (default: all)")
    add_cluster(parser)
    parser.add_argument(
        "--sort-by",
        choices=("name", "cpu", "memory", "pods"),
        default="name",
        help="the order: by name, or by usage from high to low",
    )
    add_output(parser, wide="a table with all resources")


def main(args: argparse.Namespace) -> int:
    try:
        found = asyncio.run(_read(endpoint_of(args)))
        chosen = _chosen(found, args.names)
    except (KubeConfigError, ReadError) as error:
        _say(str(error))
        return FAILED
    if args.sort_by != "name":
        chosen.sort(key=lambda row: -_share(row, args.sort_by))
    if args.output in PROGRAMS:
        show(dumped({"nodes": [plain(row) for row in chosen]}, args.output))
    else:
        if not chosen:
            _say("there are no nodes")
        show(text(chosen, wide=args.output == "wide"))
    return 0


def _say(problem: str) -> None:
    complain("nodes", problem)


async def _read(endpoint: Endpoint) -> list[Row]:
    """Return the rows sorted by name."""
    async with connected(endpoint) as transport:
        nodes = await list_all(transport, "/api/v1/nodes", _decode_node, say=_say)
        pods = await list_all(transport, "/api/v1/pods", PodReader(PodClasses()), _PODS, say=_say)
    return rows(map(node_info, nodes), pods)


def rows(nodes: Any, pods: Sequence[PodInfo]) -> list[Row]:
    """Return the rows sorted by name. `nodes` are NodeInfos; `pods` are the unfinished pods on nodes."""
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
                info, len(ledger.pods_on(name)), {key: offers[key] for key in shown}, {key: taken[key] for key in shown}
            )
        )
    return found


def _chosen(found: list[Row], names: Sequence[str]) -> list[Row]:
    """Return the rows of these names. Raises ReadError for an unknown name."""
    if not names:
        return found
    by_name = {row.node.name: row for row in found}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise ReadError(f"node {missing[0]} does not exist; the cluster has {counted(len(found), 'node')}")
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
    """Return a row for JSON and YAML: cpu in millicores, the rest as counted by the node."""
    return {
        "name": row.node.name,
        "ready": is_ready(row.node),
        "unschedulable": row.node.unschedulable,
        "pods": row.pods,
        "allocatable": dict(row.offers),
        "requested": dict(row.taken),
    }
