"""Transports that pass requests on to another one, and what tests do to some of them on their way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agent_scheduler.kube.transport import Headers, OutcomeUnknown, Response, Transport


def failure(status: int, reason: str = "", **more: Any) -> Response:
    """The answer of an API server that refuses a request."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": status,
        **more,
    }
    return Response(status, json.dumps(body).encode(), Headers(()))


class Through(Transport):
    """Passes all on. A subclass changes `request` or `stream`; what it does not change it leaves to this one."""

    #: How often a subclass is still to do what it does.
    left = 1

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    async def request(self, method: str, path: str, **more: Any) -> Response:
        return await self.inner.request(method, path, **more)

    def stream(self, path: str, *, read_timeout: float) -> Any:
        return self.inner.stream(path, read_timeout=read_timeout)

    async def close(self) -> None:
        await self.inner.close()


class Faulty(Through):
    """Refuses requests of one kind with the status `answer`, or loses their answers if it is None, `times` times.

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
