"""Credentials that change at run time: token files, and the common interface of all sources.

A scheduler outlives its tokens. Each source returns the credentials of the next request and renews them itself: on
its own schedule, and soon after the server rejected them (401). While a renewal fails or is slow, the last valid
credentials stay in use until they have expired, because the API server may still accept them. No message contains a
credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kube_client.logs import get_logger
from kube_client.retry import REAL, Clock
from kube_client.transport import NotSent

#: The interval at which tokens and certificates on disk are read (client-go: once a minute).
RELOAD_SECONDS = 60.0
#: The minimal interval of renewals after a 401; a series of 401s must not run a plugin each time.
REFUSED_SECONDS = 5.0

_log = get_logger(__name__)


class KubeConfigError(ValueError):
    """A configuration is invalid. The message names the file and the key."""


class CredentialsUnavailable(NotSent):
    """There are no valid credentials for the next request, so it was not sent."""


class CredentialsSource(Protocol):
    """The source of a request's credentials."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers of the next request. Raises CredentialsUnavailable. May be cancelled at any time."""
        ...

    def refused(self) -> None:
        """Note that the server answered 401 to the last credentials."""
        ...


def bearer(token: str) -> Mapping[str, str]:
    """Return the header of a token. Raises ValueError, without the token, if a header cannot contain it."""
    if not token:
        raise ValueError("it is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("it has a line break, a blank, or another character that a header cannot carry")
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True, slots=True)
class Fixed:
    """Credentials that never change: a literal token, user and password, or none."""

    value: Mapping[str, str] = field(repr=False)

    async def headers(self) -> Mapping[str, str]:
        return self.value

    def refused(self) -> None:
        return


class Renewal:
    """Runs `renew` in a separate task, at most one at a time, which continues if its waiters give up."""

    def __init__(self, renew: Callable[[], Awaitable[None]]) -> None:
        self._renew = renew
        self._task: asyncio.Task[None] | None = None

    @property
    def under_way(self) -> bool:
        return self._task is not None and not self._task.done()

    def begin(self) -> None:
        """Begin a renewal unless one is running."""

        async def run() -> None:
            await self._renew()

        if not self.under_way:
            self._task = asyncio.get_running_loop().create_task(run(), name="renewal of credentials")

    async def ended(self) -> None:
        """Wait for the end of the last renewal; raise its exception."""
        if self._task is not None:
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()


@dataclass(slots=True)
class TokenFile:
    """A bearer token in a file that another program rotates. Reading it is quick enough for the event loop."""

    path: Path
    clock: Clock = REAL.clock
    _headers: Mapping[str, str] | None = field(default=None, init=False, repr=False)
    _read_at: float = field(default=0.0, init=False)
    _stale: bool = field(default=False, init=False)
    #: The problem of the last read; empty if it succeeded.
    _problem: str = field(default="", init=False)

    async def headers(self) -> Mapping[str, str]:
        age = self.clock() - self._read_at
        soon = self._stale or self._problem
        if self._headers is not None and age < (REFUSED_SECONDS if soon else RELOAD_SECONDS):
            return self._headers
        self._read_at, self._stale = self.clock(), False
        try:
            self._headers = self.read()
            self._problem = ""
        except CredentialsUnavailable as error:
            if self._headers is None:
                raise
            if str(error) != self._problem:
                self._problem = str(error)
                _log.warning("token file unusable", error=self._problem, in_use="the last good token")
        return self._headers

    def read(self) -> Mapping[str, str]:
        """Read the file's current token. Raises CredentialsUnavailable."""
        try:
            return bearer(self.path.read_bytes().decode("latin-1").strip())
        except (OSError, ValueError) as error:
            raise CredentialsUnavailable(f"token file {self.path}: {error}") from None

    def refused(self) -> None:
        self._stale = True
