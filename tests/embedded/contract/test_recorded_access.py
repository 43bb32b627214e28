"""The embedded server authenticates and authorizes as the recorded one did, line by line, in process and over HTTP.

The recording is `AGENT_SCHEDULER_AUTHZ_RECORDING`, or the one that lies next to the checkout.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.needed import need, recording

from .access_replay import AccessReplay, Recorded
from .doors import open_door

_RECORDING = recording("apiserver-authz-1.36.2.jsonl", "AGENT_SCHEDULER_AUTHZ_RECORDING")
_LINES = [json.loads(text) for text in _RECORDING.read_text().splitlines()] if _RECORDING.exists() else []
_NAMES = [f"{number:03d} {line['name']}" for number, line in enumerate(_LINES)]
_DIFFERENCES: dict[str, list[list[str]]] = {}


async def _replay(kind: str) -> list[list[str]]:
    recorded = Recorded()
    async with open_door(kind, recorded.api) as client:
        return await AccessReplay(client, recorded, _LINES).run()


@pytest.fixture(scope="session")
def differences(request: pytest.FixtureRequest) -> list[list[str]]:
    """What each line's answer differs in; one replay a door serves every test."""
    kind: str = request.param
    if kind not in _DIFFERENCES:
        _DIFFERENCES[kind] = asyncio.run(_replay(kind))
    return _DIFFERENCES[kind]


@pytest.mark.parametrize("differences", ["in-process", "http"], indirect=True)
@pytest.mark.parametrize("number", range(max(len(_LINES), 1)), ids=_NAMES or ["missing"])
def test_the_answer_is_the_recorded_one(differences, number):
    need(_LINES, f"there is no recording at {_RECORDING}")
    assert differences[number] == []
