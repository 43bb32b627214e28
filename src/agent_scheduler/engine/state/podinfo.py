"""A pod as the scheduler remembers it: what decides its fate, and nothing else.

Made once from each watch event and never changed. The object that came over the wire is dropped, so 100,000
pods cost tens of megabytes and give the garbage collector nothing to follow.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agent_scheduler.objects import wire
from agent_scheduler.objects.batch import STAGE_GATE
from agent_scheduler.objects.salvage import salvage

from .batchinfo import BATCH_LABELS, BatchInfo, GroupKey, batch_info
from .extended import ExtendedNeeds, needs_of
from .gpus import Indices, indices_in
from .owners import Controller, controller_of
from .podclaims import PodClaim, PodRef
from .podclass import PodClass
from .podclasses import PodClasses
from .quotause import QuotaUse, quota_use
from .requests import Amounts

#: The phases in which a pod no longer holds anything on its node.
FINISHED = ("Succeeded", "Failed")

POD_SCHEDULED = "PodScheduled"
DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"


#: (status, reason, message, observed generation) of a PodScheduled condition.
Condition = tuple[str, str, str, int]


class PodInfo(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One pod at one resourceVersion. Equal only to itself; keyed everywhere by `uid`, never by name."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    scheduler_name: str
    node_name: str
    nominated_node_name: str
    priority: int
    labels: Mapping[str, str]
    gates: tuple[str, ...]
    claim_statuses: tuple[tuple[str, str], ...]
    cls: PodClass
    deleting: bool
    finished: bool
    #: What the API server holds, or None.
    condition: Condition | None
    created: str
    controller: Controller | None = None
    #: Whether others may be evicted for it.
    preempts: bool = True
    #: Whether it was chosen to be evicted for another pod.
    preempted: bool = False
    #: When its kubelet took it on, RFC 3339; empty before that.
    started: str = ""
    #: Its resource claims, in the order of its spec.
    claims: tuple[PodClaim, ...] = ()
    #: What its containers ask for, where some of it may be devices.
    extended: ExtendedNeeds | None = None
    #: The claim that its status names for such devices; empty if none.
    extended_claim: str = ""
    #: Of its spec, as the API server counts them; 0 where it does not.
    generation: int = 0
    #: What it says of its part in a batch; None for most pods.
    batch: BatchInfo | None = None
    #: The devices of its node that it was given; empty for a pod that asks for no GPU, or has no node.
    gpus: Indices = ()
    #: What quotas ask about it; None where nobody asks them for its scheduler.
    quota: QuotaUse | None = None

    @property
    def metadata(self) -> PodInfo:
        """Itself: a reflector reads uid, name, namespace and resource_version of an object's metadata."""
        return self

    @property
    def key(self) -> str:
        """`namespace/name`, for people."""
        return f"{self.namespace}/{self.name}"

    @property
    def ref(self) -> PodRef:
        return PodRef(self.namespace, self.name, self.uid)

    @property
    def group(self) -> GroupKey | None:
        """The group that it names, which need not exist."""
        return None if self.batch is None else self.batch.group

    @property
    def stands_by(self) -> bool:
        """Whether it is not bound yet to the node that it is given, until others of its Job have run."""
        return STAGE_GATE in self.gates

    @property
    def closed_gates(self) -> tuple[str, ...]:
        """Those that keep it from being given a node."""
        return tuple(gate for gate in self.gates if gate != STAGE_GATE)

    @property
    def requests(self) -> Amounts:
        return self.cls.requests

    @property
    def tolerations(self) -> tuple[wire.Toleration, ...]:
        return self.cls.tolerations


class Placement(msgspec.Struct, eq=False):
    """A pod on a node, as the ledger counts it. Owner: the ledger."""

    uid: str
    node_name: str
    #: As it was last seen, and what it is counted as.
    pod: PodInfo
    cls: PodClass
    #: Until the API server is known to have the pod there.
    assumed: bool
    #: The devices that it was given, of those of the node.
    gpus: Indices


_NO_LABELS: Mapping[str, str] = {}


class PodReader:
    """Makes `PodInfo`s of the bytes that the API server sends."""

    def __init__(self, classes: PodClasses) -> None:
        self._classes = classes
        self._decode = msgspec.json.Decoder(wire.Pod).decode
        self._decode_event = msgspec.json.Decoder(wire.PodEvent).decode

    def __call__(self, raw: bytes | memoryview | msgspec.Raw) -> PodInfo:
        """A pod with a field of the wrong shape is one whose `cls.error` says so: if it runs, it takes its room.

        Raises msgspec.DecodeError for what is no pod at all.
        """
        try:
            return pod_info(self._decode(raw), self._classes)
        except msgspec.ValidationError as error:
            pod = salvage(raw, wire.Pod)
            if not pod.metadata.uid:
                raise
            return pod_info(pod, self._classes, problem=str(error))

    def read_event(self, line: bytes) -> tuple[str, str, str, PodInfo]:
        """Of a watch event about a pod its type, the pod's UID and version, and the pod. Raises msgspec.DecodeError for
        any other event, and for a pod with a field of the wrong shape."""
        event = self._decode_event(line)
        pod = pod_info(event.object, self._classes)
        return event.type, pod.uid, pod.resource_version, pod


def pod_info(pod: wire.Pod, classes: PodClasses, *, problem: str = "") -> PodInfo:
    """What to remember of `pod`. Never raises: a spec that cannot be read is in `cls.error`, as is `problem`."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    condition = None
    preempted = False
    if status.conditions:
        for each in status.conditions:
            if each.type == POD_SCHEDULED:
                said = (each.status, each.reason or "", each.message or "")
                condition = (*said, each.observed_generation or 0)
            elif each.type == DISRUPTION_TARGET:
                preempted = each.status == "True" and each.reason == PREEMPTION_BY_SCHEDULER
    uid, namespace, name = metadata.uid, metadata.namespace, metadata.name
    labels = metadata.labels or _NO_LABELS
    cls = classes.of(spec, status, namespace, name, uid, labels, "", problem)
    claimed = status.resource_claim_statuses
    told = status.extended_resource_claim_status
    # In the order of the fields: by their names it would cost eight times as much, for each version of each pod. Most
    # pods have nothing of what is asked about before it is looked at.
    return PodInfo(
        uid,
        namespace,
        name,
        metadata.resource_version,
        spec.scheduler_name,
        spec.node_name or "",
        status.nominated_node_name or "",
        spec.priority or 0,
        labels,
        tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
        tuple((claim.name, claim.resource_claim_name or "") for claim in claimed) if claimed else (),
        cls,
        metadata.deletion_timestamp is not None,
        status.phase in FINISHED,
        condition,
        metadata.creation_timestamp or "",
        controller_of(metadata.owner_references) if metadata.owner_references else None,
        spec.preemption_policy != "Never",
        preempted,
        status.start_time or "",
        _claims(pod) if spec.resource_claims else (),
        needs_of(spec) if cls.extended else None,
        told.resource_claim_name if told is not None else "",
        metadata.generation or 0,
        None
        if metadata.annotations is None and spec.scheduling_group is None and BATCH_LABELS.isdisjoint(labels)
        else batch_info(pod, labels),
        indices_in(metadata.annotations.gpu_index)
        if cls.gpu and spec.node_name and metadata.annotations is not None and metadata.annotations.gpu_index
        else (),
        quota_use(spec) if classes.quotas_for and spec.scheduler_name in classes.quotas_for else None,
    )


def _claims(pod: wire.Pod) -> tuple[PodClaim, ...]:
    """The claims that a pod needs. One that its template turned out not to be needed for is none."""
    metadata = pod.metadata
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()}
    found = []
    for each in pod.spec.resource_claims or ():
        if each.resource_claim_name:
            found.append(PodClaim(each.name, (metadata.namespace, each.resource_claim_name)))
        elif each.name not in made:
            found.append(PodClaim(each.name, None, metadata.uid))
        elif name := made[each.name]:
            found.append(PodClaim(each.name, (metadata.namespace, name), metadata.uid))
    return tuple(found)
