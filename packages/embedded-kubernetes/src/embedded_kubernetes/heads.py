"""Caches of request and response heads.

A client sends the same headers with every request, except for Content-Length, and parsing them would cost more than a
bind. Header blocks that the parser accepted are cached byte for byte with their result. For such requests this module
parses only the request line, in its simplest form. Everything else goes to the parser, which alone decides what is
well-formed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

from .auth.impersonation import PREFIX
from .errors import ApiError
from .requests import Request, Response
from .stream_sender import BITE

_BLOCK_LIMIT = 4096
_KNOWN_LIMIT = 1024
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_PHRASES = {status.value: status.phrase for status in HTTPStatus}

BODY_LIMIT = 3 * 1024 * 1024
HEADER_LIMIT = 64 * 1024
TOO_LARGE = ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_LIMIT}", {})
_IMPERSONATE = PREFIX.encode()
#: Request headers that affect framing beyond the length. Blocks with these are not cached.
_FRAMING = frozenset({b"connection", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"expect"})


@dataclass(slots=True, eq=False)
class Head:
    """The headers of one request received so far. Raises 413 or 431 for exceeded limits."""

    url: bytes = b""
    content_type: str = ""
    accept: str | None = None
    authorization: str | None = None
    impersonate: tuple[tuple[str, str], ...] = ()
    host: str = ""
    origin: str = ""
    expects_continue: bool = False
    #: Whether the message is framed by more than its length.
    framed: bool = False
    size: int = 0

    def add_url(self, url: bytes) -> None:
        self.url += url
        self._count(len(url))

    def add(self, name: bytes, value: bytes) -> None:
        """Add one header."""
        self._count(len(name) + len(value))
        name = name.lower()
        if name == b"content-type":
            self.content_type = value.decode("latin-1")
        elif name == b"accept":
            self.accept = value.decode("latin-1")
        elif name == b"authorization":
            self.authorization = value.decode("latin-1")
        elif name.startswith(_IMPERSONATE):
            self.impersonate += ((name.decode("latin-1"), value.decode("latin-1")),)
        elif name == b"host":
            self.host = value.decode("latin-1")
        elif name == b"origin":
            self.origin = value.decode("latin-1")
        elif name == b"content-length":
            if int(value) > BODY_LIMIT:
                raise TOO_LARGE
        elif name in _FRAMING:
            self.framed = True
            self.expects_continue |= name == b"expect" and value.lower() == b"100-continue"

    def _count(self, size: int) -> None:
        self.size += size
        if self.size > HEADER_LIMIT:
            raise ApiError(431, "", f"request header fields too large: limit is {HEADER_LIMIT}")

    def request(self, method: str, url: str, body: bytes) -> Request:
        """Return the request with these headers."""
        path, _, query = url.partition("?")
        return Request(
            method,
            path,
            query,
            body=body,
            content_type=self.content_type,
            accept=self.accept,
            authorization=self.authorization,
            impersonate=self.impersonate,
        )


class KnownRequests:
    """Header blocks of plain keep-alive HTTP/1.1 requests, shared by all connections of a server."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Head, int]] = {}

    @staticmethod
    def block(data: bytes) -> bytes:
        """Return the header block after the request line at the start of `data`; empty if it is incomplete."""
        start, end = data.find(b"\r\n"), data.find(b"\r\n\r\n")
        return data[start:end] if 0 <= end - start < _BLOCK_LIMIT else b""

    def remember(self, block: bytes, head: Head, length: int) -> None:
        """Cache the parser's result for a block. `length` is that of the body."""
        if block.count(b"\n") != block.count(b"\r\n"):
            return  # a lenient parser may see another end of the headers
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        self._known[block] = (head, length)

    def take(self, data: bytes) -> tuple[Request, int] | None:
        """Return the request at the start of `data` and its size in bytes, if it is complete, plain and cached."""
        end = data.find(b"\r\n\r\n")
        line_end = data.find(b"\r\n")
        known = self._known.get(data[line_end:end]) if end >= line_end else None
        if known is None:
            return None
        head, length = known
        size = end + 4 + length
        line = data[:line_end]
        if len(data) < size or not line.isascii():
            return None
        words = line.decode("ascii").split(" ")
        if len(words) != 3:
            return None
        method, url, version = words
        if method not in _METHODS or version != "HTTP/1.1" or url[:1] != "/" or not url.isprintable():
            return None
        return head.request(method, url, data[end + 4 : size]), size


class ResponseHeads:
    """Response heads without Content-Length, cached for a second."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until = 0.0
        self._date = ""
        self._made: dict[tuple[int, str, bool], bytes] = {}

    def get(self, status: int, content_type: str, *, keep: bool) -> bytes:
        """Return everything before the headers that frame the body."""
        now = self._loop.time()
        if now >= self._until:
            self._until = now + 1.0
            self._date = formatdate(usegmt=True)
            self._made.clear()
        key = (status, content_type, keep)
        head = self._made.get(key)
        if head is None:
            close = "" if keep else "Connection: close\r\n"
            media = f"Content-Type: {content_type}\r\n" if content_type else ""
            head = self._made[key] = (
                f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n{media}"
                f"Cache-Control: no-cache, private\r\nDate: {self._date}\r\n{close}"
            ).encode()
        return head

    def write(self, out: list[bytes], response: Response, *, keep: bool, bodiless: bool = False) -> None:
        """Append a complete response to `out`."""
        head = self.get(response.status, response.content_type, keep=keep)
        body = response.body
        if response.headers:
            head += "".join(f"{name}: {_line(value)}\r\n" for name, value in response.headers).encode()
        if bodiless:
            out.append(b"%bContent-Length: %d\r\n\r\n" % (head, len(body)))
        elif len(body) < BITE:
            out.append(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        else:
            # Appended separately, so that a large list is not copied.
            out.append(b"%bContent-Length: %d\r\n\r\n" % (head, len(body)))
            out.append(body)


def _line(value: str) -> str:
    """Return a header value without line breaks."""
    return value.replace("\r", " ").replace("\n", " ")
