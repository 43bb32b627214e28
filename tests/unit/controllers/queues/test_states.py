"""The states of queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.controllers.queues.states import CLOSED, CLOSING, OPEN, UNKNOWN, closed, synced


@pytest.mark.parametrize("has_groups", [False, True])
def test_states_are_those_of_volcano(has_groups: bool) -> None:
    still = CLOSING if has_groups else CLOSED
    assert [synced(state, has_groups=has_groups) for state in ("", OPEN, CLOSED, CLOSING, UNKNOWN, "?")] == [
        *(OPEN, OPEN, CLOSED, still, UNKNOWN, UNKNOWN)
    ]
    assert [closed(state, has_groups=has_groups) for state in ("", OPEN, CLOSED, CLOSING, UNKNOWN)] == [
        *(still, still, CLOSED, still, still)
    ]


@given(st.sampled_from(["", OPEN, CLOSED, CLOSING, UNKNOWN]), st.booleans())
def test_a_state_that_was_taken_stays(state: str, has_groups: bool) -> None:
    for taken in (synced(state, has_groups=has_groups), closed(state, has_groups=has_groups)):
        assert synced(taken, has_groups=has_groups) == taken
