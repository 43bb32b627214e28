"""A body that is read while it comes: who reads slowly makes the server wait, and loses nothing."""

from __future__ import annotations

import asyncio
import math
from unittest.mock import Mock, call

import pytest

from kube_client.connection import ConnectionBroken
from kube_client.streamed import StreamedBody

SILENCE = 30.0
TOO_MUCH = 300 * 1024


class Reading:
    """A body, with a connection and a pool as far as it has to do with them."""

    def __init__(self) -> None:
        self.line, self.pool = Mock(deadline=0.0), Mock()
        self.body = StreamedBody(self.pool, self.line, silence=SILENCE)
        self.pieces = self.body.pieces()

    @property
    def told(self) -> list[str]:
        """What the connection was told to do."""
        return [name for name, *_ in self.line.method_calls]

    async def next(self) -> bytes:
        return await anext(self.pieces)


async def test_the_server_waits_while_too_much_is_unread_and_goes_on_when_it_was_read() -> None:
    reading = Reading()
    reading.body.feed(b"x" * TOO_MUCH)
    reading.body.feed(b"y")
    assert reading.told == ["pause"]
    assert await reading.next() == b"x" * TOO_MUCH + b"y"
    assert reading.told == ["pause"], "who has not asked for more may still be busy with it"
    more = asyncio.create_task(reading.next())
    await asyncio.sleep(0)
    assert reading.told == ["pause", "resume"]
    reading.body.feed(b"z")
    assert await more == b"z"
    reading.body.feed(b"x" * TOO_MUCH)
    assert reading.told == ["pause", "resume", "pause"]


async def test_silence_counts_from_the_last_byte_and_not_while_the_reader_is_waited_for() -> None:
    reading, now = Reading(), asyncio.get_running_loop().time
    reading.body.feed(b"a")
    assert now() < reading.line.deadline <= now() + SILENCE
    assert await reading.next() == b"a"
    reading.body.feed(b"x" * TOO_MUCH)
    assert reading.line.deadline == math.inf
    await reading.next()
    more = asyncio.create_task(reading.next())
    await asyncio.sleep(0)
    assert now() < reading.line.deadline <= now() + SILENCE
    assert reading.pool.watch_deadline.call_args_list == [call(reading.line.deadline)]
    more.cancel()


async def test_what_came_before_the_end_is_read_first() -> None:
    reading = Reading()
    reading.body.feed(b"a")
    reading.body.feed(b"b")
    reading.body.set_exception(ConnectionBroken("cut"))
    assert reading.body.done()
    assert await reading.next() == b"ab"
    with pytest.raises(ConnectionBroken, match="cut"):
        await reading.next()


async def test_who_waits_is_told_of_the_end() -> None:
    reading = Reading()
    more = asyncio.create_task(reading.next())
    await asyncio.sleep(0)
    reading.body.set_result(None)  # type: ignore[arg-type]
    with pytest.raises(StopAsyncIteration):
        await more
