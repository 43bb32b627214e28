"""What an answer that is not a success means, and whether the request may be repeated.

One place decides, so that binds, status writes, events, leases and watches agree on it. The reading follows
apimachinery's `api/errors`: the HTTP status leads, the `Status` body adds reason, causes and a delay.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum

import msgspec

from agent_scheduler.kube.transport import NotSent, Response, TransportError

#: A server may ask for any delay; more than this is taken for a mistake of its clock or of a proxy.
MAX_RETRY_AFTER = 120.0


class FailureClass(Enum):
    """TRANSIENT: surely not carried out, worth repeating. UNKNOWN: may have been carried out.

    The other four are final for this very request.
    """

    TRANSIENT = "transient"
    UNKNOWN = "unknown"
    CONFLICT = "conflict"
    NOT_FOUND = "not found"
    GONE = "gone"
    PERMANENT = "permanent"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request did not succeed. `status` is 0 if no answer came; `retry_after` is in seconds.

    `fields` are the paths of `details.causes`, for a refusal that depends on one field.
    """

    kind: FailureClass
    status: int = 0
    reason: str = ""
    message: str = ""
    retry_after: float | None = None
    fields: tuple[str, ...] = ()

    @property
    def retryable(self) -> bool:
        return self.kind is FailureClass.TRANSIENT or self.kind is FailureClass.UNKNOWN

    @property
    def throttles(self) -> bool:
        """Whether the server has more to do than it can, and says so."""
        return self.status == 429 or (self.status == 503 and self.retry_after is not None)

    def __str__(self) -> str:
        head = f"{self.status} {self.reason}".strip() if self.status else self.kind.value
        return f"{head}: {self.message}" if self.message else head


class _Cause(msgspec.Struct):
    reason: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None
    causes: list[_Cause] | None = None


class Status(msgspec.Struct, rename="camel"):
    """The fields of a `v1.Status` that a client acts on. Also the object of a watch's ERROR event."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_status = msgspec.json.Decoder(Status)

_BY_STATUS = {
    # A token that was rotated under us: nothing happened, and the next request carries a newer one.
    401: FailureClass.TRANSIENT,
    404: FailureClass.NOT_FOUND,
    408: FailureClass.UNKNOWN,
    409: FailureClass.CONFLICT,
    410: FailureClass.GONE,
    425: FailureClass.TRANSIENT,
    429: FailureClass.TRANSIENT,
}


def classify(response: Response) -> Failure | None:
    """None for a success (2xx). A body that is no Status is quoted, shortened, as the message."""
    if 200 <= response.status < 300:
        return None
    try:
        status = _status.decode(response.body)
    except msgspec.MsgspecError:
        status = Status(message=response.body[:200].decode("utf-8", "replace"))
    return classify_status(status, code=response.status, retry_after=_retry_after(response))


def classify_status(status: Status, *, code: int, retry_after: float | None = None) -> Failure:
    """`code` overrides the body's own code, which a proxy's answer does not have."""
    kind = _BY_STATUS.get(code)
    if kind is None:
        # A 5xx may follow the commit (an etcd timeout, a proxy that lost its upstream).
        kind = FailureClass.UNKNOWN if code >= 500 else FailureClass.PERMANENT
    details = status.details or _Details()
    if retry_after is None and details.retry_after_seconds:
        retry_after = min(details.retry_after_seconds, MAX_RETRY_AFTER)
    fields = tuple(cause.field for cause in details.causes or ())
    return Failure(kind, code, status.reason, status.message, retry_after, fields)


def classify_error(error: TransportError) -> Failure:
    kind = FailureClass.TRANSIENT if isinstance(error, NotSent) else FailureClass.UNKNOWN
    return Failure(kind, message=str(error))


def classify_outcome(outcome: Response | TransportError) -> Failure | None:
    """Of a request that was started: its answer, or that it has none."""
    return classify(outcome) if isinstance(outcome, Response) else classify_error(outcome)


def _retry_after(response: Response) -> float | None:
    """RFC 9110 10.2.3: a number of seconds, or a date (which is compared with the answer's own Date)."""
    text = response.headers.get("Retry-After")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            until = parsedate_to_datetime(text)
            sent = parsedate_to_datetime(response.headers.get("Date", ""))
            seconds = (_aware(until) - _aware(sent)).total_seconds()
        except (TypeError, ValueError):
            return None
    if not seconds >= 0:  # also refuses nan
        return None
    return min(seconds, MAX_RETRY_AFTER)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class RequestFailed(Exception):
    """Raised where a failure ends an operation; `failure` says why."""

    def __init__(self, what: str, failure: Failure) -> None:
        super().__init__(f"{what}: {failure}")
        self.failure = failure
