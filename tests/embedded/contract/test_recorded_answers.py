"""The embedded server answers as the recorded one did, line by line, in process and over HTTP.

The recording is `AGENT_SCHEDULER_RECORDING`, or the one that lies next to the checkout.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.needed import need, recording

from .doors import open_door
from .lines import read
from .replay import Replay
from .state import LEFT_OUT

_RECORDING = recording("apiserver-1.36.2.jsonl", "AGENT_SCHEDULER_RECORDING")
_LINES = read(_RECORDING) if _RECORDING.exists() else []
_DIFFERENCES: dict[str, dict[str, list[str]]] = {}


async def _replay(kind: str) -> dict[str, list[str]]:
    async with open_door(kind) as client:
        return await Replay(client, _LINES).run()


@pytest.fixture(scope="session")
def differences(request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """What each line's answer differs in; one replay a door serves every test."""
    kind: str = request.param
    if kind not in _DIFFERENCES:
        _DIFFERENCES[kind] = asyncio.run(_replay(kind))
    return _DIFFERENCES[kind]


@pytest.mark.parametrize("differences", ["in-process", "http"], indirect=True)
@pytest.mark.parametrize(
    "line",
    [line for line in _LINES if line.name not in LEFT_OUT] or [None],
    ids=lambda line: line.key if line else "missing",
)
def test_the_answer_is_the_recorded_one(differences, line):
    need(line, f"there is no recording at {_RECORDING}")
    assert differences[line.key] == []
