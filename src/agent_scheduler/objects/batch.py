"""Objects for batch scheduling: Volcano's Queue and PodGroup, Kubernetes' own PodGroup, priority classes and quotas.

Wire-compatible with Volcano's scheduling.volcano.sh/v1beta1 and with scheduling.k8s.io/v1alpha2 of Kubernetes 1.36.
As in `wire`, only the used fields are declared.
"""

from __future__ import annotations

from typing import Final

import msgspec

from apimachinery.wire import Resources, Wire

from .wire import LabelSelector, Metadata, OwnerReference

# ---- scheduling.volcano.sh/v1beta1

API_VERSION: Final = "scheduling.volcano.sh/v1beta1"
QUEUES: Final = f"/apis/{API_VERSION}/queues"
#: The path for all namespaces.
POD_GROUPS: Final = f"/apis/{API_VERSION}/podgroups"

#: Phases of a PodGroup.
PENDING: Final = "Pending"
INQUEUE: Final = "Inqueue"
RUNNING: Final = "Running"
UNKNOWN: Final = "Unknown"
COMPLETED: Final = "Completed"
PHASES: Final = (PENDING, INQUEUE, RUNNING, UNKNOWN, COMPLETED)
#: Phases of a group that was not admitted to its queue; a new one has no phase.
NOT_LET_IN: Final = ("", PENDING)
#: The condition of a PodGroup that has, or had, its minimum.
SCHEDULED: Final = "Scheduled"

#: The annotation of a pod that names its PodGroup, and another one that does so if the first is missing.
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
VOLCANO_GROUP_NAME: Final = "scheduling.volcano.sh/group-name"
#: The annotation of a pod, or of its namespace, that names a queue.
QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
#: An annotation of a pod that asks the batch scheduler to manage the gate of the same name.
QUEUE_ALLOCATION_GATE: Final = "scheduling.volcano.sh/queue-allocation-gate"
#: An annotation of a workload: how many of its pods must find room before any of them is bound.
GROUP_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
#: An annotation of a queue: whether it was closed because its parent was.
CLOSED_BY_PARENT: Final = "volcano.sh/closed-by-parent"
PREEMPTABLE: Final = "volcano.sh/preemptable"
TASK_SPEC: Final = "volcano.sh/task-spec"
#: The prefix of the groups that the podgroup controller creates for pods without a group.
GROUP_OF_PODS: Final = "podgroup-"
#: An annotation of a PodGroup: comma-separated names of the roles that wait for others and have not run yet.
WAITING_ROLES: Final = "agent-scheduler.io/waiting-roles"
#: An annotation of a PodGroup: a JSON list of the parts of its `minResources`, by the scopes of quotas. Without it,
#: no pod has an active deadline or affinity to other namespaces.
QUOTA_PARTS: Final = "agent-scheduler.io/quota-parts"
#: An annotation of a PodGroup: the minimum that is still possible after too many of its pods have failed and are not
#: recreated; with the minimums of roles and their sub-groups: `5,worker=2,ps=4/1`.
ATTAINABLE: Final = "agent-scheduler.io/attainable-minimum"
#: A gate of pods that wait until others of their Job have run. They get nodes with their gang like others, and are
#: bound when the gate is removed.
STAGE_GATE: Final = "agent-scheduler.io/depends-on"

#: The root of the queue tree, and the queue of groups without a queue.
ROOT_QUEUE: Final = "root"
DEFAULT_QUEUE: Final = "default"


def queue_path(name: str) -> str:
    return f"{QUEUES}/{name}"


def pod_groups(namespace: str) -> str:
    """Return the path of a namespace's PodGroups."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/podgroups"


def pod_group_path(namespace: str, name: str) -> str:
    return f"{pod_groups(namespace)}/{name}"


class Guarantee(Wire, frozen=True):
    resource: Resources | None = None


class QueueSpec(Wire, frozen=True):
    """A queue's spec. `reclaimable` None means true. With the CRD, `weight` is 1 to 65535, by default 1."""

    weight: int = 1
    capability: Resources | None = None
    deserved: Resources | None = None
    guarantee: Guarantee | None = None
    reclaimable: bool | None = None
    parent: str = ""
    priority: int = 0
    dequeue_strategy: str = "traverse"
    type: str = ""


class Reservation(Wire, frozen=True):
    """Nodes locked for a queue, and their idle resources."""

    nodes: tuple[str, ...] | None = None
    resource: Resources | None = None


class QueueStatus(Wire, frozen=True):
    """A queue's status. `state` is Open, Closed, Closing or Unknown, or empty before a controller has seen the queue.

    The numbers count the queue's PodGroups by phase. `allocated` and `reservation` belong to the scheduler, the rest
    to the queue controller.
    """

    state: str = ""
    pending: int = 0
    running: int = 0
    unknown: int = 0
    inqueue: int = 0
    completed: int = 0
    allocated: Resources | None = None
    reservation: Reservation | None = None


class Queue(Wire, frozen=True):
    """A queue, which is cluster-scoped."""

    metadata: Metadata
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()

    @property
    def name(self) -> str:
        return self.metadata.name


class NetworkTopology(Wire, frozen=True):
    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(Wire, frozen=True):
    name: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None


class PodGroupSpec(Wire, frozen=True):
    """A group's spec.

    `min_task_member` is by role (`volcano.sh/task-spec`); without `min_resources`, enqueueing needs none.
    """

    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Resources | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] | None = None


class PodGroupCondition(Wire, frozen=True):
    """A condition. `type` is Unschedulable or Scheduled. `transition_id` names the session that wrote it."""

    type: str = ""
    status: str = ""
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class PodGroupStatus(Wire, frozen=True):
    """A group's status. `phase` is Pending, Inqueue, Running, Unknown, Completed, or empty, which means Pending."""

    phase: str = ""
    conditions: tuple[PodGroupCondition, ...] | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(Wire, frozen=True):
    """A PodGroup. Its status is no subresource: it is written with the rest of the object."""

    metadata: Metadata
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def waiting_roles(self) -> frozenset[str]:
        """The roles that wait for others and have not had their minimum yet."""
        return frozenset(filter(None, (self.metadata.annotations or {}).get(WAITING_ROLES, "").split(",")))


# ---- bus.volcano.sh/v1alpha1

COMMAND_VERSION: Final = "bus.volcano.sh/v1alpha1"
#: The path for all namespaces.
COMMANDS: Final = f"/apis/{COMMAND_VERSION}/commands"

OPEN_QUEUE: Final = "OpenQueue"
CLOSE_QUEUE: Final = "CloseQueue"


def commands(namespace: str) -> str:
    """Return the path of a namespace's commands."""
    return f"/apis/{COMMAND_VERSION}/namespaces/{namespace}/commands"


def command_path(namespace: str, name: str) -> str:
    return f"{commands(namespace)}/{name}"


class Command(Wire, frozen=True):
    """A command for one of Volcano's controllers about one object, such as from `vcctl`; it has no spec."""

    metadata: Metadata
    action: str = ""
    target: OwnerReference | None = None


# ---- scheduling.k8s.io

NATIVE_API: Final = "/apis/scheduling.k8s.io/v1alpha2"
NATIVE_POD_GROUPS: Final = f"{NATIVE_API}/podgroups"
PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"


class GangPolicy(Wire, frozen=True):
    min_count: int = 1


class BasicPolicy(Wire, frozen=True):
    """Pods are scheduled one by one, as without a group."""


class SchedulingPolicy(Wire, frozen=True):
    """A policy; exactly one of the fields is set."""

    gang: GangPolicy | None = None
    basic: BasicPolicy | None = None


class NativePodGroupSpec(Wire, frozen=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()


class NativeCondition(Wire, frozen=True):
    """A `metav1.Condition`; the scheduler's has the type PodGroupScheduled."""

    type: str = ""
    status: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class NativePodGroupStatus(Wire, frozen=True):
    conditions: tuple[NativeCondition, ...] | None = None


class NativePodGroup(Wire, frozen=True):
    """PodGroup of scheduling.k8s.io/v1alpha2, with a status subresource."""

    metadata: Metadata
    spec: NativePodGroupSpec = NativePodGroupSpec()
    status: NativePodGroupStatus = NativePodGroupStatus()


class PriorityClass(Wire, frozen=True):
    metadata: Metadata
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class QuotaPart(Wire, frozen=True):
    """The combined requests of some of a group's pods, as in `QUOTA_PARTS`.

    `scopes` contains Terminating, BestEffort and CrossNamespacePodAffinity if they apply to these pods.
    """

    scopes: tuple[str, ...] = ()
    priority_class_name: str = ""
    resources: Resources = msgspec.field(default_factory=dict)


# ---- core/v1

RESOURCE_QUOTAS: Final = "/api/v1/resourcequotas"


class ScopeRequirement(Wire, frozen=True):
    """A quota's requirement for pods; `values` are compared for the operators In and NotIn."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ScopeSelector(Wire, frozen=True):
    match_expressions: tuple[ScopeRequirement, ...] | None = None


class ResourceQuotaSpec(Wire, frozen=True):
    """The pods that a quota counts: those that have all `scopes` and match the selector."""

    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Wire, frozen=True):
    """The limits in force and their usage, as last seen by the quota controller."""

    hard: Resources | None = None
    used: Resources | None = None


class ResourceQuota(Wire, frozen=True):
    metadata: Metadata
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()
