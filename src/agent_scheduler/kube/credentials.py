"""Credentials that change while we run: token files, and what every source of credentials has in common.

A scheduler outlives its tokens. Each source answers "what goes on the next request" and renews itself: on its own
schedule, and soon after the server refused what it gave (401). While a renewal fails or takes its time, the last good
credentials stay in use until they have truly expired, because an API server that still accepts them is better than a
scheduler that stands still. No message shows a credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agent_scheduler.kube.retry import REAL, Clock
from agent_scheduler.kube.transport import NotSent
from agent_scheduler.telemetry.logs import get_logger

#: Bound tokens and certificates on disk are looked at this often (client-go: once a minute).
RELOAD_SECONDS = 60.0
#: A refused credential is renewed early, but not more often than this, or a 401 storm would run a plugin each time.
REFUSED_SECONDS = 5.0

_log = get_logger(__name__)


class KubeConfigError(ValueError):
    """A configuration that cannot be used. The message names the file and the key."""


class CredentialsUnavailable(NotSent):
    """No valid credentials for the next request, so it was not sent."""


class Source(Protocol):
    """Where the credentials of a request come from."""

    async def headers(self) -> Mapping[str, str]:
        """Headers for the next request. Raises CredentialsUnavailable. May be cancelled at any time."""
        ...

    def refused(self) -> None:
        """The server answered 401 to what `headers` gave last."""
        ...


def bearer(token: str) -> Mapping[str, str]:
    """The header of a token. Raises ValueError, without the token, for what a header cannot carry."""
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
    """`renew` in a task of its own, at most one at a time, which goes on when those who wait for it have given up."""

    def __init__(self, renew: Callable[[], Awaitable[None]]) -> None:
        self._renew = renew
        self._task: asyncio.Task[None] | None = None

    @property
    def under_way(self) -> bool:
        return self._task is not None and not self._task.done()

    def begin(self) -> None:
        """Begins one unless it is under way."""

        async def run() -> None:
            await self._renew()

        if not self.under_way:
            self._task = asyncio.get_running_loop().create_task(run(), name="renewal of credentials")

    async def ended(self) -> None:
        """Returns when the one begun last has ended, however; raises what it raised."""
        if self._task is not None:
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()


@dataclass(slots=True)
class TokenFile:
    """A bearer token in a file that something else rotates. Reading it is a memory copy, so the loop may do it."""

    path: Path
    clock: Clock = REAL.clock
    _headers: Mapping[str, str] | None = field(default=None, init=False, repr=False)
    _read_at: float = field(default=0.0, init=False)
    _stale: bool = field(default=False, init=False)
    #: What was wrong with the file when it was read last; "" if nothing was.
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
                _log.warning("token_file_unusable", error=self._problem, in_use="the last good token")
        return self._headers

    def read(self) -> Mapping[str, str]:
        """What the file has now. Raises CredentialsUnavailable."""
        try:
            return bearer(self.path.read_bytes().decode("latin-1").strip())
        except (OSError, ValueError) as error:
            raise CredentialsUnavailable(f"token file {self.path}: {error}") from None

    def refused(self) -> None:
        self._stale = True
