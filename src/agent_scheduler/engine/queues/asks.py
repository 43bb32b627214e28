"""The requests of groups for admission to their queue, the promises made to them, and their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from agent_scheduler.objects.batch import SCHEDULED, PodGroupCondition

from ..quotas.turns import TurnKey, number_of, turn
from ..quotas.vector import EMPTY, Total, Vector, add_to, rest, take_from
from ..state.batchinfo import GroupKey
from ..state.podinfo import PodInfo

M = TypeVar("M")


class Ask(NamedTuple):
    """A group's request for admission to its queue.

    `wanted` is what the group needs to run. `members` are its pods, including ended ones; what they hold of the queue
    is part of `wanted` and is not requested again. `turn` is its position among other groups and pods, `complete`
    whether it has its minimum of members, `voted` whether a session has found that only its queue keeps it out. `lacks`
    is the part of `wanted` that the members of a waiting group did not hold when it was put in line.
    """

    key: GroupKey
    queue: str
    wanted: Vector
    members: Collection[PodInfo]
    turn: TurnKey
    complete: bool = True
    voted: bool = True
    lacks: Vector = EMPTY


def needed(
    members: Iterable[M], *, role_of: Callable[[M], str], more: int, of_roles: Mapping[str, int]
) -> tuple[list[M], list[M]]:
    """Split the members into those that a gang needs for its minimum and the rest, both in the given order.

    The gang lacks `more` members, and `of_roles` members per role; members of these roles come first.
    """
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
    """Return the role of a member in its gang, or an empty string."""
    return pod.batch.role if pod.batch is not None else ""


def turn_of_pod(pod: PodInfo) -> TurnKey:
    return turn(pod.priority, pod.created, pod.name, pod.uid)


def turn_in_gang(pod: PodInfo) -> tuple[int, bool, int, TurnKey]:
    """Return the sort key of members of one gang in sessions: by priority, number in the pod's name, then turn."""
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
) -> TurnKey:
    """Return the turn of a group: that of its first member with the group's priority, or its own if it is older.

    A group that once had its minimum counts as created at that time. Otherwise it would come before all groups and
    pods that wait already.
    """
    ran = [each.last_transition_time or "" for each in conditions or () if each.type == SCHEDULED]
    created = max((created, *ran))
    turns = [turn(priority, pod.created, pod.name, pod.uid) for pod in members]
    if not turns or (created and created < min(turns).created):
        turns.append(turn(priority, created, name, uid))
    return min(turns)


class Promise:
    """The room of a queue that is promised to a group.

    Invariant: the book counts the part of `wanted` that is not in `spent` for the group.
    """

    __slots__ = ("complete", "incomplete_since", "is_let_in", "is_settled", "queue", "spent", "total", "turn", "wanted")

    def __init__(self, ask: Ask) -> None:
        self.queue = ask.queue
        self.wanted = ask.wanted
        self.turn = ask.turn
        self.complete = ask.complete
        #: Whether the group is admitted; False if its turn has come and the room is kept until a session has voted.
        self.is_let_in = ask.voted
        #: Whether a session has determined what the group needs; otherwise it is an estimate.
        self.is_settled = True
        #: The time since when the group lacks members.
        self.incomplete_since: float | None = None
        #: UID -> what a member has used of the promise. It is not returned when the member ends.
        self.spent: dict[str, Vector] = {}
        #: The sum of `spent`.
        self.total: Total = {}

    def spend(self, uid: str, vector: Vector) -> bool:
        """Record what a member uses of the promise. Returns whether that changes anything."""
        before = self.spent.get(uid)
        if before == vector:
            return False
        if before is not None:
            take_from(self.total, before)
        self.spent[uid] = vector
        add_to(self.total, vector)
        return True

    def restore(self, uid: str) -> bool:
        """Return a member's part to the promise. Returns whether it had any."""
        before = self.spent.pop(uid, None)
        if before is None:
            return False
        take_from(self.total, before)
        return True

    def left(self) -> Vector:
        """Return the part that no member has used."""
        return rest(self.wanted, self.total)
