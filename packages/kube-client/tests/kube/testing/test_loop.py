"""Tests of the loop with virtual time: stopped processes, and the detection of deadlocks and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

import pytest

from kube_client.testing.loop import PROCESS, START, Deadlock, SimLoop


def run(main: Coroutine[Any, Any, Any]) -> tuple[Any, SimLoop]:
    loop = SimLoop(0)
    try:
        return loop.run_until_complete(main), loop
    finally:
        loop.close()


def test_a_wait_that_nothing_can_end_is_a_deadlock_that_names_the_waiter() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waits_for_ever"):
        run(waits_for_ever())


def test_a_stopped_process_does_nothing_until_it_goes_on_and_then_is_late() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        seen: list[tuple[str, float]] = []

        async def ticks(name: str) -> None:
            for _ in range(4):
                await asyncio.sleep(1)
                seen.append((name, loop.time() - START))

        def begin(name: str) -> asyncio.Task[None]:
            context = copy_context()
            context.run(PROCESS.set, name)
            return loop.create_task(ticks(name), context=context)

        tasks = [begin("a"), begin("b")]
        await asyncio.sleep(1.5)
        loop.freeze("a", 10)
        assert loop.frozen("a") and not loop.frozen("b")
        await asyncio.wait(tasks)
        return seen

    seen = run(main())[0]
    assert [at for name, at in seen if name == "b"] == [1, 2, 3, 4]
    assert [at for name, at in seen if name == "a"] == [1, 11.5, 12.5, 13.5]


def test_what_a_callback_raises_is_kept() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    assert "ZeroDivisionError" in run(main())[1].complaints[0]


def test_timers_that_are_set_for_now_without_end_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube_client.testing.loop._MOST_TURNS", 100)
    loop = SimLoop(1)

    def again() -> None:
        loop.call_at(loop.time(), again)

    again()
    with pytest.raises(Deadlock, match="time stands still"):
        loop.run_until_complete(asyncio.sleep(1))
    loop.close()
