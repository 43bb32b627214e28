"""The product's `Transport` to an embedded API server in the same process, without sockets: time may be virtual."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from agent_scheduler.kube.streamed import split_lines
from agent_scheduler.kube.transport import Headers, Response, StreamRefused
from embedded_kubernetes.inproc import Door, Watching


class InProcessTransport:
    """Every request is carried out at once."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109
    ) -> Response:
        status, _, answer = await self._door.request(
            method, path, body=body, headers={"content-type": content_type}
        )
        return Response(status, answer, Headers([]))

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        watching = await self._door.watch(path)
        try:
            if watching.status != 200:
                raise StreamRefused(Response(watching.status, await anext(aiter(watching)), Headers([])))
            async with aclosing(_pieces(watching)) as pieces, aclosing(split_lines(pieces)) as lines:
                yield lines
        finally:
            await watching.aclose()

    async def close(self) -> None: ...


async def _pieces(watching: Watching) -> AsyncGenerator[bytes, Any]:
    async for line in watching:
        yield line
