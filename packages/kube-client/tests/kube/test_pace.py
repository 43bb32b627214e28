"""What is begun while others come, in which order, and how much between two runs of the timer."""

from __future__ import annotations

import asyncio

from kube_client.pace import PORTION, TICK, Pace


class Crowd:
    """Has `count` requests to begin, and begins as many as it may."""

    def __init__(self, name: str, count: int, pace: Pace, log: list[str]) -> None:
        self.name, self.count, self._pace, self._log = name, count, pace, log

    def go_on(self) -> None:
        while self.count and self._pace.admits(self.go_on, self.count):
            self.count -= 1
            self._log.append(self.name)


class Hurried:
    """A pace, a log, and one in a hurry who comes all the time."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.pace = Pace(self.loop.time)
        self.log: list[str] = []
        self.pace.others_at = self.loop.time()

    def crowd(self, name: str, count: int) -> Crowd:
        return Crowd(name, count, self.pace, self.log)


async def test_while_no_others_come_all_is_begun_at_once() -> None:
    pace, log = Pace(asyncio.get_running_loop().time), list[str]()
    Crowd("a", 100, pace, log).go_on()
    assert len(log) == 100


async def test_while_others_come_one_is_begun_at_a_time_whoever_it_is_of() -> None:
    world = Hurried()
    for name in "abc":
        world.crowd(name, 3).go_on()
    assert world.log == ["a"]
    for _ in range(8):
        before = len(world.log)
        await asyncio.sleep(TICK)
        assert len(world.log) == before + 1
    # In turn, so that nobody waits for all of another's.
    assert set(world.log[:4]) == set("abc") and world.log.count("a") == 3


async def test_a_portion_grows_with_what_waits() -> None:
    world = Hurried()
    many = world.crowd("a", round(5 / PORTION))
    many.go_on()
    assert len(world.log) == 1
    await asyncio.sleep(TICK)
    assert len(world.log) == 1 + 5


async def test_once_no_others_come_all_that_waits_is_begun() -> None:
    world = Hurried()
    crowds = [world.crowd(name, 900) for name in "ab"]
    for crowd in crowds:
        crowd.go_on()
    await asyncio.sleep(1 - 2 * TICK)
    assert all(crowd.count for crowd in crowds)
    await asyncio.sleep(3 * TICK)
    assert not any(crowd.count for crowd in crowds)


async def test_who_is_called_and_has_nothing_left_leaves_its_turn_to_the_next() -> None:
    world = Hurried()
    first, second, third = (world.crowd(name, 1) for name in "abc")
    for crowd in (first, second, third):
        crowd.go_on()
    second.count = 0
    await asyncio.sleep(TICK)
    assert world.log == ["a", "c"]


async def test_nothing_runs_while_nobody_waits() -> None:
    world = Hurried()
    world.crowd("a", 1).go_on()
    await asyncio.sleep(TICK)
    # The loop would call this a deadlock if it were awaited, and a timer would keep it from that.
    assert world.pace._timer is None
    world.crowd("b", 1).go_on()
    assert world.log == ["a", "b"]
