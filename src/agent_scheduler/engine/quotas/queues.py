"""Queues, and their tree by `spec.parent` (scheduling.volcano.sh/v1beta1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from agent_scheduler.objects.batch import ROOT_QUEUE, Queue

from .access import NamespaceList, namespace_list
from .vector import EMPTY, Vector, readable

#: The only state in which a queue takes new pods.
OPEN: Final = "Open"


class QueueInfo(Struct, frozen=True, kw_only=True):
    """A Queue object.

    Otherwise equal queues are ordered by `created`, then `uid`. `parent` may be empty for children of the root.
    """

    name: str
    uid: str = ""
    created: str = ""
    weight: int = 1
    priority: int = 0
    #: None if the object sets no limit.
    capability: Vector | None = None
    deserved: Vector = EMPTY
    guarantee: Vector = EMPTY
    reclaimable: bool = True
    parent: str = ""
    state: str = OPEN
    #: The namespaces that may use it and its descendants without a list; None if the object lists none.
    namespaces: NamespaceList | None = None

    @property
    def open(self) -> bool:
        return self.state == OPEN

    @property
    def lies_in(self) -> str:
        """The name of the parent; empty for the root."""
        return "" if self.name == ROOT_QUEUE else self.parent or ROOT_QUEUE


def queue_info(queue: Queue, problems: list[str]) -> QueueInfo:
    """Compile a Queue; invalid parts are left out and added to `problems` as `place: reason`."""
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
        namespaces=namespace_list(queue.metadata.annotations, problems),
    )


class QueueFault(NamedTuple):
    """A problem with a queue's place in the tree."""

    queue: str
    message: str


class QueueTree:
    """The tree of queues. Immutable.

    `ancestors` are from the parent up to the root. For a queue with a fault they are incomplete: empty if its parent is
    missing, and those before the first repetition if the queue is its own ancestor.
    """

    __slots__ = ("ancestors", "children", "faults", "queues")

    def __init__(self, queues: Iterable[QueueInfo]) -> None:
        self.queues: Mapping[str, QueueInfo] = {queue.name: queue for queue in queues}
        self.ancestors: dict[str, tuple[str, ...]] = {}
        self.children: dict[str, list[str]] = {name: [] for name in self.queues}
        self.faults: list[QueueFault] = []
        if ROOT_QUEUE not in self.queues:
            self.faults.append(
                QueueFault(ROOT_QUEUE, f"queue {ROOT_QUEUE}, the ancestor of all others, does not exist")
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
                        QueueFault(queue.name, f"queue {queue.name} has the parent {name}, which does not exist")
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
        """Return the number of levels below the root at which the ancestors of both are equal."""
        level = 0
        for depth, (one, other) in enumerate(
            zip(reversed(self.ancestors[left]), reversed(self.ancestors[right]), strict=False)
        ):
            if one != other:
                break
            level = depth
        return level

    def branch_at(self, name: str, level: int) -> str:
        """Return the ancestor that is `level` levels below the root, or the queue itself if it is at most as deep."""
        above = self.ancestors[name]
        return above[-1 - level] if level < len(above) else name
