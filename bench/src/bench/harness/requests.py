"""Requests of a load generator: one timeout for all answers, and one error for whatever is not a success.

They travel on the product's own transport, `kube.http1`; what an answer means here is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from agent_scheduler.kube.errors import Failure, FailureClass, RequestFailed, classify, classify_error
from agent_scheduler.kube.transport import Transport, TransportError

T = TypeVar("T")

#: Seconds after which an answer counts as lost: far more than any takes, on a machine that is busy too.
PATIENCE = 30.0
#: How often a request is repeated that was surely or perhaps not carried out.
_ATTEMPTS = 20
#: Requests under way at a time of what is made or bound in bulk, and not measured.
BULK = 32
#: Deletes at once, whatever the object asks for.
NOW = b'{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}'


async def ask(
    transport: Transport, method: str, path: str, *, body: bytes | None = None, within: float = PATIENCE
) -> bytes:
    """The body of a 2xx answer that came `within` seconds. Raises `RequestFailed` for anything else."""
    try:
        response = await transport.request(method, path, body=body, timeout=within)
    except TransportError as error:
        raise RequestFailed(f"{method} {path}", classify_error(error)) from error
    failure = classify(response)
    if failure is not None:
        raise RequestFailed(f"{method} {path}", failure)
    return response.body


async def answers(transport: Transport, path: str = "/readyz") -> bool:
    """Whether a GET succeeds."""
    try:
        await ask(transport, "GET", path)
    except RequestFailed:
        return False
    return True


async def retry(
    transport: Transport,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    ignore: int = 0,
    content_type: str = "application/json",
) -> None:
    """Sends a request until it is carried out; a repetition may find that it was. The status `ignore` is a success.

    Raises RequestFailed.
    """
    failure: Failure | None = None
    for attempt in range(_ATTEMPTS):
        try:
            response = await transport.request(
                method, path, body=body, content_type=content_type, timeout=PATIENCE
            )
            failure = classify(response)
        except TransportError as error:
            failure = classify_error(error)
        if failure is None or (failure.status and failure.status == ignore):
            return
        if attempt and method == "POST" and failure.status == 409 and failure.reason == "AlreadyExists":
            return
        if attempt and method == "DELETE" and failure.kind is FailureClass.NOT_FOUND:
            return
        if not failure.retryable:
            break
        await asyncio.sleep(failure.retry_after or min(1.0, 0.02 * 2**attempt))
    assert failure is not None
    raise RequestFailed(f"{method} {path}", failure)


async def for_each(items: Iterable[T], do: Callable[[T], Awaitable[object]], *, parallel: int) -> None:
    """Does it for every item, so many at a time. Raises the first exception."""
    left = iter(items)

    async def one() -> None:
        for item in left:
            await do(item)

    first: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(parallel):
                tasks.create_task(one())
    except* Exception as errors:
        # Raised below: before Python 3.11.4 what is raised in here comes out in a group again.
        first = first_of(errors)
    if first is not None:
        raise first


async def create_all(transport: Transport, path: str, bodies: Iterable[bytes], *, ignore: int = 0) -> None:
    """Creates objects in bulk."""

    async def send(body: bytes) -> None:
        await retry(transport, "POST", path, body, ignore=ignore)

    await for_each(bodies, send, parallel=BULK)


def first_of(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception of a group, however deep."""
    first: BaseException = failures
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
