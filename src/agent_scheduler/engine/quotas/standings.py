"""Who has room of a queue, and how it is promised, taken and given back: one table.

`docs/gates.md` shows it, and tests hold that pods and groups move by it alone. What counts in a queue is what is
promised, kept for one that is let in or stands by, or placed. Nothing is kept in a queue that takes no pods, as it is
closed or not there, nor for a pod whose group is not there: nobody could be placed in that room.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class State(Enum):
    """Of a pod, but for PROMISED, which is of a group."""

    #: It has no room, and asks for it together with a node.
    WAITS = "waits"
    #: It is behind its queue's gate.
    GATED = "gated"
    #: Its group is let into its queue, which keeps what the group needs and no member holds.
    PROMISED = "promised"
    #: It was let past its queue's gate, which keeps its room.
    LET_IN = "let in"
    #: A node is chosen for it, and the stage of its Job has not come.
    STANDS_BY = "stands by"
    #: A node is chosen for it, or it is on one.
    PLACED = "placed"
    #: It was let in, and its room is others': it had no node for too long, or cannot be placed.
    GIVEN_BACK = "given back"


class Move(NamedTuple):
    """`before` None: it comes. What goes may do so from any state, and gives back what it has."""

    of: str
    before: State | None
    after: State
    when: str


_POD: Final = "pod"
_GROUP: Final = "group"

MOVES: Final = (
    Move(_GROUP, None, State.WAITS, "It is made, or its phase is Pending."),
    Move(
        _GROUP,
        None,
        State.PROMISED,
        "It is seen in phase Inqueue: an earlier process has let it in. One that says QueueFull waits for its "
        "room.",
    ),
    Move(
        _GROUP,
        State.WAITS,
        State.PROMISED,
        "Its turn has come, and its queue has room for what it needs; where it comes last, beside all others who wait.",
    ),
    Move(
        _GROUP,
        State.PROMISED,
        State.WAITS,
        "It runs, and no stage of it waits; something else than its queue keeps it out; its queue has not the room for "
        "what it needs and its members do not hold; or it gives way, as it lacks members.",
    ),
    Move(_POD, None, State.GATED, "It is made with the gate."),
    Move(_POD, None, State.WAITS, "It is made without the gate."),
    Move(_POD, None, State.LET_IN, "It is seen without its gate: an earlier process has let it in."),
    Move(_POD, None, State.STANDS_BY, "Its stage has not come, and an earlier process chose a node for it."),
    Move(_POD, None, State.PLACED, "It is seen on a node."),
    Move(
        _POD,
        State.GATED,
        State.LET_IN,
        "Its group is let in and was promised its room; or its turn has come, and its queue has room for it, and for "
        "all with whom its gang has its minimum. Or somebody else has removed the gate.",
    ),
    Move(
        _POD,
        State.LET_IN,
        State.GATED,
        "This process removes no gates any more, and the gate is still there.",
    ),
    Move(_POD, State.LET_IN, State.PLACED, "A node is chosen for it."),
    Move(_POD, State.LET_IN, State.STANDS_BY, "A node is chosen for it, and its stage has not come."),
    Move(
        _POD,
        State.LET_IN,
        State.GIVEN_BACK,
        "It has had no node for queueReservationTimeout; its queue takes no pods, or could not hold it if it were "
        "empty; or its group is not there.",
    ),
    Move(_POD, State.GIVEN_BACK, State.LET_IN, "Its queue can take it again, or its group is there again."),
    Move(_POD, State.GIVEN_BACK, State.PLACED, "A node is chosen for it, and its queue has room."),
    Move(_POD, State.WAITS, State.PLACED, "A node is chosen for it, and its queue has room."),
    Move(_POD, State.WAITS, State.STANDS_BY, "The same, and its stage has not come."),
    Move(_POD, State.STANDS_BY, State.PLACED, "Its stage has come."),
    Move(
        _POD,
        State.STANDS_BY,
        State.WAITS,
        "Nobody who is to run before it has room; or it is to leave its node.",
    ),
    Move(_POD, State.STANDS_BY, State.LET_IN, "The same, of one that was let past a gate."),
    Move(_POD, State.PLACED, State.LET_IN, "Its bind has failed, and it was let past a gate."),
    Move(
        _POD,
        State.PLACED,
        State.GIVEN_BACK,
        "Its bind has failed, and it had given its room back, or cannot be placed any more.",
    ),
    Move(_POD, State.PLACED, State.WAITS, "Its bind has failed, and it never had a gate."),
)


def table() -> str:
    """As docs/gates.md shows it."""
    rows = [
        f"| {each.of} | {'' if each.before is None else each.before.value} | {each.after.value} | {each.when} |"
        for each in MOVES
    ]
    return "\n".join(("| | from | to | when |", "| --- | --- | --- | --- |", *rows))
