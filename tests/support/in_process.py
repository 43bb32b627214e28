"""The product's `Transport` to an embedded API server in the same process, without sockets, so time may be virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from embedded_kubernetes.inproc import Door, Lost, Watching
from kube_client.streamed import split_lines
from kube_client.transport import Headers, OutcomeUnknown, Response, StreamRefused


class InProcessTransport:
    """Every request takes `latency` seconds, half of it before the server executes it, plus the delays of faults.

    A lost or late response is OutcomeUnknown, as over HTTP.
    """

    def __init__(self, door: Door, *, latency: float = 0.0, token: str = "") -> None:
        self._door = door
        self._token = token
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._half = latency / 2
        #: While set, no request reaches the server.
        self.is_away = False
        #: Set when the watches that are open at that time stop delivering.
        self._silent = asyncio.Event()

    def another(self, token: str = "") -> InProcessTransport:
        return InProcessTransport(self._door, latency=2 * self._half, token=token or self._token)

    def fall_silent(self) -> None:
        """Make the currently open watches neither deliver nor end, as when a peer has vanished. Later ones work."""
        self._silent.set()
        self._silent = asyncio.Event()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109
    ) -> Response:
        try:
            async with asyncio.timeout(timeout):
                if self._half:
                    await asyncio.sleep(self._half)
                if self.is_away:
                    raise Lost("the server is away")
                status, _, answer = await self._door.request(
                    method, path, body=body, headers={"content-type": content_type, **self._headers}
                )
                if self._half:
                    await asyncio.sleep(self._half)
        except (TimeoutError, Lost) as error:
            raise OutcomeUnknown(f"{method} {path}: {error or 'no answer'} (timeout {timeout:g} s)") from error
        return Response(status, answer, Headers([]))

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        try:
            if self.is_away:
                raise Lost("the server is away")
            async with asyncio.timeout(read_timeout):
                watching = await self._door.watch(path, headers=self._headers)
        except (TimeoutError, Lost) as error:
            raise OutcomeUnknown(f"GET {path}: {error or 'no answer'}") from error
        try:
            if watching.status != 200:
                raise StreamRefused(Response(watching.status, await anext(aiter(watching)), Headers([])))
            async with (
                aclosing(_pieces(watching, read_timeout, self._silent)) as pieces,
                aclosing(split_lines(pieces)) as lines,
            ):
                yield lines
        finally:
            await watching.aclose()

    async def close(self) -> None: ...


async def _pieces(watching: Watching, read_timeout: float, silent: asyncio.Event) -> AsyncGenerator[bytes, Any]:
    lines = aiter(watching)
    while True:
        try:
            async with asyncio.timeout(read_timeout):
                line = await anext(lines, None)
                if silent.is_set():
                    await asyncio.Event().wait()
        except (TimeoutError, Lost) as error:
            raise OutcomeUnknown(f"watch: {error or 'nothing came'}") from error
        if line is None:
            return
        yield line
