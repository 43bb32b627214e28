"""Recorded cases with what the recording leaves out: the order in which nodes arrived, and left-over pods.

Whatever replays the recording, the plain reading or the engine, replays these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.decisions import background
from tests.decisions.arrival import in_order_of_arrival
from tests.decisions.plain import World
from tests.decisions.recording import Case


class Scene(NamedTuple):
    """A case, and the whole cluster that it was decided in."""

    case: Case
    world: World


def scenes(cases: Sequence[Case]) -> list[Scene]:
    """Of the cases that are of a kind the recording leaves out nothing."""
    left_over = background.infer([case for case in cases if not case.kind])
    return [
        Scene(case, case.world())
        if case.kind
        else Scene(
            arrived := in_order_of_arrival(case), arrived.world(*background.carried(left_over, arrived))
        )
        for case in cases
    ]
