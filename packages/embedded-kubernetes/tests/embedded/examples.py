"""The number of examples that Hypothesis draws: half of a test's number, or by the environment's HYPOTHESIS_PROFILE.

The profile `whole` draws all, and `soak` draws HYPOTHESIS_SOAK times as many (50 if that is not set) from new seeds.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "commit")
_SOAKING = _PROFILE == "soak"
_FACTOR = int(os.environ.get("HYPOTHESIS_SOAK", "50")) if _SOAKING else 1
#: The number for tests that name none.
_EXAMPLES = 50


def load_profile() -> None:
    """Register Hypothesis's default profile. Examples have no deadline, which would depend on the machine."""
    settings.register_profile(
        "embedded-kubernetes",
        max_examples=_drawn(_EXAMPLES),
        derandomize=not _SOAKING,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        deadline=None,
        print_blob=_SOAKING,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("embedded-kubernetes")


def examples(count: int) -> settings:
    """Return settings for a test that draws `count` examples in the profile `whole`."""
    return settings(max_examples=_drawn(count))


def model_test(machine: type[RuleBasedStateMachine], *, examples: int, steps: int) -> Any:
    """Return the state machine as a test case of `examples` runs of up to `steps` steps."""
    case: Any = machine.TestCase
    case.settings = settings(max_examples=examples * _FACTOR, stateful_step_count=steps)
    # Shrinking a failure of this many draws may take minutes.
    case.pytestmark = [pytest.mark.timeout(0 if _SOAKING else 600)]
    return case


def _drawn(count: int) -> int:
    return max(1, count // 2) if _PROFILE == "commit" else count * _FACTOR
