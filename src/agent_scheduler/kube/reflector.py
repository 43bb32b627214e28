"""Keeps a local view of one kind of object in step with the API server: list, then watch, for ever.

The handler is given batches of `Change`s and nothing else, and can trust that, whatever the connection went through:

- an object is ADDED once, then MODIFIED, then DELETED, and no version older than one already seen is ever delivered;
- a deletion that happened while no watch was running is found by the next list and delivered as DELETED;
- an object that was deleted and made again under its name is DELETED and ADDED, never MODIFIED: keys are UIDs;
- one object that cannot be decoded is reported and left as it was, and stops nothing else;
- an event that cannot be read at all is not lost: the watch is restarted from before it, and in the end the list;
- no view is patched up whose store went back to an earlier state (a restore from a backup): `run` raises then.

client-go's Reflector is the model for the protocol (410, bookmarks, random watch durations). Where it differs, the
reason is at the place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, KeysView, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from agent_scheduler.kube.errors import (
    Failure,
    FailureClass,
    RequestFailed,
    StoreWentBack,
    classify,
    classify_error,
)
from agent_scheduler.kube.paging import PAGE, collect, version_of
from agent_scheduler.kube.retry import REAL, Backoff, Timing
from agent_scheduler.kube.transport import StreamRefused, Transport, TransportError
from agent_scheduler.kube.waiting import RelistRequest, Waiters, answer
from agent_scheduler.kube.watch_events import (
    DELETED,
    SLICE,
    Change,
    Decode,
    Handler,
    Object,
    ReadEvent,
    View,
    is_older,
    version,
)
from agent_scheduler.telemetry.logs import get_logger

T = TypeVar("T", bound=Object)
R = TypeVar("R")

_log = get_logger(__name__)

#: A watch that ends sooner than this, having brought nothing, counts as a failure (client-go: "very short watch").
SHORT_WATCH_SECONDS = 1.0
#: After so many failed watches in a row the view is taken anew, in case it is the resourceVersion that is refused.
WATCH_FAILURES_BEFORE_LIST = 5
#: A list older than what we have is refused so many times before the store is believed to have gone back (a restore
#: from a backup): until then it may be a replica that lags.
STALE_LISTS_REFUSED = 3
#: A watch that ends so many seconds before its time was broken off: the server that follows may be another.
_EARLY = 2.0
#: Seconds that the restore of a store takes at least: who answers a watch that begins so long after its list was asked
#: for, as of a process that was stopped meanwhile, may be another.
_RESTORED_WITHIN = 10.0
#: Seconds of a watch from a version that the server may not have reached yet, on which it would send nothing.
_UNCONFIRMED_WATCH = 30.0
#: Lines of a watch that are read and delivered at once. A piece can have many hundreds, which take 50 ms and more;
#: others have their turn in between.
PORTION = 128
#: Seconds that a watch may take to come to what is true by now. Where little happens, nothing may come for a minute.
_CATCH_UP = 1.0
_BACKOFF = Backoff(initial=0.2, cap=30.0)


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """`shortest` to `longest`: how long the server is asked to keep a watch, drawn at random (client-go: 5-10 min).

    A watch on which nothing arrives for `grace` seconds longer than that, bookmarks included, is taken for dead.
    `stall` gives that time directly, for servers that are known to send bookmarks (kube-apiserver: every minute).

    A view is stale when a server that sends bookmarks has sent nothing for `silence` seconds; another, for longer than
    a healthy watch can be idle.
    """

    shortest: float = 300.0
    longest: float = 600.0
    grace: float = 30.0
    stall: float | None = None
    list_timeout: float = 60.0
    silence: float = 180.0
    #: Between attempts that failed, or brought nothing.
    backoff: Backoff = _BACKOFF


class _ListWanted(Exception):
    """What `run` did was broken off, as a list is wanted."""


class _StaleList(Exception):
    """A list that shows an older state than the one we have."""


class Refused(NamedTuple):
    """Why a server refuses to list a collection; when it did so first and last, on the reflector's clock."""

    failure: Failure
    since: float
    last: float


class Reflector(Generic[T]):
    """One list-and-watch. `path` is a collection (`/api/v1/pods`), `query` its selectors, `decode` makes an object.
    A server may not serve an `optional` collection, as its discovery says: it is taken for empty until it is there.

    `count(what)` is called with: list_initial, list_expired (after a 410), list_failing (watches kept failing),
    list_renewed, stale_list, refused, watch, duplicate, malformed, failure. Every attempt at a list is counted.
    Run `run()` as a task of its own; cancelling it is how a reflector stops.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        decode: Decode[T],
        handler: Handler[T],
        *,
        query: Mapping[str, str] | None = None,
        optional: bool = False,
        page_size: int = PAGE,
        times: WatchTimes | None = None,
        timing: Timing = REAL,
        read_event: ReadEvent[T] | None = None,
        count: Callable[[str], None] = lambda _what: None,
    ) -> None:
        self.synced = asyncio.Event()
        self._transport = transport
        self._path = path
        self._decode = decode
        #: Owner: the task in `run`, but for what others have it learn.
        self.view = View(path, decode, read_event, count=count)
        self._handler = handler
        self._query = dict(query or {})
        self._optional = optional
        self._page_size = page_size
        self._times = times or WatchTimes()
        self._timing = timing
        self._count = count
        #: When the server last gave a list, began a watch or sent something on one, on the clock of `timing`.
        self.last_contact = timing.clock()
        #: None while the server lists the collection, or does not answer. Owner: the task in `run`, as of all below.
        self.refused: Refused | None = None
        # Whether the server may be of an earlier version than that, which a watch does not show: it sends nothing then.
        self._is_unconfirmed = False
        #: Whether the server does not serve the collection, which counts as empty.
        self.is_absent = False
        self._stale_lists = 0
        #: How often `decode` has come to make something else, and how often it had for what the last list brought.
        self._decode_generation = self._listed_generation = 0
        self._waiting = Waiters(timing.clock)
        #: What `run` does now and can be called away from.
        self._interruptible: asyncio.Timeout | None = None

    @property
    def uids(self) -> KeysView[str]:
        """Of all that was delivered and is not gone."""
        return self.view.known.keys()

    def get(self, uid: str) -> T | None:
        """The version delivered last, or None."""
        return self.view.known.get(uid)

    @property
    def is_stale(self) -> bool:
        """Whether more may have happened than is known, as nothing has been received from the server for too long."""
        times = self._times
        stall = times.stall if times.stall is not None else times.longest + times.grace
        limit = times.silence if self.view.marks else stall + times.list_timeout
        return self._timing.clock() - self.last_contact > limit

    async def relist(self, *, patience: float = float("inf")) -> None:
        """Takes the view anew: once this returns, all that was true when it was called has been delivered.

        While the server cannot be listed this waits, and so it does while nobody is in `run`. After `patience` seconds
        the next list that fails raises NotListed; one that succeeds may take any time. When nobody waits any more the
        watch goes on from where it was.
        """
        renewed = self._waiting.request(patience)
        self._interrupt()
        await renewed

    async def catch_up(self, *, at_least: str = "") -> None:
        """Returns once all that was true of the collection when this was called has been delivered.

        The version of the collection is asked for, which costs one object, and the watch waited for to come to it;
        else the collection is listed. `at_least`: a version that is known to be older than now. Both are versions of
        one store, as a cluster's are unless it keeps its kinds apart; then the list does. Needs `run`, as `relist`.
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
        """Deliver all objects once more, unchanged ones as MODIFIED: `decode` makes something else of them now."""
        self._decode_generation += 1
        self._interrupt()

    def _interrupt(self) -> None:
        if self._interruptible is not None:
            self._interruptible.reschedule(asyncio.get_running_loop().time())

    def _is_list_wanted(self) -> bool:
        return self._waiting.is_list_requested or self._decode_generation != self._listed_generation

    async def run(self) -> None:
        """Lists and watches until cancelled. Raises StoreWentBack, and what the handler raises."""
        why: str | None = "list_initial"  # what a list is due for; None while the watch goes on
        fruitless = 0  # attempts in a row that brought nothing; sets the backoff
        failed_watches = 0
        while True:
            retry_after: float | None = None
            if why is None and self._is_list_wanted():
                why = "list_renewed"
            if why is not None:
                # Whoever asks while it is under way needs another: this one may be of before.
                asked = self._waiting.take_requests()
                self._count(why)
                try:
                    await self._list()
                except (RequestFailed, _StaleList) as error:
                    retry_after = error.failure.retry_after if isinstance(error, RequestFailed) else None
                    is_served = self._list_failed(error, asked)
                    if is_served and why == "list_renewed" and not self._is_list_wanted():
                        # The view is as good as it was before somebody asked for a better one.
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
                    # Slow watchers are cut in bursts; waiting here would only make us slower.
                    continue
            if failure is not None:
                retry_after = failure.retry_after
                failed_watches += 1
                if failure.kind is FailureClass.GONE:
                    why = "list_expired"
                elif failed_watches >= WATCH_FAILURES_BEFORE_LIST:
                    why = "list_failing"
            fruitless += 1
            self._report("watch_failed", "watch_too_short" if failure is None else str(failure))
            if why != "list_expired" or fruitless > 1:
                await self._pause(fruitless, retry_after)

    def _list_failed(self, error: RequestFailed | _StaleList, asked: list[RelistRequest]) -> bool:
        """A list failed that those of `asked` have waited for. False if that is because the server does not serve the
        collection, which counts as an empty one."""
        if self._is_absent(error):
            self.is_absent = True
            self._count("absent")
            self.last_contact = self._timing.clock()
            self.synced.set()
            answer(each.listed for each in asked)
            return False
        before, now = self.refused, self._timing.clock()
        if not isinstance(error, RequestFailed) or not self._refuses(error.failure):
            self.refused = None
        else:
            self.refused = Refused(error.failure, now if before is None else before.since, now)
            if before is None:
                self._count("refused")
        self._waiting.failed(asked, error)
        self._report("list_failed", str(error))
        return True

    def _refuses(self, failure: Failure) -> bool:
        """Whether a right is lacking, or the server does not serve the kind, as it says itself."""
        forbidden = failure.kind is FailureClass.PERMANENT and failure.status == 403
        return forbidden or failure.kind is FailureClass.NOT_SERVED

    def _is_absent(self, error: Exception) -> bool:
        """Whether the server has no such collection. One that has been listed is not taken for empty: objects that were
        made in it meanwhile would be missed."""
        absent = isinstance(error, RequestFailed) and error.failure.kind is FailureClass.NOT_SERVED
        return absent and self._optional and not self.view.version

    def _report(self, event: str, error: str) -> None:
        self._count("failure")
        _log.info(event, path=self._path, error=error, resource_version=self.view.version)

    async def _pause(self, attempt: int, at_least: float | None) -> None:
        delay = self._times.backoff.delay(attempt, self._timing.rng, at_least=at_least)
        if at_least is None:
            # Who has waited long enough fails with the next list that does, and not a whole pause later.
            delay = min(delay, max(0.0, self._waiting.patience))
        with suppress(_ListWanted):
            await self._until_list_wanted(self._timing.sleep(delay))

    async def _until_list_wanted(self, work: Awaitable[R]) -> R:
        """Raises _ListWanted."""
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
        """Lists the collection and delivers what differs. Raises RequestFailed, _StaleList, StoreWentBack."""
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
            raise StoreWentBack(f"the list of {self._path}", listed=revision, known=self.view.version)
        self._stale_lists = 0
        self.refused, self.is_absent = None, False
        await self.view.refuse_older(fresh)
        gone = [uid for uid in self.view.missing(fresh, revision) if uid not in unread]
        # Deletions go first: an object made again under the same name must not be added beside its predecessor.
        await self._deliver(Change(DELETED, old, old) for old in self.view.take(gone))
        await self._deliver(self.view.differences(fresh, unchanged=reading != self._listed_generation))
        self.view.version, self._listed_generation = revision, reading
        self.last_contact = self._timing.clock()
        self._is_unconfirmed = self.last_contact > began + _RESTORED_WITHIN
        self.synced.set()
        self._waiting.delivered(self.view.version)

    async def _deliver(self, changes: Iterable[Change[T]]) -> None:
        left = iter(changes)
        while batch := list(islice(left, SLICE)):
            self._handler(batch)
            if len(batch) == SLICE:
                await asyncio.sleep(0)

    # -- watch

    async def _watch(self) -> Failure | None:
        """None when the server has closed it in order."""
        times = self._times
        lasting = times.shortest + (times.longest - times.shortest) * self._timing.rng()
        is_sure = not self._is_unconfirmed
        if not is_sure:
            now = await version_of(self._transport, self._path)
            if is_older(now, self.view.version):
                return Failure(FailureClass.GONE, message=f"at {now}; {self.view.version} was seen already")
            is_sure = bool(now)
            lasting = lasting if is_sure else min(lasting, _UNCONFIRMED_WATCH)
        # Until it has ended in order and in time: the server that follows may be another.
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
            async with self._transport.stream(
                f"{self._path}?{urlencode(query)}", read_timeout=stall
            ) as batches:
                self.last_contact = self._timing.clock()
                async for lines in batches:
                    self.last_contact = self._timing.clock()
                    for at in range(0, len(lines), PORTION):
                        if at:
                            await asyncio.sleep(0)
                        failure = self._receive(lines[at : at + PORTION])
                        if failure is not None:
                            return failure
        except StreamRefused as refused:
            return classify(refused.response) or Failure(FailureClass.UNKNOWN, refused.response.status)
        except TransportError as error:
            return classify_error(error)
        self._is_unconfirmed = not is_sure or self._timing.clock() < ends - _EARLY
        return None

    def _receive(self, lines: list[bytes]) -> Failure | None:
        """Delivers what is new in some lines. Gives the failure that an ERROR event, or a line that is no event,
        reports; lines behind it are not looked at."""
        batch, failure = self.view.receive(lines)
        if batch:
            self._handler(batch)
        self._waiting.delivered(self.view.version)
        return failure
