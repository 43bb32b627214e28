"""Scenarios with Jobs that Volcano's controllers were recorded in, step by step, and what is different on purpose.

The recording is `AGENT_SCHEDULER_VOLCANO_CONTROLLERS`, or the one that lies next to the checkout.
"""

from __future__ import annotations

import pytest

from tests.support.needed import need

from .jobs_replay import replay, scenarios

_SCENARIOS = scenarios()
_NAMES = [f"{each['id']} {each['family']}" for each in _SCENARIOS]


@pytest.mark.parametrize("number", range(max(len(_SCENARIOS), 1)), ids=_NAMES or ["missing"])
def test_every_step_has_volcanos_result_but_for_what_is_argued(number: int) -> None:
    need(_SCENARIOS, "there is no recording of Volcano's controllers")
    assert [lines for lines in replay(_SCENARIOS[number]).differences if lines] == []
