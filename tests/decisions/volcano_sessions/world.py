"""The cluster of a case, from session to session: objects as an API server would have them."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from operator import attrgetter
from typing import Any

import msgspec

from agent_scheduler.engine.gangs.group import of_pod_group
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.quotas.queues import queue_info
from agent_scheduler.engine.quotas.vector import of_resources
from agent_scheduler.engine.session.close import SessionResult
from agent_scheduler.engine.session.session import ClusterView
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.objects import batch, wire
from tests.decisions.preempting import pdbs_of
from tests.decisions.volcano_sessions.recording import Obj

VOLCANO = "volcano"


def key_of(obj: Obj) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


class World:
    def __init__(self, given: Obj) -> None:
        given = deepcopy(given)
        self.nodes = {key_of(node): node for node in given["nodes"]}
        self.pods = {key_of(pod): pod for pod in given["pods"]}
        self.groups = {key_of(group): group for group in given["podGroups"]}
        self.queues = {queue["metadata"]["name"]: queue for queue in given["queues"]}
        self.priorities = given.get("priorityClasses") or []
        self.budgets = given.get("podDisruptionBudgets") or []
        self._classes = PodClasses(images_for=("", VOLCANO))

    # ---- input of a session

    def open(self) -> tuple[Ledger, ClusterView]:
        ledger = Ledger()
        for node in self.nodes.values():
            ledger.set_node(node_info(msgspec.convert(node, wire.Node), images=True))
        read = PodReader(self._classes)
        infos = {key: read(msgspec.json.encode(pod)) for key, pod in self.pods.items()}
        for info in infos.values():
            if info.node_name and not info.finished:
                ledger.set_pod(info, info.node_name)
        members: dict[GroupKey, list[PodInfo]] = {}
        for info in infos.values():
            if info.scheduler_name == VOLCANO and info.batch is not None and info.batch.group is not None:
                members.setdefault(info.batch.group, []).append(info)
        return ledger, ClusterView(
            groups=[of_pod_group(msgspec.convert(each, batch.PodGroup)) for each in self.groups.values()],
            pods=members,
            queues=[queue_info(msgspec.convert(each, batch.Queue), []) for each in self.queues.values()],
            held={
                name: of_resources(queue["status"]["allocated"])
                for name, queue in self.queues.items()
                if queue.get("status", {}).get("allocated") is not None
            },
            priorities={each["metadata"]["name"]: each.get("value", 0) for each in self.priorities},
            pdbs=pdbs_of(self.budgets),
            default_priority=sum(each["value"] for each in self.priorities if each.get("globalDefault")),
        )

    # ---- results of a session

    def write(self, result: SessionResult, bound: Iterable[tuple[str, str]], evicted: Iterable[str]) -> None:
        """Apply a session's decisions: statuses, conditions and gates that were written, binds and evictions."""
        for each in result.groups:
            if each.write:
                name = f"{each.group.key.namespace}/{each.group.key.name}"
                self.groups[name]["status"] = msgspec.to_builtins(each.status)
        for pod in result.pods:
            status = self.pods[pod.pod.key].setdefault("status", {})
            _set_condition(status, "False", pod.reason, pod.message)
            if pod.nominated:
                status["nominatedNodeName"] = pod.nominated
        for info in result.ungated:
            self._removeGate({"pod": info.key, "gate": batch.QUEUE_ALLOCATION_GATE})
        for queue in filter(attrgetter("write"), result.queues):
            status = self.queues[queue.queue.name].setdefault("status", {})
            status["allocated"] = _resources(queue.allocated)
        for key, node in bound:
            pod = self.pods[key]
            pod["spec"]["nodeName"] = node
            status = pod.setdefault("status", {})
            status["phase"] = "Running"
            _set_condition(status, "True", "", "")
        for key in evicted:
            self.pods.pop(key, None)

    def apply(self, operations: Iterable[Obj]) -> None:
        for operation in operations:
            getattr(self, f"_{operation['op']}")(operation)

    def _succeed(self, operation: Obj) -> None:
        pod = self.pods.get(operation["pod"])
        if pod is not None and pod.get("status", {}).get("phase") == "Running":
            pod["status"]["phase"] = "Succeeded"

    def _deletePod(self, operation: Obj) -> None:
        self.pods.pop(operation["pod"], None)

    def _removeGate(self, operation: Obj) -> None:
        spec = self.pods[operation["pod"]]["spec"]
        gates = spec.get("schedulingGates") or []
        spec["schedulingGates"] = [gate for gate in gates if gate["name"] != operation["gate"]]

    def _annotatePod(self, operation: Obj) -> None:
        pod = self.pods[operation["pod"]]
        pod["metadata"].setdefault("annotations", {}).update(operation["annotations"])

    def _setQueueCapability(self, operation: Obj) -> None:
        self.queues[operation["queue"]]["spec"]["capability"] = operation["capability"]

    def _addPod(self, operation: Obj) -> None:
        self.pods[key_of(operation["pod"])] = deepcopy(operation["pod"])

    def _addPodGroup(self, operation: Obj) -> None:
        self.groups[key_of(operation["podGroup"])] = deepcopy(operation["podGroup"])

    def _addNode(self, operation: Obj) -> None:
        self.nodes[key_of(operation["node"])] = deepcopy(operation["node"])


def _set_condition(status: Obj, value: str, reason: str, message: str) -> None:
    condition = {"type": "PodScheduled", "status": value, "reason": reason, "message": message}
    others = [each for each in status.get("conditions") or [] if each["type"] != "PodScheduled"]
    status["conditions"] = [*others, condition]


def _resources(vector: Any) -> dict[str, str]:
    return {
        resource: f"{int(amount)}m" if resource not in ("memory", "pods") else str(int(amount))
        for resource, amount in vector.items()
    }
