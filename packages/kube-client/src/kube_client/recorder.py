"""Records Kubernetes events (events.k8s.io/v1) without ever delaying the scheduler.

Repetitions of an event become one event with a series (count and last time), as in client-go's `tools/events`. Two
events are the same only if their notes are: a note cannot be changed once written, and a series under an outdated one
would mislead. Events are best effort: when the buffer is full, new ones are dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from apimachinery.times import micro_stamp, micro_time_text
from kube_client.answers import RequestInfo, Verb, read
from kube_client.budget import Budget
from kube_client.dispatch import Dispatcher, Ended
from kube_client.driver import AlreadySent, Driver, Operation, Send, ask, pause
from kube_client.errors import Failure, FailureClass, ResponseOrigin
from kube_client.logs import LimitedLog, get_logger
from kube_client.pace import Pace, WithinBudget
from kube_client.patch import MERGE
from kube_client.retry import Backoff, Timing
from kube_client.transport import Response, Transport, TransportError, segment, start_of

_log = get_logger(__name__)
_encode = msgspec.json.Encoder().encode

#: The API server refuses longer notes (events.k8s.io/v1, `NoteLengthLimit`).
MAX_NOTE_BYTES = 1024
#: Seconds between two writes of a series, and from its last occurrence to its end.
SERIES_INTERVAL: Final = 30.0
SERIES_LIFETIME: Final = 360.0
NORMAL = "Normal"
WARNING = "Warning"


class ObjectReference(msgspec.Struct, frozen=True, gc=False):
    """The object of an event. `namespace` is empty for cluster-scoped objects."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"


class _Key(NamedTuple):
    regarding: ObjectReference
    type: str
    reason: str
    action: str
    note: str
    controller: str


class _EventMeta(msgspec.Struct, gc=False):
    name: str
    namespace: str


class _Regarding(msgspec.Struct, gc=False, rename="camel"):
    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str | UnsetType = UNSET


class _Event(msgspec.Struct, gc=False, rename="camel", kw_only=True):
    """An Event object to create. A struct instead of a dict, because nearly every pod gets one."""

    api_version: str = "events.k8s.io/v1"
    kind: str = "Event"
    metadata: _EventMeta
    event_time: str
    reporting_controller: str
    reporting_instance: str
    type: str
    reason: str
    action: str
    note: str
    regarding: _Regarding
    series: dict[str, Any] | UnsetType = UNSET


@dataclass(slots=True)
class _Series:
    """A repeated event, which is one object on the server. Owned by `EventRecorder`.

    `event` is the first occurrence. Invariant: `recorded` <= `times`; `recorded` is 0 until the event is created.
    """

    key: _Key
    event: _Event
    last: datetime
    touched: float
    times: int = 1
    recorded: int = 0
    recorded_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """The limits of a recorder. `backoff` is the delay between attempts, `request_timeout` is in seconds."""

    concurrency: int = 2
    #: The limit of waiting events and, separately, of remembered series.
    capacity: int = 4096
    attempts: int = 4
    backoff: Backoff = field(default_factory=lambda: Backoff(initial=0.5, cap=10.0))
    request_timeout: float = 10.0


class Reporter(NamedTuple):
    """The reportingController and reportingInstance of events."""

    controller: str
    instance: str


class EventRecorder:
    """Writes events. Run `run()` as a task.

    An event may name another controller, since each profile of a scheduler reports under its own name.

    A series is written at most once in
    `SERIES_INTERVAL`, and ends `SERIES_LIFETIME` after its last occurrence. `count(what)` is called with: recorded,
    aggregated, dropped (no room, or the object's namespace is gone), failed.
    """

    def __init__(
        self,
        reporter: Reporter,
        settings: EventSettings,
        *,
        transport: Transport,
        budget: Budget,
        timing: Timing,
        count: Callable[[str], None],
        pace: Pace | None,
    ) -> None:
        """Write at `pace`, if given, behind more urgent requests."""
        self._controller, self._instance = reporter
        self._capacity = settings.capacity
        self._timing = timing
        self._driver = Driver(
            transport=transport,
            budget=budget,
            timing=timing,
            backoff=settings.backoff,
            request_timeout=settings.request_timeout,
            attempts=settings.attempts,
        )
        self._start = start_of(transport)
        self._limited_log = LimitedLog(_log, clock=timing.clock)
        self._now = timing.now
        self._count = count
        self._serial = 0
        # The keys are event names, because a `_Key` is slow to hash and a dispatcher looks keys up many times.
        self._dispatcher: Dispatcher[str, _Series | _Event] = Dispatcher(
            self._tell,
            concurrency=settings.concurrency,
            capacity=settings.capacity,
            start=self._tell_at_once,
            pace=WithinBudget(budget, pace),
        )
        # Sorted by last occurrence, oldest first. If a removed series occurs again, it starts a new event.
        self._series: OrderedDict[_Key, _Series] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of events that are not written yet."""
        return len(self._dispatcher)

    def event(
        self,
        regarding: ObjectReference,
        *,
        type: str,
        reason: str,
        action: str,
        note: str,
        controller: str | None = None,
    ) -> None:
        """Queue an event and return immediately. A note that is longer than the API allows is truncated."""
        key = _Key(regarding, type, reason, action, _shortened(note), controller or self._controller)
        moment, clock = self._now(), self._timing.clock()
        series = self._series.get(key)
        if series is not None and clock - series.touched > SERIES_LIFETIME:
            del self._series[key]
            series = None
        if series is not None:
            series.times += 1
            series.last = moment
            series.touched = clock
            self._series.move_to_end(key)
            self._count("aggregated")
            if series.recorded and (series.recorded == 1 or clock - series.recorded_at >= SERIES_INTERVAL):
                self._dispatcher.put(series.event.metadata.name, series)
            return
        if not self._dispatcher.has_room():
            self._count("dropped")
            return
        event = self._made(moment, key)
        series = _Series(key, event, moment, clock)
        self._dispatcher.put(event.metadata.name, series)
        while len(self._series) >= self._capacity:
            self._series.popitem(last=False)
        self._series[key] = series

    def once(
        self,
        regarding: ObjectReference,
        *,
        type: str,
        reason: str,
        action: str,
        note: str,
        controller: str | None = None,
    ) -> None:
        """Queue an event that occurs once per object. It is not remembered, so a repetition is a separate event."""
        key = _Key(regarding, type, reason, action, _shortened(note), controller or self._controller)
        event = self._made(self._now(), key)
        if not self._dispatcher.put(event.metadata.name, event):
            self._count("dropped")

    def _made(self, moment: datetime, key: _Key) -> _Event:
        about = key.regarding
        # The name as in client-go: the object's name and a growing number. The serial keeps events of the same
        # microsecond apart.
        self._serial = (self._serial + 1) % 0x1000
        micros, moment_text = micro_stamp(moment)
        unique = micros * 0x1000 + self._serial
        return _Event(
            metadata=_EventMeta(f"{about.name[:230]}.{unique:x}", about.namespace or "default"),
            event_time=moment_text,
            reporting_controller=key.controller,
            reporting_instance=self._instance,
            type=key.type,
            reason=key.reason,
            action=key.action,
            note=key.note,
            regarding=_Regarding(about.api_version, about.kind, about.name, about.uid, about.namespace or UNSET),
        )

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatcher.run())
            group.create_task(self._sweep())

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109
        """Wait up to `timeout` seconds until everything is sent; return the number of unsent events."""
        self._flush()
        return await self._dispatcher.drain(timeout)

    async def _sweep(self) -> None:
        while True:
            await self._timing.sleep(SERIES_INTERVAL)
            self._flush()
            oldest = self._timing.clock() - SERIES_LIFETIME
            for key in [key for key, series in self._series.items() if series.touched < oldest]:
                del self._series[key]

    def _flush(self) -> None:
        """Queue the series whose latest count is not written, including those that have ended."""
        for series in self._series.values():
            if series.recorded and series.times > series.recorded:
                self._dispatcher.put(series.event.metadata.name, series)

    def _tell_at_once(self, name: str, event: _Series | _Event, ended: Ended) -> bool:
        """Send a single event without a task, because nearly every pod has one.

        The task comes only if the request fails.
        """
        if isinstance(event, _Series):
            return False
        post, began = _post(event), self._timing.clock()

        def answered(answer: Response | TransportError) -> None:
            failure = self._posted(read(answer, post.asked))
            failed = None if failure is None else AlreadySent(began, failure)
            ended(None if failed is None else partial(self._tell, name, event, failed))

        return self._driver.budget.at_once(
            lambda: self._start(
                post.method, post.path, body=post.body, timeout=self._driver.request_timeout, answered=answered
            )
        )

    async def _tell(self, _name: str, event: _Series | _Event, already_sent: AlreadySent | None = None) -> None:
        failure = await self._driver.run(self._telling(event), already_sent=already_sent)
        if failure is None:
            return
        # The object's namespace is gone or terminating.
        gone = failure.source is ResponseOrigin.API_SERVER and failure.status in (403, 404)
        self._count("dropped" if gone else "failed")
        about = event if isinstance(event, _Event) else event.event
        self._limited_log.warning("event not recorded", reason=about.reason, error=str(failure))
        if isinstance(event, _Series) and self._series.get(event.key) is event:
            del self._series[event.key]

    def _telling(self, what: _Series | _Event) -> Operation[Failure | None]:
        while True:
            if isinstance(what, _Series):
                failure = yield from self._continue(what)
            else:
                failure = self._posted((yield from ask(_post(what))).failure)
            if failure is None or not failure.retryable or not (yield from pause(failure)):
                return failure

    def _posted(self, failure: Failure | None) -> Failure | None:
        # AlreadyExists: an earlier attempt succeeded, but its response was lost.
        if failure is None or failure.reason == "AlreadyExists":
            self._count("recorded")
            return None
        return failure

    def _continue(self, series: _Series) -> Operation[Failure | None]:
        """Write the current count unless it is written already."""
        times = series.times
        if series.recorded >= times:
            return None
        failure = (yield from ask(_of_series(series))).failure
        if failure is not None and failure.kind is FailureClass.NOT_FOUND and series.recorded:
            # The event outlived its TTL on the server (one hour by default): create it again.
            series.recorded = 0
            failure = (yield from ask(_of_series(series))).failure
        if self._posted(failure) is not None:
            return failure
        # AlreadyExists: the count that the earlier attempt wrote is unknown.
        series.recorded = times if failure is None else 1
        series.recorded_at = self._timing.clock()
        return None


def _post(event: _Event) -> Send:
    meta = event.metadata
    return Send("POST", _path(meta.namespace), RequestInfo(Verb.CREATE, "events", meta.name), _encode(event))


def _of_series(series: _Series) -> Send:
    event, update = series.event, {"count": series.times, "lastObservedTime": micro_time_text(series.last)}
    if series.recorded:
        name = event.metadata.name
        path = f"{_path(event.metadata.namespace)}/{segment(name)}"
        return Send("PATCH", path, RequestInfo(Verb.PATCH, "events", name), _encode({"series": update}), MERGE)
    return _post(msgspec.structs.replace(event, series=update) if series.times > 1 else event)


@lru_cache(maxsize=1024)
def _path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{segment(namespace)}/events"


def _shortened(note: str) -> str:
    if len(note) <= MAX_NOTE_BYTES and note.isascii():
        return note
    encoded = note.encode()
    if len(encoded) <= MAX_NOTE_BYTES:
        return note
    return encoded[: MAX_NOTE_BYTES - 3].decode("utf-8", "ignore") + "..."
