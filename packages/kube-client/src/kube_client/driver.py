"""The driver of requests that are repeated until their outcome is known.

An `Operation` is a generator that determines the outcome. It yields a `Send` and receives its `Reply`, yields a
`Pause` before it retries and receives whether it may, and returns its result. It depends on `answers.read` only and
does no I/O. The driver decides when requests are sent, under which budget, and how long pauses last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from kube_client.answers import RequestInfo, read
from kube_client.budget import UNLIMITED, Budget
from kube_client.errors import Failure
from kube_client.retry import REAL, Attempts, Backoff, Timing
from kube_client.transport import Response, Transport, TransportError, request_if_of

T = TypeVar("T")

#: The default timeout of a request in seconds.
REQUEST_TIMEOUT: Final = 10.0
_BACKOFF: Final = Backoff(initial=0.5, cap=10.0)


class Send(NamedTuple):
    """A request. `asked` defines its successful response."""

    method: str
    path: str
    asked: RequestInfo
    body: bytes | None = None
    content_type: str = "application/json"


class Reply(NamedTuple):
    """The outcome of a request: a `failure` by `answers.read`, or a successful `response`."""

    failure: Failure | None
    response: Response | None = None


class Pause(NamedTuple):
    """A wait before the next attempt, at least `retry_after` seconds if the server requested that."""

    retry_after: float | None


Operation = Generator[Send | Pause, Any, T]

#: Returns a failure that replaces a request, if it may not be sent. Called before any wait and again right before
#: sending.
Refuse = Callable[[Send], Failure | None]


class AlreadySent(NamedTuple):
    """A request that was sent before: the time by the clock of `timing`, and its failure."""

    at: float
    failure: Failure


def ask(send: Send) -> Operation[Reply]:
    reply: Reply = yield send
    return reply


def pause(failure: Failure | None) -> Operation[bool]:
    """Wait before the next attempt; return whether there is one."""
    again: bool = yield Pause(None if failure is None else failure.retry_after)
    return again


def repeat(send: Send, *, also: Callable[[Failure], bool] = lambda _failure: False) -> Operation[Failure | None]:
    """Send repeatedly as `repeated` does; return the failure only."""
    return (yield from repeated(send, also=also)).failure


def repeated(send: Send, *, also: Callable[[Failure], bool] = lambda _failure: False) -> Operation[Reply]:
    """Send until success, a final failure, or the last attempt. `also` returns whether a failure is worth a retry, too.

    Only for idempotent requests.
    """
    while True:
        reply = yield from ask(send)
        failure = reply.failure
        if failure is None or not (failure.retryable or also(failure)) or not (yield from pause(failure)):
            return reply


async def send_once(
    transport: Transport,
    send: Send,
    *,
    timeout: float = REQUEST_TIMEOUT,  # noqa: ASYNC109
    refuse: Refuse | None = None,
) -> Reply:
    """Send one request, unless `refuse` forbids it. Never raises for errors of network or server."""
    refused: list[Failure] = []

    def allowed() -> bool:
        failure = None if refuse is None else refuse(send)
        refused.extend(() if failure is None else (failure,))
        return failure is None

    request = transport.request
    if refuse is not None:
        if not allowed():
            return Reply(refused[0])
        # Waiting for credentials or a connection may take as long as `timeout`, and `refuse` may have changed by
        # then.
        if (request_if := request_if_of(transport)) is not None:
            request = partial(request_if, allowed)
    try:
        response = await request(
            send.method, send.path, body=send.body, content_type=send.content_type, timeout=timeout
        )
    except TransportError as error:
        return Reply(refused[0] if refused else read(error, send.asked))
    failure = read(response, send.asked)
    return Reply(failure, response if failure is None else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The sender of one kind of request. `budget` holds a place for a request, never during a pause.

    `attempts` (None for any number) and `deadline` (seconds from the first request) limit an operation.
    """

    transport: Transport
    budget: Budget = UNLIMITED
    timing: Timing = REAL
    backoff: Backoff = field(default=_BACKOFF)
    request_timeout: float = REQUEST_TIMEOUT
    attempts: int | None = None
    deadline: float | None = None

    async def run(
        self, operation: Operation[T], *, refuse: Refuse | None = None, already_sent: AlreadySent | None = None
    ) -> T:
        """Run the operation; return its result.

        `refuse` is called for each request. `already_sent` is the failure of the operation's first request, which was
        sent before.
        """
        attempts: Attempts | None = None
        began = None if already_sent is None else already_sent.at
        try:
            step = next(operation)
            while True:
                if isinstance(step, Pause):
                    if attempts is None:
                        attempts = self._attempts(began)
                    step = operation.send(await attempts.wait(step.retry_after))
                elif already_sent is not None:
                    failure, already_sent = already_sent.failure, None
                    step = operation.send(Reply(failure))
                else:
                    async with self.budget.request():
                        began = self.timing.clock() if began is None else began
                        reply = await send_once(self.transport, step, timeout=self.request_timeout, refuse=refuse)
                    step = operation.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            operation.close()

    def _attempts(self, began: float | None) -> Attempts:
        left = self.deadline
        if left is not None and began is not None:
            left -= self.timing.clock() - began
        return Attempts(self.backoff, self.timing, left, most=self.attempts)
