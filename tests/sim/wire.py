"""The HTTP transport that ships, on connections in memory: between its bytes and the way that simulated processes have.

A request is with the server the moment its bytes are written; what becomes of it there is `network`'s and `exchange`'s,
whose answers come back as bytes: in any pieces, framed in any way, behind interim answers, cut, stalled, repeated, or
on a connection that is closed when it is idle. The order of bytes is TCP's: nothing changes that, not even a loop that
runs what is ready in any order.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Mapping
from contextvars import Context, copy_context
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import httptools

from agent_scheduler.kube.address import Address
from agent_scheduler.kube.credentials import Fixed, Source, TokenFile
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.tls import Tls
from agent_scheduler.kube.transport import Endpoint, NotSent, OutcomeUnknown, Response, StreamRefused

from .certificates import HOST
from .exchange import refusal

if TYPE_CHECKING:
    from .network import SimTransport
    from .processes import Process
    from .world import World

#: Seconds that the server lets pass on a request at most, beyond which every client has given up.
_PATIENCE = 30.0
#: What befalls an answer.
_MISHAPS = ("interim", "drip", "cut", "reset", "stall", "twice", "garbage", "closed", "closed when idle")


class Wire:
    """The connections of one process, and what it sends its requests through."""

    def __init__(self, world: World, process: Process, way: SimTransport) -> None:
        self.world = world
        self.way = way
        self.rng = random.Random(f"{world.seed} wire of {process.identity}")
        #: Those that the client has not closed, in their order, which what comes of a reset follows.
        self.open: dict[_Connection, None] = {}
        assert world.certificates is not None, "processes speak HTTP"
        files, clock = world.certificates, world.loop.time
        self._tls = Tls(authority=files.authority_file, clock=clock)
        self._source: Source = TokenFile(files.token_file, clock)
        if files.by_certificate:
            self._source = Fixed({})
            self._identify()
        self.transport = Http1Transport(
            Endpoint(
                f"https://{HOST}",
                self._tls.context,
                headers=self._headers,
                refused=self._refused,
                unverified=self._tls.refused,
            ),
            dial=self._dial,
            rng=random.Random(f"{world.seed} connections of {process.identity}"),
        )

    async def _headers(self) -> Mapping[str, str]:
        headers = await self._source.headers()
        if late := self.way.credentials_late():
            await asyncio.sleep(late)
        return headers

    def _identify(self) -> None:
        assert self.world.certificates is not None
        self.world.certificates.complete()
        self._tls.identify(*self.world.certificates.files)

    def _refused(self) -> None:
        self._source.refused()
        self._tls.refused()

    def reset(self) -> None:
        """All connections, whatever is on its way."""
        for connection in list(self.open):
            connection.reset()

    async def _dial(self, address: Address, protocol: asyncio.Protocol) -> None:
        await asyncio.sleep(self.rng.uniform(0.0002, 0.005))
        if self.way.cannot_connect():
            raise OSError("nobody listens")
        assert self.world.certificates is not None and address.tls is not None
        connection = _Connection(self, protocol, self.world.certificates.shake(address.tls))
        self.open[connection] = None
        protocol.connection_made(connection)


class _Connection(asyncio.Transport):
    """One connection: the client's end, and the server behind it."""

    def __init__(self, wire: Wire, client: asyncio.Protocol, shown: str) -> None:
        """`shown`: the name in the client's certificate."""
        super().__init__()
        self._shown = shown
        self._wire = wire
        self._way = wire.way
        self._world = wire.world
        self._client = client
        #: Of the process, so that what comes while it stands still waits.
        self._context: Context = copy_context()
        self._parser = httptools.HttpRequestParser(self)
        #: What comes to the client, in this order; None: the end, an error: a reset.
        self._coming: deque[bytes | Exception | None] = deque()
        self._latest = 0.0
        self._paused = self._closing = self._over = False
        self._answered = 0
        self._watch: asyncio.Task[None] | None = None
        self._begin()

    # -- the client's end

    def write(self, data: Any) -> None:
        if self._closing or self._over or self._way.closed:
            return
        self._parser.feed_data(bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._wire.open.pop(self, None)
        self._coming.clear()
        if self._watch is not None:
            self._watch.cancel()
        if not self._over:
            self._over = True
            self._world.loop.call_soon(self._client.connection_lost, None, context=self._context)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            for _ in range(len(self._coming)):
                self._world.loop.call_soon(self._arrive, context=self._context)

    # -- the way back

    def _send(self, piece: bytes | Exception | None, after: float = 0.0) -> None:
        if self._over:
            return
        self._coming.append(piece)
        loop = self._world.loop
        self._latest = max(self._latest, loop.time()) + after
        loop.call_at(self._latest, self._arrive, context=self._context)

    def reset(self) -> None:
        self._coming.clear()
        self._send(ConnectionResetError("reset"))

    def _arrive(self) -> None:
        """The next of what comes, whichever was meant to come now."""
        if self._paused or not self._coming or self._over:
            return
        piece = self._coming.popleft()
        if isinstance(piece, bytes):
            self._client.data_received(piece)
            return
        self._over = self._closing = True
        self._wire.open.pop(self, None)
        self._coming.clear()
        if self._watch is not None:
            self._watch.cancel()
        self._client.connection_lost(piece)

    # -- the server's end

    def _begin(self) -> None:
        self._url, self._body = b"", b""
        self._headers: dict[bytes, bytes] = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method, path = self._parser.get_method().decode(), self._url.decode()
        body, content_type = self._body, self._headers.get(b"content-type", b"").decode()
        header = self._headers.get(b"authorization", b"")
        self._begin()
        assert self._world.certificates is not None
        if not self._world.certificates.is_authorized(self._shown, header):
            self._answer(
                refusal(401, {"kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized"})
            )
        elif "watch=1" in path:
            self._watch = self._world.context.run(
                self._world.loop.create_task, self._serve(path), name=f"watch of {path}"
            )
        else:
            try:
                answer = self._way.send(method, path, body or None, content_type, _PATIENCE)
            except NotSent:
                self._send(ConnectionResetError("reset"))
            else:
                answer.add_done_callback(self._done, context=self._world.context)

    def _done(self, answer: asyncio.Future[Response]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            self._send(ConnectionResetError("reset"))
        else:
            self._answer(answer.result())

    async def _serve(self, path: str) -> None:
        seconds = float(parse_qs(path.partition("?")[2]).get("timeoutSeconds", ["300"])[0])
        try:
            async with self._way.stream(path, read_timeout=seconds + 30) as batches:
                self._send(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
                )
                async for lines in batches:
                    for piece in self._pieces(b"".join(line + b"\n" for line in lines)):
                        self._send(b"%x\r\n%s\r\n" % (len(piece), piece), self._wire.rng.uniform(0, 0.001))
                self._send(b"0\r\n\r\n")
        except StreamRefused as refused:
            self._answer(refused.response)
        except (NotSent, OutcomeUnknown):
            self._send(ConnectionResetError("reset"))

    def _answer(self, response: Response) -> None:
        rng, self._answered = self._wire.rng, self._answered + 1
        mishap = rng.choice(_MISHAPS) if self._way.strikes("mangled", 2.0) else ""
        if mishap:
            self._world.trace("", f"an answer of {self._way.name} meets: {mishap}")
        whole, ends = _rendered(response, rng.choice(("length", "length", "chunked", "until the end")))
        if mishap == "interim":
            whole = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + whole
        at = rng.randrange(len(whole))
        if mishap == "garbage":
            whole = b"\x00\xff" + whole
        elif mishap in ("cut", "reset", "stall"):
            whole = whole[:at]
        elif mishap == "twice":
            whole += whole
        for piece in self._pieces(whole, most=40 if mishap == "drip" else 3):
            self._send(piece, rng.uniform(0, 0.001))
        if mishap == "reset":
            self._send(ConnectionResetError("reset"))
        elif mishap == "stall":
            self._world.plan.lasts(self._world.loop.time() + _PATIENCE)
        elif ends or mishap in ("cut", "closed"):
            self._send(None)
        elif mishap == "closed when idle":
            self._world.loop.call_later(rng.uniform(0, 5.0), self._close_if_idle, self._answered)

    def _close_if_idle(self, answered: int) -> None:
        if answered == self._answered and not self._coming:
            self._send(None)

    def _pieces(self, data: bytes, most: int = 3) -> list[bytes]:
        """Cut at any places."""
        cuts = sorted(self._wire.rng.randrange(len(data) + 1) for _ in range(self._wire.rng.randrange(most)))
        bounds = [0, *cuts, len(data)]
        return [data[one:other] for one, other in pairwise(bounds) if one < other]


def _rendered(response: Response, framing: str) -> tuple[bytes, bool]:
    """The answer's bytes, and whether its end is the connection's."""
    head = [f"HTTP/1.1 {response.status} Whatever"]
    head += [f"{name}: {value}" for name, value in response.headers.items()]
    body = response.body
    if framing == "length":
        head.append(f"Content-Length: {len(body)}")
    elif framing == "chunked":
        head.append("Transfer-Encoding: chunked")
        half = len(body) // 2
        parts = [part for part in (body[:half], body[half:]) if part]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    else:
        head.append("Connection: close")
    return "\r\n".join([*head, "", ""]).encode() + body, framing == "until the end"
