"""One keep-alive HTTP connection to an API server, with one exchange at a time.

A bind is a few hundred bytes each way, so its cost is that of the client. This is a bare asyncio protocol on llhttp
(httptools): an exchange is one write, one future and one parse, without a task, a stream or a dictionary of headers.

Guarantees: a response is delivered whole or not at all. Unsolicited bytes, or bytes after a response, never become
part of another exchange but end the connection. The memory for a response is bounded (`ResponseLimits`). No request is
written while another is unanswered. An abandoned request is withdrawn from the kernel's buffer if it has not left
this machine, so that it does not arrive after a lease was lost. The caller decides whether a failed request is
repeated; `ConnectionBroken` has everything that is known here.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import httptools

from kube_client.transport import Headers, Response

#: A peer that vanished without a FIN is detected after about 30 + 3 x 10 s, as by client-go's dialer.
TCP_OPTIONS = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000))
#: Closing drops unsent bytes, which the kernel would otherwise try to send for minutes.
_DROP_UNSENT = struct.pack("ii", 1, 0)
_FRAMING = (b"content-length", b"transfer-encoding")
#: A peer's FIN, if the system distinguishes it from data; errors and full hang-ups are always reported.
_HANGUP = getattr(select, "POLLRDHUP", 0)


class ConnectionBroken(Exception):
    """The exchange ended without a complete response.

    `unanswered` is true if the peer closed or reset the connection before the first byte of a response. On a reused
    connection, the peer most likely closed it while the request was in transit.
    """

    def __init__(self, reason: str, *, unanswered: bool = False) -> None:
        super().__init__(reason)
        self.unanswered = unanswered


class ResponseReceiver(Protocol):
    """The receiver of a response: an `asyncio.Future` or an object with the same methods."""

    def done(self) -> bool:
        """Return whether the response is no longer needed."""
        ...

    def set_result(self, response: Response, /) -> None: ...

    def set_exception(self, error: ConnectionBroken, /) -> None: ...


class Inflow(ResponseReceiver, Protocol):
    """A `ResponseReceiver` that receives the body in parts; `set_result` is called at the end."""

    def feed(self, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLimits:
    """The limits of one response in bytes: its body, and its head (with trailers and informational responses).

    A list of 100,000 pods is some 400 MB, so the limit of the body only prevents exhaustion of memory; so does that
    of the head, because proxies may add headers.
    """

    body: int = 1 << 30
    head: int = 1 << 20


class Connection(asyncio.Protocol):
    """A connection, created by an event loop's `create_connection`.

    The caller that took it from the pool owns it until it is released. `opened` and `lost` notify the pool.
    """

    __slots__ = (
        "_answer",
        "_body",
        "_descriptor",
        "_fault",
        "_head_done",
        "_head_only",
        "_headers",
        "_held",
        "_inflow",
        "_keep",
        "_limits",
        "_lost",
        "_opened",
        "_parser",
        "_poll",
        "_received",
        "_transport",
        "_unframed",
        "_whole",
        "closed",
        "deadline",
        "idle_since",
        "retires_at",
        "served",
    )  # fmt: skip

    def __init__(
        self, limits: ResponseLimits, *, opened: Callable[[Connection], None], lost: Callable[[Connection], None]
    ) -> None:
        self._limits = limits
        self._opened = opened
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._poll: Any = None
        self._descriptor = -1
        #: Set from `send` until the response is complete or the connection broken. Invariant: at most one exchange.
        self._answer: ResponseReceiver | None = None
        #: A completed exchange whose response is delivered after the bytes that came with it were examined.
        self._whole: tuple[ResponseReceiver, Response] | None = None
        #: Why the response being parsed is rejected. Parser callbacks set it, and `data_received` acts on it.
        self._fault: str | None = None
        self._keep = True
        #: Whether no further exchange is possible, even if the event loop has not reported the loss yet.
        self.closed = False
        #: The number of complete responses; zero for a fresh connection.
        self.served = 0
        #: Loop times: the deadline of the exchange, and (set by the pool) the begin of being idle.
        self.deadline = self.idle_since = 0.0
        #: Loop time, set by the pool, after which it serves no further exchange.
        self.retires_at = math.inf
        #: The receiver of the body of a 200 in parts.
        self._inflow: Inflow | None = None
        # State of the current exchange; `send` resets it.
        self._head_only = False
        self._received = False
        #: Bytes since the last part of a body: a head or a trailer, whose incomplete parts the parser holds.
        self._unframed = 0
        self._held = 0
        self._head_done = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []

    # -- methods for the owner

    def send(
        self,
        message: bytes,
        deadline: float,
        answer: ResponseReceiver,
        *,
        head_only: bool = False,
        inflow: Inflow | None = None,
    ) -> None:
        """Write a request; `answer` receives the response or `ConnectionBroken`. `head_only`: the response has no body.

        With an `inflow`, `answer` receives a 200 as soon as its head is complete, and `inflow` receives the body.

        After an abandoned exchange the connection cannot be reused, because the response may still arrive. The pool
        enforces the deadline.
        """
        assert self._transport is not None
        assert self._answer is None
        self.deadline = deadline
        self._head_only = head_only
        self._received = False
        self._unframed = self._held = 0
        self._head_done = False
        self._headers = []
        self._body = []
        self._inflow = inflow
        self._answer = answer
        self._transport.write(message)

    def pause(self) -> None:
        """Stop reading until `resume`, so that the peer has to wait."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def retire(self) -> None:
        """Allow no exchange after the current one."""
        self._keep = False

    def alive(self) -> bool:
        """Return whether a request may be written.

        That requires that nothing was received since the last response, not even a FIN that the event loop has not
        read yet.
        """
        if self.closed or self._transport is None or self._transport.is_closing():
            return False
        return self._poll is None or not self._poll.poll(0)

    @property
    def streaming(self) -> bool:
        """Whether it serves a watch, with or without a response so far."""
        return self._inflow is not None

    @property
    def busy(self) -> bool:
        """Whether a request is unanswered."""
        return self._answer is not None

    @property
    def reusable(self) -> bool:
        """Whether the last exchange ended such that the connection can serve another."""
        return self._answer is None and self._keep and not self.closed

    def fail(self, reason: str) -> None:
        """End the current exchange, if any, and the connection."""
        self.abort()
        self._end(ConnectionBroken(reason))

    def abort(self) -> None:
        # Without a TLS close_notify, which would protect nothing here and would wait for the peer.
        self.closed = True
        if self._transport is None:
            return
        if self._answer is not None and not self.streaming and not self._transport.is_closing():
            sock = self._transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP_UNSENT)
        self._transport.abort()

    def _end(self, error: ConnectionBroken) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)

    # -- callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's interface but are not derived from its classes.
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in TCP_OPTIONS:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            self._poll, self._descriptor = select.poll(), sock.fileno()
            # Over TLS a fresh connection may have session tickets to read, which are no sign of a problem.
            self._poll.register(self._descriptor, _HANGUP)
        self._opened(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.fail("the server sent something that was not asked for")
            return
        self._received = True
        self._unframed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # After a complete response this ends the connection but leaves the response valid.
            self._fault = f"the answer is not HTTP/1.1: {str(error) or type(error).__name__}"
        else:
            if self._answer is not None and self._unframed > self._limits.head:
                self._fault = self._fault or f"the answer's head is larger than {self._limits.head} bytes"
        if self._fault is not None:
            self.fail(self._fault)
        self._deliver()

    def _deliver(self) -> None:
        """Deliver a complete response, after all bytes that came with it were examined.

        The receiver may send the next request immediately.
        """
        if self._whole is not None:
            (answer, response), self._whole = self._whole, None
            if not answer.done():
                answer.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._answer is not None and exc is None and self._ends_with_connection():
            self._keep = False
            self._finish()
        how = f"broke: {exc}" if exc is not None else "was closed by the server"
        when = "in the middle of the answer" if self._received else "before an answer came"
        self._end(ConnectionBroken(f"the connection {how} {when}", unanswered=not self._received))
        self._deliver()
        # The parser holds this connection's methods; without it there is no reference cycle.
        self._parser = None
        self._lost(self)

    def _ends_with_connection(self) -> bool:
        return self._head_done and not any(name.lower() in _FRAMING for name, _ in self._headers)

    # -- callbacks of the parser

    def on_message_begin(self) -> None:
        if self._answer is None:
            self._fault = "the server sent more than one answer"

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_done = True
        # The number of received bytes bounds the head, so that most heads need not be measured.
        if self._unframed > self._limits.head and self._head_size() > self._limits.head:
            self._fault = f"the answer's head is larger than {self._limits.head} bytes"
        elif self._head_only and self._answer is not None and self._parser.get_status_code() >= 200:
            self._finish()
            # The parser expects the body that the head announces.
            self._parser = httptools.HttpResponseParser(self)
        elif self._inflow is not None and self._answer is not None and self._parser.get_status_code() == 200:
            answer, self._answer = self._answer, self._inflow
            if not answer.done():
                answer.set_result(Response(200, b"", Headers(self._headers)))

    def _head_size(self) -> int:
        # Line end, colon and space count as well; otherwise empty headers would be free.
        return sum(len(name) + len(value) + 4 for name, value in self._headers)

    def on_body(self, body: bytes) -> None:
        self._unframed = 0
        if self._inflow is not None and self._answer is self._inflow:
            self._inflow.feed(body)
            return
        self._held += len(body)
        if self._answer is None:
            self._fault = "the server sent a body that was not asked for"
        elif self._held > self._limits.body:
            self._fault = f"the answer's body is larger than {self._limits.body} bytes"
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._answer is None or self._fault is not None:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self._finish()
        elif 100 <= status != 101:
            self._head_done = False
            self._headers = []
        else:
            self._fault = f"the server answered {status}, which means nothing here"

    def _finish(self) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None
        if not self._parser.should_keep_alive():
            self._keep = False
        elif not self.served and self._poll is not None:
            # From now on the peer may send nothing unsolicited; readable bytes would be mistaken for a response.
            self._poll.modify(self._descriptor, _HANGUP | select.POLLIN)
        self.served += 1
        body = self._body
        content = body[0] if len(body) == 1 else b"".join(body)
        self._whole = answer, Response(self._parser.get_status_code(), content, Headers(self._headers))
