from __future__ import annotations

import asyncio

import pytest

from agent_scheduler.kube.dispatch import Dispatcher
from tests.virtual import virtual_time

from .scripted import eventually, running


class Sender:
    """Notes what it is given and holds each call until `go` is set."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.go = asyncio.Event()
        self.busy: set[str] = set()
        self.most = 0

    async def __call__(self, key: str, call: int) -> None:
        assert key not in self.busy
        self.busy.add(key)
        self.most = max(self.most, len(self.busy))
        self.sent.append((key, call))
        await self.go.wait()
        self.busy.discard(key)


@virtual_time
async def test_the_newest_call_of_a_key_replaces_those_that_wait() -> None:
    sender = Sender()
    dispatcher: Dispatcher[str, int] = Dispatcher(sender, concurrency=1)
    dispatcher.put("a", 1)
    dispatcher.put("b", 1)
    dispatcher.put("a", 2)
    sender.go.set()
    async with running(dispatcher.run()):
        assert await dispatcher.drain(5) == 0
    assert sender.sent == [("a", 2), ("b", 1)]


@virtual_time
async def test_two_calls_of_a_key_never_run_at_once_and_none_is_lost() -> None:
    sender = Sender()
    dispatcher: Dispatcher[str, int] = Dispatcher(sender, concurrency=4)
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


@virtual_time
async def test_no_more_calls_run_at_once_than_allowed() -> None:
    sender = Sender()
    dispatcher: Dispatcher[str, int] = Dispatcher(sender, concurrency=2)
    for key in "abcde":
        dispatcher.put(key, 1)
    async with running(dispatcher.run()):
        await eventually(lambda: len(sender.busy) == 2)
        sender.go.set()
        assert await dispatcher.drain(5) == 0
    assert sender.most == 2
    assert [key for key, _ in sender.sent] == list("abcde")


@virtual_time
async def test_a_full_dispatcher_takes_no_new_key_but_newer_calls() -> None:
    dispatcher: Dispatcher[str, int] = Dispatcher(Sender(), concurrency=1, capacity=2)
    assert dispatcher.put("a", 1)
    assert dispatcher.put("b", 1)
    assert not dispatcher.put("c", 1)
    assert dispatcher.put("a", 2)
    dispatcher.discard("b")
    assert dispatcher.put("c", 1)


@virtual_time
async def test_draining_ends_at_its_deadline_and_says_what_is_left() -> None:
    sender = Sender()
    dispatcher: Dispatcher[str, int] = Dispatcher(sender, concurrency=1)
    for key in "abc":
        dispatcher.put(key, 1)
    async with running(dispatcher.run()):
        assert await dispatcher.drain(0.05) == 3


@virtual_time
async def test_a_newer_call_said_in_the_same_breath_replaces_the_older_one() -> None:
    sender = Sender()
    sender.go.set()
    dispatcher: Dispatcher[str, int] = Dispatcher(sender, concurrency=4)
    async with running(dispatcher.run()):
        await asyncio.sleep(0)
        for call in range(3):
            dispatcher.put("a", call)
        dispatcher.put("b", 0)
        dispatcher.discard("b")
        assert await dispatcher.drain(5) == 0
    assert sender.sent == [("a", 2)]


@virtual_time
async def test_what_a_cancelled_run_had_not_begun_is_sent_by_the_next() -> None:
    sender = Sender()
    dispatcher: Dispatcher[str, int] = Dispatcher(sender, concurrency=2)
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


class Beginner(Sender):
    """Begins calls while `can` is set; a test ends them."""

    def __init__(self, *, concurrency: int) -> None:
        super().__init__()
        self.can = True
        self.begun: list[tuple[str, int]] = []
        self.dispatcher: Dispatcher[str, int] = Dispatcher(self, begin=self.begin, concurrency=concurrency)

    def begin(self, key: str, call: int) -> bool:
        assert key not in self.busy
        if self.can:
            self.busy.add(key)
            self.most = max(self.most, len(self.busy))
            self.begun.append((key, call))
        return self.can

    def end(self, key: str, again: int | None = None) -> None:
        self.busy.discard(key)
        self.dispatcher.ended(key, again)


@virtual_time
async def test_a_call_that_can_be_begun_is_so_at_once_and_the_next_when_it_is_over() -> None:
    sender = Beginner(concurrency=2)
    async with running(sender.dispatcher.run()):
        await asyncio.sleep(0)
        for number, key in enumerate("abcd"):
            sender.dispatcher.put(key, number)
        assert sender.begun == [("a", 0), ("b", 1)]
        sender.end("b")
        assert sender.begun == [("a", 0), ("b", 1), ("c", 2)]
        assert len(sender.dispatcher) == 3
        for key in "acd":
            sender.end(key)
        assert await sender.dispatcher.drain(5) == 0
    assert sender.begun == [("a", 0), ("b", 1), ("c", 2), ("d", 3)]
    assert (sender.most, sender.sent) == (2, [])


@virtual_time
async def test_what_cannot_be_begun_is_sent_and_what_follows_it_begun_as_soon_as_it_can_be() -> None:
    sender = Beginner(concurrency=1)
    sender.can = False
    async with running(sender.dispatcher.run()):
        for key in "abcd":
            sender.dispatcher.put(key, 0)
        await eventually(lambda: sender.sent == [("a", 0)])
        sender.can = True
        sender.go.set()
        await eventually(lambda: sender.begun == [("b", 0)])
        sender.can = False
        sender.end("b")
        assert await sender.dispatcher.drain(5) == 0
    assert [key for key, _ in sender.sent] == ["a", "c", "d"]
    assert sender.most == 1


@virtual_time
async def test_two_calls_of_a_key_never_run_at_once_when_they_are_begun() -> None:
    sender = Beginner(concurrency=4)
    async with running(sender.dispatcher.run()):
        await asyncio.sleep(0)
        for call in range(3):
            sender.dispatcher.put("a", call)
        assert sender.begun == [("a", 0)]
        sender.end("a", again=7)
        assert sender.begun == [("a", 0), ("a", 2)]
        sender.end("a")
        assert len(sender.dispatcher) == 0


@virtual_time
async def test_what_is_left_of_a_begun_call_is_sent_before_what_waits() -> None:
    sender = Beginner(concurrency=1)
    sender.go.set()
    async with running(sender.dispatcher.run()):
        await asyncio.sleep(0)
        sender.dispatcher.put("a", 1)
        sender.dispatcher.put("b", 1)
        sender.can = False
        sender.end("a", again=2)
        assert await sender.dispatcher.drain(5) == 0
    assert sender.sent == [("a", 2), ("b", 1)]


@virtual_time
async def test_nothing_is_begun_but_by_a_run_and_what_outlives_one_is_gone_on_with_by_the_next() -> None:
    sender = Beginner(concurrency=2)
    sender.dispatcher.put("a", 1)
    assert sender.begun == []
    async with running(sender.dispatcher.run()):
        await eventually(lambda: sender.begun == [("a", 1)])
    sender.dispatcher.put("b", 1)
    sender.end("a", again=2)
    assert (sender.begun, sender.sent, len(sender.dispatcher)) == ([("a", 1)], [], 2)
    async with running(sender.dispatcher.run()):
        await eventually(lambda: sender.begun == [("a", 1), ("a", 2), ("b", 1)])


@virtual_time
async def test_what_is_raised_when_a_call_is_begun_ends_the_run_where_it_is_sent() -> None:
    def begin(_key: str, _call: int) -> bool:
        raise RuntimeError("a bug")

    async def broken(_key: str, _call: int) -> None:
        raise RuntimeError("the same bug")

    dispatcher: Dispatcher[str, int] = Dispatcher(broken, begin=begin, concurrency=2)
    run = asyncio.create_task(dispatcher.run())
    await asyncio.sleep(0)
    assert dispatcher.put("a", 1)
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.timeout(5):
            await run
    assert raised.group_contains(RuntimeError, match="the same bug")


@virtual_time
async def test_what_a_call_raises_ends_the_run() -> None:
    async def broken(_key: str, _call: int) -> None:
        raise RuntimeError("a bug")

    dispatcher: Dispatcher[str, int] = Dispatcher(broken, concurrency=2)
    dispatcher.put("a", 1)
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.timeout(5):
            await dispatcher.run()
    assert raised.group_contains(RuntimeError, match="a bug")


def test_a_dispatcher_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="concurrency"):
        Dispatcher(Sender(), concurrency=0)
