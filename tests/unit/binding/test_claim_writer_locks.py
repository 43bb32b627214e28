"""One writer of a claim at a time, in the order of their coming, whoever gives up meanwhile."""

from __future__ import annotations

import asyncio
import random

import pytest

from agent_scheduler.binding.claim_writer import KeyLocks

KEY = ("default", "c")


async def test_writers_hold_the_lock_in_the_order_of_their_coming() -> None:
    locks, order = KeyLocks(), []

    async def write(name: str) -> None:
        async with locks.of(KEY) as lock:
            order.append(f"{name} after {lock.version}")
            await asyncio.sleep(0)
            lock.version = name

    await asyncio.gather(*(write(name) for name in "abc"))
    assert order == ["a after ", "b after a", "c after b"]
    assert not locks and KEY not in locks


@pytest.mark.parametrize("seed", range(100))
async def test_whoever_gives_up_is_passed_over_and_nobody_waits_for_ever(seed: int) -> None:
    chance = random.Random(seed)
    locks, inside, done = KeyLocks(), 0, 0

    async def write() -> None:
        nonlocal inside, done
        async with locks.of(KEY):
            inside += 1
            try:
                assert inside == 1
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
                done += 1
            finally:
                inside -= 1

    tasks = []
    for _ in range(12):
        tasks.append(asyncio.create_task(write()))
        if chance.random() < 0.5:
            # It waits, the lock has just been handed to it, or it holds it.
            chance.choice(tasks).cancel()
        if chance.random() < 0.7:
            await asyncio.sleep(0)
    async with asyncio.timeout(5):
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert done == sum(each is None for each in ended)
    assert all(each is None or isinstance(each, asyncio.CancelledError) for each in ended)
    assert not locks and KEY not in locks
