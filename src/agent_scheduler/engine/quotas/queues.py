"""Queues, and their tree by `spec.parent` (scheduling.volcano.sh/v1beta1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from agent_scheduler.objects.batch import ROOT_QUEUE, Queue

from .access import NamespaceList, namespace_list
from .vector import EMPTY, Vector, readable

#: The consequence of a cycle of parents.
OWN_ANCESTOR: Final = "the queue is its own ancestor, so no limit but its own applies to its pods"
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


def cycles(parents: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield each cycle of a graph in which each name has at most one parent, from a name of it upwards.

    The cost is linear in the number of names.
    """
    done: set[str] = set()
    for start in parents:
        path: dict[str, None] = {}
        name = start
        while name in parents and name not in done and name not in path:
            path[name] = None
            name = parents[name]
        if name in path:
            names = list(path)
            yield names[names.index(name) :]
        done |= path.keys()


class QueueFault(NamedTuple):
    """A problem with a queue's place in the tree."""

    queue: str
    message: str


class QueueTree:
    """The tree of queues. Immutable.

    A queue with a fault has no ancestors: its parent is missing, or it is its own ancestor.
    """

    __slots__ = ("_ancestors", "children", "faults", "queues", "rootless")

    def __init__(self, queues: Iterable[QueueInfo]) -> None:
        self.queues: Mapping[str, QueueInfo] = {queue.name: queue for queue in queues}
        #: The queues that are their own ancestors.
        self.rootless: set[str] = set()
        #: Computed for each queue when they are first read: together they may be many for a deep tree.
        self._ancestors: dict[str, tuple[str, ...]] = {}
        self.children: dict[str, list[str]] = {name: [] for name in self.queues}
        self.faults: list[QueueFault] = []
        if ROOT_QUEUE not in self.queues:
            self.faults.append(
                QueueFault(ROOT_QUEUE, f"queue {ROOT_QUEUE}, the ancestor of all others, does not exist")
            )
        for name, queue in self.queues.items():
            if queue.lies_in in self.children:
                self.children[queue.lies_in].append(name)
            elif queue.lies_in not in ("", ROOT_QUEUE):
                missing = f"queue {name} has the parent {queue.lies_in}, which does not exist"
                self.faults.append(QueueFault(name, missing))
        for cycle in cycles({name: queue.lies_in for name, queue in self.queues.items()}):
            self.rootless.update(cycle)
            self.faults += [QueueFault(name, f"queue {name} is its own ancestor") for name in cycle]

    def parent(self, name: str) -> str:
        """Return the parent of a queue; empty if it has none, if that is missing, or if it is its own ancestor."""
        above = self.queues[name].lies_in
        return above if above in self.queues and name not in self.rootless else ""

    def ancestors(self, name: str) -> tuple[str, ...]:
        """Return the ancestors of a queue, from the parent up to the root."""
        known = self._ancestors.get(name)
        if known is None:
            found: list[str] = []
            above = self.parent(name)
            while above:
                found.append(above)
                above = self.parent(above)
            known = self._ancestors[name] = tuple(found)
        return known

    def is_leaf(self, name: str) -> bool:
        return not self.children[name]

    def common_levels(self, left: str, right: str) -> int:
        """Return the number of levels below the root at which the ancestors of both are equal."""
        level = 0
        for depth, (one, other) in enumerate(
            zip(reversed(self.ancestors(left)), reversed(self.ancestors(right)), strict=False)
        ):
            if one != other:
                break
            level = depth
        return level

    def branch_at(self, name: str, level: int) -> str:
        """Return the ancestor that is `level` levels below the root, or the queue itself if it is at most as deep."""
        above = self.ancestors(name)
        return above[-1 - level] if level < len(above) else name
