"""What groups ask of their queue before they are let in, and what they are promised."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from agent_scheduler.objects.batch import SCHEDULED, PodGroupCondition

from ..quotas.turns import Turn, number_of, turn
from ..quotas.vector import EMPTY, Total, Vector, add_to, rest, take_from
from .batchinfo import GroupKey
from .podinfo import PodInfo

M = TypeVar("M")


class Ask(NamedTuple):
    """A group that asks to be let into its queue.

    `wanted`: what it needs to run. `members`: its pods, those that have ended, too; what they hold of the queue is not
    wanted once more. `turn`: when its turn is, among those of others and of pods. `complete`: whether it has its
    minimum of members. `voted`: whether a session has found that nothing but its queue would keep it out. `lacks`: of
    one that stands in line, what of `wanted` its members did not hold when it came there.
    """

    key: GroupKey
    queue: str
    wanted: Vector
    members: Collection[PodInfo]
    turn: Turn
    complete: bool = True
    voted: bool = True
    lacks: Vector = EMPTY


def needed(
    members: Iterable[M], *, role_of: Callable[[M], str], more: int, of_roles: Mapping[str, int]
) -> tuple[list[M], list[M]]:
    """Those with which a gang has its minimum that lacks `more` members, and so many of some roles, these first; and
    the rest. Each in the order in which they are given."""
    lacking = dict(of_roles)
    first, others = [], []
    for member in members:
        role = role_of(member)
        if lacking.get(role, 0) > 0:
            lacking[role] -= 1
            first.append(member)
        else:
            others.append(member)
    left = max(more - len(first), 0)
    return first + others[:left], others[left:]


def role_of(pod: PodInfo) -> str:
    """Return the role of a member in its gang, or an empty text."""
    return pod.batch.role if pod.batch is not None else ""


def turn_of_pod(pod: PodInfo) -> Turn:
    return turn(pod.priority, pod.created, pod.name, pod.uid)


def turn_in_gang(pod: PodInfo) -> tuple[int, bool, int, Turn]:
    """As sessions take members of one gang: by priority, by the number that a controller gave them, then in turn."""
    said = pod.batch.priority if pod.batch is not None else None
    number = number_of(pod.name)
    return -(pod.priority if said is None else said), number is None, number or 0, turn_of_pod(pod)


def turn_of_group(
    members: Iterable[PodInfo],
    priority: int,
    created: str,
    name: str,
    uid: str,
    conditions: Iterable[PodGroupCondition] | None,
) -> Turn:
    """That of the first of its members, with the group's priority, or its own where it is older than these. One
    that has had its minimum has its own from then on: else it would come before all who wait already."""
    ran = [each.last_transition_time or "" for each in conditions or () if each.type == SCHEDULED]
    created = max((created, *ran))
    turns = [turn(priority, pod.created, pod.name, pod.uid) for pod in members]
    if not turns or (created and created < min(turns).created):
        turns.append(turn(priority, created, name, uid))
    return min(turns)


class Promise:
    """Invariant: the book counts for the group what of `wanted` is not in `spent`."""

    __slots__ = (
        "complete",
        "incomplete_since",
        "is_let_in",
        "is_settled",
        "queue",
        "spent",
        "total",
        "turn",
        "wanted",
    )

    def __init__(self, ask: Ask) -> None:
        self.queue = ask.queue
        self.wanted = ask.wanted
        self.turn = ask.turn
        self.complete = ask.complete
        #: Whether the group is let in, or its turn has come and the room is kept until a session has voted.
        self.is_let_in = ask.voted
        #: Whether a session has said what the group needs; else it is guessed.
        self.is_settled = True
        #: When it was found first that the group lacks members.
        self.incomplete_since: float | None = None
        #: By UID, what members of the group took of it. It is not given back when they have run.
        self.spent: dict[str, Vector] = {}
        #: The sum of what is spent.
        self.total: Total = {}

    def spend(self, uid: str, vector: Vector) -> bool:
        """Whether that is news."""
        before = self.spent.get(uid)
        if before == vector:
            return False
        if before is not None:
            take_from(self.total, before)
        self.spent[uid] = vector
        add_to(self.total, vector)
        return True

    def restore(self, uid: str) -> bool:
        before = self.spent.pop(uid, None)
        if before is None:
            return False
        take_from(self.total, before)
        return True

    def left(self) -> Vector:
        return rest(self.wanted, self.total)
