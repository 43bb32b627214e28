"""What a world relies on: virtual time, one order a seed, stopped processes, deadlocks that are found."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

import pytest

from tests.support.loop import PROCESS, START, Deadlock, SimLoop


def run(main: Coroutine[Any, Any, Any], *, seed: int = 0, unfair: float = 0.0) -> tuple[Any, SimLoop]:
    loop = SimLoop(seed, unfair=unfair)
    try:
        return loop.run_until_complete(main), loop
    finally:
        loop.close()


def test_an_hour_passes_at_once_and_exactly() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run(main())[0] == START + 3600


def test_a_timeout_fires_in_virtual_time() -> None:
    async def main() -> None:
        async with asyncio.timeout(5):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run(main())


def test_a_wait_that_nothing_can_end_is_a_deadlock_that_names_the_waiter() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waits_for_ever"):
        run(waits_for_ever())


async def _racing() -> list[tuple[int, float]]:
    seen: list[tuple[int, float]] = []
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def worker(number: int) -> None:
        while True:
            item = await queue.get()
            seen.append((number * 1000 + item, asyncio.get_running_loop().time()))
            await asyncio.sleep(item % 3)

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(worker(number)) for number in range(8)]
        for item in range(200):
            queue.put_nowait(item)
        await asyncio.sleep(300)
        for each in workers:
            each.cancel()
    return seen


def test_one_seed_is_one_order_and_another_seed_another() -> None:
    first, again, other = (run(_racing(), seed=seed, unfair=0.5)[0] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(first) == 200


def test_tasks_in_a_set_are_walked_in_the_order_of_their_making() -> None:
    async def main() -> list[str]:
        async def nothing() -> None:
            await asyncio.sleep(0)

        tasks = {asyncio.create_task(nothing(), name=str(number)) for number in range(50)}
        names = [task.get_name() for task in tasks]
        await asyncio.wait(tasks)
        return names

    assert run(main())[0] == [str(number) for number in range(50)]


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
    monkeypatch.setattr("tests.support.loop._MOST_TURNS", 100)
    loop = SimLoop(1)

    def again() -> None:
        loop.call_at(loop.time(), again)

    again()
    with pytest.raises(Deadlock, match="time stands still"):
        loop.run_until_complete(asyncio.sleep(1))
    loop.close()
