"""Queues, and the tree that they form by `spec.parent` (scheduling.volcano.sh/v1beta1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from agent_scheduler.objects.batch import ROOT_QUEUE, Queue

from .vector import EMPTY, Vector, readable

#: The one state in which a queue takes new pods.
OPEN: Final = "Open"


class QueueInfo(Struct, frozen=True, kw_only=True):
    """A Queue object. `created`, then `uid`, order queues that nothing else does; `parent` is empty for the root's
    children, too."""

    name: str
    uid: str = ""
    created: str = ""
    weight: int = 1
    priority: int = 0
    #: None where the object names no limit at all.
    capability: Vector | None = None
    deserved: Vector = EMPTY
    guarantee: Vector = EMPTY
    reclaimable: bool = True
    parent: str = ""
    state: str = OPEN

    @property
    def open(self) -> bool:
        return self.state == OPEN

    @property
    def lies_in(self) -> str:
        """Its parent's name; empty for the root."""
        return "" if self.name == ROOT_QUEUE else self.parent or ROOT_QUEUE


def queue_info(queue: Queue, problems: list[str]) -> QueueInfo:
    """What an object says; of amounts that cannot be read `problems` gets `spec.field[resource]: why` instead."""
    spec = queue.spec
    guarantee = spec.guarantee.resource if spec.guarantee is not None else None
    return QueueInfo(
        name=queue.name,
        uid=queue.metadata.uid,
        created=queue.metadata.creation_timestamp or "",
        weight=spec.weight,
        priority=spec.priority,
        capability=readable(spec.capability, "spec.capability", problems) if spec.capability else None,
        deserved=readable(spec.deserved, "spec.deserved", problems),
        guarantee=readable(guarantee, "spec.guarantee.resource", problems),
        reclaimable=spec.reclaimable is not False,
        parent=spec.parent,
        state=queue.status.state,
    )


class QueueFault(NamedTuple):
    """Why a queue has no place in the tree."""

    queue: str
    message: str


class QueueTree:
    """Which queue lies in which. It holds what it was made of, and does not change.

    `ancestors` are from the parent up to the root. A queue with a fault has those that can be told: none if its parent
    is missing, and those before the first one that repeats if it is its own ancestor.
    """

    __slots__ = ("ancestors", "children", "faults", "queues")

    def __init__(self, queues: Iterable[QueueInfo]) -> None:
        self.queues: Mapping[str, QueueInfo] = {queue.name: queue for queue in queues}
        self.ancestors: dict[str, tuple[str, ...]] = {}
        self.children: dict[str, list[str]] = {name: [] for name in self.queues}
        self.faults: list[QueueFault] = []
        if ROOT_QUEUE not in self.queues:
            self.faults.append(
                QueueFault(ROOT_QUEUE, f"there is no queue {ROOT_QUEUE}, which all others lie in")
            )
        for name, queue in self.queues.items():
            if queue.lies_in in self.children:
                self.children[queue.lies_in].append(name)
            self.ancestors[name] = self._ancestors(queue)

    def _ancestors(self, queue: QueueInfo) -> tuple[str, ...]:
        found: list[str] = []
        name = queue.lies_in
        while name:
            if name == queue.name:
                self.faults.append(QueueFault(queue.name, f"queue {queue.name} is its own ancestor"))
                break
            above = self.queues.get(name)
            if above is None:
                if not found and name != ROOT_QUEUE:
                    self.faults.append(
                        QueueFault(
                            queue.name, f"queue {queue.name} has the parent {name}, which does not exist"
                        )
                    )
                break
            if name in found:
                break
            found.append(name)
            name = above.lies_in
        return tuple(found)

    def is_leaf(self, name: str) -> bool:
        return not self.children[name]

    def common_levels(self, left: str, right: str) -> int:
        """How far down from the root the ancestors of both are the same; 0 is the root alone, or nothing at all."""
        level = 0
        for depth, (one, other) in enumerate(
            zip(reversed(self.ancestors[left]), reversed(self.ancestors[right]), strict=False)
        ):
            if one != other:
                break
            level = depth
        return level

    def branch_at(self, name: str, level: int) -> str:
        """The ancestor that is `level` levels below the root, or the queue itself if it is no deeper than that."""
        above = self.ancestors[name]
        return above[-1 - level] if level < len(above) else name
