"""Requests, answers and what may be done to one on its way: the values between adapters and verbs.

An adapter (HTTP, or in process) builds a `Request`, hands it to `Api.handle`, and writes the `Response` or
pumps the `Stream` that comes back. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import orjson

from .errors import ApiError, Cause, bad_request, invalid
from .watch import Watcher

_NO_QUERY: Mapping[str, str] = {}
_TRUE = frozenset({"1", "true", "True", "TRUE", "t", "T"})


@lru_cache(maxsize=512)
def _parse(query: str) -> Mapping[str, str]:
    """The first value of each parameter, as Go's url.Values.Get reads them."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        found.setdefault(name, value)
    return found


class Request:
    """One HTTP request. `path` is still percent-encoded and has no query; `query` has no `?`."""

    __slots__ = ("accept", "authorization", "body", "content_type", "method", "parameters", "path", "query")

    def __init__(
        self,
        method: str,
        path: str,
        query: str = "",
        *,
        body: bytes = b"",
        content_type: str = "",
        accept: str | None = None,
        authorization: str | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.parameters: Mapping[str, str] = _parse(query) if query else _NO_QUERY
        self.body = body
        self.content_type = content_type
        self.accept = accept
        self.authorization = authorization

    def flag(self, name: str) -> bool:
        return self.parameters.get(name) in _TRUE

    def number(self, name: str) -> int | None:
        """A whole-number parameter; None if it is absent or empty. Raises 400."""
        text = self.parameters.get(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise bad_request(
                f'strconv.ParseInt: parsing "{text}": invalid syntax (parameter {name})'
            ) from None

    def version(self) -> int | None:
        """The resourceVersion parameter; None if absent. A bad one is a 500 without a reason, as recorded."""
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

    def dry_run(self, options: str) -> bool:
        """Whether dryRun=All was asked for. `options` names the options kind in the refusal."""
        text = self.parameters.get("dryRun")
        return check_dry_run([text] if text is not None else [], options)


def check_dry_run(values: list[str], options: str) -> bool:
    if not values:
        return False
    if values != ["All"]:
        shown = ", ".join(values)
        raise invalid(
            options,
            "meta.k8s.io",
            "",
            [
                Cause(
                    "FieldValueNotSupported",
                    "dryRun",
                    f'Unsupported value: "{shown}": supported values: "All"',
                )
            ],
        )
    return True


class Response:
    """A whole answer."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A watch to be pumped until it drains, the client goes, or `timeout` seconds pass.

    `version` gives the version that a bookmark may claim at the moment it is made.
    """

    watcher: Watcher
    timeout: float
    version: Callable[[], int]
    content_type: str = "application/json"


def refusal(error: ApiError) -> Response:
    headers = tuple(error.headers.items())
    seconds = (error.details or {}).get("retryAfterSeconds")
    if seconds is not None and "Retry-After" not in error.headers:
        headers = (*headers, ("Retry-After", str(seconds)))
    return Response(error.code, orjson.dumps(error.status()), headers=headers)


def success(status: int, details: Mapping[str, Any] | None = None) -> Response:
    """A Status that reports success. A delete's names the object and carries no code, as recorded."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is None:
        body["code"] = status
    else:
        body["details"] = details
    return Response(status, orjson.dumps(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What an injected fault does to one request. Times are seconds.

    Before the verb runs: wait `delay`, then answer `error` or close the connection (`drop`) instead. After it
    ran and committed: wait `late`, then close without the answer (`lose`), which leaves the client not knowing.
    """

    delay: float = 0.0
    error: ApiError | None = None
    drop: bool = False
    late: float = 0.0
    lose: bool = False


#: The seam for fault injection: asked once per request by every adapter; None lets the request pass.
Disturb = Callable[[Request], Disturbance | None]
