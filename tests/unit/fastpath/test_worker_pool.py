"""Workers take turns: rounds are judged together, a turn is short, and one after the other gets what comes singly."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_scheduler.engine.dra.catalogue import PORTION, SearchBudget
from agent_scheduler.fastpath.worker import Unfinished, WorkerPool


class World:
    """Workers, a feed and a binder that write down what was asked of them. A cycle takes `seconds`."""

    def __init__(
        self,
        *,
        workers: int,
        pods: int,
        seconds: float = 0.0,
        room: int = 1000,
        long: dict[str, int] | None = None,
        refills: bool = False,
    ) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.left = [f"p{number}" for number in range(pods)]
        self.room = room
        self.log: list[Any] = []
        #: Pod -> cycles that it takes beyond the first.
        self.long = long or {}
        search: Any = Search(self) if refills else SearchBudget()
        self.pool = WorkerPool(
            [Worker(self, index) for index in range(workers)],  # type: ignore[misc]
            queue=self,  # type: ignore[arg-type]
            feed=self,  # type: ignore[arg-type]
            binder=self,  # type: ignore[arg-type]
            clock=lambda: self.now,
            search=search,
        )

    def has_room(self) -> bool:
        return self.room > 0

    def judge(self) -> None:
        self.log.append("judge")

    def send(self) -> None:
        self.log.append("send")

    def next(self, queue: Any, room: Any) -> str | None:
        return self.left.pop(0) if self.left and room() else None

    async def pop(self, queue: Any, room: Any) -> str | None:
        self.log.append("turn")
        return self.next(queue, room)


class Search:
    """What is left of a turn's searches; written down when it is more."""

    def __init__(self, world: World) -> None:
        self.__dict__["world"] = world

    def __setattr__(self, name: str, value: int) -> None:
        assert (name, value) == ("left", PORTION)
        self.world.log.append("refill")  # type: ignore[attr-defined]


class Worker:
    def __init__(self, world: World, index: int) -> None:
        self.world, self.index = world, index

    def cycle(self, entry: str, *, began: float | None = None) -> Unfinished | None:
        self.world.now += self.world.seconds
        self.world.log.append((self.index, entry))
        if self.world.long.get(entry, 0):
            self.world.long[entry] -= 1
            return Unfinished(self, entry, 0.0)  # type: ignore[arg-type]
        self.world.room -= 1
        return None


def told(world: World) -> list[Any]:
    asyncio.run(world.pool.run())
    return world.log


def test_each_worker_decides_once_before_races_are_settled_and_a_turn_ends_before_binds_are_sent() -> None:
    assert told(World(workers=3, pods=5)) == [
        "turn", (0, "p0"), (1, "p1"), (2, "p2"), "judge", (0, "p3"), (1, "p4"), "judge", "send",
        "turn",
    ]  # fmt: skip


def test_pods_that_come_one_at_a_time_go_to_one_worker_after_the_other() -> None:
    world = World(workers=3, pods=1)
    for number in range(1, 4):
        told(world)
        world.left.append(f"p{number}")
    assert [each for each in world.log if isinstance(each, tuple)] == [(0, "p0"), (1, "p1"), (2, "p2")]


def test_no_turn_holds_the_loop_for_long() -> None:
    many = told(World(workers=1, pods=100))
    assert max(len(list(turn)) for turn in turns(many)) == 16
    slow = told(World(workers=1, pods=10, seconds=0.0015))
    assert [len(turn) for turn in turns(slow)] == [2] * 5 + [0]
    # A round is never cut short: what races there are is settled with all who take part.
    wide = told(World(workers=32, pods=64, seconds=0.01))
    assert [len(turn) for turn in turns(wide)] == [32, 32, 0]


def test_others_run_between_turns_while_more_pods_wait_and_no_pass_is_spent_behind_the_last() -> None:
    world = World(workers=1, pods=20)

    async def main() -> None:
        deciding = asyncio.create_task(world.pool.run())
        while not deciding.done():
            world.log.append("others")
            await asyncio.sleep(0)

    asyncio.run(main())
    order = [each for each in world.log if each in ("turn", "others")]
    assert order == ["others", "turn", "others", "turn", "turn"]


def test_a_turn_ends_where_the_binder_has_room_for_no_more() -> None:
    world = World(workers=2, pods=10, room=3)
    assert [len(turn) for turn in turns(told(world))] == [3, 0]
    assert len(world.left) == 7


def test_what_takes_more_than_one_cycle_is_gone_on_with_between_the_turns_of_others() -> None:
    world = World(workers=1, pods=20, long={"p0": 3, "p1": 1}, refills=True)
    log = told(world)
    assert [each[1] for each in log if isinstance(each, tuple)] == [
        *(f"p{number}" for number in range(16)), *("p16", "p17", "p18", "p19"), "p0", "p1", "p0", "p0",
    ]  # fmt: skip
    # Each turn, and each cycle between two of them, has what it may cost anew.
    assert log.count("refill") == 2 + 4
    assert world.left == [] and log[-1] == "turn"


def test_what_takes_more_than_one_cycle_waits_for_room_as_others_do() -> None:
    world = World(workers=1, pods=3, room=2, long={"p0": 2})
    log = told(world)
    assert [each[1] for each in log if isinstance(each, tuple)] == ["p0", "p1", "p2"]


def turns(log: list[Any]) -> list[list[Any]]:
    """What was decided in each."""
    found: list[list[Any]] = []
    for each in log:
        if each == "turn":
            found.append([])
        elif each not in ("judge", "send"):
            found[-1].append(each)
    return found
