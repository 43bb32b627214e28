"""The states of queues, by Volcano's rules (`pkg/controllers/queue/state`). Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from agent_scheduler.objects.batch import CLOSED_BY_PARENT, PHASES, ROOT_QUEUE, Queue

OPEN: Final = "Open"
CLOSED: Final = "Closed"
CLOSING: Final = "Closing"
UNKNOWN: Final = "Unknown"

#: New groups are not scheduled in a queue with such a state.
SHUT: Final = frozenset({CLOSED, CLOSING})

#: The phases of PodGroups, and the fields of a queue's status that count them.
COUNTED: Final = {phase: phase.lower() for phase in PHASES}


class QueueAction(enum.Enum):
    """The action that the parent queue's state requires."""

    NONE = enum.auto()
    OPEN = enum.auto()
    CLOSE = enum.auto()
    #: The queue is open, and still marked as closed by its parent.
    UNMARK = enum.auto()


def synced(state: str, *, has_groups: bool) -> str:
    """Return the state of a queue without a command to open or close it."""
    if state in ("", OPEN):
        return OPEN
    if state == CLOSED or (state == CLOSING and not has_groups):
        return CLOSED
    return state if state == CLOSING else UNKNOWN


def closed(state: str, *, has_groups: bool) -> str:
    """Return the state of a queue that is being closed."""
    return CLOSED if state == CLOSED or not has_groups else CLOSING


def parent_of(queue: Queue) -> str:
    """Return the parent's name; only the root has none."""
    return "" if queue.name == ROOT_QUEUE else queue.spec.parent or ROOT_QUEUE


def is_own_ancestor(queue: Queue, queues: Mapping[str, Queue]) -> bool:
    """Return whether the parents of a queue lead back to it. `queues` are all queues by name."""
    seen: set[str] = set()
    name = parent_of(queue)
    while name in queues and name not in seen:
        if name == queue.name:
            return True
        seen.add(name)
        name = parent_of(queues[name])
    return False


def is_marked(queue: Queue) -> bool:
    """Return whether the queue was closed because its parent was, and so is opened with it."""
    return (queue.metadata.annotations or {}).get(CLOSED_BY_PARENT) == "true"


def followed(queue: Queue, parent: Queue | None) -> QueueAction:
    """Return the action that the parent's state requires; none if it does not exist or its state is not definite."""
    if parent is None:
        return QueueAction.NONE
    if parent.status.state in SHUT:
        return QueueAction.NONE if queue.status.state in SHUT else QueueAction.CLOSE
    if parent.status.state != OPEN or not is_marked(queue):
        return QueueAction.NONE
    return QueueAction.OPEN if queue.status.state in SHUT else QueueAction.UNMARK
