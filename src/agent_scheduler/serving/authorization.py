"""Who may read metrics and debug pages: the API server decides, as for any Kubernetes component.

A bearer token is shown to TokenReview, and the user it belongs to is put to SubjectAccessReview for `get` on the
path. What cannot be asked is refused. Answers are kept for a short while, so that a scrape every few seconds does
not cost two requests each: at most a minute for a yes, which bounds how long a withdrawn right still works, and
ten seconds for a no.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, TypeVar

import msgspec
import structlog

from agent_scheduler.kube.transport import Transport, TransportError

YES_SECONDS = 60.0
NO_SECONDS = 10.0
#: Answers kept, the oldest forgotten first: guessed tokens must not fill the memory.
_KEPT = 1024
#: Tokens being asked about at a time. More wait, so that guessing tokens is slow and spares the API server.
_CONCURRENCY = 4
_TIMEOUT = 5.0

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

_log = structlog.get_logger(__name__)


class Access(Enum):
    """UNKNOWN: the API server could not be asked; treat it as a refusal that says nothing about the token."""

    ALLOWED = "allowed"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"


class Authorizer(Protocol):
    async def access(self, token: str, path: str) -> Access:
        """Whether the bearer of `token` may GET `path`. Never raises for what happens on the network."""
        ...


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User | None = None


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus | None = None


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus | None = None


_ReviewT = TypeVar("_ReviewT", _TokenReview, _AccessReview)


class _CannotAsk(Exception):
    """The API server gave no usable answer."""


class KubeAuthorizer:
    """Asks the API server through `transport`. `clock` is monotonic, in seconds."""

    def __init__(self, transport: Transport, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._transport = transport
        self._clock = clock
        self._slots = asyncio.Semaphore(_CONCURRENCY)
        # (digest of the token, path) -> (answer, when it is forgotten). Owner: this class. Tokens themselves are
        # not kept, so that a memory dump does not have them; UNKNOWN is never in here.
        self._answers: OrderedDict[tuple[bytes, str], tuple[Access, float]] = OrderedDict()

    async def access(self, token: str, path: str) -> Access:
        key = (hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest(), path)
        known = self._known(key)
        if known is not None:
            return known
        async with self._slots:
            # Whoever held the slot may have asked the same.
            known = self._known(key)
            if known is not None:
                return known
            try:
                answer = await self._ask(token, path)
            except _CannotAsk as error:
                _log.warning("cannot authorize a request", path=path, problem=str(error))
                return Access.UNKNOWN
        kept = YES_SECONDS if answer is Access.ALLOWED else NO_SECONDS
        self._answers[key] = (answer, self._clock() + kept)
        self._answers.move_to_end(key)
        if len(self._answers) > _KEPT:
            self._answers.popitem(last=False)
        return answer

    def _known(self, key: tuple[bytes, str]) -> Access | None:
        answer, until = self._answers.get(key, (None, 0.0))
        return answer if self._clock() < until else None

    async def _ask(self, token: str, path: str) -> Access:
        review = await self._post(
            _TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", {"token": token}, _TokenReview
        )
        status = review.status
        if status is None or not status.authenticated or status.user is None:
            return Access.UNAUTHENTICATED
        user = status.user
        spec: dict[str, Any] = {
            "user": user.username,
            "groups": user.groups or [],
            "uid": user.uid,
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        verdict = await self._post(
            _ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec, _AccessReview
        )
        allowed = verdict.status is not None and verdict.status.allowed and not verdict.status.denied
        return Access.ALLOWED if allowed else Access.FORBIDDEN

    async def _post(
        self, path: str, api_version: str, kind: str, spec: dict[str, Any], answer: type[_ReviewT]
    ) -> _ReviewT:
        body = msgspec.json.encode({"apiVersion": api_version, "kind": kind, "spec": spec})
        try:
            response = await self._transport.request("POST", path, body=body, timeout=_TIMEOUT)
        except TransportError as error:
            raise _CannotAsk(str(error)) from None
        if response.status not in (200, 201):
            raise _CannotAsk(f"{kind} was answered by {response.status}")
        try:
            return msgspec.json.decode(response.body, type=answer)
        except msgspec.MsgspecError as error:
            raise _CannotAsk(f"the answer is no {kind}: {error}") from None
