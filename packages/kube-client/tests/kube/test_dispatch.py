from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from kube_client.dispatch import Dispatcher, Ended
from kube_client.errors import StoreWentBack
from kube_client.pace import TICK, Pace
from kube_client.testing.scripted import eventually, running


class Sender:
    """Notes what it is given and holds each call until `go` is set, if it is `held`."""

    def __init__(self, *, held: bool = False) -> None:
        self.sent: list[tuple[str, int]] = []
        self.go = asyncio.Event()
        if not held:
            self.go.set()
        self.busy: set[str] = set()
        self.most = 0

    async def __call__(self, key: str, call: int) -> None:
        assert key not in self.busy
        self.busy.add(key)
        self.most = max(self.most, len(self.busy))
        self.sent.append((key, call))
        await self.go.wait()
        self.busy.discard(key)


def dispatching(*, held: bool = False, **options: Any) -> tuple[Sender, Dispatcher[str, int]]:
    sender = Sender(held=held)
    return sender, Dispatcher(sender, **options)


async def test_the_newest_call_of_a_key_replaces_those_that_wait() -> None:
    sender, dispatcher = dispatching(concurrency=1)
    for key, call in (("a", 1), ("b", 1), ("a", 2)):
        dispatcher.put(key, call)
    async with running(dispatcher.run()):
        assert await dispatcher.drain(5) == 0
        # And so in one breath while it runs.
        for call in range(3):
            dispatcher.put("a", call)
        dispatcher.put("b", 0)
        dispatcher.discard("b")
        assert await dispatcher.drain(5) == 0
    assert sender.sent == [("a", 2), ("b", 1), ("a", 2)]


async def test_two_calls_of_a_key_never_run_at_once_and_none_is_lost() -> None:
    sender, dispatcher = dispatching(held=True, concurrency=4)
    async with running(dispatcher.run()):
        dispatcher.put("a", 1)
        await eventually(lambda: sender.sent == [("a", 1)])
        for call in range(2, 6):
            dispatcher.put("a", call)
        # Dropped and made again while its key is being sent: the queue holds the key in vain, and must not mind.
        dispatcher.discard("a")
        dispatcher.put("a", 7)
        await asyncio.sleep(60)
        assert sender.sent == [("a", 1)]
        assert len(dispatcher) == 1
        sender.go.set()
        assert await dispatcher.drain(5) == 0
    assert sender.sent == [("a", 1), ("a", 7)]


async def test_no_more_calls_run_at_once_than_allowed() -> None:
    sender, dispatcher = dispatching(held=True, concurrency=2)
    for key in "abcde":
        dispatcher.put(key, 1)
    async with running(dispatcher.run()):
        await eventually(lambda: len(sender.busy) == 2)
        sender.go.set()
        assert await dispatcher.drain(5) == 0
    assert sender.most == 2
    assert [key for key, _ in sender.sent] == list("abcde")


async def test_a_full_dispatcher_takes_no_new_key_but_newer_calls() -> None:
    _, dispatcher = dispatching(concurrency=1, capacity=2)
    assert dispatcher.put("a", 1)
    assert dispatcher.put("b", 1)
    assert not dispatcher.put("c", 1)
    assert dispatcher.put("a", 2)
    dispatcher.discard("b")
    assert dispatcher.put("c", 1)


async def test_draining_ends_at_its_deadline_and_says_what_is_left() -> None:
    _, dispatcher = dispatching(held=True, concurrency=1)
    for key in "abc":
        dispatcher.put(key, 1)
    async with running(dispatcher.run()):
        assert await dispatcher.drain(0.05) == 3


async def test_what_a_cancelled_run_had_not_begun_is_sent_by_the_next() -> None:
    sender, dispatcher = dispatching(held=True, concurrency=2)
    async with running(dispatcher.run()) as run:
        await asyncio.sleep(0)
        run.cancel()
        dispatcher.put("a", 1)
        dispatcher.put("b", 1)
    assert sender.sent == []
    dispatcher.put("c", 1)
    async with running(dispatcher.run()):
        await eventually(lambda: len(sender.busy) == 2)
        sender.go.set()
        assert await dispatcher.drain(5) == 0
    assert [key for key, _ in sender.sent] == list("abc")
    assert sender.most == 2


async def test_only_a_store_that_went_back_ends_the_run() -> None:
    async def broken(_key: str, _call: int) -> None:
        raise StoreWentBack("the list", listed="1", known="2")

    dispatcher: Dispatcher[str, int] = Dispatcher(broken, concurrency=2)
    dispatcher.put("a", 1)
    with pytest.raises(ExceptionGroup) as raised:
        await dispatcher.run()
    assert raised.group_contains(StoreWentBack)


class Starter:
    """Sends without tasks what `takes` says, and lets the test say when each ends."""

    def __init__(self, *takes: str) -> None:
        self.takes = takes
        self.under_way: dict[str, Ended] = {}

    def __call__(self, key: str, call: int, ended: Ended) -> bool:
        if key in self.takes:
            self.under_way[key] = ended
        return key in self.takes


async def test_a_call_that_was_started_at_once_counts_as_under_way_until_it_has_ended() -> None:
    starter = Starter("a", "b", "c")
    sender, dispatcher = dispatching(concurrency=2, start=starter)
    async with running(dispatcher.run()):
        for key in "abcd":
            dispatcher.put(key, 1)
        await asyncio.sleep(1)
        assert list(starter.under_way) == ["a", "b"] and sender.sent == []
        dispatcher.put("a", 2)
        assert await dispatcher.drain(5) == 4
        starter.under_way.pop("a")(None)
        await asyncio.sleep(1)
        assert list(starter.under_way) == ["b", "c"]
        for key in ("b", "c"):
            starter.under_way[key](None)
        await asyncio.sleep(1)
        assert sender.sent == [("d", 1)]
        starter.under_way["a"](None)
        assert await dispatcher.drain(5) == 0


async def test_what_a_start_did_not_settle_is_gone_on_with_in_a_task() -> None:
    starter = Starter("a")
    sender, dispatcher = dispatching(held=True, concurrency=1, start=starter)
    async with running(dispatcher.run()):
        dispatcher.put("a", 1)
        await asyncio.sleep(1)
        dispatcher.put("b", 1)
        starter.under_way["a"](partial(sender, "a", 1))
        await asyncio.sleep(1)
        assert sender.sent == [("a", 1)]
        sender.go.set()
        assert await dispatcher.drain(5) == 0
    assert sender.sent == [("a", 1), ("b", 1)]


async def test_what_ends_when_nobody_sends_any_more_begins_nothing() -> None:
    starter = Starter("a")
    sender, dispatcher = dispatching(concurrency=1, start=starter)
    async with running(dispatcher.run()):
        dispatcher.put("a", 1)
        dispatcher.put("b", 1)
        await asyncio.sleep(1)
    starter.under_way["a"](partial(sender, "a", 1))
    await asyncio.sleep(1)
    assert sender.sent == []
    async with running(dispatcher.run()):
        assert await dispatcher.drain(5) == 0
    assert sender.sent == [("b", 1)]


async def test_a_start_that_raises_leaves_the_call_to_a_task() -> None:
    def broken(_key: str, _call: int, _ended: Ended) -> bool:
        raise ValueError("it cannot be sent")

    sender, dispatcher = dispatching(concurrency=1, start=broken)
    async with running(dispatcher.run()):
        dispatcher.put("a", 1)
        assert await dispatcher.drain(5) == 0
    assert sender.sent == [("a", 1)]


async def test_dispatchers_of_one_pace_begin_one_call_at_a_time_together() -> None:
    pace = Pace(asyncio.get_running_loop().time)
    pace.others_at = asyncio.get_running_loop().time()
    (sender, one), (other, another) = (dispatching(concurrency=4, pace=pace) for _ in range(2))
    dispatchers = one, another
    async with running(dispatchers[0].run()), running(dispatchers[1].run()):
        for dispatcher in dispatchers:
            for key in "abc":
                dispatcher.put(key, 1)
        # What is said again while it waits its turn is said once.
        dispatchers[1].put("c", 2)
        await asyncio.sleep(TICK / 2)
        for count in range(1, 6):
            assert len(sender.sent) + len(other.sent) == count
            await asyncio.sleep(TICK)
        assert [key for key, _ in sender.sent] == list("abc")
        assert other.sent == [("a", 1), ("b", 1), ("c", 2)]
        for dispatcher in dispatchers:
            assert await dispatcher.drain(5) == 0


def test_a_dispatcher_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="concurrency"):
        Dispatcher(Sender(), concurrency=0)
