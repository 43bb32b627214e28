"""The HTTP/1.1 server on asyncio: parses requests, writes responses, and streams watches in chunks.

It uses httptools' parser instead of a web framework, whose cost per request is several times that of a bind. Handlers
are synchronous, so a connection answers pipelined requests in order; only a watch, a webhook or an injected delay
makes later requests wait.

Guarantees: all buffers are bounded (headers, bodies, pipelined requests, responses to a client that does not read,
watch events); a malformed or oversized request gets a response, and its connection is closed; a disconnected client's
watch ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable

import httptools

from apimachinery.visible import visible

from .connections import FAULT, Shared
from .errors import ApiError
from .heads import BODY_LIMIT, TOO_LARGE, Head
from .requests import AT_ONCE, Answer, Disturbance, Pending, Request, Response, Stream, refusal
from .stream_sender import StreamSender

_log = logging.getLogger(__name__)

_PIPELINE_LIMIT = 64
#: Bytes that a write reads, above which it waits for its turn, because it takes long.
_LARGE = 64 * 1024
_WRITE_HIGH = 1024 * 1024
#: Seconds in which a request must be complete once it has begun.
_REQUEST_SECONDS = 30.0
_TOO_SLOW = ApiError(408, "", "the request was not complete in time")
#: Seconds in which a rejected client can finish sending, so that it reads the response instead of a reset.
_LINGER = 1.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
#: SO_LINGER with which closing a socket sends a reset instead of a FIN.
_NO_LINGER = struct.pack("ii", 1, 0)


class Connection(asyncio.Protocol):
    """One client connection. It answers one request at a time; later ones are in `_waiting`."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._api = shared.api
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set by connection_made
        self._parser = httptools.HttpRequestParser(self)
        #: Requests behind a watch or a delay: (request, keep-alive, chunked).
        self._waiting: deque[tuple[Request, bool, bool]] = deque()
        self._busy = False
        self._out: list[bytes] = []
        self._stream: StreamSender | None = None
        self._stream_keep = True
        self._delay: asyncio.TimerHandle | None = None
        #: The current request while webhooks are called. It is cancelled when the client disconnects.
        self._pending: asyncio.Task[Response] | None = None
        #: Whether the delayed request is carried out even if the client disconnects.
        self._delay_outlives = False
        self._write_paused = False
        self._discarding = False
        #: The deadline of an incomplete request, the bytes of bodies that are incomplete or wait, and the loop's time
        #: since when it has been in its present state.
        self._deadline: asyncio.TimerHandle | None = None
        self.held = 0
        self._since = shared.loop.time()
        #: Whether the parser is between two messages, so that the next byte begins a request.
        self._between = True
        #: The header block of the current message, if it was received as a whole.
        self._block = b""
        self._reset()

    def _reset(self) -> None:
        self._head = Head()
        self._body: list[bytes] = []
        self._body_size = 0

    # -- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH)
        self._shared.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.forget(self)
        self._discarding = True
        self._waiting.clear()
        self._release(self.held)
        self._in_time()
        if self._delay is not None and not self._delay_outlives:
            self._delay.cancel()
        if self._pending is not None:
            self._pending.cancel()
        self._drop_stream()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if self._between:
            data = self._take_known(data)
            if not data:
                self._flush()
                return
            self._block = self._shared.known.block(data)
        else:
            self._block = b""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Upgrades are not supported: the request was answered as a plain one.
            self._discarding = True
            self._linger()
        except httptools.HttpParserError as error:
            if not self._discarding:
                cause = error.__context__
                if isinstance(cause, ApiError):
                    self._refuse(refusal(cause))
                else:
                    self._refuse(Response(400, b"400 Bad Request", "text/plain; charset=utf-8"))
        self._flush()
        if self._deadline is None and not self._between and not self._discarding:
            self._since = self._shared.loop.time()
            self._deadline = self._shared.loop.call_later(_REQUEST_SECONDS, self._too_slow)

    @property
    def rank(self) -> tuple[int, float]:
        """The order in which connections are closed for new ones."""
        return (0 if not self._between else 1 if not self._busy else 2, self._since)

    def _too_slow(self) -> None:
        self._deadline = None
        if not self._discarding:
            self._refuse(refusal(_TOO_SLOW))

    def _in_time(self) -> None:
        """Record that the current request is complete, or will not be."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _release(self, size: int) -> None:
        self.held -= size
        self._shared.release(size)

    def _take_known(self, data: bytes) -> bytes:
        """Serve the cached requests at the start of `data`; return the rest."""
        known = self._shared.known
        while data and not self._discarding and not self._busy:
            taken = known.take(data)
            if taken is None:
                return data
            request, size = taken
            data = data[size:]
            self._serve(request, keep=True, chunked=True)
        return b"" if self._discarding else data

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._stream is None:
            self._transport.pause_reading()
        else:
            self._stream.paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._resume_reading()
        if self._stream is not None:
            self._stream.resume()

    # -- parser callbacks

    def on_message_begin(self) -> None:
        self._between = False
        self._reset()

    def on_url(self, url: bytes) -> None:
        self._head.add_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head.add(name, value)

    def on_headers_complete(self) -> None:
        if self._head.expects_continue and not self._busy:
            self._out.append(_CONTINUE)
            self._flush()

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        if self._body_size > BODY_LIMIT:
            raise TOO_LARGE
        self.held += len(body)
        self._shared.hold(self, len(body))
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._between = True
        self._in_time()
        if self._discarding:
            return
        if (foreign := self._shared.foreign(self._head)) is not None:
            self._refuse(refusal(foreign))
            return
        head, body = self._head, self._body
        url = head.url
        if not url.startswith(b"/"):
            # The absolute form that proxies send; only its path is used.
            parsed = httptools.parse_url(url)
            url = (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")
        request = head.request(
            self._parser.get_method().decode("latin-1"),
            url.decode("latin-1"),
            body[0] if len(body) == 1 else b"".join(body),
        )
        keep = self._parser.should_keep_alive()
        chunked = self._parser.get_http_version() != "1.0"
        block, self._block = self._block, b""
        if block and keep and chunked and not head.framed:
            self._shared.known.remember(block, head, self._body_size)
        if not self._busy and self._api.size(request) > _LARGE:
            self._busy = True
            self._shared.turns.add(self._serve_large)
        if self._busy:
            # Its body is held until it is served.
            self._waiting.append((request, keep, chunked))
            if len(self._waiting) >= _PIPELINE_LIMIT:
                self._transport.pause_reading()
            return
        self._release(len(request.body))
        self._serve(request, keep=keep, chunked=chunked)

    # -- responses

    def _serve_large(self) -> None:
        self._busy = False
        self._serve_waiting()

    def _serve(self, request: Request, *, keep: bool, chunked: bool) -> None:
        disturb = self._shared.disturb
        fault = disturb(request) if disturb is not None else None
        if fault is None:
            result = self._handle(request)
            if isinstance(result, AT_ONCE):
                self._finish(request, result, keep=keep, chunked=chunked)
            else:
                self._wait(result, lambda answer: self._go_on(request, answer, keep=keep, chunked=chunked))
            return
        self._busy = True
        self._delay_outlives = not fault.drop and (fault.instead() is None or fault.commits)
        self._later(fault.delay, lambda: self._serve_disturbed(request, fault, keep=keep, chunked=chunked))

    def _later(self, seconds: float, action: object) -> None:
        def run() -> None:
            self._delay = None
            action()  # type: ignore[operator]
            self._flush()

        self._delay = self._shared.loop.call_later(seconds, run)

    def _serve_disturbed(self, request: Request, fault: Disturbance, *, keep: bool, chunked: bool) -> None:
        self._delay_outlives = False
        if fault.drop:
            self._break_off()
            return
        result: Answer | Stream | None = None
        if fault.instead() is None or fault.commits:
            result = self._handle(fault.asked(request, self._api.store.rv))
        if result is None or isinstance(result, AT_ONCE):
            self._answer_disturbed(request, result, fault, keep=keep, chunked=chunked)
        else:
            self._wait(
                result, lambda answer: self._answer_disturbed(request, answer, fault, keep=keep, chunked=chunked)
            )

    def _answer_disturbed(
        self, request: Request, result: Response | Stream | None, fault: Disturbance, *, keep: bool, chunked: bool
    ) -> None:
        instead = fault.instead()
        if isinstance(result, Stream):
            if fault.lose or instead is not None or self._transport.is_closing():
                result.watcher.close()
            else:
                if fault.distortion is not None:
                    result = result.disturbed(fault.distortion, self._shared.loop.call_later)
                # From now on closed with the connection.
                self._stream = self._sender(result)
        elif result is not None and fault.edited is not None:
            result = fault.edited(result)
        if instead is not None:
            result = instead
        if self._transport.is_closing():
            return

        def answer() -> None:
            assert result is not None
            if fault.lose:
                self._break_off()
                return
            self._go_on(request, result, keep=keep, chunked=chunked)

        if fault.late:
            self._later(fault.late, answer)
        else:
            answer()

    def _wait(self, pending: Pending, answer: Callable[[Response], None]) -> None:
        """Respond when `pending` completes; later requests wait."""
        self._busy = True
        task = self._pending = self._shared.loop.create_task(pending)

        def done(task: asyncio.Task[Response]) -> None:
            self._pending = None
            if not task.cancelled():
                response = self._shared.outcome(task)
                if not self._transport.is_closing():
                    answer(response)

        task.add_done_callback(done)

    def _go_on(self, request: Request, result: Response | Stream, *, keep: bool, chunked: bool) -> None:
        """Respond to the pending request, then serve the waiting ones."""
        self._busy = False
        self._finish(request, result, keep=keep, chunked=chunked)
        self._serve_waiting()

    def _break_off(self) -> None:
        """Reset the connection, like a peer that crashed."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    def _handle(self, request: Request) -> Answer | Stream:
        try:
            return self._api.handle(request)
        except Exception:
            _log.exception("%s %s failed", request.method, visible(request.path))
            return refusal(FAULT)

    def _finish(self, request: Request, result: Response | Stream, *, keep: bool, chunked: bool) -> None:
        keep = keep and not self._shared.closing
        if isinstance(result, Stream):
            self._start_stream(result, keep=keep, chunked=chunked)
            return
        self._shared.heads.write(self._out, result, keep=keep, bodiless=request.method == "HEAD")
        if not keep:
            self._hang_up()

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        self._out = []
        if self._transport.is_closing():
            return
        if len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)

    def _refuse(self, response: Response) -> None:
        """Respond to a request that cannot be read completely, and close the connection."""
        self._discarding = True
        self._in_time()
        if not self._busy:
            self._shared.heads.write(self._out, response, keep=False)
            self._flush()
        self._linger()

    def _linger(self) -> None:
        if self._delay is None:
            self._delay = self._shared.loop.call_later(_LINGER, self._transport.close)

    def _hang_up(self) -> None:
        self._discarding = True
        self._flush()
        self._transport.close()

    def _serve_waiting(self) -> None:
        while self._waiting and not self._busy and not self._discarding:
            request, keep, chunked = self._waiting.popleft()
            self._release(len(request.body))
            self._serve(request, keep=keep, chunked=chunked)
        self._flush()
        self._resume_reading()

    def _resume_reading(self) -> None:
        if not self._write_paused and len(self._waiting) < _PIPELINE_LIMIT and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- watches

    def _start_stream(self, result: Stream, *, keep: bool, chunked: bool) -> None:
        self._busy = True
        self._stream_keep = keep and chunked
        head = self._shared.heads.get(200, result.content_type, keep=self._stream_keep)
        self._out.append(head + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n"))
        self._flush()
        stream = self._stream = self._stream or self._sender(result)
        stream.start(chunked=chunked)

    def _sender(self, stream: Stream) -> StreamSender:
        sender = StreamSender(self._transport, self._shared.loop, stream, self._stream_ended)
        sender.paused = self._write_paused
        return sender

    def _stream_ended(self, torn: bool) -> None:
        if torn:
            self._break_off()
            return
        keep = self._stream_keep and not self._shared.closing
        self._drop_stream()
        self._busy = False
        if keep:
            self._serve_waiting()
        else:
            self._hang_up()

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def shut_down(self) -> None:
        """Close after the current response. A watch ends as at its timeout."""
        if self._stream is not None:
            self._stream.end()
        elif not self._busy:
            self._hang_up()

    def abort(self) -> None:
        self._transport.abort()
