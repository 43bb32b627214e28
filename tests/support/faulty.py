"""A transport on which some requests go wrong, and the ways in which they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agent_scheduler.kube.transport import (
    Answered,
    Headers,
    OutcomeUnknown,
    Response,
    Transport,
    TransportError,
)

Send = Callable[[], Any]
#: What becomes of a request.
Way = Callable[[Send], Any]


class Passing:
    """A process's transport, which leaves that of the cluster open, and what was asked through it: methods and paths
    without queries."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.asked: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, **more: Any) -> Response:
        self.asked.append((method, path.partition("?")[0]))
        return await self._transport.request(method, path, **more)

    def stream(self, path: str, *, read_timeout: float) -> Any:
        return self._transport.stream(path, read_timeout=read_timeout)

    async def close(self) -> None: ...


class Faulty(Passing):
    """A transport on which some requests go wrong."""

    def __init__(self, transport: Transport, *, at_once: bool = False) -> None:
        """`at_once`: requests that go wrong are begun without a task, where whoever asks can do so."""
        super().__init__(transport)
        self.at_once = at_once
        self._started: list[asyncio.Task[None]] = []
        #: (method, part of the path) -> ways, one a request.
        self.ways: dict[tuple[str, str], list[Way]] = {}
        self.sent: list[str] = []

    async def request(self, method: str, path: str, **more: Any) -> Response:
        self.sent.append(f"{method} {path}")
        for (verb, part), ways in self.ways.items():
            if verb == method and part in path and ways:
                answer: Response = await ways.pop(0)(lambda: self._transport.request(method, path, **more))
                return answer
        return await self._transport.request(method, path, **more)

    def start(self, method: str, path: str, *, answered: Answered, **more: Any) -> bool:
        """As `kube.transport.Start`, of what goes wrong."""
        if not self.at_once or not any(
            verb == method and part in path and ways for (verb, part), ways in self.ways.items()
        ):
            return False

        async def request() -> None:
            try:
                answered(await self.request(method, path, **more))
            except TransportError as error:
                answered(error)

        self._started.append(asyncio.create_task(request()))
        return True


def refused(status: int, reason: str) -> Way:
    async def answer(_: Send) -> Response:
        told = f'"status":"Failure","reason":"{reason}","code":{status},"message":"told so"'
        return Response(status, f'{{"kind":"Status","apiVersion":"v1",{told}}}'.encode(), Headers([]))

    return answer


async def lost(send: Send) -> Response:
    await send()
    raise OutcomeUnknown("no answer")
