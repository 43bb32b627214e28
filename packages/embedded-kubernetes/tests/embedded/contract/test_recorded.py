"""The embedded server answers like the recorded servers, also in protobuf; in `make verify` over HTTP, too.

The recordings are those beside the checkout, or the files that the variables of the environment name. A test knows its
line by the number, so that collecting reads nothing; each recording is read and replayed once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import pytest

from ..recordings import recorded

Lines = list[dict[str, Any]]


async def _answers(door: str, lines: Lines) -> list[list[str]]:
    from embedded_kubernetes.auth.options import Options

    from .doors import api, open_door
    from .replay import Replay

    token = "the-token-of-this-test"
    async with open_door(door, api(Options.one_token(token)), token) as client:
        return await Replay(client, lines).run()


async def _access(door: str, lines: Lines) -> list[list[str]]:
    from .access_replay import AccessReplay, Recorded
    from .doors import open_door

    server = Recorded()
    async with open_door(door, server.api, "admin-token") as client:
        return await AccessReplay(client, server, lines).run()


async def _admission(door: str, lines: Lines) -> list[list[str]]:
    from .access_replay import Recorded
    from .admission_hooks import Hooks
    from .admission_replay import AdmissionReplay
    from .doors import open_door

    hooks, server = Hooks(), Recorded()
    async with hooks.serve(), open_door(door, server.api, "admin-token") as client:
        try:
            return await AdmissionReplay(client, server, lines, hooks).run()
        finally:
            await server.api.close()


#: Recording -> its file, the variable that names another, its number of lines, and its replay.
RECORDINGS: dict[str, tuple[str, str, int, Callable[[str, Lines], Awaitable[list[list[str]]]]]] = {
    "answers": ("apiserver-1.36.2.jsonl", "AGENT_SCHEDULER_RECORDING", 151, _answers),
    "access": ("apiserver-authz-1.36.2.jsonl", "AGENT_SCHEDULER_AUTHZ_RECORDING", 674, _access),
    "admission": ("apiserver-admission-1.36.2.jsonl", "AGENT_SCHEDULER_ADMISSION_RECORDING", 295, _admission),
}


@cache
def differences(recording: str, door: str) -> list[tuple[str, list[str]]]:
    """Return the name of each line, and the differences of its answer."""
    file, variable, count, play = RECORDINGS[recording]
    lines = [json.loads(text) for text in recorded(file, variable)]
    assert len(lines) == count, f"RECORDINGS counts {count} lines, {len(lines)} found"
    found = asyncio.run(play(door, lines))  # type: ignore[arg-type]
    return [(line["name"], each) for line, each in zip(lines, found, strict=True)]


@pytest.mark.parametrize("door", ["in-process", "protobuf", pytest.param("http", marks=pytest.mark.wide)])
@pytest.mark.parametrize(
    ("recording", "number"), [(name, number) for name, each in RECORDINGS.items() for number in range(each[2])]
)
def test_the_answer_is_the_recorded_one(recording: str, number: int, door: str) -> None:
    name, found = differences(recording, door)[number]
    assert found == [], name
