"""Transports that pass requests on to another one, and what tests do to some of them on their way."""

from __future__ import annotations

import asyncio
import json
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
#: What becomes of a request, which it may send.
Way = Callable[[Send], Any]


def failure(status: int, reason: str = "", **more: Any) -> Response:
    """The answer of an API server that refuses a request."""
    told = {"status": "Failure", "reason": reason, "code": status}
    body = {"kind": "Status", "apiVersion": "v1", **told, **more}
    return Response(status, json.dumps(body).encode(), Headers(()))


def refused(status: int, reason: str) -> Way:
    async def answer(_: Send) -> Response:
        return failure(status, reason, message="told so")

    return answer


async def lost(send: Send) -> Response:
    await send()
    raise OutcomeUnknown("no answer")


class Held:
    """A way on which requests wait until they may `go`."""

    def __init__(self) -> None:
        self.came, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, send: Send) -> Response:
        self.came.set()
        await self.go.wait()
        answer: Response = await send()
        return answer


class Through(Transport):
    """Passes all on and closes nothing. A subclass changes `request` or `stream`; what it does not change it leaves to
    this one."""

    #: How often a subclass is still to do what it does.
    left = 1

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        #: What was asked: methods, and paths without queries.
        self.asked: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, **more: Any) -> Response:
        self.asked.append((method, path.partition("?")[0]))
        return await self.inner.request(method, path, **more)

    def stream(self, path: str, *, read_timeout: float) -> Any:
        return self.inner.stream(path, read_timeout=read_timeout)

    async def close(self) -> None: ...


class Faulty(Through):
    """Requests of each kind in `ways` go wrong, one in each way.

    `at_once`: they are begun without a task, where whoever asks can do so.
    """

    def __init__(self, inner: Transport, *, at_once: bool = False) -> None:
        super().__init__(inner)
        self.at_once = at_once
        self._started: list[asyncio.Task[None]] = []
        #: (method, part of the path) -> ways, one a request.
        self.ways: dict[tuple[str, str], list[Way]] = {}
        self.sent: list[str] = []

    def _ways(self, method: str, path: str) -> list[Way]:
        kinds = self.ways.items()
        return next((ways for (verb, part), ways in kinds if verb == method and part in path and ways), [])

    async def request(self, method: str, path: str, **more: Any) -> Response:
        self.sent.append(f"{method} {path}")
        if ways := self._ways(method, path):
            answer: Response = await ways.pop(0)(lambda: self.inner.request(method, path, **more))
            return answer
        return await super().request(method, path, **more)

    def start(self, method: str, path: str, *, answered: Answered, **more: Any) -> bool:
        """As `kube.transport.Start`, of what goes wrong."""
        if not self.at_once or not self._ways(method, path):
            return False

        async def request() -> None:
            try:
                answered(await self.request(method, path, **more))
            except TransportError as error:
                answered(error)

        self._started.append(asyncio.create_task(request()))
        return True


class Refusing(Through):
    """Refuses requests of one kind with the status `answer`, or loses their answers if it is None, `left` times.

    It passes on what tells where a pod is about to go: the product does not repeat that.
    """

    def __init__(self, inner: Transport, method: str, ending: str, times: int, answer: int | None) -> None:
        super().__init__(inner)
        self.method, self.ending = method, ending
        self.left, self.answer = times, answer

    async def request(self, method: str, path: str, **more: Any) -> Response:
        struck = method == self.method and path.endswith(self.ending) and self.left > 0
        struck = struck and b"nominatedNodeName" not in (more.get("body") or b"")
        if struck:
            self.left -= 1
            if self.answer is not None:
                return failure(self.answer, "Forbidden")
        answer = await super().request(method, path, **more)
        if struck:
            raise OutcomeUnknown("the answer was lost")
        return answer


class Waiting(Through):
    """Requests of one kind are sent only when they may `go`."""

    def __init__(self, inner: Transport, method: str, ending: str) -> None:
        super().__init__(inner)
        self.method, self.ending = method, ending
        self.came, self.go = asyncio.Event(), asyncio.Event()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method == self.method and path.endswith(self.ending):
            self.came.set()
            await self.go.wait()
        return await super().request(method, path, **more)
