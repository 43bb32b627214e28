"""Judges a run only by the API's own objects: LIST nodes, LIST pods, and sums.

The usage of pods and nodes is computed independently of the scheduler's code, so that a fault there cannot hide itself.
It checks

  * that no node exceeds its allocatable, in any resource, pod count and host ports included;
  * that no pod was left out: an unbound pod that fits some node in the final state is a failure, reported with the
    node; one that fits none counts as rejected, under the scheduler's own condition message;
  * that no GPU is assigned beyond its 1000 thousandths, by the devices in the pods' annotations;
  * how much of the cluster is used.

A pod's requirements for nodes are read in full: requests with init containers, sidecars and overhead (KEP-753), node
selector and affinity, taints, host ports. Rules between pods (inter-pod affinity, topology spread, gangs, volumes,
claims) are not judged: a pod with any of them only counts as rejected, never as left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec
import orjson

from agent_scheduler.engine.state.gpus import ANNOTATION as GPU_INDEX
from agent_scheduler.objects.batch import GROUP_NAME
from apimachinery.quantity import resource_value
from kube_client.transport import Transport

from .requests import ask
from .specs import GPU_MILLI

Object = dict[str, Any]
Amounts = dict[str, int]

#: Large enough to be fast, small enough for any server.
_PAGE = 2000
_FINAL = ("Succeeded", "Failed")
_NODES_AVAILABLE = re.compile(r"\d+/\d+ nodes are available")
_COUNT = re.compile(r"^\d+ ")


@dataclass(slots=True)
class Audit:
    """The verdict. `overcommitted` and `left_out` are sentences, and must be empty."""

    nodes: int = 0
    pods: int = 0
    bound: int = 0
    overcommitted: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    #: Pods that fit no node now, by the message of their PodScheduled condition; those of `unsaid` have none.
    refused: Counter[str] = field(default_factory=Counter)
    unsaid: int = 0
    #: Totals over all nodes: requested by pods that have not ended, and allocatable.
    requested: Amounts = field(default_factory=dict)
    allocatable: Amounts = field(default_factory=dict)
    #: The requested share of CPU of each node.
    cpu_fill: list[float] = field(default_factory=list)
    #: The requested share of GPUs of each node with GPUs.
    gpu_fill: list[float] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.overcommitted and not self.left_out

    def refused_by_gist(self) -> list[tuple[str, int, str]]:
        """Return rejections by gist, most frequent first: gist, number of pods, and most common message."""
        counts: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for message, count in self.refused.most_common():
            counts[gist(message)] += count
            examples.setdefault(gist(message), message)
        return [(text, count, examples[text]) for text, count in counts.most_common()]

    def allocation(self, resource: str) -> float | None:
        """Return the requested share of a resource in the whole cluster; None if no node has it."""
        has = self.allocatable.get(resource, 0)
        return self.requested.get(resource, 0) / has if has else None


def _amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    return {name: resource_value(name, quantity) for name, quantity in (quantities or {}).items()}


def _plus(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    return {name: left.get(name, 0) + right.get(name, 0) for name in left.keys() | right.keys()}


def _larger(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left.keys() | right.keys()}


def pod_amounts(pod: Object) -> Amounts:
    """Return the pod's peak usage of a node, `pods` included."""
    spec = pod["spec"]
    steady: Amounts = {}
    for container in spec["containers"]:
        steady = _plus(steady, _amounts((container.get("resources") or {}).get("requests")))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        amounts = _amounts((container.get("resources") or {}).get("requests"))
        if container.get("restartPolicy") == "Always":
            sidecars = _plus(sidecars, amounts)
            peak = _larger(peak, sidecars)
        else:
            peak = _larger(peak, _plus(sidecars, amounts))
    total = _larger(_plus(steady, sidecars), peak)
    total.update(_amounts((spec.get("resources") or {}).get("requests")))
    total = _plus(total, _amounts(spec.get("overhead")))
    total["pods"] = 1
    return total


def _ports(pod: Object) -> list[tuple[str, str, int]]:
    spec = pod["spec"]
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return [
        (port.get("protocol") or "TCP", port.get("hostIP") or "", port["hostPort"])
        for container in (*spec["containers"], *sidecars)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def _clashing(left: tuple[str, str, int], right: tuple[str, str, int]) -> bool:
    every = ("", "0.0.0.0")
    same_ip = left[1] == right[1] or left[1] in every or right[1] in every
    return left[0] == right[0] and left[2] == right[2] and same_ip


def _expression_holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    operator, values = expression["operator"], expression.get("values") or []
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    try:
        return value is not None and (int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0]))
    except (ValueError, IndexError):
        return False


def _term_holds(term: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    names = {"metadata.name": node["metadata"]["name"]}
    return all(_expression_holds(e, labels) for e in expressions) and all(_expression_holds(e, names) for e in fields)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def admits(node: Object, pod: Object) -> bool:
    """Return whether the node's labels, taints and readiness for pods allow this pod, regardless of free capacity."""
    spec = pod["spec"]
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required and not any(_term_holds(term, node) for term in required["nodeSelectorTerms"]):
        return False
    taints = list((node.get("spec") or {}).get("taints") or ())
    if (node.get("spec") or {}).get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    tolerations = spec.get("tolerations") or ()
    return all(
        taint["effect"] == "PreferNoSchedule" or any(_tolerates(each, taint) for each in tolerations)
        for taint in taints
    )


def _judged(pod: Object) -> bool:
    """Return whether only nodes decide if the pod can be placed, and it should be placed."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    return not (
        spec.get("schedulingGates")
        or pod["metadata"].get("deletionTimestamp")
        or affinity.get("podAffinity")
        or affinity.get("podAntiAffinity")
        or spec.get("topologySpreadConstraints")
        or spec.get("resourceClaims")
        or any("persistentVolumeClaim" in volume for volume in spec.get("volumes") or ())
        # A member of a gang may wait for the others.
        or GROUP_NAME in (pod["metadata"].get("annotations") or {})
    )


def _why_unbound(pod: Object) -> str:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""


def gist(message: str) -> str:
    """Return the reasons of a rejection without numbers of nodes: rejections with one gist are of one kind.

    `0/9 nodes are available: 7 Insufficient cpu, 2 node(s) had untolerated taint. ...` becomes `Insufficient cpu,
    node(s) had untolerated taint`; any other message stays as it is.
    """
    head, colon, rest = message.partition(": ")
    if not colon or not _NODES_AVAILABLE.fullmatch(head):
        return message
    reasons = rest.partition(". ")[0].rstrip(".").split(", ")
    return ", ".join(sorted({_COUNT.sub("", reason) for reason in reasons}))


def _class_of(pod: Object, amounts: Amounts) -> bytes:
    """Return a key that is equal for pods that fit the same nodes."""
    spec = pod["spec"]
    wanted = [spec.get("nodeSelector"), spec.get("affinity"), spec.get("tolerations"), _ports(pod)]
    return orjson.dumps([sorted(amounts.items()), wanted], option=orjson.OPT_SORT_KEYS)


class _Node:
    __slots__ = ("allocatable", "given", "obj", "ports", "untold", "used")

    def __init__(self, obj: Object) -> None:
        self.obj = obj
        status = obj.get("status") or {}
        self.allocatable = _amounts(status.get("allocatable") or status.get("capacity"))
        self.used: Amounts = {}
        self.ports: list[tuple[str, str, int]] = []
        #: The usage of each GPU by the pods' annotations, and the number of pods that request GPUs without an
        #: annotation, as with schedulers that assign none.
        self.given: Counter[int] = Counter()
        self.untold = 0

    def take(self, pod: Object, amounts: Amounts) -> None:
        self.used = _plus(self.used, amounts)
        share, _ = _share(amounts)
        told = (pod["metadata"].get("annotations") or {}).get(GPU_INDEX, "")
        if share and told:
            self.given.update({int(index): share for index in told.split(",")})
        self.untold += bool(share and not told)

    def fits(self, amounts: Amounts) -> bool:
        fits = all(
            self.used.get(name, 0) + amount <= self.allocatable.get(name, 0)
            for name, amount in amounts.items()
            if amount
        )
        share, count = _share(amounts)
        if not fits or not count:
            return fits
        # If pods have no annotation, the free share of each GPU is unknown.
        gpus = range(self.allocatable[GPU_MILLI] // 1000)
        return not self.untold and sum(self.given[index] + share <= 1000 for index in gpus) >= count


def _share(amounts: Amounts) -> tuple[int, int]:
    """Return the pod's share of a GPU, and the number of GPUs."""
    amount = amounts.get(GPU_MILLI, 0)
    return min(amount, 1000), -(-amount // 1000)


def judge(nodes: Iterable[Object], pods: Iterable[Object]) -> Audit:
    """Return the verdict on these objects."""
    audit = Audit()
    states = {node["metadata"]["name"]: _Node(node) for node in nodes}
    audit.nodes = len(states)
    unbound: list[Object] = []
    for pod in pods:
        audit.pods += 1
        name = pod["spec"].get("nodeName")
        phase = (pod.get("status") or {}).get("phase")
        audit.bound += bool(name)
        if not name and phase not in _FINAL:
            unbound.append(pod)
        if not name or phase in _FINAL:
            continue
        state = states.get(name)
        if state is None:
            audit.overcommitted.append(f"{pod['metadata']['name']} is bound to {name}, which does not exist")
            continue
        state.take(pod, pod_amounts(pod))
        for port in _ports(pod):
            if any(_clashing(port, held) for held in state.ports):
                audit.overcommitted.append(f"{name}: host port {port[2]} is held twice")
            state.ports.append(port)
    for name, state in states.items():
        _judge_node(audit, name, state)
    _judge_unbound(audit, states, unbound)
    return audit


def _judge_node(audit: Audit, name: str, state: _Node) -> None:
    for resource, used in sorted(state.used.items()):
        has = state.allocatable.get(resource, 0)
        if used > has:
            audit.overcommitted.append(f"{name}: {resource} requested {used}, allocatable {has}")
    audit.requested = _plus(audit.requested, state.used)
    audit.allocatable = _plus(audit.allocatable, state.allocatable)
    if state.allocatable.get("cpu"):
        audit.cpu_fill.append(state.used.get("cpu", 0) / state.allocatable["cpu"])
    cards = state.allocatable.get(GPU_MILLI, 0) // 1000
    if cards:
        audit.gpu_fill.append(state.used.get(GPU_MILLI, 0) / (1000 * cards))
        for index, given in sorted(state.given.items()):
            if given > 1000 or index >= cards:
                audit.overcommitted.append(f"{name}: GPU {index} of {cards} is given out to {given} of 1000")


def _judge_unbound(audit: Audit, states: Mapping[str, _Node], unbound: Iterable[Object]) -> None:
    fitting: dict[bytes, str | None] = {}
    for pod in unbound:
        amounts = pod_amounts(pod)
        kind = _class_of(pod, amounts)
        if kind not in fitting:
            ports = _ports(pod)
            fitting[kind] = next(
                (
                    name
                    for name, state in states.items()
                    if state.fits(amounts)
                    and not any(_clashing(port, held) for port in ports for held in state.ports)
                    and admits(state.obj, pod)
                ),
                None,
            )
        node = fitting[kind]
        if node is not None and _judged(pod):
            audit.left_out.append(f"{pod['metadata']['name']} is not bound, but fits {node}")
        else:
            why = _why_unbound(pod)
            audit.unsaid += not why
            audit.refused[why or "(the scheduler has written no condition)"] += 1


class _ListMetadata(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


_decode_page = msgspec.json.Decoder(_Page).decode


async def raw_items(transport: Transport, path: str) -> AsyncIterator[bytes]:
    """Yield every object of a list undecoded, page by page, at one version. Raises `RequestFailed`."""
    token = ""
    while True:
        page = f"{path}?limit={_PAGE}" + (f"&continue={quote(token)}" if token else "")
        body = _decode_page(await ask(transport, "GET", page, within=120.0))
        for item in body.items or ():
            yield bytes(item)
        token = body.metadata.continue_
        if not token:
            return


async def fetch(transport: Transport, path: str) -> list[Object]:
    """Return every object of a list. Raises `RequestFailed`."""
    return [orjson.loads(item) async for item in raw_items(transport, path)]
