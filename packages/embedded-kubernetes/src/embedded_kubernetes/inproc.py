"""Access to the API without sockets, for tests and simulations.

Requests pass through the same `Api` as over HTTP, so the behavior is the same except for the bytes on the wire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from .auth.impersonation import PREFIX
from .handlers import Api
from .pacing import CollectorTurns, StreamTimers
from .requests import AT_ONCE, Disturb, Disturbance, Request, Response, Stream

_NO_DISTURBANCE = Disturbance()
_BITE = 256 * 1024
#: Headers of a request by name. Several values stand for a repeated header.
Headers = Mapping[str, str | Sequence[str]]


class Lost(ConnectionError):
    """An injected fault closed the connection, so there is no response."""


class Watching:
    """An open watch: its `status`, and its lines as an asynchronous iterator.

    A rejected watch has the error's status, and the error as its only line. One that an injected fault resets ends
    with `Lost`. Call `aclose` if it is left before its end.
    """

    def __init__(self, result: Stream | Response, loop: asyncio.AbstractEventLoop) -> None:
        self._ready: deque[bytes] = deque()
        self._stream = result if isinstance(result, Stream) else None
        self._more = asyncio.Event()
        self._timers: StreamTimers | None = None
        if isinstance(result, Response):
            self.status = result.status
            self._ready.append(result.body)
        else:
            self.status = 200
            result.watcher.wake = self._more.set
            self._timers = StreamTimers(loop, result)

    def __aiter__(self) -> Watching:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            if self._stream is None:
                raise StopAsyncIteration
            watcher = self._stream.watcher
            self._more.clear()
            self._ready.extend(watcher.take(_BITE))
            if self._ready:
                break
            if watcher.drained:
                torn = watcher.torn
                await self.aclose()
                if torn:
                    raise Lost("the watch was broken off")
            else:
                await self._more.wait()
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Stop watching. Idempotent."""
        stream, self._stream = self._stream, None
        if self._timers is not None:
            self._timers.cancel()
        if stream is not None:
            stream.watcher.close()


@dataclass(eq=False)
class Door:
    """Sends requests to an `Api` in the same process, in one event loop."""

    api: Api
    _: KW_ONLY
    disturb: Disturb | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _turns: CollectorTurns | None = field(init=False, default=None)

    def _request(self, method: str, path: str, *, body: bytes | None, headers: Headers | None) -> Request:
        path, _, query = path.partition("?")
        given: dict[str, Any] = {name.lower(): value for name, value in (headers or {}).items()}
        if self._turns is None:
            self._turns = CollectorTurns(self.api.collector, asyncio.get_running_loop())
        return Request(
            method,
            path,
            query,
            body=body or b"",
            content_type=given.get("content-type", ""),
            accept=given.get("accept"),
            authorization=given.get("authorization"),
            impersonate=tuple(
                (name, value)
                for name, values in given.items()
                if name.startswith(PREFIX)
                for value in ([values] if isinstance(values, str) else values)
            ),
        )

    async def _handle(self, request: Request) -> Response | Stream:
        fault = (self.disturb(request) if self.disturb is not None else None) or _NO_DISTURBANCE
        if fault.delay:
            await self.sleep(fault.delay)
        if fault.drop:
            raise Lost(f"{request.method} {request.path}: dropped before it was handled")
        instead = fault.instead()
        if instead is not None and not fault.commits:
            return instead
        found = self.api.handle(fault.asked(request, self.api.store.rv))
        result = found if isinstance(found, AT_ONCE) else await found
        if fault.late:
            await self.sleep(fault.late)
        if isinstance(result, Stream):
            if fault.lose or instead is not None:
                result.watcher.close()
            elif fault.distortion is not None:
                result = result.disturbed(fault.distortion, asyncio.get_running_loop().call_later)
        elif fault.edited is not None:
            result = fault.edited(result)
        if fault.lose:
            raise Lost(f"{request.method} {request.path}: the answer was lost")
        return result if instead is None else instead

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, headers: Headers | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request; return status, headers (names in lower case) and body. Raises `Lost`.

        `path` includes the query. Raises ValueError for a watch, which `watch` opens.
        """
        result = await self._handle(self._request(method, path, body=body, headers=headers))
        if isinstance(result, Stream):
            result.watcher.close()
            raise ValueError(f"{path}: a watch does not end; open it with watch()")
        answered = {"content-type": result.content_type}
        for name, value in result.headers:
            name = name.lower()
            answered[name] = f"{answered[name]}, {value}" if name in answered else value
        return result.status, answered, result.body if method != "HEAD" else b""

    async def watch(self, path: str, *, headers: Headers | None = None) -> Watching:
        """Open a watch, whose events are buffered from now on. Raises `Lost`."""
        result = await self._handle(self._request("GET", path, body=None, headers=headers))
        return Watching(result, asyncio.get_running_loop())

    def close(self) -> None:
        """Stop running the collector."""
        if self._turns is not None:
            self._turns.stop()
            self._turns = None
