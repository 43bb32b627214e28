"""The loop that drives a controller: it waits for a wake or a time, and reports its faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from embedded_kubernetes import controllers

from ..virtual import virtual_time


class _Scripted:
    """A controller that answers `advance` from a list, and records the times of the calls."""

    def __init__(self, *answers: float | Exception | None) -> None:
        self.answers = list(answers)
        self.wake: Callable[[], None] = controllers.nobody
        self.turns: list[float] = []

    def advance(self, *, most: int = 64) -> float | None:
        self.turns.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@virtual_time
async def test_it_turns_at_once_when_the_time_has_come_and_when_it_is_woken() -> None:
    clock = asyncio.get_running_loop().time
    start = clock()
    scripted = _Scripted(-float("inf"), start, start + 7.5, None, RuntimeError("broken"))
    task = asyncio.create_task(controllers.run(scripted, clock=clock))
    await asyncio.sleep(100)
    assert scripted.turns == [start, start, start, start + 7.5]
    scripted.wake()
    with pytest.raises(RuntimeError, match="broken"):
        await task
    assert len(scripted.turns) == 5
