"""The number of examples that Hypothesis draws, by three profiles that `HYPOTHESIS_PROFILE` selects.

- commit: half of a test's number, the same every time; for `make test`.
- whole: a test's number, the same every time; for mutants.
- soak: `HYPOTHESIS_SOAK` times a test's number (default 50), different every time, without a limit on a test's time;
  failures print how to reproduce them. For all tests, or those of one file:

    make soak-examples FACTOR=10 TEST_ARGS=tests/decisions/test_random.py
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "commit")
SOAKING = _PROFILE == "soak"
FACTOR = int(os.environ.get("HYPOTHESIS_SOAK", "50")) if SOAKING else 1
#: The number for tests that set none.
_EXAMPLES = 50

#: For tests whose examples are so large that shrinking a failure may take minutes.
in_time = pytest.mark.timeout(0 if SOAKING else 600)


def load_profile() -> None:
    """Make it Hypothesis's default. Examples have no deadline, which would depend on the machine's speed."""
    settings.register_profile(
        "agent-scheduler",
        max_examples=_drawn(_EXAMPLES),
        derandomize=not SOAKING,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        deadline=None,
        print_blob=SOAKING,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("agent-scheduler")


def examples(count: int) -> settings:
    """Return settings with `count` examples, for tests that need more or fewer than others."""
    return settings(max_examples=_drawn(count))


def _drawn(count: int) -> int:
    # Repeated examples only find what a change breaks.
    return max(1, count // 2) if _PROFILE == "commit" else count * FACTOR
