"""What an answer that is not a success means: who gave it, whether the request was carried out, whether to repeat it.

One table decides, so that binds, status writes, events, leases and watches agree on it. The reading follows
apimachinery's `api/errors`: the HTTP status leads, the `Status` body adds reason, causes and a delay. Between a client
and the API server there may be load balancers, proxies and captive portals; what they answer is no `v1` Status, and
says nothing of the object that was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from agent_scheduler.kube.transport import Headers, NotSent, Response, TransportError

#: A server may ask for any delay; more than this is taken for a mistake of its clock or of a proxy.
MAX_RETRY_AFTER = 120.0


class Source(Enum):
    """Who an answer is from."""

    API_SERVER = "the API server"
    #: Something on the way to it.
    MIDDLEBOX = "not the API server"
    #: There is none.
    NOBODY = "nobody"


class FailureClass(Enum):
    """TRANSIENT: surely not carried out, worth repeating. UNKNOWN: may have been carried out.

    The others are final for this very request, not carried out, and said by the API server itself. NOT_FOUND names the
    object that is not there; a 404 that names none is PERMANENT, or NOT_SERVED where discovery says that the kind is
    not there (`kube.discovery`).
    """

    TRANSIENT = "transient"
    UNKNOWN = "unknown"
    CONFLICT = "conflict"
    NOT_FOUND = "not found"
    NOT_SERVED = "not served"
    GONE = "gone"
    PERMANENT = "permanent"


class Missing(NamedTuple):
    """An object as `details` of a Status name it: `resource` is its kind in the plural, as in paths."""

    resource: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request did not succeed. `status` is 0 if no answer came; `retry_after` is in seconds.

    `fields` are the paths of `details.causes`, for a refusal that depends on one field. `missing`: what is not there,
    with NOT_FOUND.
    """

    kind: FailureClass
    status: int = 0
    reason: str = ""
    message: str = ""
    retry_after: float | None = None
    fields: tuple[str, ...] = ()
    source: Source = Source.NOBODY
    missing: Missing | None = None

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
    name: str = ""
    kind: str = ""
    uid: str = ""
    retry_after_seconds: float | None = None
    causes: list[_Cause] | None = None


class Status(msgspec.Struct, rename="camel"):
    """The fields of a `v1.Status` that a client acts on. Also the object of a watch's ERROR event."""

    kind: str = ""
    api_version: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_status = msgspec.json.Decoder(Status)

#: Answers of whomever that let nothing pass: a token that was rotated under us, a client that is to come back later.
_TURNED_AWAY = (401, 425, 429)
_BY_STATUS = {
    404: FailureClass.NOT_FOUND,
    408: FailureClass.UNKNOWN,
    409: FailureClass.CONFLICT,
    410: FailureClass.GONE,
    **dict.fromkeys(_TURNED_AWAY, FailureClass.TRANSIENT),
}


def classify(response: Response) -> Failure | None:
    """None for any 2xx, whoever gave it: `answers.read` looks at that, too."""
    return None if 200 <= response.status < 300 else classify_refusal(response)


def classify_refusal(response: Response) -> Failure:
    """Of an answer that is no 2xx."""
    status = _status_in(response)
    if status is None:
        return from_middlebox(response)
    return classify_status(status, code=response.status, retry_after=_retry_after(response))


def from_middlebox(response: Response) -> Failure:
    """What an answer means that is not the API server's. Its body is quoted, shortened, in the message."""
    kind = FailureClass.TRANSIENT if response.status in _TURNED_AWAY else FailureClass.UNKNOWN
    quoted = response.body[:200].decode("utf-8", "replace")
    return Failure(
        kind,
        response.status,
        message=f"not from the API server: {quoted}",
        retry_after=_retry_after(response),
        source=Source.MIDDLEBOX,
    )


_JSON: Final = (b"Content-Type", b"application/json")


def has_json(response: Response) -> bool:
    """Whether the headers do not say that the body is something else."""
    headers = response.headers
    # As kube-apiserver says it: asked of each answer, so without decoding a header.
    if type(headers) is Headers and _JSON in headers.raw:
        return True
    given = headers.get("Content-Type")
    return given is None or given.partition(";")[0].strip().lower() == "application/json"


def _status_in(response: Response) -> Status | None:
    """The `v1` Status that an API server refuses with; None if the body is something else."""
    if not has_json(response):
        return None
    try:
        status = _status.decode(response.body)
    except msgspec.MsgspecError:
        return None
    return status if status.kind == "Status" and status.api_version == "v1" else None


def classify_status(status: Status, *, code: int, retry_after: float | None = None) -> Failure:
    """Of a Status that the API server has given. `code` overrides the body's own."""
    details = status.details or _Details()
    kind = _BY_STATUS.get(code)
    if kind is None:
        # A 5xx may follow the commit, as an etcd timeout does.
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
    return Failure(kind, code, status.reason, status.message, retry_after, fields, Source.API_SERVER, missing)


def classify_error(error: TransportError) -> Failure:
    kind = FailureClass.TRANSIENT if isinstance(error, NotSent) else FailureClass.UNKNOWN
    return Failure(kind, message=str(error))


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


class StoreWentBack(RuntimeError):
    """The API server's store is of an earlier state than one that was seen, as after a restore from a backup: what is
    known may be of a history that is none any more, and its versions are given out again. A process starts over."""

    def __init__(self, what: str, *, listed: str, known: str) -> None:
        super().__init__(f"{what} is of version {listed}, and {known} was seen already")
