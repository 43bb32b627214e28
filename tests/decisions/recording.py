"""Cases that a real kube-scheduler decided, as recorded.

A case is a cluster and one pending pod, with its result. The README beside each file states its content; the
environment may name another file of the same form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.decisions.plain import Obj, World
from tests.decisions.plain.world import namespace
from tests.support.needed import recorded_cases


@dataclass(frozen=True)
class Storage:
    """The storage objects of a case, as the API server had them, and the result for the pod's claims."""

    classes: tuple[Obj, ...] = ()
    claims: tuple[Obj, ...] = ()
    volumes: tuple[Obj, ...] = ()
    #: Claim -> its volume.
    bound: dict[str, str] = field(default_factory=dict)
    #: Claims for which a volume was to be created.
    provisioning: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.claims)


@dataclass(frozen=True)
class Case:
    """One decision with its scores: the pod's `node`, or the `message` of its refusal."""

    id: int
    #: Name of the file.
    recording: str
    nodes: tuple[Obj, ...]
    pods: tuple[Obj, ...]
    pending: Obj
    node: str | None
    message: str | None
    scores: dict[str, dict[str, int]]
    final: dict[str, int]
    storage: Storage = Storage()

    def world(self, *others: Obj) -> World:
        """Return the cluster of the case, with pods that the case does not list."""
        return _world(self.nodes, (*self.pods, *others), self.pending)


def _world(nodes: tuple[Obj, ...], pods: tuple[Obj, ...], pending: Obj) -> World:
    """Return the world with the namespaces of its pods, which the recordings do not list."""
    return World(nodes, pods, {namespace(pod): {} for pod in (*pods, pending)})


@dataclass(frozen=True)
class PreemptionCase:
    """One decision in a full cluster: `node` if the pod fitted, else the result of preemption."""

    id: int
    world: World
    budgets: tuple[Obj, ...]
    pending: Obj
    node: str | None
    nominated: str | None
    victims: frozenset[str]
    message: str | None


FIRST = "kube-scheduler-1.36.2-decisions.jsonl"
SECOND = "kube-scheduler-1.36.2-decisions-2.jsonl"


def decisions() -> list[Case]:
    """Return the recorded decisions of the file that the environment names, else of both recordings."""
    return [
        Case(
            line["id"],
            line["recording"],
            tuple(line["nodes"]),
            tuple(_with_requests(pod) for pod in line["pods"]),
            _with_requests(line["pending"]),
            line["result"].get("node"),
            line["result"].get("message"),
            line.get("scores") or {},
            line.get("final") or {},
            _storage(line),
        )
        for line in recorded_cases("AGENT_SCHEDULER_DECISIONS", FIRST, SECOND)
    ]


def _storage(line: dict[str, Any]) -> Storage:
    """Return the storage with the parts that the recording lacks: namespaces, and the marks of bound volumes."""
    claims = [_stored(claim, "default") for claim in line.get("pvcs") or ()]
    uids = {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in claims}
    bound = set()
    for claim in claims:
        if (claim.get("status") or {}).get("phase") == "Bound":
            claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            bound.add((claim["metadata"]["name"], claim["spec"]["volumeName"]))
    volumes = [_stored(volume) for volume in line.get("pvs") or ()]
    for volume in volumes:
        ref = volume["spec"].get("claimRef")
        if ref is not None:
            uid = uids[ref["name"]] if (ref["name"], volume["metadata"]["name"]) in bound else ""
            volume["spec"] = {**volume["spec"], "claimRef": {"namespace": "default", "uid": uid, **ref}}
    return Storage(
        tuple(_stored(each) for each in line.get("storageClasses") or ()),
        tuple(claims),
        tuple(volumes),
        line["result"].get("boundVolumes") or {},
        frozenset(line["result"].get("provisioning") or ()),
    )


def _stored(body: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    name = body["metadata"]["name"]
    metadata = {"uid": f"uid-{name}", "resourceVersion": "1", **body["metadata"]}
    return {**body, "metadata": {**metadata, "namespace": namespace} if namespace else metadata}


def preemptions() -> list[PreemptionCase]:
    lines = recorded_cases("AGENT_SCHEDULER_PREEMPTION_DECISIONS", "kube-scheduler-1.36.2-preemption.jsonl")
    return [
        PreemptionCase(
            line["id"],
            _world(tuple(line["nodes"]), tuple(_admitted(pod) for pod in line["pods"]), line["pending"]),
            tuple(
                {**each, "status": {"disruptionsAllowed": each["disruptionsAllowed"]}}
                for each in line.get("pdbs") or ()
            ),
            _admitted(line["pending"]),
            line["result"].get("node"),
            line["result"].get("nominatedNode"),
            frozenset(line["result"].get("victims") or ()),
            line["result"].get("message"),
        )
        for line in lines
    ]


def _admitted(pod: dict[str, Any]) -> Obj:
    """Return the pod as the API server stored it: with the priority of its class, and its start in its status."""
    priority_class = pod["spec"].get("priorityClassName", "p0")
    never, number = priority_class == "pnever", priority_class.removeprefix("p")
    if not never and not number.isdecimal():
        raise ValueError(f"priorityClassName {priority_class!r}: known are pnever, p0, p100 and so on")
    pod = _with_requests(pod)
    spec = {**pod["spec"], "priority": 1000 if never else int(number)}
    spec["preemptionPolicy"] = "Never" if never else "PreemptLowerPriority"
    return {"metadata": pod["metadata"], "spec": spec, "status": {"startTime": pod.get("startTime")}}


def _with_requests(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod as the API server stored it: missing requests equal the limits."""
    spec = pod["spec"]
    filled = {
        part: [_requesting(container) for container in spec[part]]
        for part in ("containers", "initContainers")
        if spec.get(part)
    }
    return {**pod, "spec": {**_requesting(spec), **filled}}


def _requesting(one: dict[str, Any]) -> dict[str, Any]:
    resources = one.get("resources") or {}
    if not resources.get("limits"):
        return one
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**one, "resources": {**resources, "requests": requests}}
