"""The reason why a pod or a group waits, as one value, and one table of all texts about it.

Every component that finds that a pod waits creates a `Verdict`. Conditions, reasons, messages, events, metrics and
explanations of both schedulers are derived from it, and so is the input of autoscalers: they add nodes for pods with
the reason `Unschedulable` only, so only a wait that a node would end has this reason (docs/decisions/0060).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from .queues.shortfall import QUEUE_FULL, QUEUE_NOT_ALLOWED, Shortfall

UNSCHEDULABLE: Final = "Unschedulable"
#: The API server's reason and message for a pod with gates.
SCHEDULING_GATED: Final = "SchedulingGated"
HAS_GATES: Final = "Scheduling is blocked due to non-empty scheduling gates"
NODE_SHARD_NOT_READY: Final = "NodeShardNotReady"
NODE_SHARD_FULL: Final = "NodeShardFull"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
NOT_ENOUGH_PODS: Final = "NotEnoughPods"
GROUP_NOT_FOUND: Final = "PodGroupNotFound"
PROFILE_NOT_FOUND: Final = "ProfileNotFound"
#: Volcano's reasons of a group.
NOT_ENOUGH_TASKS: Final = "NotEnoughTasks"
NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"


class WaitReason(IntEnum):
    """The missing condition.

    A group waits for the first of these that applies, and a member for that of its group unless it has gates itself.
    """

    #: The PodGroup that a pod names does not exist or is invalid.
    GROUP = auto()
    #: Its schedulerName is that of no profile, and no other scheduler has handled the pod.
    PROFILE = auto()
    #: The pod's own gates.
    GATED = auto()
    #: Other pods of its Job, which have to be ready first.
    STAGE = auto()
    #: Pods that do not exist, or that have failed.
    MEMBERS = auto()
    #: Gates of members without which the gang lacks its minimum.
    GATES = auto()
    #: An available NodeShard.
    SHARD = auto()
    #: Room in a ResourceQuota of the namespace.
    QUOTA = auto()
    #: A queue that its namespace may use.
    ACCESS = auto()
    #: Room in the resources that a queue declares, or an existing and open queue.
    QUEUE = auto()
    #: Room in the NodeShard, while other nodes of the cluster have room.
    SHARD_FULL = auto()
    #: Admission to the queue, because the cluster, or the queue's share of it, is used up.
    ADMISSION = auto()
    #: Room that pods are about to free.
    RELEASE = auto()
    #: Free devices on nodes with room for everything else.
    DEVICES = auto()
    NODES = auto()


class Words(NamedTuple):
    #: The reason of a pod's condition PodScheduled.
    reason: str
    #: The reason of a PodGroup's condition, if it differs from that of the pods.
    of_group: str
    #: The value of the label `reason` of metrics, and `waits_for` of explanations.
    label: str
    #: The text about a group for people.
    sentence: str

    @property
    def wants_nodes(self) -> bool:
        """Whether another node would end the wait."""
        return self.reason == UNSCHEDULABLE


def _words(reason: str, label: str, sentence: str, *, of_group: str = "") -> Words:
    return Words(reason, of_group or reason, label, sentence)


_IN_VAIN: Final = "and no node would help"
_QUEUE_SAID: Final = f"It waits for room in a queue, {_IN_VAIN}"

WORDS: Final[Mapping[WaitReason, Words]] = MappingProxyType(
    {
        WaitReason.GROUP: _words(GROUP_NOT_FOUND, "group", "It waits for its PodGroup"),
        WaitReason.PROFILE: _words(PROFILE_NOT_FOUND, "profile", "It waits for a scheduler of its name"),
        WaitReason.GATED: _words(SCHEDULING_GATED, "gates", "It waits for scheduling gates"),
        WaitReason.STAGE: _words(SCHEDULING_GATED, "stage", "It waits for pods of its Job that come first"),
        WaitReason.MEMBERS: _words(
            NOT_ENOUGH_PODS, "members", "It waits for pods that do not exist", of_group=NOT_ENOUGH_TASKS
        ),
        WaitReason.GATES: _words(NOT_ENOUGH_PODS, "gates", "It waits for scheduling gates", of_group=SCHEDULING_GATED),
        WaitReason.SHARD: _words(NODE_SHARD_NOT_READY, "shard", f"It waits for a NodeShard, {_IN_VAIN}"),
        WaitReason.QUOTA: _words(QUOTA_EXCEEDED, "quota", f"It waits for room in a quota of its namespace, {_IN_VAIN}"),
        WaitReason.ACCESS: _words(
            QUEUE_NOT_ALLOWED, "access", f"It waits for a queue that its namespace may use, {_IN_VAIN}"
        ),
        WaitReason.QUEUE: _words(QUEUE_FULL, "queue", _QUEUE_SAID),
        WaitReason.SHARD_FULL: _words(NODE_SHARD_FULL, "shard", f"It waits for room in its NodeShard, {_IN_VAIN}"),
        WaitReason.ADMISSION: _words(
            UNSCHEDULABLE, "admission", "It waits to be let into its queue", of_group=NOT_ENOUGH_RESOURCES
        ),
        WaitReason.RELEASE: _words(
            UNSCHEDULABLE,
            "release",
            "It waits for room that other pods are about to leave",
            of_group=NOT_ENOUGH_RESOURCES,
        ),
        WaitReason.DEVICES: _words(UNSCHEDULABLE, "devices", "It waits for devices", of_group=NOT_ENOUGH_RESOURCES),
        WaitReason.NODES: _words(UNSCHEDULABLE, "nodes", "It waits for nodes", of_group=NOT_ENOUGH_RESOURCES),
    }
)

#: Every value of the label, without duplicates.
LABELS: Final = tuple(dict.fromkeys(words.label for words in WORDS.values()))

#: Label -> the text about a group for people.
SENTENCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "": "It has its minimum.",
        "session": "No session has looked at it",
        **{words.label: words.sentence for words in WORDS.values()},
    }
)


#: Filters that refuse a node for its devices, and run after the other filters.
_OF_DEVICES: Final = frozenset(("DynamicResources", "GPUShare"))


class Verdict(NamedTuple):
    """The missing condition of a pod or a group, with details.

    `queue` has the missing resources of a queue, if the wait is for one. `of_group` is the reason of the group's
    condition, if it is more specific than the table's.
    """

    wait: WaitReason
    message: str = ""
    queue: Shortfall | None = None
    of_group: str = ""

    @property
    def words(self) -> Words:
        return WORDS[self.wait]

    @property
    def reason(self) -> str:
        return self.words.reason

    @property
    def label(self) -> str:
        return self.words.label

    @property
    def wants_nodes(self) -> bool:
        return self.words.wants_nodes

    @property
    def is_closed(self) -> bool:
        """Whether its queue accepts no pods at all, independent of room."""
        return self.queue is not None and not self.queue.missing

    @property
    def group_reason(self) -> str:
        return self.of_group or self.words.of_group


def by_queue(short: Shortfall) -> Verdict:
    return Verdict(WaitReason.ACCESS if short.is_of_namespace else WaitReason.QUEUE, str(short), short)


def by_nodes(message: str, plugins: Collection[str] = ()) -> Verdict:
    """Return the verdict of a pod without a feasible node.

    `plugins` are those that refused one, each node counted for the first that did.
    """
    return Verdict(WaitReason.NODES if _OF_DEVICES.isdisjoint(plugins) else WaitReason.DEVICES, message)


def without_group(key: str) -> Verdict:
    """Return the verdict of a pod whose PodGroup does not exist. `key` is `namespace/name`."""
    return Verdict(WaitReason.GROUP, f"PodGroup {key} does not exist")


def without_profile(name: str, profiles: Sequence[str]) -> Verdict:
    """Return the verdict of a pod with an unknown schedulerName. `profiles` are the known ones."""
    known = ", ".join(profiles)
    why = f"no scheduler has looked at the pod: its schedulerName is {name!r}, and the profiles here are {known}"
    return Verdict(WaitReason.PROFILE, why)


def too_few(valid: int, minimum: int, why: str = "") -> Verdict:
    """Return the verdict of a gang with too few pods that run or may run. `why` replaces the default message."""
    said = why or f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {minimum}"
    return Verdict(WaitReason.MEMBERS, said)


def others_gated(gated: int, members: int, held: int) -> Verdict:
    """Return the verdict of a gang with gated members, `held` of which only have the gate of their queue's capacity."""
    which = f", {held} of them only that of their queue's capacity" if held else ""
    return Verdict(WaitReason.GATES, f"{gated} of the gang's {members} pods have scheduling gates{which}")


def of_own_gates(*, stands_by: bool) -> Verdict:
    """Return the verdict of a pod with its own gates, with the message that the API server sets when it is created."""
    return Verdict(WaitReason.STAGE if stands_by else WaitReason.GATED, HAS_GATES)
