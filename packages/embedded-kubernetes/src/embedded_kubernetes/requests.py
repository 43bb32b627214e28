"""Requests, responses and disturbances: the values between transports and verbs.

A transport (HTTP or in-process) builds a `Request`, passes it to `Api.handle`, and writes the resulting `Response` or
reads the resulting `Stream`. Nothing here does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

from . import nesting
from .auth.identity import EVERYBODY, User
from .builtin.causes import forbidden, required, too_long, unsupported
from .builtin.causes import invalid as cause_invalid
from .errors import ApiError, Cause, bad_request, invalid
from .fault_streams import Cancellable, Distortion, DisturbedWatcher
from .watch import Watcher

_NO_QUERY: Mapping[str, str] = {}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_MAX_INT64 = (1 << 63) - 1
#: The limit of a field manager's name in bytes.
_MANAGER_LIMIT = 128
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_POLICIES = ("Foreground", "Background", "Orphan")


@lru_cache(maxsize=512)
def _parse(query: str) -> Mapping[str, str]:
    """Return the first value of each parameter, as Go's url.Values.Get does."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        found.setdefault(name, value)
    return found


@dataclass(slots=True, eq=False)
class Request:
    """One HTTP request. `path` is percent-encoded and has no query; `query` has no `?`.

    `impersonate` are the impersonation headers, with names in lower case. `user` is the authenticated user; on a
    server without authentication, an administrator.
    """

    method: str
    path: str
    query: str = ""
    _: KW_ONLY
    body: bytes = b""
    content_type: str = ""
    accept: str | None = None
    authorization: str | None = None
    impersonate: tuple[tuple[str, str], ...] = ()
    user: User = EVERYBODY
    #: Audit annotations.
    annotations: Mapping[str, str] | None = None
    parameters: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.parameters = _parse(self.query) if self.query else _NO_QUERY

    def asking(self, query: str) -> Request:
        """Return the same request with another query."""
        other = copy(self)
        other.query, other.parameters = query, _parse(query)
        return other

    def flag(self, name: str) -> bool:
        """Return a boolean parameter. As in apimachinery, any value but `0` and `false` is true."""
        text = self.parameters.get(name)
        return text is not None and text != "0" and text.lower() != "false"

    def number(self, name: str) -> int | None:
        """Return an integer parameter; None if it is absent. Raises 400."""
        text = self.parameters.get(name)
        if text is None:
            return None
        if not _WHOLE.fullmatch(text):
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        value = int(text)
        if not -_MAX_INT64 - 1 <= value <= _MAX_INT64:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
        return value

    def version(self) -> int | None:
        """Return the resourceVersion parameter; None if absent. As recorded, an invalid one is a 500 without reason."""
        text = self.parameters.get("resourceVersion")
        if not text:
            return None
        if not (text.isascii() and text.isdigit()):
            raise ApiError(
                500,
                "",
                f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax',
            )
        return int(text)

    def dry_run(self, options: str, *, applies: bool | None = None) -> bool:
        """Return whether dryRun=All is set, after checking all options of a write. Raises 422.

        `options` is their kind. `applies` is whether a patch is a server-side apply; None for other writes.
        """
        parameters = self.parameters
        if not parameters and not applies:
            return False
        causes: list[Cause] = []
        if applies and not parameters.get("fieldManager"):
            causes.append(required("fieldManager", "is required for apply patch"))
        if applies is False and "force" in parameters:
            causes.append(forbidden("force", "may not be specified for non-apply patch"))
        if manager := parameters.get("fieldManager"):
            causes += _check_manager(manager)
        text = parameters.get("dryRun")
        if text is not None and text != "All":
            causes.append(unsupported("dryRun", text, ("All",)))
        mode = parameters.get("fieldValidation", "")
        if mode not in _VALIDATIONS:
            causes.append(unsupported("fieldValidation", mode, _VALIDATIONS))
        if causes:
            raise invalid(options, "meta.k8s.io", "", causes)
        return text is not None


def _check_manager(manager: str) -> Iterator[Cause]:
    if len(manager.encode()) > _MANAGER_LIMIT:
        yield too_long("fieldManager", _MANAGER_LIMIT)
    for at, letter in enumerate(manager):
        if not letter.isprintable():
            why = f'Invalid value: "{manager}": invalid character U+{ord(letter):04X} (at position {at})'
            yield Cause("FieldValueInvalid", "fieldManager", why)


def check_delete_options(options: Mapping[str, Any]) -> bool:
    """Return whether DeleteOptions request a dry run, after checking them. Raises 422."""
    causes: list[Cause] = []
    policy, values = options.get("propagationPolicy"), options.get("dryRun") or []
    if policy is not None and options.get("orphanDependents") is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(cause_invalid("propagationPolicy", policy, why))
    if policy is not None and policy not in _POLICIES:
        causes.append(unsupported("propagationPolicy", policy, (*_POLICIES, "nil")))
    if any(value != "All" for value in values):
        causes.append(unsupported("dryRun", ", ".join(values), ("All",)))
    if causes:
        raise invalid("DeleteOptions", "meta.k8s.io", "", causes)
    return bool(values)


@dataclass(slots=True, eq=False)
class Response:
    """A complete response."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


#: A response that has to be awaited, because webhooks are called first.
Pending = Coroutine[Any, Any, Response]
Answer = Response | Pending


def then(answer: Answer, shape: Callable[[Response], Response]) -> Answer:
    """Apply `shape` to a response, at once or when it is complete."""
    return shape(answer) if isinstance(answer, Response) else _then(answer, shape)


async def _then(pending: Pending, shape: Callable[[Response], Response]) -> Response:
    return shape(await pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A watch that is read until it drains, the client disconnects, or `timeout` seconds pass.

    `version` returns the current version for a bookmark.
    """

    watcher: Watcher | DisturbedWatcher
    timeout: float
    version: Callable[[], int]
    content_type: str = "application/json"

    def disturbed(
        self, distortion: Distortion, call_later: Callable[[float, Callable[[], None]], Cancellable]
    ) -> Stream:
        """Return the same watch with a fault. It must not be in use yet."""
        assert isinstance(self.watcher, Watcher)
        return replace(self, watcher=DisturbedWatcher(self.watcher, distortion, call_later))


def refusal(error: ApiError) -> Response:
    headers = tuple(error.headers.items())
    seconds = (error.details or {}).get("retryAfterSeconds")
    if seconds is not None and "Retry-After" not in error.headers:
        headers = (*headers, ("Retry-After", str(seconds)))
    return Response(error.code, nesting.dumps(error.status()), headers=headers)


def success(status: int, details: Mapping[str, Any] | None = None) -> Response:
    """Return a Status that reports success. As recorded, that of a delete names the object and has no code."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is None:
        body["code"] = status
    else:
        body["details"] = details
    return Response(status, nesting.dumps(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """The effect of an injected fault on one request. Times are seconds and may be infinite.

    Before the verb runs: wait `delay`; then, instead of running it, respond with `answer` or `error`, or reset the
    connection (`drop`). A list or watch is moved back by `behind` versions. After the verb has committed: wait
    `late`; then reset the connection (`lose`), or with `commits` respond with `answer` or `error`. `edited` changes
    the verb's own response. An open watch passes through `distortion`.
    """

    delay: float = 0.0
    error: ApiError | None = None
    answer: Response | None = None
    commits: bool = False
    drop: bool = False
    late: float = 0.0
    lose: bool = False
    behind: int = 0
    edited: Callable[[Response], Response] | None = None
    distortion: Distortion | None = None

    def instead(self) -> Response | None:
        """Return the response that replaces the verb's, if any."""
        return self.answer if self.error is None else refusal(self.error)

    def asked(self, request: Request, current: int) -> Request:
        """Return the request for the verb. `current` is the store's version.

        The answer to a distorted watch is in JSON if the client accepts that, because distortions edit JSON.
        """
        if self.distortion is not None and (accept := request.accept):
            request = copy(request)
            request.accept = _without_protobuf(accept)
        given = request.parameters
        if not self.behind or "continue" in given:
            # The pages of an old list have the version of its first page.
            return request
        wanted = dict(given)
        if request.flag("watch"):
            begin = given.get("resourceVersion", "")
            if not begin.isdigit() or begin == "0":
                return request
            wanted["resourceVersion"] = str(max(1, int(begin) - self.behind))
        else:
            wanted["resourceVersion"] = str(max(1, current - self.behind))
            wanted["resourceVersionMatch"] = "Exact"
        return request.asking(urlencode(wanted))


def _without_protobuf(accept: str) -> str:
    others = [media for media in accept.split(",") if "protobuf" not in media]
    return ",".join(others) or accept


#: Results that need not be awaited. A constant, because building the tuple would cost every request.
AT_ONCE = (Response, Stream)

#: The interface of fault injection: every transport calls it once per request; None means no fault.
Disturb = Callable[[Request], Disturbance | None]
