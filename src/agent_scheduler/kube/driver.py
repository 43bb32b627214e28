"""The one driver of requests that are repeated until it is known what came of them.

What is to be known is an `Operation`: a generator that yields a `Send`, is sent its `Reply`, yields a `Pause` before it
tries again, is told whether there is one, and returns what it has found out. It decides by `answers.read` alone and
does no I/O; when a request goes out, under which budget, and how long a pause lasts is the driver's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from agent_scheduler.kube.answers import Asked, read
from agent_scheduler.kube.budget import UNLIMITED, Budget
from agent_scheduler.kube.errors import Failure
from agent_scheduler.kube.retry import REAL, Attempts, Backoff, Timing
from agent_scheduler.kube.transport import Response, Transport, TransportError, request_if_of

T = TypeVar("T")

#: Seconds that one request may take, unless it is said otherwise.
REQUEST_TIMEOUT: Final = 10.0
_BACKOFF: Final = Backoff(initial=0.5, cap=10.0)


class Send(NamedTuple):
    """A request; `asked` says what a success of it looks like."""

    method: str
    path: str
    asked: Asked
    body: bytes | None = None
    content_type: str = "application/json"


class Reply(NamedTuple):
    """What came of a request: `failure`, as `answers.read` has it, or `response`, a success."""

    failure: Failure | None
    response: Response | None = None


class Pause(NamedTuple):
    """Wait before the next attempt, at least `retry_after` seconds if the server has asked for it."""

    retry_after: float | None


Operation = Generator[Send | Pause, Any, T]

#: Gives the failure that takes the place of a request, if it may not be sent. Asked before anything is waited for, and
#: again at the moment of sending.
Refuse = Callable[[Send], Failure | None]


class AlreadySent(NamedTuple):
    """A request that has been sent before: when, on the clock of `timing`, and how it failed."""

    at: float
    failure: Failure


def ask(send: Send) -> Operation[Reply]:
    reply: Reply = yield send
    return reply


def pause(failure: Failure | None) -> Operation[bool]:
    """Whether there is another attempt."""
    again: bool = yield Pause(None if failure is None else failure.retry_after)
    return again


def repeat(
    send: Send, *, also: Callable[[Failure], bool] = lambda _failure: False
) -> Operation[Failure | None]:
    """As `repeated`, without the answer."""
    return (yield from repeated(send, also=also)).failure


def repeated(send: Send, *, also: Callable[[Failure], bool] = lambda _failure: False) -> Operation[Reply]:
    """Sends until it succeeds, fails for good, or there is no other attempt. `also`: what else is worth one.

    For requests that do the same however often they are carried out.
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
    """One request, unless `refuse` forbids it. Never raises for what network or server do."""
    refused: list[Failure] = []

    def allowed() -> bool:
        failure = None if refuse is None else refuse(send)
        refused.extend(() if failure is None else (failure,))
        return failure is None

    request = transport.request
    if refuse is not None:
        if not allowed():
            return Reply(refused[0])
        # The wait for credentials or a connection may take as long as `timeout`: what was wanted before it need not
        # be any more.
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
    """How requests of one kind are sent. `budget` holds a place for a request, never for a pause. `attempts` (None:
    any number) and `deadline` (seconds from the first request on) bound an operation."""

    transport: Transport
    budget: Budget = UNLIMITED
    timing: Timing = REAL
    backoff: Backoff = field(default=_BACKOFF)
    request_timeout: float = REQUEST_TIMEOUT
    attempts: int | None = None
    deadline: float | None = None

    async def run(
        self,
        operation: Operation[T],
        *,
        refuse: Refuse | None = None,
        already_sent: AlreadySent | None = None,
    ) -> T:
        """What the operation returns. `refuse` is asked about each request. `already_sent`: how the operation's first
        request has failed already."""
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
                        reply = await send_once(
                            self.transport, step, timeout=self.request_timeout, refuse=refuse
                        )
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
