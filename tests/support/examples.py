"""How many examples Hypothesis draws, in three profiles that `HYPOTHESIS_PROFILE` chooses between.

commit: half of what a test names, the same every time; what `make test` draws. whole: all that it names, the same every
time; what mutants are looked for with. soak: `HYPOTHESIS_SOAK` times as many as it names (50 if that is not set),
others each time, and no limit on a test's time; a failure prints what repeats it. All of it, or of one file:

    make soak-examples FACTOR=10 TEST_ARGS=tests/decisions/test_random.py
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "commit")
SOAKING = _PROFILE == "soak"
FACTOR = int(os.environ.get("HYPOTHESIS_SOAK", "50")) if SOAKING else 1
#: Of tests that say nothing of their own.
_EXAMPLES = 50

#: Of tests that draw so much that shortening a failure to the few bytes that it takes may need minutes.
in_time = pytest.mark.timeout(0 if SOAKING else 600)


def load_profile() -> None:
    """Makes it Hypothesis's default. No test has a deadline an example: that would judge the machine."""
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
    """So many for a commit; for tests that need more than others, or must do with fewer."""
    return settings(max_examples=_drawn(count))


def _drawn(count: int) -> int:
    # What is the same every time finds what a change breaks, and no more.
    return max(1, count // 2) if _PROFILE == "commit" else count * FACTOR
