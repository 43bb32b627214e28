"""A response body that is read while it arrives, such as a watch's."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from kube_client.connection import Connection, ConnectionBroken
from kube_client.connection_pool import ConnectionPool
from kube_client.transport import OutcomeUnknown, Response

#: An API object has at most a few MiB (etcd's default limit is 1.5 MiB); a longer line is no watch event.
MAX_LINE_BYTES = 64 * 1024 * 1024

#: The unread bytes above which the connection is paused.
_HIGH_WATER = 256 * 1024


class StreamedBody:
    """The part of a body that has arrived and is unread. The connection feeds it, one task reads it.

    `silence` is the time in seconds without a byte after which the exchange is abandoned. It does not pass while the
    reader is slow.
    """

    def __init__(self, pool: ConnectionPool, connection: Connection, *, silence: float) -> None:
        self._pool = pool
        self._connection = connection
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._held = 0
        self._paused = False
        self._ended = False
        self._error: ConnectionBroken | None = None
        self._wake: asyncio.Future[None] | None = None

    # -- the connection's side

    def feed(self, data: bytes) -> None:
        self._parts.append(data)
        self._held += len(data)
        if self._held > _HIGH_WATER and not self._paused:
            self._paused = True
            self._connection.pause()
        self._connection.deadline = math.inf if self._paused else self._loop.time() + self._silence
        self._call()

    def done(self) -> bool:
        return self._ended

    def set_result(self, _: Response, /) -> None:
        self._ended = True
        self._call()

    def set_exception(self, error: ConnectionBroken, /) -> None:
        self._ended, self._error = True, error
        self._call()

    def _call(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # -- the reader's side

    def answered(self) -> None:
        """Limit the silence from now on: the head of the response has arrived."""
        if not (self._paused or self._ended):
            self._connection.deadline = self._loop.time() + self._silence

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield what has arrived since the last piece, until the body is complete. Raises ConnectionBroken."""
        while True:
            if self._parts:
                piece = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts, self._held = [], 0
                yield piece
            elif self._ended:
                if self._error is not None:
                    raise self._error
                return
            elif self._paused:
                self._paused = False
                self._connection.deadline = self._loop.time() + self._silence
                self._pool.watch_deadline(self._connection.deadline)
                self._connection.resume()
            else:
                self._wake = self._loop.create_future()
                await self._wake

    async def lines(self, path: str) -> AsyncGenerator[list[bytes], None]:
        """Yield lines as `Transport.stream` does for this path. Raises OutcomeUnknown."""
        try:
            async with aclosing(self.pieces()) as pieces, aclosing(split_lines(pieces)) as batches:
                async for batch in batches:
                    yield batch
        except ConnectionBroken as error:
            raise OutcomeUnknown(f"GET {path}: the stream ended: {error}") from error


async def split_lines(
    chunks: AsyncIterator[bytes], *, limit: int = MAX_LINE_BYTES
) -> AsyncGenerator[list[bytes], None]:
    """Split pieces of any size into batches of whole lines, without newlines and empty lines.

    The pieces of a long line are joined once, so the cost depends only on its length. Raises OutcomeUnknown for a
    line longer than `limit` bytes.
    """
    parts: list[bytes] = []
    held = 0
    async for chunk in chunks:
        lines: list[bytes] = []
        start = 0
        # `find` compares many bytes at a time, `split` one.
        while (end := chunk.find(b"\n", start)) >= 0:
            line = chunk[start:end]
            if parts:
                parts.append(line)
                line = b"".join(parts)
                parts, held = [], 0
            if line:
                lines.append(line)
            start = end + 1
        if start:
            yield lines
        if start < len(chunk):
            parts.append(chunk[start:])
            held += len(chunk) - start
            if held > limit:
                raise OutcomeUnknown(f"a line of the stream is longer than {limit} bytes")
    if parts:
        yield [b"".join(parts)]
