"""How many random clusters the tests draw, and which.

In `make test` they are the same every time. `HYPOTHESIS_PROFILE=soak` draws others each time, as many times more as
`HYPOTHESIS_SOAK` says (50 if that is not set), and lifts the time limit; `--hypothesis-seed` repeats a run. Ten
minutes of it:

    HYPOTHESIS_PROFILE=soak HYPOTHESIS_SOAK=10 .venv/bin/python -m pytest tests/decisions/test_random.py
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.unit.stateful import SOAKING

_FACTOR = int(os.environ.get("HYPOTHESIS_SOAK", "50")) if SOAKING else 1


def drawing(examples: int) -> settings:
    return settings(
        max_examples=examples * _FACTOR,
        derandomize=not SOAKING,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        deadline=None,
        print_blob=SOAKING,
        suppress_health_check=list(HealthCheck),
    )


#: To shorten a failure to the few bytes that it takes may need minutes.
in_time = pytest.mark.timeout(0 if SOAKING else 600)
