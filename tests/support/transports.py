"""Transports that forward requests to another one, and ways in which tests disturb them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from kube_client.transport import Answered, Headers, OutcomeUnknown, Response, Transport, TransportError

Send = Callable[[], Any]
#: Handles a request, which it may send.
Way = Callable[[Send], Any]


def failure(status: int, reason: str = "", **more: Any) -> Response:
    """Return an API server's failure response."""
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
    """A way on which requests wait for `go`."""

    def __init__(self) -> None:
        self.came, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, send: Send) -> Response:
        self.came.set()
        await self.go.wait()
        answer: Response = await send()
        return answer


class Through(Transport):
    """Forwards everything and closes nothing. Subclasses override `request` or `stream`."""

    #: How many more times a subclass applies its fault.
    left = 1

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        #: The methods of requests, and paths without queries.
        self.asked: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, **more: Any) -> Response:
        self.asked.append((method, path.partition("?")[0]))
        return await self.inner.request(method, path, **more)

    def stream(self, path: str, *, read_timeout: float) -> Any:
        return self.inner.stream(path, read_timeout=read_timeout)

    async def close(self) -> None: ...


class Faulty(Through):
    """Disturbs requests of each kind in `ways`, one per way.

    With `at_once`, they are started without a task if the caller supports that.
    """

    def __init__(self, inner: Transport, *, at_once: bool = False) -> None:
        super().__init__(inner)
        self.at_once = at_once
        self._started: list[asyncio.Task[None]] = []
        #: (method, part of the path) -> ways, one per request.
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
        """Start a disturbed request, as `kube_client.transport.Start`."""
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
    """Refuses `left` requests of one kind with the status `answer`, or loses their responses if it is None.

    It forwards writes of a nomination before a bind, which the product does not repeat.
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
    """Delays requests of one kind until `go`."""

    def __init__(self, inner: Transport, method: str, ending: str) -> None:
        super().__init__(inner)
        self.method, self.ending = method, ending
        self.came, self.go = asyncio.Event(), asyncio.Event()

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if method == self.method and path.endswith(self.ending):
            self.came.set()
            await self.go.wait()
        return await super().request(method, path, **more)
