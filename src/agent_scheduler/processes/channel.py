"""One end of the way between supervisor and child: whole messages in their order, or the end.

What is said is never waited for: a child that stands still has its orders kept for it in memory, until it goes on or
is ended for its silence.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from .wire import Message, write

T = TypeVar("T")

#: Bytes of the length that stands before each message.
_LENGTH: Final = 4


class Channel(asyncio.Protocol, Generic[T]):
    """Owner of one end of a socket pair, once `over` it. Messages are handed over in the event loop, one by one.

    `told` is given each message, and `ended` is called once, when the other side has closed or died, or this side has
    been closed. What `told` raises ends the channel: nobody can go on who has missed something.
    """

    def __init__(
        self, read: Callable[[bytes], T], *, told: Callable[[T], None], ended: Callable[[], None]
    ) -> None:
        self._read = read
        self.told = told
        self.ended = ended
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None
        self._is_over = False

    async def over(self, end: socket.socket) -> None:
        """Begin to speak and to listen; `end` is this object's from now on."""
        end.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=end)

    def say(self, message: Message) -> None:
        """Without effect once the way has ended."""
        if self._transport is not None and not self._is_over:
            body = write(message)
            self._transport.write(len(body).to_bytes(_LENGTH, "big") + body)

    def close(self) -> None:
        """What was said before is still delivered, if somebody reads it."""
        if self._transport is not None:
            self._transport.close()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.WriteTransport by name.
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        begin = 0
        while len(buffer) - begin >= _LENGTH:
            ends = begin + _LENGTH + int.from_bytes(buffer[begin : begin + _LENGTH], "big")
            if len(buffer) < ends:
                break
            message = self._read(bytes(buffer[begin + _LENGTH : ends]))
            begin = ends
            self.told(message)
        del buffer[:begin]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_over:
            self._is_over = True
            self.ended()
