"""State machines as test cases; `tests.support.examples` determines how long they run."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine

from tests.support.examples import FACTOR, in_time


def model_test(machine: type[RuleBasedStateMachine], *, examples: int, steps: int) -> Any:
    """Return the machine as a test case of about `examples` runs of up to `steps` steps."""
    case: Any = machine.TestCase
    case.settings = settings(max_examples=examples * FACTOR, stateful_step_count=steps)
    case.pytestmark = [in_time]
    return case
