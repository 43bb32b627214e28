"""The recordings, which are read once."""

from __future__ import annotations

import pytest

from tests.decisions import recording
from tests.decisions.recording import Case, PreemptionCase


@pytest.fixture(scope="session")
def cases() -> list[Case]:
    return recording.decisions()


@pytest.fixture(scope="session")
def preemptions() -> list[PreemptionCase]:
    return recording.preemptions()
