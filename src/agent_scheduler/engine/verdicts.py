"""What a pod or a group waits for, and all that is said of it: one value, and one table of words.

Whoever finds that a pod waits makes a `Verdict`. Conditions, reasons, messages, events, metrics and explanations of
both schedulers are taken from it, and so is what autoscalers act on: they add nodes for pods that say `Unschedulable`,
and for no others, so only a wait that a node would end has this reason (docs/decisions/0060).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from .quotas.shortfall import QUEUE_FULL, Shortfall

UNSCHEDULABLE: Final = "Unschedulable"
#: What the API server says of a pod with gates, in reason and message.
SCHEDULING_GATED: Final = "SchedulingGated"
HAS_GATES: Final = "Scheduling is blocked due to non-empty scheduling gates"
NODE_SHARD_NOT_READY: Final = "NodeShardNotReady"
NODE_SHARD_FULL: Final = "NodeShardFull"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
NOT_ENOUGH_PODS: Final = "NotEnoughPods"
GROUP_NOT_FOUND: Final = "PodGroupNotFound"
PROFILE_NOT_FOUND: Final = "ProfileNotFound"
#: Volcano's, of a group.
NOT_ENOUGH_TASKS: Final = "NotEnoughTasks"
NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"


class Wait(IntEnum):
    """What is waited for. A group waits for the first of these that holds, and a member for what its group does, unless
    it has gates itself."""

    #: The PodGroup that a pod names is not there, or cannot be read.
    GROUP = auto()
    #: Its schedulerName is that of no profile, and nobody else has looked at the pod.
    PROFILE = auto()
    #: Gates of the pod's own.
    GATED = auto()
    #: Its turn: others of its Job are to be ready first.
    STAGE = auto()
    #: Pods that do not exist, or that have failed.
    MEMBERS = auto()
    #: Gates of members without which the gang has not its minimum.
    GATES = auto()
    #: That there is a NodeShard to go to.
    SHARD = auto()
    #: Room in a ResourceQuota of the namespace.
    QUOTA = auto()
    #: Room in what a queue declares, or that the queue is there, and open.
    QUEUE = auto()
    #: Room in the NodeShard, which other nodes of the cluster have.
    SHARD_FULL = auto()
    #: To be let into the queue, since the cluster, or the queue's share of it, is used up.
    ADMISSION = auto()
    #: Room that pods are about to leave.
    RELEASE = auto()
    #: Devices, which nodes with room for all else have not free.
    DEVICES = auto()
    NODES = auto()


class Words(NamedTuple):
    #: Of a pod's condition PodScheduled.
    reason: str
    #: Of the condition of a PodGroup, where it is not that of the pods.
    of_group: str
    #: The value of the label `reason` of metrics, and `waits_for` of explanations.
    label: str
    #: Of a group, for people.
    sentence: str

    @property
    def wants_nodes(self) -> bool:
        """Whether a node more would end the wait."""
        return self.reason == UNSCHEDULABLE


def _words(reason: str, label: str, sentence: str, *, of_group: str = "") -> Words:
    return Words(reason, of_group or reason, label, sentence)


_IN_VAIN: Final = "and no node would help"
_QUEUE_SAID: Final = f"It waits for room in a queue, {_IN_VAIN}"

WORDS: Final[Mapping[Wait, Words]] = MappingProxyType(
    {
        Wait.GROUP: _words(GROUP_NOT_FOUND, "group", "It waits for its PodGroup"),
        Wait.PROFILE: _words(PROFILE_NOT_FOUND, "profile", "It waits for a scheduler of its name"),
        Wait.GATED: _words(SCHEDULING_GATED, "gates", "It waits for scheduling gates"),
        Wait.STAGE: _words(SCHEDULING_GATED, "stage", "It waits for pods of its Job that come first"),
        Wait.MEMBERS: _words(
            NOT_ENOUGH_PODS, "members", "It waits for pods that there are not", of_group=NOT_ENOUGH_TASKS
        ),
        Wait.GATES: _words(
            NOT_ENOUGH_PODS, "gates", "It waits for scheduling gates", of_group=SCHEDULING_GATED
        ),
        Wait.SHARD: _words(NODE_SHARD_NOT_READY, "shard", f"It waits for a NodeShard, {_IN_VAIN}"),
        Wait.QUOTA: _words(
            QUOTA_EXCEEDED, "quota", f"It waits for room in a quota of its namespace, {_IN_VAIN}"
        ),
        Wait.QUEUE: _words(QUEUE_FULL, "queue", _QUEUE_SAID),
        Wait.SHARD_FULL: _words(NODE_SHARD_FULL, "shard", f"It waits for room in its NodeShard, {_IN_VAIN}"),
        Wait.ADMISSION: _words(
            UNSCHEDULABLE, "admission", "It waits to be let into its queue", of_group=NOT_ENOUGH_RESOURCES
        ),
        Wait.RELEASE: _words(
            UNSCHEDULABLE,
            "release",
            "It waits for room that other pods are about to leave",
            of_group=NOT_ENOUGH_RESOURCES,
        ),
        Wait.DEVICES: _words(UNSCHEDULABLE, "devices", "It waits for devices", of_group=NOT_ENOUGH_RESOURCES),
        Wait.NODES: _words(UNSCHEDULABLE, "nodes", "It waits for nodes", of_group=NOT_ENOUGH_RESOURCES),
    }
)

#: Every value of the label, once.
LABELS: Final = tuple(dict.fromkeys(words.label for words in WORDS.values()))

#: By label, what a group is said to wait for.
SENTENCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "": "It has its minimum.",
        "session": "No session has looked at it",
        **{words.label: words.sentence for words in WORDS.values()},
    }
)


#: Filters that refuse a node for its devices, after those that ask for all else.
_OF_DEVICES: Final = frozenset(("DynamicResources", "GPUShare"))


class Verdict(NamedTuple):
    """What is waited for, and what there is to say of that. `queue`: what a queue lacks, of those that wait for one.
    `of_group`: the reason of the group's condition, where that is more than the table says."""

    wait: Wait
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
        """Whether its queue takes no pods at all, whatever there is room for."""
        return self.queue is not None and not self.queue.missing

    @property
    def group_reason(self) -> str:
        return self.of_group or self.words.of_group


def by_queue(short: Shortfall) -> Verdict:
    return Verdict(Wait.QUEUE, str(short), short)


def by_nodes(message: str, plugins: Collection[str] = ()) -> Verdict:
    """No node will do. `plugins`: those that refused one, each node counted for the first that did."""
    return Verdict(Wait.NODES if _OF_DEVICES.isdisjoint(plugins) else Wait.DEVICES, message)


def without_group(key: str) -> Verdict:
    """`key`: `namespace/name`."""
    return Verdict(Wait.GROUP, f"PodGroup {key} does not exist")


def without_profile(name: str, profiles: Sequence[str]) -> Verdict:
    """`profiles`: those that there are."""
    known = ", ".join(profiles)
    why = f"no scheduler has looked at the pod: its schedulerName is {name!r}, and the profiles here are {known}"
    return Verdict(Wait.PROFILE, why)


def too_few(valid: int, minimum: int, why: str = "") -> Verdict:
    """A gang has so many pods that run or may. `why`: in whose words it is said otherwise."""
    said = why or f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {minimum}"
    return Verdict(Wait.MEMBERS, said)


def others_gated(gated: int, members: int, held: int) -> Verdict:
    """`held`: by the gate of their queue's capacity, and by nothing else."""
    which = f", {held} of them only that of their queue's capacity" if held else ""
    return Verdict(Wait.GATES, f"{gated} of the gang's {members} pods have scheduling gates{which}")


def of_own_gates(*, stands_by: bool) -> Verdict:
    """In the API server's words, which it says itself as the pod is created."""
    return Verdict(Wait.STAGE if stands_by else Wait.GATED, HAS_GATES)
