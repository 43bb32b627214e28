"""A `Transport` to an API in the same process: each request is answered after a fixed while of virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_scheduler.kube.transport import Headers, Response, StreamRefused
from embedded_kubernetes import requests
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.pacing import StreamTimers

#: Seconds from a request to its answer.
LATENCY = 0.004
_PIECE = 1 << 20


class Way:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109
    ) -> Response:
        await asyncio.sleep(LATENCY / 2)
        answer = answered(self._api, method, path, body, content_type)
        await asyncio.sleep(LATENCY / 2)
        return answer

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        where, _, query = path.partition("?")
        opened = self._api.handle(requests.Request("GET", where, query))
        if not isinstance(opened, requests.Stream):
            raise StreamRefused(Response(opened.status, opened.body, Headers(())))
        watcher, more = opened.watcher, asyncio.Event()
        watcher.wake = more.set
        timers = StreamTimers(asyncio.get_running_loop(), opened)

        async def batches() -> AsyncIterator[list[bytes]]:
            while True:
                more.clear()
                if lines := list(watcher.take(_PIECE)):
                    yield lines
                elif watcher.drained:
                    return
                else:
                    await more.wait()

        try:
            yield batches()
        finally:
            timers.cancel()
            watcher.close()

    async def close(self) -> None:
        """There is nothing to close."""


def answered(api: Api, method: str, path: str, body: bytes | None, content_type: str) -> Response:
    where, _, query = path.partition("?")
    answer = api.handle(requests.Request(method, where, query, body=body or b"", content_type=content_type))
    assert isinstance(answer, requests.Response), "a watch is opened by `stream`"
    return Response(answer.status, answer.body, Headers(()))
