"""Heads of requests and answers that repeat: what was parsed or made once is not parsed or made again.

A client sends the same block of headers with every request, but for the length of its body, and parsing it anew
would cost more than a bind does. So blocks that the parser has accepted are remembered byte for byte with what
they came to. Only the request line of such a request is read here, and only in its plainest form; whatever is
not whole, plain and known is left to the parser, so that there is one judge of what is well-formed.
"""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

from .requests import Request

_BLOCK_LIMIT = 4096
_KNOWN_LIMIT = 1024
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_PHRASES = {status.value: status.phrase for status in HTTPStatus}

#: Request headers that say more about a message's framing than its length does: their blocks are not remembered.
FRAMING = frozenset({b"connection", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"expect"})


class _Known(NamedTuple):
    content_type: str
    accept: str | None
    authorization: str | None
    impersonate: tuple[tuple[str, str], ...]
    length: int


class KnownRequests:
    """Header blocks of plain keep-alive HTTP/1.1 requests, shared by all connections of a server."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    @staticmethod
    def block(data: bytes) -> bytes:
        """The header block at the front of `data`, from the end of the request line; empty if it is not whole."""
        start, end = data.find(b"\r\n"), data.find(b"\r\n\r\n")
        return data[start:end] if 0 <= end - start < _BLOCK_LIMIT else b""

    def remember(
        self,
        block: bytes,
        *,
        content_type: str,
        accept: str | None,
        authorization: str | None,
        impersonate: tuple[tuple[str, str], ...],
        length: int,
    ) -> None:
        """Note what the parser made of a block. `length` is that of the body it framed."""
        if block.count(b"\n") != block.count(b"\r\n"):
            return  # a lenient parser may see the end of the headers elsewhere
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        self._known[block] = _Known(content_type, accept, authorization, impersonate, length)

    def take(self, data: bytes) -> tuple[Request, int] | None:
        """The request at the front of `data` and its size in bytes, if it is whole, plain and known."""
        end = data.find(b"\r\n\r\n")
        line_end = data.find(b"\r\n")
        known = self._known.get(data[line_end:end]) if end >= line_end else None
        if known is None:
            return None
        size = end + 4 + known.length
        line = data[:line_end]
        if len(data) < size or not line.isascii():
            return None
        words = line.decode("ascii").split(" ")
        if len(words) != 3:
            return None
        method, url, version = words
        if method not in _METHODS or version != "HTTP/1.1" or url[:1] != "/" or not url.isprintable():
            return None
        path, _, query = url.partition("?")
        request = Request(
            method,
            path,
            query,
            body=data[end + 4 : size],
            content_type=known.content_type,
            accept=known.accept,
            authorization=known.authorization,
            impersonate=known.impersonate,
        )
        return request, size


class ResponseHeads:
    """Response heads up to the length, made once a second: most of a head never changes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until = 0.0
        self._date = ""
        self._made: dict[tuple[int, str, bool], bytes] = {}

    def get(self, status: int, content_type: str, *, keep: bool) -> bytes:
        """Everything before the headers that frame the body."""
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
