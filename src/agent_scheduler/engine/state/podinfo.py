"""A pod in compiled form, with only the fields that the scheduler needs.

A `PodInfo` is built once from each watch event and never changes. The decoded object is dropped, so 100,000 pods take
tens of megabytes, and the garbage collector need not traverse them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agent_scheduler.objects import wire
from agent_scheduler.objects.batch import STAGE_GATE
from apimachinery.nesting import TOO_DEEP
from apimachinery.salvage import salvage

from .batchinfo import BATCH_LABELS, BatchInfo, GroupKey, batch_info
from .extended import ExtendedNeeds, needs_of
from .gpus import Indices, indices_in
from .podclaims import PodClaim, PodRef
from .podclass import PodClass
from .podclasses import PodClasses
from .quotause import QuotaUse, quota_use
from .requests import Amounts
from .siblings import ControllerRef, controller_of

#: The phases in which a pod no longer uses resources of its node.
FINISHED = ("Succeeded", "Failed")

POD_SCHEDULED = "PodScheduled"
DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"


#: (status, reason, message, observed generation) of a PodScheduled condition.
Condition = tuple[str, str, str, int]


class PodInfo(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One pod at one resourceVersion. Equal only to itself; all tables use `uid` as its key, never the name."""

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
    #: The condition in the API server; None if there is none.
    condition: Condition | None
    created: str
    controller: ControllerRef | None = None
    #: Whether other pods may be evicted for it.
    preempts: bool = True
    #: Whether it was selected to be evicted for another pod.
    preempted: bool = False
    #: The time at which its kubelet acknowledged it, RFC 3339; empty before that.
    started: str = ""
    #: Its resource claims, in the order of its spec.
    claims: tuple[PodClaim, ...] = ()
    #: The requests of its containers, if devices may provide some of them.
    extended: ExtendedNeeds | None = None
    #: The claim for such devices according to its status; empty if none.
    extended_claim: str = ""
    #: `metadata.generation`; 0 if the API server does not set it.
    generation: int = 0
    #: Its group, role, queue and gate; None for most pods.
    batch: BatchInfo | None = None
    #: The assigned GPUs of its node; empty for a pod that requests no GPU or has no node.
    gpus: Indices = ()
    #: The properties that quotas count; None if its scheduler checks no quotas.
    quota: QuotaUse | None = None

    @property
    def metadata(self) -> PodInfo:
        """The pod itself: a reflector reads uid, name, namespace and resource_version from an object's metadata."""
        return self

    @property
    def key(self) -> str:
        """`namespace/name`, for messages."""
        return f"{self.namespace}/{self.name}"

    @property
    def ref(self) -> PodRef:
        return PodRef(self.namespace, self.name, self.uid)

    @property
    def group(self) -> GroupKey | None:
        """The group that it names; it may not exist."""
        return None if self.batch is None else self.batch.group

    @property
    def stands_by(self) -> bool:
        """Whether it has the gate of its stage: it is reserved on a node, and bound after earlier stages have run."""
        return STAGE_GATE in self.gates

    @property
    def closed_gates(self) -> tuple[str, ...]:
        """The gates because of which no node may be chosen for it: all except the gate of its stage."""
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
    #: The pod as last seen, and the class as which it is counted.
    pod: PodInfo
    cls: PodClass
    #: True until the API server has confirmed the bind.
    assumed: bool
    #: The assigned GPUs of the node.
    gpus: Indices


_NO_LABELS: Mapping[str, str] = {}


class PodReader:
    """Decodes pods from the bytes of the API server to `PodInfo`."""

    def __init__(self, classes: PodClasses) -> None:
        self._classes = classes
        self._decode = msgspec.json.Decoder(wire.Pod).decode
        self._decode_event = msgspec.json.Decoder(wire.PodEvent).decode

    def __call__(self, raw: bytes | memoryview | msgspec.Raw) -> PodInfo:
        """Decode a pod. A field of the wrong type is reported in `cls.error`; if the pod runs, it still counts.

        So does a pod that is nested too deeply.

        Raises msgspec.DecodeError for bytes that are no pod.
        """
        try:
            return pod_info(self._decode(raw), self._classes)
        except (msgspec.ValidationError, RecursionError) as error:
            pod = salvage(raw, wire.Pod)
            if not pod.metadata.uid:
                raise
            problem = TOO_DEEP if isinstance(error, RecursionError) else str(error)
            return pod_info(pod, self._classes, problem=problem)

    def read_event(self, line: bytes) -> tuple[str, str, str, PodInfo]:
        """Decode a watch event of a pod. Returns its type, the pod's UID and resourceVersion, and the pod.

        Raises msgspec.DecodeError for any other event, and for a pod with a field of the wrong type.
        """
        event = self._decode_event(line)
        pod = pod_info(event.object, self._classes)
        return event.type, pod.uid, pod.resource_version, pod


def pod_info(pod: wire.Pod, classes: PodClasses, *, problem: str = "") -> PodInfo:
    """Compile a pod. Never raises: `cls.error` has the problem of an invalid spec, or `problem`."""
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
    extended = status.extended_resource_claim_status
    # Arguments are positional, in the order of the fields: keywords would cost eight times as much for each version of
    # each pod. For the same reason rare fields are tested before a function is called for them.
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
        extended.resource_claim_name if extended is not None else "",
        metadata.generation or 0,
        None
        if metadata.annotations is None and spec.scheduling_group is None and BATCH_LABELS.isdisjoint(labels)
        else batch_info(pod, labels),
        indices_in(metadata.annotations.gpu_index, cls.gpu)
        if cls.gpu and spec.node_name and metadata.annotations is not None and metadata.annotations.gpu_index
        else (),
        quota_use(spec) if classes.quotas_for and spec.scheduler_name in classes.quotas_for else None,
    )


def _claims(pod: wire.Pod) -> tuple[PodClaim, ...]:
    """Return the claims that a pod needs, without those for which its status reports that no claim is needed."""
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
