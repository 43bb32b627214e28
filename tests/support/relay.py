"""A TCP relay between a client and an API server, with failures that a test chooses.

It handles bytes, not requests, so it works over TLS and with any control plane.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Relay:
    """Relays to a port while it is entered. Owner of all connections through it."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = host, port
        self._server: asyncio.Server | None = None
        #: While clear, new connections wait.
        self._passing = asyncio.Event()
        self._passing.set()
        #: While clear, the server's responses are held back; requests still arrive.
        self._answering = asyncio.Event()
        self._answering.set()
        self._refusing = False
        self._tasks: set[asyncio.Task[None]] = set()
        #: Both ends of the current connections; the event is set when one must not pass further data.
        self._open: dict[asyncio.StreamWriter, asyncio.Event] = {}
        #: The number of connections that were made through it.
        self.connections = 0

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    # ---- what a test may do

    def reset(self) -> None:
        """Reset all connections. Data that was held back is lost."""
        for writer in list(self._open):
            writer.transport.abort()

    def cut(self) -> None:
        """Reset all connections, and delay new ones until `restore`."""
        self._passing.clear()
        self.reset()

    def restore(self) -> None:
        self._passing.set()

    def refuse(self) -> None:
        """Reset all connections, and each new one immediately."""
        self._refusing = True
        self.reset()

    def accept(self) -> None:
        self._refusing = False

    def hold_answers(self) -> None:
        """Hold back the server's data from now on; requests still arrive."""
        self._answering.clear()

    def let_answers_pass(self) -> None:
        self._answering.set()

    def fall_silent(self) -> None:
        """Make the current connections neither pass data nor end, as when a peer has vanished. New ones work."""
        for silent in self._open.values():
            silent.set()

    # ---- relaying

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        silent = self._open[writer] = asyncio.Event()
        try:
            await self._passing.wait()
            answers, upstream = await asyncio.open_connection(*self._target)
            self._open[upstream] = silent
            try:
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(_pump(reader, upstream, silent, None))
                    ways.create_task(_pump(answers, writer, silent, self._answering))
            finally:
                del self._open[upstream]
                upstream.transport.abort()
        except* OSError:
            # Either side has closed its connection, which closes the other.
            pass
        except* asyncio.CancelledError:
            pass
        finally:
            del self._open[writer]
            self._tasks.discard(task)
            writer.transport.abort()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silent: asyncio.Event, gate: asyncio.Event | None
) -> None:
    while data := await reader.read(1 << 16):
        if silent.is_set():
            await asyncio.Event().wait()
        if gate is not None:
            await gate.wait()
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
