"""How the demo asks a server: one patience for all answers, and one error for whatever is not a success.

What the requests travel on is `kube.http1`, the product's own transport; what the demo makes of the answers is its
own, above all in the audit.
"""

from __future__ import annotations

from agent_scheduler.kube.errors import RequestFailed, classify, classify_error
from agent_scheduler.kube.transport import Transport, TransportError

#: Seconds after which an answer counts as lost: far more than any takes, on a machine that is busy too.
PATIENCE = 30.0


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


def first_of(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception of a group, however deep."""
    first: BaseException = failures
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
