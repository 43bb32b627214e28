"""Authorizes requests for metrics and debug pages through the API server, as Kubernetes components do.

A TokenReview finds the user of a bearer token, and a SubjectAccessReview checks `get` on the path for the user. If
the API server cannot be asked, access is denied. Results are cached, so that a scrape every few seconds does not cost
two requests each: an approval for at most a minute, which limits how long a revoked permission still works, and a
denial for ten seconds.

Every client of the port can cause reviews of arbitrary tokens. Therefore only a few tokens are reviewed at a time,
each once regardless of the number of its requests, a few more may wait, and other requests are rejected. Recently
approved tokens do not wait behind unknown ones, and unknown ones do not evict their cached results.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import msgspec

from kube_client.errors import UNREADABLE
from kube_client.logs import LimitedLog, get_logger
from kube_client.transport import Transport, TransportError

YES_SECONDS = 60.0
NO_SECONDS = 10.0
#: The number of cached results of each kind; the oldest are evicted first, so unknown tokens cannot fill the memory.
_KEPT = 1024
#: The number of simultaneous reviews for recently approved tokens, and for all others.
_CONCURRENCY = 4
#: The number of tokens that may wait for a review.
_WAITING = 32
#: How long a token counts as recently approved, in seconds.
_LATELY_SECONDS = 3600.0
_TIMEOUT = 5.0

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

#: The digest of a token, and the path.
_Key = tuple[bytes, str]

_log = get_logger(__name__)


class Access(Enum):
    """The result of a review. UNKNOWN: the API server could not be asked; the token may be valid.

    BUSY: it was not asked, because too many tokens are waiting.
    """

    ALLOWED = "allowed"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"
    BUSY = "busy"


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
    """The API server gave no usable response."""


class _Answers:
    """The last results by key. Those older than `until_forgotten` seconds may be removed."""

    def __init__(self, clock: Callable[[], float], *, until_forgotten: float) -> None:
        self._clock = clock
        self._until_forgotten = until_forgotten
        self._answers: OrderedDict[_Key, tuple[Access, float]] = OrderedDict()

    def get(self, key: _Key, seconds: float) -> Access | None:
        """Return the result if it is not older than `seconds`."""
        answer, at = self._answers.get(key, (None, 0.0))
        return answer if answer is not None and self._clock() - at < seconds else None

    def keep(self, key: _Key, answer: Access) -> None:
        now = self._clock()
        self._answers[key] = (answer, now)
        self._answers.move_to_end(key)
        oldest = next(iter(self._answers))
        if len(self._answers) > _KEPT or now - self._answers[oldest][1] >= self._until_forgotten:
            del self._answers[oldest]

    def forget(self, key: _Key) -> None:
        self._answers.pop(key, None)


class KubeAuthorizer:
    """Asks the API server through `transport`. `clock` is monotonic, in seconds."""

    def __init__(self, transport: Transport, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._transport = transport
        self._clock = clock
        # Every client of the port can cause it.
        self._limited_log = LimitedLog(_log, clock=clock)
        self._slots = asyncio.Semaphore(_CONCURRENCY)
        self._known_slots = asyncio.Semaphore(_CONCURRENCY)
        # The caches contain digests instead of tokens, so a memory dump does not reveal tokens, and no UNKNOWN or
        # BUSY.
        self._yes = _Answers(clock, until_forgotten=_LATELY_SECONDS)
        self._no = _Answers(clock, until_forgotten=NO_SECONDS)
        #: The reviews in progress or waiting.
        self._asking: dict[_Key, asyncio.Task[Access]] = {}

    async def access(self, token: str, path: str) -> Access:
        """Return whether the bearer of `token` may GET `path`. Never raises for network failures."""
        key = (hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest(), path)
        given = self._yes.get(key, YES_SECONDS) or self._no.get(key, NO_SECONDS)
        if given is not None:
            return given
        task = self._asking.get(key)
        if task is None:
            lately = self._yes.get(key, _LATELY_SECONDS) is not None
            if not lately and len(self._asking) >= _CONCURRENCY + _WAITING:
                return Access.BUSY
            slots = self._known_slots if lately else self._slots
            task = asyncio.get_running_loop().create_task(self._settle(key, token, path, slots))
            self._asking[key] = task
        # Other requests may wait for the same result, so the review continues if this request is cancelled.
        return await asyncio.shield(task)

    async def _settle(self, key: _Key, token: str, path: str, slots: asyncio.Semaphore) -> Access:
        try:
            async with slots:
                answer = await self._ask(token, path)
        except _CannotAsk as error:
            self._limited_log.warning("cannot authorize a request", path=path, problem=str(error))
            return Access.UNKNOWN
        finally:
            del self._asking[key]
        self._yes.forget(key)
        (self._yes if answer is Access.ALLOWED else self._no).keep(key, answer)
        return answer

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
        except UNREADABLE as error:
            raise _CannotAsk(f"the answer is no {kind}: {error}") from None
