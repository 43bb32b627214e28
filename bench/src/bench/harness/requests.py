"""Requests of a load generator: one timeout for all responses, and one error for everything that is no success.

They use the product's own transport, `kube_client.http1`; what a response means here is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from kube_client.errors import Failure, FailureClass, RequestFailed, classify, classify_error
from kube_client.transport import Transport, TransportError

T = TypeVar("T")

#: Seconds after which a response counts as lost: far more than any takes, also on a busy machine.
PATIENCE = 30.0
#: Maximum attempts of a request that was or may have been lost.
_ATTEMPTS = 20
#: Maximum requests in flight for bulk creations and binds that are not measured.
BULK = 32
#: Deletes at once, whatever the object's grace period.
NOW = b'{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}'


async def ask(
    transport: Transport, method: str, path: str, *, body: bytes | None = None, within: float = PATIENCE
) -> bytes:
    """Return the body of a 2xx response within `within` seconds. Raises `RequestFailed` for anything else."""
    try:
        response = await transport.request(method, path, body=body, timeout=within)
    except TransportError as error:
        raise RequestFailed(f"{method} {path}", classify_error(error)) from error
    failure = classify(response)
    if failure is not None:
        raise RequestFailed(f"{method} {path}", failure)
    return response.body


async def answers(transport: Transport, path: str = "/readyz") -> bool:
    """Return whether a GET succeeds."""
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
    """Send a request until it is carried out; a retry may find that it was. The status `ignore` is a success.

    Raises RequestFailed.
    """
    failure: Failure | None = None
    for attempt in range(_ATTEMPTS):
        try:
            response = await transport.request(method, path, body=body, content_type=content_type, timeout=PATIENCE)
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
    """Call `do` for every item, `parallel` at a time. Raises the first exception."""
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
        # Raised below: before Python 3.11.4 an exception raised here is wrapped in a group again.
        first = first_of(errors)
    if first is not None:
        raise first


async def create_all(transport: Transport, path: str, bodies: Iterable[bytes], *, ignore: int = 0) -> None:
    """Create objects in bulk."""

    async def send(body: bytes) -> None:
        await retry(transport, "POST", path, body, ignore=ignore)

    await for_each(bodies, send, parallel=BULK)


def first_of(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception of a group, at any depth."""
    first: BaseException = failures
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
