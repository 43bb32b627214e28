"""Typed partial views of Kubernetes objects.

Each struct declares only the fields that decisions or reports need (`apimachinery.wire`).

Parts that many pods have in common (resources, affinity, tolerations, node selector) stay `Raw` here.
`engine.state.podclass` identifies pods with the same bytes in them, and decodes these once for all.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Raw

from apimachinery.wire import Resources, Wire


class OwnerReference(Wire, frozen=True):
    uid: str = ""
    kind: str = ""
    name: str = ""
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


#: A request has room for 100,000 labels or claims, which would need 25 times its size in memory.
_FEW: Final = msgspec.Meta(max_length=1_000)


class ObjectMetadata(Wire, frozen=True):
    """All metadata except annotations, which may be long: `PodMetadata` and `Metadata` declare the used ones."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    generation: int | None = None
    labels: Annotated[dict[str, str], _FEW] | None = None
    owner_references: Annotated[list[OwnerReference], _FEW] | None = None


class Metadata(ObjectMetadata, frozen=True):
    annotations: dict[str, str] | None = None


class PodAnnotations(Wire, frozen=True):
    """The annotations of a pod that schedulers use.

    `engine.state.gpus` explains the first one, `batchinfo` there those of Volcano's API.
    """

    gpu_index: str = msgspec.field(default="", name="agent-scheduler.io/gpu-index")
    group_name: str = msgspec.field(default="", name="scheduling.k8s.io/group-name")
    volcano_group_name: str = msgspec.field(default="", name="scheduling.volcano.sh/group-name")
    queue_name: str = msgspec.field(default="", name="scheduling.volcano.sh/queue-name")
    queue_allocation_gate: str = msgspec.field(default="", name="scheduling.volcano.sh/queue-allocation-gate")
    task_spec: str = msgspec.field(default="", name="volcano.sh/task-spec")
    task_index: str = msgspec.field(default="", name="volcano.sh/task-index")
    task_priority: str = msgspec.field(default="", name="volcano.sh/task-priority")
    preemptable: str | None = msgspec.field(default=None, name="volcano.sh/preemptable")


class PodMetadata(ObjectMetadata, frozen=True):
    annotations: PodAnnotations | None = None


class SchedulingGate(Wire, frozen=True):
    name: str = ""


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    observed_generation: int | None = None


class ContainerPort(Wire, frozen=True):
    container_port: int = 0
    host_port: int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class ResourceRequirements(Wire, frozen=True):
    """A container's requests. Limits are not declared, because the API server derives requests from them."""

    requests: Resources | None = None


class Container(Wire, frozen=True):
    """A container. The `Raw` fields are `ResourceRequirements`, a list of `ContainerPort` and one of `RestartRule`."""

    name: str = ""
    image: str | None = None
    restart_policy: str | None = None
    resources: Raw = Raw()
    ports: Raw = Raw()
    restart_policy_rules: Raw = Raw()


class RestartRule(Wire, frozen=True):
    action: str = ""


class PodResourceClaim(Wire, frozen=True):
    """The name of a claim, or of a template from which a claim is created for the pod."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGroup(Wire, frozen=True):
    """A reference to a PodGroup of scheduling.k8s.io in the pod's namespace."""

    pod_group_name: str = ""


class PodSpec(Wire, frozen=True):
    """A pod's spec. The `Raw` fields are decoded by `engine.state.podclass`, once for all pods with the same bytes."""

    scheduler_name: str = ""
    node_name: str | None = None
    priority: int | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Raw = Raw()
    resources: Raw = Raw()
    node_selector: Raw = Raw()
    affinity: Raw = Raw()
    tolerations: Raw = Raw()
    topology_spread_constraints: Raw = Raw()
    volumes: Raw = Raw()
    resource_claims: Annotated[list[PodResourceClaim], _FEW] | None = None
    preemption_policy: str | None = None
    priority_class_name: str = ""
    active_deadline_seconds: int | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    scheduling_group: SchedulingGroup | None = None


class PodResourceClaimStatus(Wire, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class ContainerStatus(Wire, frozen=True):
    """The resources that the kubelet gives a container, which differ from its spec during a resize (KEP-1287).

    The `Raw` fields are `ResourceRequirements` and `Resources`.
    """

    name: str = ""
    resources: Raw = Raw()
    allocated_resources: Raw = Raw()


class ExtendedResourceClaimStatus(Wire, frozen=True):
    resource_claim_name: str = ""


class PodStatus(Wire, frozen=True):
    """A pod's status.

    `resources` and `allocated_resources` are those of the pod, as in `ContainerStatus` of a container.
    """

    phase: str = ""
    start_time: str | None = None
    nominated_node_name: str | None = None
    conditions: list[Condition] | None = None
    resource_claim_statuses: Annotated[list[PodResourceClaimStatus], _FEW] | None = None
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: Raw = Raw()
    allocated_resources: Raw = Raw()


class Pod(Wire, frozen=True):
    metadata: PodMetadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodEvent(Wire, frozen=True):
    """A watch event about a pod, without bookmarks and errors."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Pod


class Taint(Wire, frozen=True):
    key: str = ""
    effect: str = ""
    value: str | None = None


class NodeSpec(Wire, frozen=True):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class ContainerImage(Wire, frozen=True):
    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(Wire, frozen=True):
    allocatable: Resources | None = None
    capacity: Resources | None = None
    conditions: list[Condition] | None = None
    images: list[ContainerImage] | None = None
    declared_features: list[str] | None = None


class Node(Wire, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# The content of the `Raw` parts of a pod, decoded by `engine.state.podclass`.


class Toleration(Wire, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class SelectorRequirement(Wire, frozen=True):
    """An entry of `matchExpressions` or `matchFields`."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(Wire, frozen=True):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(Wire, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Wire, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class PodAffinityTerm(Wire, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(Wire, frozen=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """Pod affinity or anti-affinity."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Namespace(Wire, frozen=True):
    metadata: Metadata


class LeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Wire, frozen=True):
    metadata: Metadata
    spec: LeaseSpec = LeaseSpec()
