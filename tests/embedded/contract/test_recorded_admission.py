"""The embedded server calls webhooks and asks policies as the recorded one did, in process and over HTTP.

The recording is `AGENT_SCHEDULER_ADMISSION_RECORDING`, or the one that lies next to the checkout.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.needed import need, recording

from .access_replay import Recorded
from .admission_hooks import Hooks
from .admission_replay import AdmissionReplay
from .doors import open_door

_RECORDING = recording("apiserver-admission-1.36.2.jsonl", "AGENT_SCHEDULER_ADMISSION_RECORDING")
_LINES = [json.loads(text) for text in _RECORDING.read_text().splitlines()] if _RECORDING.exists() else []
_NAMES = [f"{number:03d} {line['name']}" for number, line in enumerate(_LINES)]
_DIFFERENCES: dict[str, list[list[str]]] = {}


async def _replay(kind: str) -> list[list[str]]:
    hooks = Hooks()
    recorded = Recorded()
    async with hooks.serve(), open_door(kind, recorded.api) as client:
        try:
            return await AdmissionReplay(client, hooks, _LINES).run()
        finally:
            await recorded.api.close()


@pytest.fixture(scope="session")
def differences(request: pytest.FixtureRequest) -> list[list[str]]:
    """What each line differs in; one replay a door serves every test."""
    kind: str = request.param
    if kind not in _DIFFERENCES:
        _DIFFERENCES[kind] = asyncio.run(_replay(kind))
    return _DIFFERENCES[kind]


@pytest.mark.parametrize("differences", ["in-process", "http"], indirect=True)
@pytest.mark.parametrize("number", range(max(len(_LINES), 1)), ids=_NAMES or ["missing"])
def test_the_answer_and_the_calls_are_the_recorded_ones(differences, number):
    need(_LINES, f"there is no recording at {_RECORDING}")
    assert differences[number] == []
