"""Keeps a local view of one kind of object in step with the API server: list, then watch, forever.

The handler receives batches of `Change`s and nothing else, and can rely on the following, whatever happens to the
connection:

- an object is ADDED once, then MODIFIED, then DELETED, and no version older than a delivered one is delivered;
- a deletion while no watch was running is found by the next list and delivered as DELETED;
- an object that was deleted and recreated under its name is DELETED and ADDED, never MODIFIED: keys are UIDs;
- an object that cannot be decoded is reported and keeps its last state, and does not affect other objects;
- an unreadable event is not lost: the watch restarts from before it, and after repeated failures the list does;
- if the store went back to an earlier state (was restored from a backup), the view is not patched up: `run` raises;
- a bookmark ahead of the store costs at most some lists: only lists and objects show that the store went back.

The protocol follows client-go's Reflector (410, bookmarks, random watch durations). Comments explain the differences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, KeysView, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from kube_client.errors import Failure, FailureClass, RequestFailed, StoreWentBack, classify, classify_error
from kube_client.logs import get_logger
from kube_client.paging import PAGE, collect, version_of
from kube_client.retry import Backoff, Timing
from kube_client.transport import StreamRefused, Transport, TransportError
from kube_client.waiting import RelistRequest, Waiters, answer
from kube_client.watch_events import (
    DELETED,
    Change,
    CollectionView,
    Decode,
    Handler,
    Object,
    ReadEvent,
    Unreadable,
    is_older,
    version,
)

T = TypeVar("T", bound=Object)
R = TypeVar("R")

_log = get_logger(__name__)

#: A watch that ends sooner than this without events counts as a failure (client-go: "very short watch").
SHORT_WATCH_SECONDS = 1.0
#: After this many failed watches in a row the reflector lists again, in case the resourceVersion is the cause.
WATCH_FAILURES_BEFORE_LIST = 5
#: This many outdated lists are refused, since a replica may lag. After that the store has gone back to an earlier
#: state (was restored from a backup).
STALE_LISTS_REFUSED = 3
#: A watch that ends more than this many seconds early was cut off, and the next server may be a different one.
_EARLY = 2.0
#: The shortest time in seconds in which a store can be restored. If a watch begins this long after its list was
#: requested (for example in a suspended process), the server may be a different one.
_RESTORED_WITHIN = 10.0
#: The length in seconds of a watch from a version that the server may not have reached; it would send nothing
#: meanwhile.
_UNCONFIRMED_WATCH = 30.0
#: The usual number of watch lines that are read and delivered, or of a list's changes that are delivered, at once. A
#: piece may have hundreds of lines, which take 50 ms and more; other tasks run in between.
PORTION = 128
#: The seconds that a watch may need to reach the current version. If little happens, nothing may arrive for a
#: minute.
_CATCH_UP = 1.0
_BACKOFF = Backoff(initial=0.2, cap=30.0)


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """The duration of a watch is drawn at random from `shortest` to `longest` (client-go: 5-10 min).

    A watch is considered dead if nothing arrives, bookmarks included, for `grace` seconds longer than its duration.
    `stall` sets that time directly, for servers that are known to send bookmarks (kube-apiserver: every minute).

    A view is stale when a server that sends bookmarks has sent nothing for `silence` seconds; for other servers,
    after the longest time that a healthy watch can be idle.
    """

    shortest: float = 300.0
    longest: float = 600.0
    grace: float = 30.0
    stall: float | None = None
    list_timeout: float = 60.0
    silence: float = 180.0
    #: Between attempts that failed or produced nothing.
    backoff: Backoff = _BACKOFF


class _ListWanted(Exception):
    """The current step of `run` was interrupted because a list is requested."""


class _StaleList(Exception):
    """A list shows an older state than the view."""


class Refused(NamedTuple):
    """A server's refusal to list a collection.

    `since` and `last` are when its first and its last list were requested, on the reflector's clock. Responses may be
    late, and a process that was stopped reads them late.
    """

    failure: Failure
    since: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection(Generic[T]):
    """A collection of objects that is listed and watched."""

    #: For example `/api/v1/pods`.
    path: str
    #: Creates an object.
    decode: Decode[T]
    #: Selectors.
    query: Mapping[str, str] = field(default_factory=dict)
    #: Whether it counts as empty if the server's discovery says that it does not serve it.
    optional: bool = False
    read_event: ReadEvent[T] | None = None
    unreadable: Unreadable = lambda _who, _problem: None
    #: The maximum number of changes that are delivered before other tasks run; None for `PORTION`. It is 1 if handling
    #: one may involve all objects of another collection.
    portion: int | None = None


class Reflector(Generic[T]):
    """One list-and-watch of a collection.

    `count(what)` is called with: list_initial, list_expired (after a 410), list_failing (repeated watch failures),
    list_renewed, stale_list, bookmark_ahead, refused, watch, duplicate, malformed, failure. Every list attempt is
    counted. Run `run()` as a task; cancelling it stops the reflector.
    """

    def __init__(
        self,
        collection: Collection[T],
        handler: Handler[T],
        *,
        transport: Transport,
        times: WatchTimes,
        timing: Timing,
        count: Callable[[str], None] = lambda _what: None,
        page_size: int = PAGE,
    ) -> None:
        self.synced = asyncio.Event()
        self._transport = transport
        self._path = collection.path
        self._decode = collection.decode
        #: Owned by the `run` task, except for `learn` and `written`.
        self.view = CollectionView(
            *(collection.path, collection.decode, collection.read_event), count=count, unreadable=collection.unreadable
        )
        self._handler = handler
        self._query = dict(collection.query)
        self._optional = collection.optional
        self._portion = collection.portion or PORTION
        self._page_size = page_size
        self._times = times
        self._timing = timing
        self._count = count
        #: When the server last sent a list, the start of a watch, or watch data; on the clock of `timing`.
        self.last_contact = timing.clock()
        #: None while the server lists the collection or does not respond. Owned by the `run` task, as all below.
        self.refused: Refused | None = None
        #: Why the last list failed; None after one that succeeded.
        self.problem: Exception | None = None
        # Whether the server may be at an earlier version than the view. A watch does not show that: it is just
        # silent.
        self._is_unconfirmed = False
        #: Whether the server does not serve the collection, which then counts as empty.
        self.is_absent = False
        self._stale_lists = 0
        #: The number of calls of `redeliver`, and its value at the last list.
        self._decode_generation = self._listed_generation = 0
        self._waiting = Waiters(timing.clock)
        #: The step of `run` that can be interrupted.
        self._interruptible: asyncio.Timeout | None = None

    @property
    def uids(self) -> KeysView[str]:
        """The UIDs of all delivered objects that still exist."""
        return self.view.known.keys()

    def get(self, uid: str) -> T | None:
        """Return the last delivered version, or None."""
        return self.view.known.get(uid)

    @property
    def is_stale(self) -> bool:
        """Whether the view may be outdated, because nothing has arrived from the server for too long."""
        times = self._times
        stall = times.stall if times.stall is not None else times.longest + times.grace
        limit = times.silence if self.view.marks else stall + times.list_timeout
        return self._timing.clock() - self.last_contact > limit

    async def relist(self, *, patience: float = float("inf")) -> None:
        """List again. When this returns, everything that was true at the time of the call has been delivered.

        This waits while the server cannot be listed, and while `run` is not running. After `patience` seconds the
        next failing list raises NotListed; a succeeding one may take any time. When no caller is waiting any longer,
        the watch resumes where it was.
        """
        renewed = self._waiting.request(patience)
        self._interrupt()
        await renewed

    async def catch_up(self, *, at_least: str = "") -> None:
        """Return once everything that was true of the collection at the time of the call has been delivered.

        This asks for the version of the collection, which costs one object, and waits for the watch to reach it;
        otherwise it lists the collection. `at_least` is a version that is known to be current or older. Both must be
        versions of one store; in a cluster that stores its kinds separately this falls back to a list. Needs `run`,
        as `relist` does.
        """
        now = await version_of(self._transport, self._path)
        if is_older(now, at_least):
            now = at_least
        if version(now) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CATCH_UP):
                    if is_older(self.view.version, now):
                        await self._waiting.wait_for(now)
                    return
        await self.relist()

    def redeliver(self) -> None:
        """Deliver all objects again, unchanged ones as MODIFIED, because `decode` has changed its results."""
        self._decode_generation += 1
        self._interrupt()

    def _interrupt(self) -> None:
        if self._interruptible is not None:
            self._interruptible.reschedule(asyncio.get_running_loop().time())

    def _is_list_wanted(self) -> bool:
        return self._waiting.is_list_requested or self._decode_generation != self._listed_generation

    async def run(self) -> None:
        """List and watch until cancelled. Raises StoreWentBack and the handler's exceptions."""
        why: str | None = "list_initial"  # the reason for the next list; None while watching
        fruitless = 0  # attempts in a row without progress; sets the backoff
        failed_watches = 0
        while True:
            retry_after: float | None = None
            if why is None and self._is_list_wanted():
                why = "list_renewed"
            if why is not None:
                # Requests during the list need another one, since this one may be older than they are.
                asked, requested_at = self._waiting.take_requests(), self._timing.clock()
                self._count(why)
                try:
                    await self._list()
                except (RequestFailed, _StaleList) as error:
                    retry_after = error.failure.retry_after if isinstance(error, RequestFailed) else None
                    is_served = self._list_failed(error, asked, requested_at)
                    if is_served and why == "list_renewed" and not self._is_list_wanted():
                        # The view is as good as before the request for a newer one.
                        why = None
                    fruitless += 1
                    await self._pause(fruitless, retry_after)
                    continue
                answer(each.listed for each in asked)
                why, failed_watches = None, 0
                if self._is_list_wanted():
                    continue
            began, before = self._timing.clock(), self.view.version
            try:
                failure = await self._until_list_wanted(self._watch())
            except _ListWanted:
                continue
            is_short = self._timing.clock() - began < SHORT_WATCH_SECONDS
            if self.view.version != before or (failure is None and not is_short):
                fruitless = failed_watches = 0
                if failure is None:
                    # Slow watchers are disconnected in bursts; waiting here would only make us slower.
                    continue
            if failure is not None:
                retry_after = failure.retry_after
                failed_watches += 1
                if failure.kind is FailureClass.GONE:
                    why = "list_expired"
                elif failed_watches >= WATCH_FAILURES_BEFORE_LIST:
                    why = "list_failing"
            fruitless += 1
            self._count("failure")
            why_ended = "watch too short" if failure is None else str(failure)
            _log.info("watch failed", path=self._path, error=why_ended, resource_version=self.view.version)
            if why != "list_expired" or fruitless > 1:
                await self._pause(fruitless, retry_after)

    def _list_failed(self, error: RequestFailed | _StaleList, asked: list[RelistRequest], requested_at: float) -> bool:
        """Handle a failed list that `asked` waited for. Return false if the server does not serve the collection.

        Such a collection counts as empty.
        """
        if self._is_absent(error):
            self.is_absent = True
            self._count("absent")
            self.last_contact = self._timing.clock()
            self.synced.set()
            answer(each.listed for each in asked)
            return False
        before = self.refused
        if not isinstance(error, RequestFailed) or not self._refuses(error.failure):
            self.refused = None
        else:
            self.refused = Refused(error.failure, requested_at if before is None else before.since, requested_at)
            if before is None:
                self._count("refused")
        self.problem = error
        self._waiting.failed(asked, error)
        self._count("failure")
        # `Informers` warns of the first of them; each retry of each kind has this line.
        _log.debug("list failed", path=self._path, error=str(error), resource_version=self.view.version)
        return True

    def _refuses(self, failure: Failure) -> bool:
        """Return whether a permission is missing or the server says that it does not serve the kind."""
        forbidden = failure.kind is FailureClass.PERMANENT and failure.status == 403
        return forbidden or failure.kind is FailureClass.NOT_SERVED

    def _is_absent(self, error: Exception) -> bool:
        """Return whether the server has no such collection.

        A collection that was listed before never counts as empty: objects created in it meanwhile would be missed.
        """
        absent = isinstance(error, RequestFailed) and error.failure.kind is FailureClass.NOT_SERVED
        return absent and self._optional and not self.view.version

    async def _pause(self, attempt: int, at_least: float | None) -> None:
        delay = self._times.backoff.delay(attempt, self._timing.rng, at_least=at_least)
        if at_least is None:
            # A caller whose patience has ended fails with the next failing list, without another full delay.
            delay = min(delay, max(0.0, self._waiting.patience))
        with suppress(_ListWanted):
            await self._until_list_wanted(self._timing.sleep(delay))

    async def _until_list_wanted(self, work: Awaitable[R]) -> R:
        """Await `work`. Raises _ListWanted if a list is requested meanwhile."""
        timeout = self._interruptible = asyncio.timeout(None)
        try:
            async with timeout:
                return await work
        except TimeoutError:
            if timeout.expired():
                raise _ListWanted from None
            raise
        finally:
            self._interruptible = None

    # -- list

    async def _list(self) -> None:
        """List the collection and deliver the differences. Raises RequestFailed, _StaleList, StoreWentBack."""
        reading, began = self._decode_generation, self._timing.clock()
        revision, fresh, unread = await collect(
            self._transport,
            self._path,
            self._decode,
            query=self._query,
            page_size=self._page_size,
            timeout=self._times.list_timeout,
            malformed=lambda raw, error: self.view.malformed(raw, error).uid,
        )
        if is_older(revision, self.view.version):
            self._count("stale_list")
            self._stale_lists += 1
            if self._stale_lists <= STALE_LISTS_REFUSED:
                raise _StaleList(f"the list is of {revision}; {self.view.version} was seen already")
            if is_older(revision, self.view.proved):
                raise StoreWentBack(f"the list of {self._path}", listed=revision, known=self.view.version)
            # Only a bookmark was newer, and no object is from after the list.
            self._count("bookmark_ahead")
            _log.warning("bookmark ahead", path=self._path, listed=revision, bookmark=self.view.version)
        self._stale_lists = 0
        self.refused, self.problem, self.is_absent = None, None, False
        await self.view.refuse_older(fresh, revision)
        # An object without a readable UID may be any of those that are missing.
        gone = [uid for uid in self.view.missing(fresh, revision) if uid not in unread and "" not in unread]
        # Deletions go first: a recreated object must not be added beside its predecessor of the same name.
        await self._deliver(Change(DELETED, old, old) for old in self.view.take(gone))
        await self._deliver(self.view.differences(fresh, revision, unchanged=reading != self._listed_generation))
        self.view.listed(revision)
        self._listed_generation = reading
        self.last_contact = self._timing.clock()
        self._is_unconfirmed = self.last_contact > began + _RESTORED_WITHIN
        self.synced.set()
        self._waiting.delivered(self.view.version)

    async def _deliver(self, changes: Iterable[Change[T]]) -> None:
        left = iter(changes)
        while batch := list(islice(left, self._portion)):
            self._handler(batch)
            if len(batch) == self._portion:
                await asyncio.sleep(0)

    # -- watch

    async def _watch(self) -> Failure | None:
        """Watch the collection. Return None when the server has closed the watch regularly."""
        times = self._times
        lasting = times.shortest + (times.longest - times.shortest) * self._timing.rng()
        is_sure = not self._is_unconfirmed
        if not is_sure:
            now = await version_of(self._transport, self._path)
            if is_older(now, self.view.version):
                return Failure(FailureClass.GONE, message=f"at {now}; {self.view.version} was seen already")
            is_sure = bool(now)
            lasting = lasting if is_sure else min(lasting, _UNCONFIRMED_WATCH)
        # Until the watch has ended regularly and on time: the next server may be a different one.
        self._is_unconfirmed = True
        query = self._query | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.view.version,
            "timeoutSeconds": str(max(1, round(lasting))),
        }
        stall = times.stall if times.stall is not None else lasting + times.grace
        self._count("watch")
        ends = self._timing.clock() + lasting
        try:
            async with self._transport.stream(f"{self._path}?{urlencode(query)}", read_timeout=stall) as batches:
                self.last_contact = self._timing.clock()
                received = 0
                async for lines in batches:
                    self.last_contact = self._timing.clock()
                    for at in range(0, len(lines), self._portion):
                        portion = lines[at : at + self._portion]
                        received += len(portion)
                        # Batches that have arrived follow each other without a turn of the loop.
                        if received > self._portion:
                            await asyncio.sleep(0)
                            received = len(portion)
                        failure = self._receive(portion)
                        if failure is not None:
                            return failure
        except StreamRefused as refused:
            return classify(refused.response) or Failure(FailureClass.UNKNOWN, refused.response.status)
        except TransportError as error:
            return classify_error(error)
        self._is_unconfirmed = not is_sure or self._timing.clock() < ends - _EARLY
        return None

    def _receive(self, lines: list[bytes]) -> Failure | None:
        """Deliver what is new in some lines. Return the failure of an ERROR event or of an invalid line.

        Lines after it are ignored.
        """
        batch, failure = self.view.receive(lines)
        if batch:
            self._handler(batch)
        self._waiting.delivered(self.view.version)
        return failure
