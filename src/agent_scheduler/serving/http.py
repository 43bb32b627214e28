"""A process's HTTP server: health, metrics, the effective configuration, and what a scheduler's queue and cache hold.

    /healthz /livez /readyz            always open: they say `ok`, or which check fails
    /metrics                           Prometheus
    /configz                           the effective configuration
    /debug/queue /debug/cache          what waits and what is known, up to ?limit
    /debug/explain?pod=NAMESPACE/POD   all that is known of one pod
    /debug/check                       what is known, compared with the cluster as it is listed for that

It knows nothing of scheduling: all it tells comes from the callables in `Sources`, read when a request comes.
With an authorizer, everything but health asks for a bearer token that the API server accepts and authorizes. The
API server's proxy keeps a caller's `Authorization` to itself, so that the token may come in TOKEN_HEADER as well.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from agent_scheduler.serving.authorization import Access, Authorizer
from agent_scheduler.serving.health import PING, Check, examine
from agent_scheduler.telemetry.logs import get_logger, redact

_log = get_logger(__name__)

#: Items of a debug page, unless `?limit` says otherwise.
DEFAULT_LIMIT = 100
#: A page of this size takes some milliseconds, during which nothing is scheduled.
MAX_LIMIT = 1000

#: Takes a bare token where `Authorization` does not get through.
TOKEN_HEADER = "X-Agent-Scheduler-Token"  # noqa: S105 - a header's name

_HEALTH = ("healthz", "livez", "readyz")
#: How long requests under way may take to end when the server closes, in seconds.
_CLOSING = 1.0


class ServingError(Exception):
    """The server cannot be started. The message is complete."""


class NotReady(Exception):
    """What is asked for cannot be told yet. The message says why."""


@dataclass(frozen=True, slots=True)
class DebugQuery:
    """What a debug page is asked for; None means all. `limit` is the server's business, told for those who care."""

    limit: int = DEFAULT_LIMIT
    namespace: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class DebugPage:
    """What a debug page shows. `items` may be any number and is read only as far as the limit."""

    summary: Mapping[str, Any]
    items: Iterable[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the answers come from. None of these may block; what they give must encode as JSON.

    What is None has no page: only a scheduler has a queue."""

    #: Body and content type.
    metrics: Callable[[], tuple[bytes, str]]
    configuration: Callable[[], Mapping[str, Any]]
    queue: Callable[[DebugQuery], DebugPage] | None = None
    cache: Callable[[DebugQuery], DebugPage] | None = None
    #: Of a namespace and a pod's name: whether there is such a pod, and what to show. Raises NotReady.
    explain: Callable[[str, str], tuple[bool, Mapping[str, Any]]] | None = None
    #: What a self-check finds. Raises NotReady.
    check: Callable[[], Awaitable[Mapping[str, Any]]] | None = None
    #: Values of `?place` that /debug/queue understands.
    places: Sequence[str] = ()
    #: Why the process should be restarted.
    live: Sequence[Check] = ()
    #: Why it is not, or not yet, doing its work.
    ready: Sequence[Check] = ()


class HttpServer:
    """Owner of the listening socket between `start` and `stop`.

    `port` 0 takes any free one; a configuration's 0, which means no server, is the caller's to heed.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        address: str,
        port: int,
        authorizer: Authorizer | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._sources = sources
        self._address = address
        self._port = port
        self._authorizer = authorizer
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self._checks: dict[str, tuple[Check, ...]] = {
            "livez": (PING, *sources.live),
            "readyz": (PING, *sources.live, *sources.ready),
            # Deprecated in Kubernetes for saying too little; here it is livez.
            "healthz": (PING, *sources.live),
        }

    async def start(self) -> int:
        """Listens; returns the port. Raises ServingError if address or port cannot be had."""
        runner = web.AppRunner(
            self._application(), access_log=None, handle_signals=False, shutdown_timeout=_CLOSING
        )
        await runner.setup()
        try:
            await _site(runner, self._address, self._port, self._tls).start()
        except OSError as error:
            await runner.cleanup()
            # asyncio's own text names the address once more.
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ServingError(f"cannot serve on {self._address} port {self._port}: {why}") from None
        self._runner = runner
        port: int = runner.addresses[0][1]
        return port

    async def stop(self) -> None:
        """Stops listening and lets requests under way end. Stopping twice changes nothing."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def _application(self) -> web.Application:
        app = web.Application(middlewares=[_plain_errors, self._guard])
        for name in _HEALTH:
            app.router.add_get(f"/{name}", self._health)
            app.router.add_get(f"/{name}/{{check}}", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/configz", self._configz)
        if (queue := self._sources.queue) is not None:
            app.router.add_get("/debug/queue", partial(self._debug_queue, queue))
        if (cache := self._sources.cache) is not None:
            app.router.add_get("/debug/cache", partial(_debug_cache, cache))
        if (explain := self._sources.explain) is not None:
            app.router.add_get("/debug/explain", partial(_debug_explain, explain))
        if (check := self._sources.check) is not None:
            app.router.add_get("/debug/check", partial(_debug_check, check))
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses who may not read; health is for probes, which have no token."""
        open_to_all = request.path.split("/", 2)[1] in _HEALTH
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
                    text="a bearer token that the API server accepts is needed\n",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            case Access.FORBIDDEN:
                raise web.HTTPForbidden(text=f"may not get the non-resource URL {request.path}\n")
            case Access.BUSY:
                raise web.HTTPTooManyRequests(
                    text="too many tokens wait to be asked about\n", headers={"Retry-After": "1"}
                )
        raise web.HTTPServiceUnavailable(text="the API server could not be asked who may read this\n")

    async def _health(self, request: web.Request) -> web.Response:
        name = request.path.split("/", 2)[1]
        checks = self._checks[name]
        wanted = request.match_info.get("check")
        if wanted is not None:
            checks = tuple(check for check in checks if check.name == wanted)
            if not checks:
                raise web.HTTPNotFound(text=f"{name} has no check {wanted!r}\n")
        answer = examine(
            name, checks, verbose="verbose" in request.query, excluded=request.query.getall("exclude", [])
        )
        return _text(answer.text, status=200 if answer.healthy else 500)

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._sources.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type, **_NO_SNIFF})

    async def _configz(self, request: web.Request) -> web.Response:
        return _json({"configuration": redact(self._sources.configuration())})

    async def _debug_queue(
        self, queue: Callable[[DebugQuery], DebugPage], request: web.Request
    ) -> web.Response:
        query = _query(request, allowed=("limit", "namespace", "place"), places=self._sources.places)
        return _page(queue(query), query)


def _site(runner: web.AppRunner, address: str, port: int, tls: ssl.SSLContext | None) -> web.BaseSite:
    """Raises OSError."""
    if address != "::":
        return web.TCPSite(runner, address, port, ssl_context=tls)
    # All addresses of both families, as for Kubernetes' own components; asyncio would take those of IPv6 alone.
    if not socket.has_dualstack_ipv6():
        return web.TCPSite(runner, "0.0.0.0", port, ssl_context=tls)  # noqa: S104 - it is what was asked for
    listening = socket.create_server((address, port), family=socket.AF_INET6, dualstack_ipv6=True)
    return web.SockSite(runner, listening, ssl_context=tls)


async def _debug_cache(cache: Callable[[DebugQuery], DebugPage], request: web.Request) -> web.Response:
    query = _query(request, allowed=("limit",))
    return _page(cache(query), query)


async def _debug_explain(
    explain: Callable[[str, str], tuple[bool, Mapping[str, Any]]], request: web.Request
) -> web.Response:
    _only(request, ("pod",))
    pod = request.query.get("pod", "")
    namespace, _, name = pod.partition("/")
    if not namespace or not name or "/" in name:
        raise web.HTTPBadRequest(text=f"pod: found {pod!r}; allowed: NAMESPACE/POD\n")
    try:
        known, told = explain(namespace, name)
    except NotReady as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from None
    return _json(told, status=200 if known else 404)


async def _debug_check(
    check: Callable[[], Awaitable[Mapping[str, Any]]], request: web.Request
) -> web.Response:
    _only(request, ())
    try:
        return _json(redact(await check()))
    except NotReady as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from None


_NO_SNIFF = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


@web.middleware
async def _plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as one line of text, without a trace of what is inside."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status == 405:
            error.text = f"{request.method} is not allowed here; allowed: {error.headers.get('Allow', '')}\n"
        elif error.status == 404 and error.text == "404: Not Found":
            error.text = "there is no such page\n"
        error.headers.update(_NO_SNIFF)
        raise
    except Exception:
        _log.exception("a request failed", path=request.path)
        return _text("this page failed; the log says why\n", status=500)


def _text(text: str, *, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/plain", headers=_NO_SNIFF)


def _json(value: Any, *, status: int = 200) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(value), indent=1)
    return web.Response(body=body + b"\n", status=status, content_type="application/json", headers=_NO_SNIFF)


def _page(page: DebugPage, query: DebugQuery) -> web.Response:
    # One more than is shown tells whether something was left out.
    items = list(islice(page.items, query.limit + 1))
    shown = redact(msgspec.to_builtins(items[: query.limit]))
    return _json(
        {**page.summary, "limit": query.limit, "truncated": len(items) > query.limit, "items": shown}
    )


def _only(request: web.Request, allowed: Sequence[str]) -> None:
    for name in request.query:
        if name not in allowed:
            raise web.HTTPBadRequest(text=f"unknown parameter {name!r}; allowed: {', '.join(allowed)}\n")


def _query(request: web.Request, *, allowed: Sequence[str], places: Sequence[str] = ()) -> DebugQuery:
    """Raises HTTPBadRequest naming the parameter and what is allowed."""
    _only(request, allowed)
    text = request.query.get("limit", str(DEFAULT_LIMIT))
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= limit <= MAX_LIMIT:
        raise web.HTTPBadRequest(
            text=f"limit: found {text!r}; allowed: a whole number from 1 to {MAX_LIMIT}\n"
        )
    place = request.query.get("place")
    if place is not None and place not in places:
        raise web.HTTPBadRequest(text=f"place: found {place!r}; allowed: {', '.join(places)}\n")
    return DebugQuery(limit=limit, namespace=request.query.get("namespace"), place=place)


def tls_context(*, certificate: str, key: str) -> ssl.SSLContext:
    """For a server, from PEM files. Raises ServingError naming the files."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ServingError(
            f"cannot use the certificate {certificate} with the key {key}: {error.strerror or error}"
        ) from None
    return context
