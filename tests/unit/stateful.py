"""How long the state machines run: the same steps every time in `make test`, many more and random ones in a soak.

`HYPOTHESIS_PROFILE=soak` multiplies the examples by `HYPOTHESIS_SOAK` (50 if that is not set), draws them at random and
lifts the time limit of the test. A failure prints the steps that lead to it, and what repeats them.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine

SOAKING = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
_FACTOR = int(os.environ.get("HYPOTHESIS_SOAK", "50")) if SOAKING else 1


def model_test(machine: type[RuleBasedStateMachine], *, examples: int, steps: int) -> Any:
    """The machine as a test case of about `examples` runs of up to `steps` steps."""
    case: Any = machine.TestCase
    case.settings = settings(
        max_examples=examples * _FACTOR,
        stateful_step_count=steps,
        derandomize=not SOAKING,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        deadline=None,
        print_blob=SOAKING,
        suppress_health_check=list(HealthCheck),
    )
    # To shorten a failure to the few steps that it takes may need minutes.
    case.pytestmark = [pytest.mark.timeout(0 if SOAKING else 600)]
    return case
