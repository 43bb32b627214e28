"""Small clusters for tests of decisions: objects as JSON would have them.

The vectorised plugins are compared with the plain reading of the rules in `tests.decisions.plain`.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np

from agent_scheduler.engine.rules.topology import Domains
from agent_scheduler.engine.state.columns import Columns
from agent_scheduler.engine.state.ledger import Ledger
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.engine.state.rowlog import RowLog
from agent_scheduler.objects import wire
from tests.decisions.plain.filters import reasons as plain_reasons
from tests.decisions.plain.gpu_share import left as plain_gpus
from tests.decisions.plain.requests import amounts as plain_requests
from tests.decisions.plain.selectors import term_matches as plain_term

__all__ = [
    "GPU",
    "World",
    "node",
    "plain_gpus",
    "plain_reasons",
    "plain_requests",
    "plain_term",
    "pod_json",
    "read_pod",
    "sums_are_right",
]

GPU = "agent-scheduler.io/gpu-milli"

_uids = itertools.count()


def node(name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **more: Any) -> NodeInfo:
    """`more`: labels, taints, unschedulable, other allocatable resources under `extended`, features `declared`,
    and conditions."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **more.get("extended", {})}
    return node_info(
        msgspec.convert(
            {
                "metadata": {
                    "name": name,
                    "uid": more.get("uid", f"uid-{name}"),
                    "labels": {"kubernetes.io/hostname": name, **more.get("labels", {})},
                },
                "spec": {"taints": more.get("taints"), "unschedulable": more.get("unschedulable", False)},
                "status": {
                    "allocatable": allocatable,
                    "declaredFeatures": more.get("declared"),
                    "conditions": more.get("conditions"),
                },
            },
            wire.Node,
        )
    )


def pod_json(name: str = "", *, requests: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod as the API server sends it; `spec` is merged into `spec`, one container has `requests`."""
    number = next(_uids)
    return {
        "metadata": {"name": name or f"p{number}", "namespace": "default", "uid": f"pod-{number}"},
        "spec": {
            "schedulerName": "agent-scheduler",
            "containers": [{"name": "c", "resources": {"requests": requests or {}}}],
            **spec,
        },
    }


def read_pod(body: dict[str, Any], classes: PodClasses) -> PodInfo:
    return PodReader(classes)(msgspec.json.encode(body))


class World:
    """A ledger and the class table that goes with it."""

    def __init__(self, *nodes: NodeInfo) -> None:
        self.ledger = Ledger()
        self.classes = PodClasses()
        for each in nodes:
            self.ledger.set_node(each)

    def pod(self, name: str = "", *, requests: dict[str, str] | None = None, **spec: Any) -> PodInfo:
        return read_pod(pod_json(name, requests=requests, **spec), self.classes)

    def place(self, node_name: str, *, requests: dict[str, str] | None = None, **spec: Any) -> PodInfo:
        pod = self.pod(requests=requests, nodeName=node_name, **spec)
        self.ledger.set_pod(pod, node_name)
        return pod


def sums_are_right(columns: Columns) -> bool:
    """Whether kept sums, which follow the log of counted rows, are what the counts say."""
    domains = Domains.along("kubernetes.io/hostname", columns)
    return all(
        np.array_equal(domains.sums(column, columns.counted), Domains(domains.of).sums(column, RowLog()))
        for column in (*columns.matching.values(), *columns.terms.values())
    )
