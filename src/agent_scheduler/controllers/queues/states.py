"""In which state a queue should be, by Volcano's rules (`pkg/controllers/queue/state`). Pure."""

from __future__ import annotations

import enum
from typing import Final

from agent_scheduler.objects.batch import CLOSED_BY_PARENT, PHASES, ROOT_QUEUE, Queue

OPEN: Final = "Open"
CLOSED: Final = "Closed"
CLOSING: Final = "Closing"
UNKNOWN: Final = "Unknown"

#: New groups are not scheduled in such a queue.
SHUT: Final = frozenset({CLOSED, CLOSING})

#: Phases of PodGroups and the fields of a queue's status that count them.
COUNTED: Final = {phase: phase.lower() for phase in PHASES}


class Step(enum.Enum):
    """What the queue above asks of one."""

    NONE = enum.auto()
    OPEN = enum.auto()
    CLOSE = enum.auto()
    #: It is open, and still marked as closed by the queue above.
    UNMARK = enum.auto()


def synced(state: str, *, has_groups: bool) -> str:
    """The state of a queue that nobody opens or closes."""
    if state in ("", OPEN):
        return OPEN
    if state == CLOSED or (state == CLOSING and not has_groups):
        return CLOSED
    return state if state == CLOSING else UNKNOWN


def closed(state: str, *, has_groups: bool) -> str:
    """The state of a queue that is being closed."""
    return CLOSED if state == CLOSED or not has_groups else CLOSING


def parent_of(queue: Queue) -> str:
    """Of every queue but the root, which has none."""
    return "" if queue.name == ROOT_QUEUE else queue.spec.parent or ROOT_QUEUE


def is_marked(queue: Queue) -> bool:
    """Whether it was closed because the queue above it was, and so is to be opened with that."""
    return (queue.metadata.annotations or {}).get(CLOSED_BY_PARENT) == "true"


def followed(queue: Queue, parent: Queue | None) -> Step:
    """What the state of the queue above asks of `queue`; nothing, where that is not there or in no certain state."""
    if parent is None:
        return Step.NONE
    if parent.status.state in SHUT:
        return Step.NONE if queue.status.state in SHUT else Step.CLOSE
    if parent.status.state != OPEN or not is_marked(queue):
        return Step.NONE
    return Step.OPEN if queue.status.state in SHUT else Step.UNMARK
