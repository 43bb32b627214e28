"""The recordings, read once."""

from __future__ import annotations

import pytest

from tests.decisions import recording
from tests.decisions.recording import Case, PreemptionCase
from tests.decisions.scene import Scene
from tests.decisions.scene import scenes as complete


@pytest.fixture(scope="session")
def cases() -> list[Case]:
    return recording.decisions()


@pytest.fixture(scope="session")
def original() -> list[Case]:
    """The decisions of the first recording, whichever is replayed: long enough to judge what is inferred from it."""
    return recording.decisions(recording.DECISIONS)


@pytest.fixture(scope="session")
def scenes(cases: list[Case]) -> list[Scene]:
    return complete(cases)


@pytest.fixture(scope="session")
def preemptions() -> list[PreemptionCase]:
    return recording.preemptions()
