"""What a process's HTTP server tells, and where it has it from: no library of HTTP is needed to say so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_scheduler.serving.health import Check
from agent_scheduler.telemetry.logs import FilteringBoundLogger

#: Items of a debug page, unless `?limit` says otherwise.
DEFAULT_LIMIT = 100
#: A page of this size takes some milliseconds, during which nothing is scheduled.
MAX_LIMIT = 1000

#: Takes a bare token where `Authorization` does not get through.
TOKEN_HEADER = "X-Agent-Scheduler-Token"  # noqa: S105 - a header's name


class ServingError(Exception):
    """The server cannot be started. The message is complete."""


class NotReady(Exception):
    """What is asked for cannot be told yet. The message says why."""


class Unreadable(Exception):
    """What was sent is not what is read here. The message says why."""


@dataclass(frozen=True, slots=True)
class DebugQuery:
    """What a debug page is asked for; None means all. `limit` is the server's business, told for those who care."""

    limit: int = DEFAULT_LIMIT
    namespace: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class DebugPage:
    """What a debug page shows. `items` may be any number and is read only as far as the limit."""

    summary: Mapping[str, Any]
    items: Iterable[Any]


class Console(Protocol):
    """What the console at /ui shows, as JSON objects whose keys it knows (`ui/console.js`)."""

    def whole(self) -> Mapping[str, Any]:
        """All of it, now."""

    def news(self) -> Mapping[str, Any]:
        """What may be otherwise since this was last called."""


#: Of a namespace and a name: whether there is such an object, and what to show. Raises NotReady.
Explain = Callable[[str, str], tuple[bool, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the answers come from. None of these may block; what they give must encode as JSON.

    What is None has no page: only a scheduler has a queue."""

    #: Body and content type.
    metrics: Callable[[], tuple[bytes, str]]
    configuration: Callable[[], Mapping[str, Any]]
    queue: Callable[[DebugQuery], DebugPage] | None = None
    cache: Callable[[DebugQuery], DebugPage] | None = None
    #: Of a pod.
    explain: Explain | None = None
    #: Of a group of the batch scheduler's, if there is one.
    explain_group: Explain | None = None
    #: Counters as they stand, depths of queues, and tables of queues, gangs and shards.
    figures: Callable[[], Mapping[str, Any]] | None = None
    #: What a self-check finds. Raises NotReady.
    check: Callable[[], Awaitable[Mapping[str, Any]]] | None = None
    #: None where no console is wanted.
    console: Console | None = None
    #: By path, what is made of the JSON that is posted there: the JSON of the answer. Raises NotReady or Unreadable.
    reviews: Mapping[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    #: Values of `?place` that /debug/queue understands.
    places: Sequence[str] = ()
    #: Why the process should be restarted.
    live: Sequence[Check] = ()
    #: Why it is not, or not yet, doing its work.
    ready: Sequence[Check] = ()


async def logged_check(
    check: Callable[[], Awaitable[Mapping[str, Any]]] | None, log: FilteringBoundLogger
) -> None:
    """A self-check as lines of the log: a warning for each difference, and one line that sums up. Never raises."""
    try:
        if check is None:
            raise NotReady("the process is just starting")
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
