"""The console for browsers: a few static files, and a stream of server-sent events with the changes.

The files are public, since they contain nothing about the cluster. The stream requires a token, as the debug pages
do. A page cannot pass one to an `EventSource`, so it reads the stream with `fetch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import resources
from typing import Final

import msgspec
from aiohttp import web

from agent_scheduler.telemetry.logs import get_logger

from .sources import Console

_log = get_logger(__name__)

#: The path of the console. Its files use relative links, so it works behind a proxy that adds a prefix.
ROOT: Final = "/ui"
STREAM: Final = f"{ROOT}/stream"
#: Seconds between two updates.
INTERVAL: Final = 1.0
#: The limit of simultaneous streams; each uses a connection.
MAX_VIEWERS: Final = 32
#: Seconds after which a stream ends, so that the viewer's token is checked again.
_LONGEST: Final = 600.0

_TYPES: Final = {
    "console.js": "text/javascript",
    "console.css": "text/css",
    "uplot.js": "text/javascript",
    "uplot.css": "text/css",
}
_HEADERS: Final = {
    # The plotting library sets element styles by script, which this policy allows. Foreign content is not allowed.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def _event(name: str, number: int, data: object) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), number, msgspec.json.encode(data))


class Stream:
    """Computes the updates once for all viewers, and only while there are viewers."""

    def __init__(self, source: Console, *, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._viewers = 0
        self._asking: asyncio.Task[None] | None = None
        #: The last update as bytes, and its number. Owned by the task in `_asking`.
        self._news = b""
        self._number = 0
        self._is_new = asyncio.Condition()
        #: Increased to end all streams.
        self._epoch = 0

    @property
    def viewers(self) -> int:
        return self._viewers

    async def close(self) -> None:
        """End all streams."""
        async with self._is_new:
            self._epoch += 1
            self._is_new.notify_all()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self._viewers >= MAX_VIEWERS:
            raise web.HTTPTooManyRequests(
                text=f"{MAX_VIEWERS} viewers already use the console\n", headers={"Retry-After": "10"}
            )
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                # Buffering proxies would hold the response back until it ends.
                "X-Accel-Buffering": "no",
            }
        )
        self._viewers += 1
        try:
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask())
            await response.prepare(request)
            await self._send(response)
        except ConnectionError:
            # The viewer has disconnected.
            pass
        finally:
            self._viewers -= 1
            if not self._viewers and self._asking is not None:
                self._asking.cancel()
                self._asking = None
        return response

    async def _send(self, response: web.StreamResponse) -> None:
        ends, epoch = self._clock() + _LONGEST, self._epoch
        seen = -1
        while self._epoch == epoch and self._clock() < ends:
            # A viewer that missed updates because of a slow connection gets everything again.
            if seen >= 0 and seen == self._number - 1:
                text = self._news
            else:
                text = _event("whole", self._number, self._source.whole())
            seen = self._number
            await response.write(text)
            async with self._is_new:
                while self._epoch == epoch and self._number == seen:
                    await self._is_new.wait()

    async def _ask(self) -> None:
        try:
            # Changes from before the first viewer are in the whole that each viewer gets first.
            self._source.news()
            while True:
                await asyncio.sleep(INTERVAL)
                self._news = _event("news", self._number + 1, self._source.news())
                async with self._is_new:
                    self._number += 1
                    self._is_new.notify_all()
        except Exception:
            _log.exception("the console's stream failed")
            await self.close()


def add_console(app: web.Application, source: Console, *, clock: Callable[[], float]) -> Stream:
    """Add the console's routes to an application that guards `STREAM`."""
    folder = resources.files(__package__) / "ui"
    files = {name: (folder / name).read_bytes() for name in _TYPES}
    page = (folder / "index.html").read_bytes()
    stream = Stream(source, clock=clock)

    async def index(request: web.Request) -> web.Response:
        if not request.path.endswith("/"):
            # A relative redirect, so that it works with any prefix of a proxy: /ui -> ui/.
            raise web.HTTPPermanentRedirect(f"{ROOT.lstrip('/')}/")
        return web.Response(body=page, content_type="text/html", charset="utf-8", headers=_HEADERS)

    async def file(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in files:
            raise web.HTTPNotFound
        return web.Response(body=files[name], content_type=_TYPES[name], charset="utf-8", headers=_HEADERS)

    app.router.add_get(ROOT, index)
    app.router.add_get(f"{ROOT}/", index)
    app.router.add_get(STREAM, stream.answer)
    app.router.add_get(f"{ROOT}/{{name}}", file)

    async def close(_app: web.Application) -> None:
        await stream.close()

    app.on_shutdown.append(close)
    return stream
