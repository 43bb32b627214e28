"""The content of a process's HTTP server and its sources. This module needs no HTTP library."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_scheduler.serving.health import Check
from agent_scheduler.telemetry.logs import FilteringBoundLogger

#: Items of a debug page without `?limit`.
DEFAULT_LIMIT = 100
#: A page of this size takes some milliseconds, during which nothing is scheduled.
MAX_LIMIT = 1000

#: The header for a bare token where `Authorization` is not forwarded.
TOKEN_HEADER = "X-Agent-Scheduler-Token"  # noqa: S105 - a header's name


class ServingError(Exception):
    """The server cannot be started. The message is complete."""


class NotReady(Exception):
    """The requested information is not available yet. The message says why."""


class UnreadableData(Exception):
    """The received data is invalid. The message says why."""


@dataclass(frozen=True, slots=True)
class DebugQuery:
    """The parameters of a debug page; None means all. The server applies `limit`; a source may use it, too."""

    limit: int = DEFAULT_LIMIT
    namespace: str | None = None
    place: str | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class DebugPage:
    """The content of a debug page. `items` may be of any length and is read only up to the limit."""

    summary: Mapping[str, Any]
    items: Iterable[Any]


class Console(Protocol):
    """The content of the console at /ui, as JSON objects with the keys of `ui/console.js`."""

    def whole(self) -> Mapping[str, Any]:
        """Return the current state."""

    def news(self) -> Mapping[str, Any]:
        """Return what may have changed since the last call."""


#: For a namespace and a name: whether there is such an object, and the page about it. Raises NotReady.
Explain = Callable[[str, str], tuple[bool, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugSources:
    """The sources of a scheduler's debug pages."""

    queue: Callable[[DebugQuery], DebugPage]
    #: The values of `?place` that the page of the queue accepts.
    places: Sequence[str]
    #: The pods without a node, the oldest first.
    pending: Callable[[DebugQuery], DebugPage]
    cache: Callable[[DebugQuery], DebugPage]
    #: Explains a pod.
    explain: Explain
    #: Explains a group of the batch scheduler, if there is one.
    explain_group: Explain | None
    #: Runs a self-check. Raises NotReady.
    check: Callable[[], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of all pages. They must not block, and their results must be encodable as JSON.

    A page whose source is None does not exist: only a scheduler has debug pages.
    """

    #: Body and content type.
    metrics: Callable[[], tuple[bytes, str]]
    configuration: Callable[[], Mapping[str, Any]]
    debug: DebugSources | None = None
    #: Current counters, queue lengths, and tables of queues, gangs and shards.
    figures: Callable[[], Mapping[str, Any]] | None = None
    #: None if the console is disabled.
    console: Console | None = None
    #: Functions by path, from the posted JSON to the JSON of the response. They raise NotReady or UnreadableData.
    reviews: Mapping[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    #: Checks that fail if the process should be restarted.
    live: Sequence[Check] = ()
    #: Checks that fail while the process does not do its work.
    ready: Sequence[Check] = ()


async def logged_check(check: Callable[[], Awaitable[Mapping[str, Any]]] | None, log: FilteringBoundLogger) -> None:
    """Log a self-check: a warning for each difference, and a summary. Never raises."""
    try:
        if check is None:
            raise NotReady("the process is starting")
        found = dict(await check())
    except NotReady as error:
        log.warning("self-check not done", problem=str(error))
        return
    except Exception as error:
        log.exception("self-check not done", problem=f"{type(error).__name__}: {error}")
        return
    differences = found.pop("differences")
    for each in differences:
        log.warning("self-check difference", **each)
    log.info("self-check", differences=len(differences), **found)
