"""The shipped HTTP transport on connections in memory: it connects the transport's bytes with a process's network.

A request reaches the server when its bytes are written; `network` and `exchange` decide what happens to it. Responses
return as bytes: in any pieces and framing, after interim responses, truncated, stalled, repeated, or on a connection
that is closed when idle. The order of bytes is TCP's: even a loop that runs ready tasks in any order does not change
it.

Also the credentials of processes that speak HTTP (a token or a client certificate, and the bundle of authorities, in
files as in a pod), and the server's checks: it accepts current ones and rejects withdrawn ones.

The handshake is a real one in memory, of the product's context and the server's. Afterwards bytes are sent unencrypted:
a connection knows which certificate was presented when it was opened.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httptools

from kube_client.address import Address
from kube_client.credentials import CredentialsSource, Fixed, TokenFile
from kube_client.http1 import Http1Transport
from kube_client.testing.authority import Authority
from kube_client.tls import Tls, load_certificate
from kube_client.transport import Endpoint, NotSent, OutcomeUnknown, Response, StreamRefused

from .exchange import refusal
from .kinds import Process, SimTransport, World

#: Maximum seconds until the server answers a request, after which every client has given up.
_PATIENCE = 30.0
_BEGIN_OF_WATCH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
#: Faults of a response.
_MISHAPS = ("interim", "drip", "cut", "reset", "stall", "twice", "garbage", "closed", "closed when idle")


class Wire:
    """The connections of one process, and the transport for its requests."""

    def __init__(self, world: World, process: Process, way: SimTransport) -> None:
        self.world = world
        self.way = way
        self.rng = random.Random(f"{world.seed} wire of {process.identity}")
        #: The connections that the client has not closed, in the order in which they are reset.
        self.open: dict[_Connection, None] = {}
        assert world.certificates is not None, "processes speak HTTP"
        files, clock = world.certificates, world.loop.time
        self._tls = Tls(authority=files.authority_file, clock=clock)
        self._source: CredentialsSource = TokenFile(files.token_file, clock)
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
        """Reset all connections, whatever is in flight."""
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
        """Open the connection. `shown`: the name in the client's certificate."""
        super().__init__()
        self._shown = shown
        self._wire = wire
        self._way = wire.way
        self._world = wire.world
        self._client = client
        #: The context of the process, so that what arrives while it is stopped waits.
        self._context: Context = copy_context()
        self._parser = httptools.HttpRequestParser(self)
        #: What arrives at the client, in this order; None: the end, an error: a reset.
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
        """Deliver the next piece, whichever was scheduled for this time."""
        if self._paused or not self._coming or self._over:
            return
        piece = self._coming.popleft()
        if isinstance(piece, bytes):
            self._client.data_received(piece)
            return
        self._over = True
        self.abort()
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
            why = {"status": "Failure", "code": 401, "reason": "Unauthorized"}
            self._answer(refusal(401, {"kind": "Status", **why}))
        elif "watch=1" in path:
            begin = self._world.loop.create_task
            self._watch = self._world.context.run(begin, self._serve(path), name=f"watch of {path}")
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
                self._send(_BEGIN_OF_WATCH)
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
        """Cut the data at any places."""
        cuts = sorted(self._wire.rng.randrange(len(data) + 1) for _ in range(self._wire.rng.randrange(most)))
        bounds = [0, *cuts, len(data)]
        return [data[one:other] for one, other in pairwise(bounds) if one < other]


def _rendered(response: Response, framing: str) -> tuple[bytes, bool]:
    """Return the response's bytes, and whether the connection ends with them."""
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


HOST = "api.example.com"
#: Number of consecutive authorities, and of client certificates; after the last the first follows.
_AUTHORITIES, _CERTIFICATES = 3, 4
#: Share of worlds whose processes present a certificate, and no token.
_BY_CERTIFICATE = 0.5
#: Seconds until all processes have read a file again and have a connection again.
_NOTICED_WITHIN = 95.0


class _Made:
    """Authorities, servers and client certificates, created once because they are equal in all worlds."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sim-certificates-")
        folders = [Path(self._folder.name) / str(number) for number in range(_AUTHORITIES)]
        for folder in folders:
            folder.mkdir()
        authorities = [Authority(folder) for folder in folders]
        self.authorities = [each.pem for each in authorities]
        self.servers = [self._server(each) for each in authorities]
        issued = [authorities[0].issue(f"client-{number}") for number in range(_CERTIFICATES)]
        self.certificates = [(certificate.read_bytes(), key.read_bytes()) for certificate, key in issued]
        #: Results of handshakes: the name in the presented certificate, "" for none, or the error.
        self.shaken: dict[tuple[ssl.SSLContext, int], str | ssl.SSLError] = {}

    def _server(self, authority: Authority) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate, key = authority.issue("server", HOST)
        load_certificate(context, certificate.read_bytes(), key.read_bytes())
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.authorities[0].decode())
        return context


@cache
def _made() -> _Made:
    return _Made()


class Certificates:
    """Owner of the files of a world, and of what its server accepts. Call `close` in the end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made = _made()
        self.rng = random.Random(f"{world.seed} certificates")
        self.by_certificate = self.rng.random() < _BY_CERTIFICATE
        self._folder = tempfile.TemporaryDirectory(prefix="sim-credentials-")
        folder = Path(self._folder.name)
        self.token_file, self.authority_file = folder / "token", folder / "ca.crt"
        self.files = folder / "client.crt", folder / "client.key"
        self._authority = self._certificate = self._token = 0
        #: Names of the certificates that the server accepts.
        self._taken = {"client-0"}
        self.token_file.write_text("token-0")
        self.authority_file.write_bytes(self._made.authorities[0])
        self.complete()

    def close(self) -> None:
        self._folder.cleanup()

    def complete(self) -> None:
        """Write all files of a process that starts, as a container has its volumes."""
        for file, content in zip(self.files, self._made.certificates[self._certificate], strict=True):
            file.write_bytes(content)

    # -- the server

    def is_authorized(self, shown: str, header: bytes) -> bool:
        """Return whether the server accepts a request on a connection with this certificate."""
        states = self._world.states
        if self.by_certificate:
            if shown not in self._taken:
                states.reached("old certificate refused")
            return shown in self._taken
        if header != f"Bearer token-{self._token}".encode():
            states.reached("old token refused")
            return False
        return True

    def shake(self, client: ssl.SSLContext) -> str:
        """Do a handshake; return the name in the client's certificate, "" if it presents none. Raises SSLError."""
        key = client, self._authority
        if key not in self._made.shaken:
            self._made.shaken[key] = self._shake(client, self._made.servers[self._authority])
        outcome = self._made.shaken[key]
        if isinstance(outcome, ssl.SSLError):
            self._world.states.reached("unknown authority")
            raise outcome
        return outcome

    def _shake(self, client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> str | ssl.SSLError:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context.wrap_bio(back, there, server_hostname=HOST)
        server = server_context.wrap_bio(there, back, server_side=True)
        left = [client, server]
        while left:
            for each in list(left):
                try:
                    each.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLError as error:
                    return error
                left.remove(each)
        subject = (server.getpeercert() or {}).get("subject", ())
        return next((str(value) for pairs in subject for name, value in pairs if name == "commonName"), "")

    # -- replacements

    def rotate(self) -> None:
        """Replace one of the three, with overlap or without."""
        world = self._world
        world.plan.lasts(world.loop.time() + _NOTICED_WITHIN)
        if self.rng.random() < 0.4:
            self._replace_authority()
        elif self.by_certificate:
            self._replace_certificate()
        else:
            self._token += 1
            self.token_file.write_text(f"token-{self._token}")
            world.trace("", f"the token is token-{self._token}")

    def _replace_certificate(self) -> None:
        self._certificate = (self._certificate + 1) % _CERTIFICATES
        number, old = self._certificate, set(self._taken)
        self._taken.add(f"client-{number}")
        certificate, key = self._made.certificates[number]
        self._world.trace("", f"the client's certificate is number {number}")
        self.files[0].write_bytes(certificate)

        def complete() -> None:
            if self._certificate == number:
                self.files[1].write_bytes(key)

        def withdraw() -> None:
            self._world.trace("", f"refused from now on: {sorted(old - {f'client-{number}'})}")
            self._taken = {f"client-{self._certificate}", f"client-{number}"}

        # The new certificate with the old key, for a moment.
        self._later((0.0, 0.0, 3.0), complete)
        self._later((0.0, 0.5, 70.0), withdraw)

    def _replace_authority(self) -> None:
        was = self._authority
        number = (was + 1) % _AUTHORITIES
        old, new = self._made.authorities[was], self._made.authorities[number]

        def switch() -> None:
            if self._authority == was:
                self._world.trace("", f"the server's certificate is of authority {number}")
                self._authority = number
                self.authority_file.write_bytes(new)

        if self.rng.random() < 0.5:
            switch()
            return
        # As recommended: the new authority is trusted before it is used.
        self.authority_file.write_bytes(old + new)
        self._later((5.0, 70.0), switch)

    def _later(self, choices: tuple[float, ...], act: Callable[[], object]) -> None:
        seconds = self.rng.choice(choices)
        loop, plan = self._world.loop, self._world.plan
        plan.lasts(loop.time() + seconds + _NOTICED_WITHIN)
        if seconds:
            loop.call_later(seconds, act, context=self._world.context)
        else:
            act()
