"""The meaning of unsuccessful responses: their origin, whether the request was carried out, and whether to retry.

One table is shared by binds, status writes, events, leases and watches. It follows apimachinery's `api/errors`: the
HTTP status decides, and the `Status` body adds reason, causes and delay. Load balancers, proxies and captive portals
on the way may respond, too; their responses are not `v1` Statuses and say nothing about the requested object.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from kube_client.transport import Headers, NotSent, Response, TransportError

#: The limit of Retry-After; larger values are taken for errors of the server's clock or a proxy.
MAX_RETRY_AFTER = 120.0


class ResponseOrigin(Enum):
    """The origin of a response."""

    API_SERVER = "the API server"
    #: A proxy or load balancer.
    MIDDLEBOX = "not the API server"
    #: There was no response.
    NOBODY = "nobody"


class FailureClass(Enum):
    """The class of a failure. TRANSIENT: not carried out, worth a retry. UNKNOWN: may have been carried out.

    The others come from the API server, were not carried out, and are final for this request. NOT_FOUND names the
    missing object; a 404 that names none is PERMANENT, or NOT_SERVED if discovery shows that the kind is not served
    (`discovery`).
    """

    TRANSIENT = "transient"
    UNKNOWN = "unknown"
    CONFLICT = "conflict"
    NOT_FOUND = "not found"
    NOT_SERVED = "not served"
    GONE = "gone"
    PERMANENT = "permanent"


class Missing(NamedTuple):
    """An object in the `details` of a Status: `resource` is the plural of its kind, as in paths."""

    resource: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request. `status` is 0 without a response; `retry_after` is in seconds.

    `fields` are the paths in `details.causes`. `missing` is the missing object of NOT_FOUND.
    """

    kind: FailureClass
    status: int = 0
    reason: str = ""
    message: str = ""
    retry_after: float | None = None
    fields: tuple[str, ...] = ()
    source: ResponseOrigin = ResponseOrigin.NOBODY
    missing: Missing | None = None

    @property
    def retryable(self) -> bool:
        return self.kind is FailureClass.TRANSIENT or self.kind is FailureClass.UNKNOWN

    @property
    def throttles(self) -> bool:
        """Whether the server reports an overload."""
        return self.status == 429 or (self.status == 503 and self.retry_after is not None)

    def __str__(self) -> str:
        head = f"{self.status} {self.reason}".strip() if self.status else self.kind.value
        return f"{head}: {self.message}" if self.message else head


class _Cause(msgspec.Struct):
    reason: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    name: str = ""
    kind: str = ""
    uid: str = ""
    retry_after_seconds: float | None = None
    causes: list[_Cause] | None = None


class Status(msgspec.Struct, rename="camel"):
    """The fields of a `v1.Status` that clients use. Also the object of a watch's ERROR event."""

    kind: str = ""
    api_version: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_status = msgspec.json.Decoder(Status)

#: Responses of any origin that reject a request before it is carried out, such as for a rotated token or an overload.
_TURNED_AWAY = (401, 425, 429)
_BY_STATUS = {
    404: FailureClass.NOT_FOUND,
    408: FailureClass.UNKNOWN,
    409: FailureClass.CONFLICT,
    410: FailureClass.GONE,
    **dict.fromkeys(_TURNED_AWAY, FailureClass.TRANSIENT),
}


def classify(response: Response) -> Failure | None:
    """Return None for any 2xx of any origin, which `answers.read` distinguishes; otherwise the failure."""
    return None if 200 <= response.status < 300 else classify_refusal(response)


def classify_refusal(response: Response) -> Failure:
    """Return the failure for a response other than 2xx."""
    status = _status_in(response)
    if status is None:
        return from_middlebox(response)
    return classify_status(status, code=response.status, retry_after=_retry_after(response))


def from_middlebox(response: Response) -> Failure:
    """Return the failure for a response that is not from the API server. Its message quotes the start of the body."""
    kind = FailureClass.TRANSIENT if response.status in _TURNED_AWAY else FailureClass.UNKNOWN
    quoted = response.body[:200].decode("utf-8", "replace")
    return Failure(
        kind,
        response.status,
        message=f"not from the API server: {quoted}",
        retry_after=_retry_after(response),
        source=ResponseOrigin.MIDDLEBOX,
    )


#: What decoding a body raises if it is no JSON, has another form, or is nested too deeply.
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_JSON: Final = (b"Content-Type", b"application/json")


def has_json(response: Response) -> bool:
    """Return whether the headers allow that the body is JSON."""
    headers = response.headers
    # kube-apiserver's header, compared without decoding, because every response is checked.
    if type(headers) is Headers and _JSON in headers.raw:
        return True
    given = headers.get("Content-Type")
    return given is None or given.partition(";")[0].strip().lower() == "application/json"


def _status_in(response: Response) -> Status | None:
    """Return the `v1` Status of an API server's error; None for any other body."""
    if not has_json(response):
        return None
    try:
        status = _status.decode(response.body)
    except UNREADABLE:
        return None
    return status if status.kind == "Status" and status.api_version == "v1" else None


def classify_status(status: Status, *, code: int, retry_after: float | None = None) -> Failure:
    """Return the failure for a Status of the API server. `code` overrides the body's."""
    details = status.details or _Details()
    kind = _BY_STATUS.get(code)
    if kind is None:
        # A 5xx may follow the commit, such as after an etcd timeout.
        kind = FailureClass.UNKNOWN if code >= 500 else FailureClass.PERMANENT
    missing = None
    if kind is FailureClass.NOT_FOUND:
        if status.reason == "NotFound" and details.name:
            missing = Missing(details.kind.partition("/")[0], details.name, details.uid)
        else:
            kind = FailureClass.PERMANENT
    if retry_after is None and details.retry_after_seconds:
        retry_after = min(details.retry_after_seconds, MAX_RETRY_AFTER)
    fields = tuple(cause.field for cause in details.causes or ())
    return Failure(kind, code, status.reason, status.message, retry_after, fields, ResponseOrigin.API_SERVER, missing)


def classify_error(error: TransportError) -> Failure:
    kind = FailureClass.TRANSIENT if isinstance(error, NotSent) else FailureClass.UNKNOWN
    return Failure(kind, message=str(error))


def _retry_after(response: Response) -> float | None:
    """Return Retry-After (RFC 9110, 10.2.3) in seconds. A date is compared with the response's own Date."""
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
    if not seconds >= 0:  # also rejects nan
        return None
    return min(seconds, MAX_RETRY_AFTER)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class RequestFailed(Exception):
    """A failure ended an operation; `failure` has the reason."""

    def __init__(self, what: str, failure: Failure) -> None:
        super().__init__(f"{what}: {failure}")
        self.failure = failure


class StoreWentBack(RuntimeError):
    """The API server's store is older than a state that was observed, such as after a restore from a backup.

    The known state may belong to a discarded history whose versions are reused, so the process has to start over.
    """

    def __init__(self, what: str, *, listed: str, known: str) -> None:
        super().__init__(
            f"{what} is of version {listed}, and {known} was seen already; the API server was restored from a backup, "
            "or started without its objects, as an embedded cluster is: start this process again"
        )
