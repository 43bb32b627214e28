"""A lean HTTP/1.1 client for one API server: the demo's own way in.

The demo shares a small machine with the scheduler and the API server that it shows, so what it spends on a
request is taken from them: a raw protocol costs about a tenth of a general client. It is also not the client of
the product, which keeps the audit independent of the code that it audits.

A request holds a connection of its own until it is answered; nothing is retried here. A connection that breaks
raises `ClientError` for the request on it, and the next request opens another.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import httptools
import yaml


class ClientError(Exception):
    """No answer: the connection could not be made, or broke before the answer was whole."""


class Response(NamedTuple):
    status: int
    body: bytes


class Endpoint(NamedTuple):
    """Where the API server is. `ca` is PEM text; empty trusts the system's authorities."""

    url: str
    token: str = ""
    ca: str = ""

    @staticmethod
    def from_kubeconfig(file: Path) -> Endpoint:
        """The current context of a kubeconfig with a token or no credentials. Raises ValueError."""
        document = yaml.safe_load(file.read_text())
        try:
            contexts = {entry["name"]: entry["context"] for entry in document["contexts"]}
            context = contexts[document["current-context"]]
            clusters = {entry["name"]: entry["cluster"] for entry in document["clusters"]}
            cluster = clusters[context["cluster"]]
            users = {entry["name"]: entry.get("user") or {} for entry in document.get("users") or []}
            user = users.get(context.get("user"), {})
            ca = cluster.get("certificate-authority-data")
            return Endpoint(cluster["server"], user.get("token", ""), b64decode(ca).decode() if ca else "")
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{file}: not a kubeconfig that the demo can use: {error!r} is missing"
            ) from None


class _Connection(asyncio.Protocol):
    """One connection. The exchange on it owns `answer` (whole answers) or `lines` (a stream)."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[Response] | None = None
        self.headers: asyncio.Future[int] | None = None
        self.chunks: asyncio.Queue[bytes | None] | None = None
        self.closed = False
        self._parser: Any = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do what asyncio's do without being derived from them.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = error
            if self.transport is not None:
                self.transport.abort()

    def on_headers_complete(self) -> None:
        if self.headers is not None and not self.headers.done():
            self.headers.set_result(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        if self.chunks is not None:
            self.chunks.put_nowait(body)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        keep = self._parser.should_keep_alive()
        body = b"".join(self._body)
        self._body.clear()
        # llhttp goes on to the next answer by itself only where it is kept alive; a new parser always can.
        self._parser = httptools.HttpResponseParser(self)
        if not keep and self.transport is not None:
            self.closed = True
            self.transport.close()
        if self.chunks is not None:
            self.chunks.put_nowait(None)
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(Response(status, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        error = ClientError(f"the connection was lost: {self._error or exc or 'closed by the server'}")
        for waiter in (self.answer, self.headers):
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
        if self.chunks is not None:
            self.chunks.put_nowait(None)

    def close(self) -> None:
        self.closed = True
        if self.transport is not None:
            self.transport.abort()


class Client:
    """Requests to one API server over at most `connections` connections; streams have one each beside these.

    An answer that is not there after `patience` seconds counts as lost.
    """

    def __init__(self, endpoint: Endpoint, *, connections: int = 32, patience: float = 30.0) -> None:
        parts = urlsplit(endpoint.url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError(f"{endpoint.url!r}: expected http://HOST:PORT or https://HOST:PORT")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._ssl: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._ssl = ssl.create_default_context(cadata=endpoint.ca or None)
        head = f"Host: {parts.netloc}\r\nAccept: application/json\r\n"
        if endpoint.token:
            head += f"Authorization: Bearer {endpoint.token}\r\n"
        self._head = head.encode()
        self._patience = patience
        # Owned by `request`: connections that no exchange holds, newest last so that the warm ones are reused.
        self._idle: list[_Connection] = []
        self._slots = asyncio.Semaphore(connections)

    async def _connect(self) -> _Connection:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection, self._host, self._port, ssl=self._ssl
            )
        except OSError as error:
            raise ClientError(f"no connection to {self._host}:{self._port}: {error}") from None
        return connection

    def _message(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        line = f"{method} {path} HTTP/1.1\r\n".encode()
        if body is None:
            return line + self._head + b"\r\n"
        length = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        return line + self._head + length + body

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> Response:
        """One exchange. Raises `ClientError` when no whole answer came in time."""
        async with self._slots:
            connection = None
            while self._idle and connection is None:
                candidate = self._idle.pop()
                connection = None if candidate.closed else candidate
            if connection is None:
                connection = await self._connect()
            answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            connection.answer = answer
            assert connection.transport is not None
            connection.transport.write(self._message(method, path, body, content_type))
            try:
                async with asyncio.timeout(self._patience):
                    response = await answer
            except TimeoutError:
                connection.close()
                raise ClientError(f"{method} {path}: no answer within {self._patience:g} s") from None
            except BaseException:
                connection.close()
                raise
            if not connection.closed:
                self._idle.append(connection)
            return response

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """A watch: batches of whole lines, as they come, until the server ends it. Raises `ClientError`."""
        connection = await self._connect()
        loop = asyncio.get_running_loop()
        connection.chunks = asyncio.Queue()
        connection.headers = loop.create_future()
        assert connection.transport is not None
        connection.transport.write(self._message("GET", path, None, ""))
        try:
            try:
                async with asyncio.timeout(self._patience):
                    status = await connection.headers
            except TimeoutError:
                raise ClientError(f"GET {path}: no answer within {self._patience:g} s") from None
            if status != 200:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._patience):
                        raise ClientError(
                            f"GET {path}: {status} {(await connection.chunks.get() or b'')[:200]!r}"
                        )
                raise ClientError(f"GET {path}: {status}")
            yield _lines(connection.chunks)
        finally:
            connection.close()

    async def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()


async def _lines(chunks: asyncio.Queue[bytes | None]) -> AsyncIterator[list[bytes]]:
    rest: list[bytes] = []
    while (chunk := await chunks.get()) is not None:
        parts = [chunk]
        while not chunks.empty() and parts[-1] is not None:
            parts.append(chunks.get_nowait())  # type: ignore[arg-type]
        ended = parts[-1] is None
        data = b"".join(part for part in parts if part is not None)
        lines = data.split(b"\n")
        if len(lines) == 1:
            rest.append(data)
        else:
            lines[0] = b"".join(rest) + lines[0]
            last = lines.pop()
            rest = [last] if last else []
            yield [line for line in lines if line]
        if ended:
            return
