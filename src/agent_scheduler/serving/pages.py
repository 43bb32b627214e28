"""The pages of a process's HTTP server, and their authorization. Only this module of `serving` imports aiohttp."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from agent_scheduler.serving.connections import Bodies, Connections, most_connections
from agent_scheduler.serving.console import ROOT, STREAM, add_console
from agent_scheduler.serving.explanation import render
from agent_scheduler.serving.health import PING, Check, examine
from agent_scheduler.serving.sources import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    TOKEN_HEADER,
    DebugPage,
    DebugQuery,
    DebugSources,
    Explain,
    NotReady,
    Sources,
    UnreadableData,
)
from agent_scheduler.telemetry.logs import get_logger, redact
from apimachinery.hosts import host_problem, origin_problem
from kube_client.authorization import Access, KubeAuthorizer
from kube_client.logs import LimitedLog, OncePer

_log = get_logger(__name__)

_HEALTH = ("healthz", "livez", "readyz")
#: Seconds that requests in progress have to finish when the server closes.
_CLOSING = 1.0
#: The same for reviews: as long as an API server waits for this project's webhooks.
_CLOSING_REVIEWS = 5.0
#: Seconds until an idle connection is closed: longer than in Go's clients (90 s), so that no client sends a request
#: on a connection that is being closed.
_KEPT = 120.0
#: Seconds between two lines about requests that fail alike, and the length of their texts.
_LOG_SECONDS = 10.0
_MOST_TEXT = 200
#: The limit of a review in bytes: more than two versions of the largest object that an API server stores.
_MAX_REVIEW = 8 * 1024 * 1024


class Pages:
    """Answers requests on a listening socket between `start` and `stop`, which closes it."""

    def __init__(
        self, sources: Sources, *, authorizer: KubeAuthorizer | None, tls: ssl.SSLContext | None, is_local: bool
    ) -> None:
        """`is_local`: the socket listens on a loopback address."""
        self._sources = sources
        self._authorizer = authorizer
        self._tls = tls
        self._is_local = is_local
        self._draining = False
        self._once = OncePer(_LOG_SECONDS, clock=time.monotonic)
        self._bodies = Bodies()
        self._connections: Connections | None = None
        #: The number of reviews being read or answered; the event is set at zero.
        self._under_way = 0
        self._none_under_way = asyncio.Event()
        self._none_under_way.set()
        self._runner = web.AppRunner(
            self._application(),
            access_log=None,
            handle_signals=False,
            keepalive_timeout=_KEPT,
            shutdown_timeout=_CLOSING,
            lingering_time=_CLOSING,
            logger=_RequestLog(),
        )
        self._checks: dict[str, tuple[Check, ...]] = {
            "livez": (PING, *sources.live),
            "readyz": (PING, *sources.live, *sources.ready),
            # Kubernetes deprecates healthz as too unspecific; here it equals livez.
            "healthz": (PING, *sources.live),
        }

    async def start(self, listening: socket.socket) -> None:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._connections = Connections(server, limit=most_connections(), clock=asyncio.get_running_loop().time)
        self._connections.start(listening, self._tls)

    def drain(self) -> None:
        """Close connections after each review from now on, so that clients open new ones elsewhere."""
        self._draining = True

    async def stop(self) -> None:
        """Let requests in progress finish."""
        # Once aiohttp closes, it drops requests that are still arriving, so this waits for reviews first.
        if self._connections is not None:
            await self._connections.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_REVIEWS):
                await self._none_under_way.wait()
        await self._runner.cleanup()

    def _application(self) -> web.Application:
        app = web.Application(
            middlewares=[self._answering, self._plain_errors, self._guard], client_max_size=_MAX_REVIEW
        )
        for name in _HEALTH:
            app.router.add_get(f"/{name}", self._health)
            app.router.add_get(f"/{name}/{{check}}", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/configz", self._configz)
        if (debug := self._sources.debug) is not None:
            app.router.add_get("/debug/queue", partial(_debug_queue, debug))
            app.router.add_get("/debug/pending", partial(_debug_pending, debug.pending))
            app.router.add_get("/debug/cache", partial(_debug_cache, debug.cache))
            kinds = {"pod": debug.explain}
            if debug.explain_group is not None:
                kinds["podgroup"] = debug.explain_group
            app.router.add_get("/debug/explain", partial(_debug_explain, kinds))
            app.router.add_get("/debug/check", partial(_debug_check, debug.check))
        if (figures := self._sources.figures) is not None:
            app.router.add_get("/debug/figures", partial(_debug_figures, figures))
        if self._sources.console is not None:
            add_console(app, self._sources.console, clock=time.monotonic)
        for path, review in self._sources.reviews.items():
            app.router.add_post(path, partial(self._review, review))
        return app

    @web.middleware
    async def _answering(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = None if self._connections is None else self._connections.of(request.transport)
        if connection is None:
            return await handler(request)
        connection.begun()
        try:
            return await handler(request)
        finally:
            connection.answered()

    @web.middleware
    async def _plain_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer errors with one line of text without internal details."""
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status == 405:
                error.text = f"{request.method} is not allowed here; allowed: {error.headers.get('Allow', '')}\n"
            elif error.status == 404 and error.text == "404: Not Found":
                error.text = "there is no such page\n"
            error.headers.update(_NO_SNIFF)
            raise
        except (web.RequestPayloadError, ConnectionError):
            # The client sent an invalid body, or has gone.
            return _text("the body cannot be read\n", status=400)
        except Exception as error:
            if (held := self._once.admit(type(error).__name__)) is not None:
                _log.exception("a request failed", path=request.path, held_back=held)
            return _text("this page failed; the log has the reason\n", status=500)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject unauthorized requests. Health is public for probes, and reviews for API servers: both have no token.

        The console's files contain nothing about the cluster, and a browser has no token when it requests them.
        """
        path = request.path
        if path not in self._sources.reviews:
            host = request.headers.get("Host", "")
            if self._is_local and (problem := host_problem(host)):
                raise web.HTTPMisdirectedRequest(text=f"{problem}\n")
            if problem := origin_problem(request.headers.get("Origin", ""), host):
                raise web.HTTPForbidden(text=f"{problem}\n")
        is_file = path == ROOT or (path.startswith(f"{ROOT}/") and path != STREAM)
        open_to_all = is_file or path in self._sources.reviews or path.split("/", 2)[1] in _HEALTH
        if self._authorizer is None or open_to_all:
            return await handler(request)
        given = request.headers.get("Authorization") or f"Bearer {request.headers.get(TOKEN_HEADER, '')}"
        scheme, _, token = given.partition(" ")
        token = token.strip()
        access = Access.UNAUTHENTICATED
        if scheme.lower() == "bearer" and token:
            access = await self._authorizer.access(token, request.path)
        match access:
            case Access.ALLOWED:
                return await handler(request)
            case Access.UNAUTHENTICATED:
                raise web.HTTPUnauthorized(
                    text="a bearer token that the API server accepts is required\n",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            case Access.FORBIDDEN:
                raise web.HTTPForbidden(text=f"not allowed to get the non-resource URL {request.path}\n")
            case Access.BUSY:
                raise web.HTTPTooManyRequests(
                    text="too many tokens are waiting for a review\n", headers={"Retry-After": "1"}
                )
        raise web.HTTPServiceUnavailable(text="the API server could not decide on the access\n")

    async def _health(self, request: web.Request) -> web.Response:
        name = request.path.split("/", 2)[1]
        checks = self._checks[name]
        wanted = request.match_info.get("check")
        if wanted is not None:
            checks = tuple(check for check in checks if check.name == wanted)
            if not checks:
                raise web.HTTPNotFound(text=f"{name} has no check {wanted!r}\n")
        answer = examine(name, checks, verbose="verbose" in request.query, excluded=request.query.getall("exclude", []))
        return _text(answer.text, status=200 if answer.healthy else 500)

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._sources.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type, **_NO_SNIFF})

    async def _configz(self, request: web.Request) -> web.Response:
        return _json({"configuration": redact(self._sources.configuration())})

    async def _review(self, review: Callable[[bytes], bytes], request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text=f"found {request.content_type}; allowed: application/json\n")
        self._under_way += 1
        self._none_under_way.clear()
        try:
            size = _MAX_REVIEW if request.content_length is None else request.content_length
            async with self._bodies.reading(request.remote or "", size):
                body = await request.read()
                answer = web.Response(body=review(body), content_type="application/json")
        except TimeoutError:
            raise web.HTTPRequestTimeout(
                text="the body did not arrive in time, or too many others were being read\n"
            ) from None
        except UnreadableData as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except NotReady as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from None
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._none_under_way.set()
        if self._draining:
            answer.force_close()
        return answer


class _RequestLog(logging.Logger):
    """Receives what aiohttp reports of connections: requests that it cannot read, and errors while it writes.

    Every client that reaches the port can cause these, so they have one line per period, without traceback.
    """

    def __init__(self) -> None:
        super().__init__("aiohttp.server", logging.WARNING)
        self._limited_log = LimitedLog(_log, clock=time.monotonic, seconds=_LOG_SECONDS)

    def exception(self, msg: object, *args: object, exc_info: Any = True, **_: Any) -> None:
        error = exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1]
        problem = f"{type(error).__name__}: {str(error)[:_MOST_TEXT]}"
        self._limited_log.warning("a request cannot be read", problem=problem)


async def _debug_queue(debug: DebugSources, request: web.Request) -> web.Response:
    query = _query(request, allowed=("limit", "namespace", "place"), places=debug.places)
    return _page(debug.queue(query), query)


async def _debug_pending(pending: Callable[[DebugQuery], DebugPage], request: web.Request) -> web.Response:
    query = _query(request, allowed=("limit", "namespace", "queue"))
    return _page(pending(query), query)


async def _debug_cache(cache: Callable[[DebugQuery], DebugPage], request: web.Request) -> web.Response:
    query = _query(request, allowed=("limit",))
    return _page(cache(query), query)


async def _debug_explain(kinds: Mapping[str, Explain], request: web.Request) -> web.Response:
    """Explain a pod or group. `kinds` are the parameters, one of which is required."""
    _only(request, (*kinds, "output"))
    output = request.query.get("output", "json")
    if output not in ("json", "text"):
        raise web.HTTPBadRequest(text=f"output: found {output!r}; allowed: json, text\n")
    given = [kind for kind in kinds if kind in request.query]
    if len(given) > 1:
        raise web.HTTPBadRequest(text=f"found {' and '.join(given)}; allowed: one of them\n")
    kind = given[0] if given else "pod"
    asked = request.query.get(kind, "")
    namespace, _, name = asked.partition("/")
    if not namespace or not name or "/" in name:
        allowed = "NAMESPACE/POD" if kind == "pod" else "NAMESPACE/NAME"
        raise web.HTTPBadRequest(text=f"{kind}: found {asked!r}; allowed: {allowed}\n")
    try:
        known, explained = kinds[kind](namespace, name)
    except NotReady as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from None
    status = 200 if known else 404
    return _json(explained, status=status) if output == "json" else _text(render(explained), status=status)


async def _debug_figures(figures: Callable[[], Mapping[str, Any]], request: web.Request) -> web.Response:
    _only(request, ())
    return _json(figures())


async def _debug_check(check: Callable[[], Awaitable[Mapping[str, Any]]], request: web.Request) -> web.Response:
    _only(request, ())
    try:
        return _json(redact(await check()))
    except NotReady as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from None


_NO_SNIFF = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def _text(text: str, *, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/plain", headers=_NO_SNIFF)


def _json(value: Any, *, status: int = 200) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(value), indent=1)
    return web.Response(body=body + b"\n", status=status, content_type="application/json", headers=_NO_SNIFF)


def _page(page: DebugPage, query: DebugQuery) -> web.Response:
    # One more item than displayed reveals whether items were left out.
    items = list(islice(page.items, query.limit + 1))
    shown = redact(msgspec.to_builtins(items[: query.limit]))
    return _json({**page.summary, "limit": query.limit, "truncated": len(items) > query.limit, "items": shown})


def _only(request: web.Request, allowed: Sequence[str]) -> None:
    for name in request.query:
        if name not in allowed:
            raise web.HTTPBadRequest(text=f"unknown parameter {name!r}; allowed: {', '.join(allowed)}\n")


def _query(request: web.Request, *, allowed: Sequence[str], places: Sequence[str] = ()) -> DebugQuery:
    """Parse the parameters. Raises HTTPBadRequest with the parameter and what is allowed."""
    _only(request, allowed)
    text = request.query.get("limit", str(DEFAULT_LIMIT))
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= limit <= MAX_LIMIT:
        raise web.HTTPBadRequest(text=f"limit: found {text!r}; allowed: a whole number from 1 to {MAX_LIMIT}\n")
    place = request.query.get("place")
    if place is not None and place not in places:
        raise web.HTTPBadRequest(text=f"place: found {place!r}; allowed: {', '.join(places)}\n")
    given = request.query.get
    return DebugQuery(limit=limit, namespace=given("namespace"), place=place, queue=given("queue"))
