"""The states of pods and groups in the account of queues, and the moves between them: one table.

`docs/gates.md` prints the table, and tests check that pods and groups make no other moves. A queue's usage is what is
promised, reserved for admitted pods and reserved stages, or placed. Nothing is reserved in a queue that accepts no pods
(closed or missing), nor for a pod whose group does not exist, because no pod could be placed with that capacity.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class QuotaState(Enum):
    """The state of a pod, except PROMISED, which is a state of a group."""

    #: No capacity is reserved; the pod receives it together with a node.
    WAITS = "waiting"
    #: The pod has its queue's gate.
    GATED = "gated"
    #: The group is admitted to its queue, which reserves what the group needs and no member has reserved.
    PROMISED = "promised"
    #: The pod was admitted past its queue's gate, and its capacity is reserved.
    LET_IN = "admitted"
    #: The pod has a node, but the stage of its Job has not begun (a reserved stage).
    STANDS_BY = "reserved stage"
    #: The pod has a node, chosen or bound.
    PLACED = "placed"
    #: The pod was admitted, but its reservation has ended: it had no node for too long, or cannot be placed.
    GIVEN_BACK = "released"


class QuotaTransition(NamedTuple):
    """A move between two states, and its condition.

    `before` is None for an object that appears. An object that is deleted leaves any state and releases its capacity.
    """

    of: str
    before: QuotaState | None
    after: QuotaState
    when: str


_POD: Final = "pod"
_GROUP: Final = "group"

MOVES: Final = (
    QuotaTransition(_GROUP, None, QuotaState.WAITS, "It is created, or its phase is Pending."),
    QuotaTransition(
        _GROUP,
        None,
        QuotaState.PROMISED,
        "It is observed in phase Inqueue, or at the start without conditions and with a member on a node: an earlier "
        "process admitted it. If it reports QueueFull, it still waits for capacity.",
    ),
    QuotaTransition(
        _GROUP,
        QuotaState.WAITS,
        QuotaState.PROMISED,
        "It is next in the order, and its queue has room for what it needs; for a group that comes last, in addition "
        "to all others that wait.",
    ),
    QuotaTransition(
        _GROUP,
        QuotaState.PROMISED,
        QuotaState.WAITS,
        "It runs, and no stage of it waits; something other than its queue rejects it; its queue lacks room for what "
        "it needs beyond its members' reservations; or it yields because it lacks members.",
    ),
    QuotaTransition(_POD, None, QuotaState.GATED, "It is created with the gate."),
    QuotaTransition(_POD, None, QuotaState.WAITS, "It is created without the gate."),
    QuotaTransition(_POD, None, QuotaState.LET_IN, "It is observed without its gate: an earlier process admitted it."),
    QuotaTransition(
        _POD, None, QuotaState.STANDS_BY, "Its stage has not begun, and an earlier process chose a node for it."
    ),
    QuotaTransition(_POD, None, QuotaState.PLACED, "It is observed on a node."),
    QuotaTransition(
        _POD,
        QuotaState.GATED,
        QuotaState.LET_IN,
        "Its group is admitted and its capacity was promised; or it is next in the order, and its queue has room for "
        "it and for all members that its gang needs for its minimum; or another client has removed the gate.",
    ),
    QuotaTransition(
        _POD, QuotaState.LET_IN, QuotaState.GATED, "This process stops removing gates, and the pod still has the gate."
    ),
    QuotaTransition(_POD, QuotaState.LET_IN, QuotaState.PLACED, "A node is chosen for it."),
    QuotaTransition(
        _POD, QuotaState.LET_IN, QuotaState.STANDS_BY, "A node is chosen for it, and its stage has not begun."
    ),
    QuotaTransition(
        _POD,
        QuotaState.LET_IN,
        QuotaState.GIVEN_BACK,
        "It has had no node for queueReservationTimeout; its queue accepts no pods, or is too small for it even when "
        "empty; or its group does not exist.",
    ),
    QuotaTransition(
        _POD, QuotaState.GIVEN_BACK, QuotaState.LET_IN, "Its queue accepts it again, or its group exists again."
    ),
    QuotaTransition(_POD, QuotaState.GIVEN_BACK, QuotaState.PLACED, "A node is chosen for it, and its queue has room."),
    QuotaTransition(_POD, QuotaState.WAITS, QuotaState.PLACED, "A node is chosen for it, and its queue has room."),
    QuotaTransition(
        _POD,
        QuotaState.WAITS,
        QuotaState.STANDS_BY,
        "A node is chosen for it, its queue has room, and its stage has not begun.",
    ),
    QuotaTransition(_POD, QuotaState.STANDS_BY, QuotaState.PLACED, "Its stage begins."),
    QuotaTransition(
        _POD,
        QuotaState.STANDS_BY,
        QuotaState.WAITS,
        "None of the pods that must run before it has capacity any longer; or it must leave its node.",
    ),
    QuotaTransition(
        _POD,
        QuotaState.STANDS_BY,
        QuotaState.LET_IN,
        "As in the previous row, for a pod that was admitted past a gate.",
    ),
    QuotaTransition(
        _POD, QuotaState.PLACED, QuotaState.LET_IN, "Its bind has failed, and it was admitted past a gate."
    ),
    QuotaTransition(
        _POD,
        QuotaState.PLACED,
        QuotaState.GIVEN_BACK,
        "Its bind has failed, and its reservation had ended before, or it can no longer be placed.",
    ),
    QuotaTransition(_POD, QuotaState.PLACED, QuotaState.WAITS, "Its bind has failed, and it never had a gate."),
)


def table() -> str:
    """Return the table as docs/gates.md has it."""
    rows = [
        f"| {each.of} | {'' if each.before is None else each.before.value} | {each.after.value} | {each.when} |"
        for each in MOVES
    ]
    return "\n".join(("| | from | to | when |", "| --- | --- | --- | --- |", *rows))
