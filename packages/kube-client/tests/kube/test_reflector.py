from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import msgspec
import pytest
import structlog

from apimachinery.salvage import salvage
from kube_client.errors import StoreWentBack
from kube_client.reflector import (
    PORTION,
    STALE_LISTS_REFUSED,
    WATCH_FAILURES_BEFORE_LIST,
    Collection,
    Reflector,
    WatchTimes,
)
from kube_client.retry import Backoff
from kube_client.testing.scripted import (
    Action,
    Answer,
    FakeTime,
    Request,
    Reset,
    ScriptedTransport,
    Stream,
    answering,
    eventually,
    running,
    status,
)
from kube_client.watch_events import Change, ChangeType

from .objects import Item

SILENT = Stream([], end="hang")
PATIENT = WatchTimes(backoff=Backoff(initial=1, cap=30, jitter=0))


def pod(name: str, version: int, *, uid: str | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "t", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"schedulerName": "s", **spec}}


def listing(version: int, *items: dict[str, Any], more: str | None = None) -> Answer:
    meta = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return Answer(body={"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": list(items)})


def event(kind: str, thing: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": thing}, separators=(",", ":")).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def serving(*resources: str) -> Answer:
    """The discovery document of the core group, with these kinds in it."""
    listed = [{"name": resource} for resource in resources]
    return Answer(body={"kind": "APIResourceList", "groupVersion": "v1", "resources": listed})


@dataclass
class World:
    """A reflector against a scripted server, and a model that any handler may rely on, checked at each change."""

    lists: list[Action]
    watches: list[Action]
    time: FakeTime = field(default_factory=FakeTime)
    counts: Counter[str] = field(default_factory=Counter)
    log: list[tuple[str, str, str]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    held: dict[str, Item] = field(default_factory=dict)
    #: What discovery says.
    served: Action = field(default_factory=serving)
    #: The answer to the question for the version of the collection.
    now: Action = field(default_factory=lambda: listing(1_000_000))
    server: ScriptedTransport = field(init=False)
    reflector: Reflector[Item] = field(init=False)
    task: asyncio.Task[None] = field(init=False)

    def script(self, request: Request) -> Action:
        if request.path == "/api/v1":
            return self.served
        if request.query.get("limit") == "1":
            return self.now
        actions = self.watches if "watch" in request.query else self.lists
        return actions.pop(0) if len(actions) > 1 else actions[0]

    def handle(self, batch: list[Change[Item]]) -> None:
        self.batches.append(len(batch))
        for change in batch:
            meta = change.object.metadata
            before = self.held.get(meta.uid)
            assert change.old == before
            if change.type is ChangeType.DELETED:
                assert before is not None
                del self.held[meta.uid]
            else:
                assert (before is None) is (change.type is ChangeType.ADDED)
                names = {p.metadata.name for uid, p in self.held.items() if uid != meta.uid}
                assert meta.name not in names, "two objects under one name"
                self.held[meta.uid] = change.object
            self.log.append((change.type.value, meta.name, meta.resource_version))

    def count(self, what: str) -> None:
        self.counts[what] += 1

    @property
    def names(self) -> dict[str, str]:
        return {held.metadata.name: held.metadata.resource_version for held in self.held.values()}

    def watched_from(self) -> list[str]:
        return [r.query["resourceVersion"] for r in self.server.requests if "watch" in r.query]

    @asynccontextmanager
    async def run(self, *, times: WatchTimes = PATIENT, **options: Any) -> AsyncIterator[World]:
        self.server, transport = answering(self.script)
        names = {each.name for each in fields(Collection)} & options.keys()
        about: dict[str, Any] = {name: options.pop(name) for name in names}
        self.reflector = Reflector(
            Collection(**{"path": "/api/v1/pods", "decode": msgspec.json.Decoder(Item).decode, **about}),
            self.handle,
            transport=transport,
            timing=self.time.timing,
            times=times,
            count=self.count,
            **options,
        )
        async with running(self.reflector.run()) as self.task:
            yield self

    async def went_back(self, match: str = "was seen", **options: Any) -> None:
        """Runs until the reflector ends, which has to be as the store went back."""
        with pytest.raises(StoreWentBack, match=match):
            async with self.run(**options):
                await asyncio.wait({self.task}, timeout=3600)

    async def renewed(self, **patience: float) -> None:
        await asyncio.wait_for(self.reflector.relist(**patience), 3600)

    async def after(self, *log: tuple[str, str, str]) -> None:
        """Waits for exactly this to have been delivered."""
        try:
            await eventually(lambda: len(self.log) >= len(log))
        finally:
            assert self.log == list(log)

    async def watching(self, times: int) -> None:
        """Waits for the watch number `times` to be asked for."""
        await eventually(lambda: self.counts.get("watch", 0) >= times and len(self.watched_from()) >= times)


async def test_what_is_listed_is_added_and_what_is_watched_follows() -> None:
    events = event("ADDED", pod("b", 12)) + event("MODIFIED", pod("a", 13)) + event("DELETED", pod("b", 14))
    world = World([listing(11, pod("a", 10))], [Stream([events], end="hang")])
    async with world.run():
        await world.after(("added", "a", "10"), ("added", "b", "12"), ("modified", "a", "13"), ("deleted", "b", "14"))
        assert world.reflector.synced.is_set()
        assert world.watched_from() == ["11"]
        assert len(world.reflector.uids) == 1
        assert world.reflector.get("uid-a") is world.held["uid-a"]
        assert world.reflector.get("uid-b") is None


@pytest.mark.parametrize("portion", [PORTION, 1])
async def test_a_flood_of_changes_is_handed_over_in_portions_and_others_have_their_turn_in_between(
    portion: int,
) -> None:
    listed, count = 2 * portion + 1, 5 * portion + 2
    items = [pod(f"p{n}", n) for n in range(listed)]
    events = b"".join(event("ADDED", pod(f"p{n}", 2 * PORTION + n)) for n in range(listed, count))
    world = World([listing(2 * PORTION, *items)], [Stream([events], end="hang")])
    in_turn: list[int] = []
    hand_over = world.handle

    def handle(batch: list[Change[Item]]) -> None:
        assert not in_turn, "two portions in one turn of the loop"
        in_turn.append(len(batch))
        asyncio.get_running_loop().call_soon(in_turn.clear)
        hand_over(batch)

    world.handle = handle  # type: ignore[method-assign]
    async with world.run(portion=portion):
        await eventually(lambda: len(world.log) == count)
        assert max(world.batches) == portion
        assert [name for _, name, _ in world.log] == [f"p{n}" for n in range(count)]


async def test_it_is_not_synced_before_the_whole_list_was_handed_over() -> None:
    world = World([status(503), listing(11, pod("a", 10))], [SILENT])
    synced_at: list[int] = []
    handle = world.handle
    world.handle = lambda batch: (  # type: ignore[method-assign]
        synced_at.append(world.reflector.synced.is_set()),
        handle(batch),
    )[-1]
    async with world.run():
        await world.reflector.synced.wait()
        assert synced_at == [False]
        assert world.names == {"a": "10"}


async def test_a_long_list_is_read_in_pages() -> None:
    items = [pod(f"p{n}", n + 1) for n in range(503)]
    pages = [listing(2000, *items[:400], more="next page"), listing(2000, *items[400:])]
    world = World([*pages, status(500)], [SILENT])
    async with world.run(page_size=400, query={"fieldSelector": "spec.nodeName="}):
        await world.reflector.synced.wait()
        assert [name for _, name, _ in world.log] == [f"p{n}" for n in range(503)]
        first, second = (r.query for r in world.server.requests[:2])
        assert first == {"fieldSelector": "spec.nodeName=", "limit": "400"} | first
        assert second["continue"] == "next page"


def added(*versions: int, end: str = "clean") -> Stream:
    return Stream([event("ADDED", pod(f"p{version}", version)) for version in versions], end)


EMPTY = Stream([])
GONE = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
BUSY = event("ERROR", {"kind": "Status", "code": 500, "message": "etcd", "details": {"retryAfterSeconds": 7}})
OLD = status(410, "Expired")
ONE = pod("a", 10)


B, BAD_B = pod("b", 12), pod("b", 12) | {"spec": 3}
FAILURES = WATCH_FAILURES_BEFORE_LIST
PAUSES: list[float] = [1, 2, 4, 8, 16]
#: Watches one after the other; where each begins, and the next; pauses; further lists, and why there were any.
WATCHED: dict[str, tuple[list[Action], list[int], list[float], list[Action], list[str]]] = {
    "each brings something": ([added(20), added(21), added(22)], [11, 20, 21, 22], [], [], []),
    # kubernetes_asyncio 36.1 reconnected 2,000 times a second here.
    "each ends at once": ([EMPTY] * 7, [11] * 8, [1, 2, 4, 8, 16, 30, 30], [], []),
    "each repeats an old event": ([Stream([event("MODIFIED", ONE)])] * 3, [11] * 4, [1, 2, 4], [], []),
    "progress": ([EMPTY, EMPTY, added(20), EMPTY], [11, 11, 11, 20, 20], [1, 2, 1], [], []),
    "quiet for a second": ([Stream([1.0])], [11, 11], [], [], []),
    "quiet for its whole length": ([Stream([300.0])], [11, 11], [], [], []),
    "quiet and nearly of full length": ([Stream([294.0])], [11, 11], [], [], []),
    "too old when opened": ([OLD], [11, 30], [], [listing(30)], ["expired"]),
    "too old in the middle": ([Stream([event("ADDED", B) + GONE])], [11, 30], [], [listing(30)], ["expired"]),
    "always too old": ([OLD] * 4, [11] * 5, [2, 4, 8], [listing(11)], ["expired"] * 4),
    "an error that says when to come back": ([Stream([BUSY])], [11, 11], [7], [], []),
    "a deletion": ([Stream([event("DELETED", pod("a", 20))])], [11, 20], [], [], []),
    "a bookmark and an older one": ([Stream([bookmark(50), bookmark(40)])], [11, 50], [], [], []),
    "malformed and old": ([Stream([event("ADDED", ONE | {"spec": 3})])], [11, 11], [1], [], []),
    "malformed and new": ([Stream([event("ADDED", BAD_B)])], [11, 12], [], [], []),
    **{
        f"{what} in a row": ([watch] * FAILURES, [11] * FAILURES + [12], PAUSES, [listing(12)], ["failing"])
        for what, watch in (
            ("failures", status(504)),
            ("resets", Reset()),
            ("refusals", status(429, "TooManyRequests")),
            ("lines that are no events", Stream([b"{nonsense}\n"])),
        )
    },
}


@pytest.mark.parametrize("what", WATCHED)
async def test_where_and_when_a_watch_goes_on_after_others(what: str) -> None:
    watches, watched_from, slept, lists, reasons = WATCHED[what]
    world = World([listing(11, ONE), *lists], [*watches, SILENT])
    async with world.run():
        await world.watching(len(watches) + 1)
        assert world.watched_from() == [str(version) for version in watched_from]
        assert world.time.slept == slept
        listed = {f"list_{reason}": reasons.count(reason) for reason in reasons}
        assert {each: n for each, n in world.counts.items() if each.startswith("list")} == {"list_initial": 1, **listed}


@pytest.mark.parametrize(
    ("watch", "seconds", "version"),
    [
        (added(12, end="hang"), 330 + 1, "12"),
        (Stream([part for number in range(12) for part in (60.0, bookmark(20 + number))]), 720, "31"),
    ],
    ids=["silent", "with bookmarks"],
)
@pytest.mark.promise("L1")
async def test_a_watch_is_taken_for_dead_half_a_minute_after_its_time_unless_bookmarks_come(
    watch: Stream, seconds: float, version: str
) -> None:
    world = World([listing(11)], [watch, SILENT])
    async with world.run():
        await world.watching(2)
        assert world.watched_from() == ["11", version]
        assert world.time.now == 1000 + seconds
        assert world.counts["list_initial"] == 1


async def test_the_server_may_say_when_to_list_again() -> None:
    busy = status(429, "TooManyRequests")
    busy.headers["Retry-After"] = "9"
    world = World([busy, listing(11)], [SILENT])
    async with world.run():
        await world.reflector.synced.wait()
        assert world.time.slept == [9]


async def test_what_was_made_and_went_before_a_list_is_told_to_be_gone() -> None:
    lists = [listing(11, pod("a", 8)), listing(30, pod("a", 8), pod("c", 21))]
    world = World([*lists], [status(410), SILENT])
    made = {name: msgspec.convert(pod(name, version), Item) for name, version in (("b", 20), ("c", 21), ("d", 31))}
    async with world.run():
        await world.reflector.synced.wait()
        for name in made:
            assert world.reflector.view.learn(made[name])
        # Whoever has made it keeps it from then on; of `d` the list is too old to say anything.
        world.held["uid-b"] = made["b"]
        await world.after(("added", "a", "8"), ("deleted", "b", "20"), ("added", "c", "21"))
        assert world.reflector.view.learn(made["c"])
        # It is not among what is there at 30.
        assert not world.reflector.view.learn(made["b"])
        assert world.reflector.view.learned == {"uid-d": made["d"]}


async def test_what_was_made_is_told_as_added_by_the_watch_that_shows_it() -> None:
    stream = Stream([event("ADDED", pod("b", 20)), event("DELETED", pod("b", 22))], end="hang")
    world = World([listing(11)], [stream])
    async with world.run():
        await world.reflector.synced.wait()
        assert world.reflector.view.learn(msgspec.convert(pod("b", 20), Item))
        await world.after(("added", "b", "20"), ("deleted", "b", "22"))
        assert world.reflector.view.learned == {}
        assert not world.reflector.view.learn(msgspec.convert(pod("b", 20), Item))


def deliver(world: World, *versions: int) -> None:
    """Deliver these versions of `a` from responses to writes, if they are newer than the known one."""
    for version in versions:
        change = world.reflector.view.written(json.dumps(pod("a", version)).encode())
        if change is not None:
            world.handle([change])


async def test_a_version_in_a_response_is_delivered_once_and_earlier_ones_never_again() -> None:
    go = asyncio.Event()
    events = [event("MODIFIED", pod("a", version)) for version in (15, 21)]
    stream = Stream([go, *events, event("ADDED", pod("b", 22)), event("MODIFIED", pod("a", 23))], end="reset")
    world = World([listing(11, pod("a", 10))], [stream, SILENT])
    async with world.run():
        await world.watching(1)
        deliver(world, 21, 21, 9)
        assert world.reflector.view.written(json.dumps(pod("unknown", 30)).encode()) is None
        assert world.reflector.view.written(b'{"metadata": 1}') is None
        go.set()
        await world.after(("added", "a", "10"), ("modified", "a", "21"), ("added", "b", "22"), ("modified", "a", "23"))
        # Only the version before the response's is a duplicate. The watch continues after all of them.
        assert world.counts["duplicate"] == 1
        await world.watching(2)
        assert world.watched_from() == ["11", "23"]


async def test_a_list_from_before_a_response_does_not_undo_it() -> None:
    lists = [listing(11, pod("a", 10)), listing(20, pod("a", 10), pod("b", 19))]
    world = World(lists, [SILENT])
    with pytest.raises(StoreWentBack, match="a in the list of /api/v1/pods is of version 10, and 21 was seen"):
        async with world.run():
            await world.watching(1)
            deliver(world, 21)
            await world.renewed()
            await world.after(("added", "a", "10"), ("modified", "a", "21"), ("added", "b", "19"))
            # Objects that are decoded differently from now on are delivered in their newest version.
            world.reflector.redeliver()
            await eventually(lambda: len(world.log) == 5)
            assert world.names == {"a": "21", "b": "19"}
            # A later list with the former version is of a store that went back.
            world.lists.append(listing(30, pod("a", 10)))
            world.lists.pop(0)
            world.reflector.redeliver()
            await asyncio.wait({world.task}, timeout=3600)


async def test_an_object_made_again_under_its_name_is_deleted_and_then_added() -> None:
    lists = [listing(11, pod("a", 10, uid="old")), listing(30, pod("a", 25, uid="new"))]
    world = World([*lists], [status(410), SILENT])
    async with world.run():
        await world.after(("added", "a", "10"), ("deleted", "a", "10"), ("added", "a", "25"))
        assert list(world.held) == ["new"]


async def test_a_list_older_than_what_was_seen_is_not_believed() -> None:
    """A lagging replica: `b` is not yet there, `c` is still there, `a` is as it was."""
    first = listing(11, pod("a", 10), pod("c", 9))
    seen = event("MODIFIED", pod("a", 21)) + event("ADDED", pod("b", 22)) + event("DELETED", pod("c", 23))
    stale = listing(20, pod("a", 10), pod("c", 9))
    fresh = listing(30, pod("a", 21), pod("b", 22))
    world = World([first, stale, stale, fresh], [Stream([seen], end="reset"), status(410), SILENT])
    async with world.run():
        await world.watching(3)
        assert world.names == {"a": "21", "b": "22"}
        assert world.counts["stale_list"] == 2
        assert len(world.log) == 5
        assert world.watched_from()[-1] == "30"


async def test_replicas_that_lag_now_and_then_are_no_store_that_went_back() -> None:
    lists, streams = [listing(100, pod("a", 90))], []
    for version in range(110, 110 + 10 * (STALE_LISTS_REFUSED + 2), 10):
        lists += [listing(50, pod("a", 40)), listing(version, pod("a", 90))]
        streams.append(status(410))
    world = World(lists, [*streams, SILENT])
    async with world.run():
        await world.watching(len(streams) + 1)
        assert world.counts["stale_list"] == STALE_LISTS_REFUSED + 2
        assert world.names == {"a": "90"}


@pytest.mark.promise("L15")
async def test_a_store_that_went_back_for_good_ends_the_view() -> None:
    """Whoever goes by it has to start over: of what it says nobody knows what has ever been."""
    first = listing(100, pod("a", 90), pod("b", 95))
    restored = listing(50, pod("a", 40))
    world = World([first, restored], [status(410), SILENT])
    await world.went_back("of version 50, and 100 was seen")
    assert world.counts["stale_list"] == STALE_LISTS_REFUSED + 1
    assert world.names == {"a": "90", "b": "95"}
    assert world.watched_from() == ["100"]


@pytest.mark.promise("L15")
async def test_a_backup_under_higher_revisions_ends_the_view_by_its_objects() -> None:
    """As etcdutl restores one with --bump-revision and --mark-compacted."""
    world = World([listing(100, pod("a", 90)), listing(5000, pod("a", 40))], [status(410), SILENT])
    await world.went_back("a in the list of /api/v1/pods is of version 40, and 90 was seen")
    assert world.names == {"a": "90"}


@pytest.mark.parametrize(
    "watch",
    [*(Stream([event("MODIFIED", pod("a", 101))], end) for end in ("reset", "clean")), SILENT],
    ids=["reset", "clean", "half open"],
)
@pytest.mark.promise("L15")
async def test_a_watch_that_was_broken_off_is_not_resumed_from_a_version_that_is_yet_to_come(watch: Stream) -> None:
    """A server whose store went back takes such a watch, and tells of nothing until it has come to that version."""
    lists = [listing(100, pod("a", 90)), listing(60, pod("a", 40))]
    world = World([*lists], [watch, SILENT], now=listing(60))
    await world.went_back()
    assert world.watched_from() == ["100"]


async def test_a_watch_does_not_begin_where_a_list_ended_long_ago() -> None:
    """The process was stopped while it listed, long enough for the store to be restored behind its back."""

    class Stopped(FakeTime):
        def __init__(self) -> None:
            super().__init__()
            self.timing = replace(self.timing, clock=self.clock)

        def clock(self) -> float:
            self.now += 20.0
            return self.now

    lists = [listing(100, pod("a", 90)), listing(60, pod("a", 40))]
    world = World([*lists], [SILENT], now=listing(60), time=Stopped())
    await world.went_back()
    assert world.watched_from() == []


async def test_a_watch_that_ends_in_time_is_resumed_without_a_question() -> None:
    world = World([listing(11)], [Stream([299.0, bookmark(12), 1.0]), SILENT], now=status(500))
    async with world.run():
        await world.watching(2)
        assert not [each for each in world.server.requests if each.query.get("limit") == "1"]


async def test_while_the_version_of_the_store_cannot_be_had_watches_are_short() -> None:
    known = asyncio.Event()
    second = Stream([bookmark(13), known, b"\n"])
    world = World([listing(11)], [Stream([bookmark(12)]), second, SILENT], now=status(503))
    async with world.run():
        await world.watching(2)
        world.now = listing(13)
        known.set()
        await world.watching(3)
        asked = [int(each.query["timeoutSeconds"]) for each in world.server.requests if "watch" in each.query]
        assert asked[0] >= 300 and asked[1] == 30 and asked[2] >= 300
        assert world.counts == {"list_initial": 1, "watch": 3}


async def test_events_that_were_seen_before_are_dropped() -> None:
    first = event("ADDED", pod("b", 12)) + event("DELETED", pod("b", 13)) + event("MODIFIED", pod("a", 14))
    news = event("ADDED", pod("c", 15))
    world = World([listing(11, pod("a", 10))], [Stream([first + first + news], end="hang")])
    async with world.run():
        await world.after(
            *(("added", "a", "10"), ("added", "b", "12"), ("deleted", "b", "13"), ("modified", "a", "14")),
            ("added", "c", "15"),
        )
        assert (world.counts["duplicate"], world.watched_from()) == (3, ["11"])


async def test_versions_that_are_no_numbers_are_never_compared() -> None:
    def odd(name: str, version: str) -> dict[str, Any]:
        thing = pod(name, 0)
        thing["metadata"]["resourceVersion"] = version
        return thing

    events = [event("MODIFIED", odd("a", "y")), event("MODIFIED", odd("a", "b")), event("MODIFIED", odd("a", "b"))]
    world = World([listing(11, odd("a", "z"))], [Stream([b"".join(events)], end="clean"), SILENT])
    async with world.run():
        await world.watching(2)
        assert world.log == [("added", "a", "z"), ("modified", "a", "y"), ("modified", "a", "b")]
        assert world.watched_from() == ["11", "b"]


async def test_a_watch_asks_for_bookmarks_and_a_random_end() -> None:
    world = World([listing(11)], [SILENT], time=FakeTime(chance=0.5))
    async with world.run(times=WatchTimes(shortest=100, longest=200)):
        await world.watching(1)
        query = world.server.requests[-1].query
        assert (query["allowWatchBookmarks"], query["timeoutSeconds"]) == ("true", "150")


@pytest.mark.parametrize("end", ["clean", "cut", "reset"])
@pytest.mark.parametrize("at", [1, 30, 90])
async def test_a_connection_that_ends_inside_a_line_loses_nothing(end: str, at: int) -> None:
    whole, part = event("ADDED", pod("a", 12)), event("ADDED", pod("b", 13))
    world = World([listing(11)], [Stream([whole + part[:at]], end=end), Stream([part], end="hang")])
    async with world.run():
        await world.after(("added", "a", "12"), ("added", "b", "13"))
        assert world.watched_from() == ["11", "12"]


@pytest.mark.parametrize("line", [b"{nonsense}\n", b'{"type":"SHOUTED","object":{}}\n', b"[]\n"])
async def test_a_line_that_is_no_event_is_asked_for_again(line: bytes) -> None:
    first = event("ADDED", pod("a", 12)) + line + event("ADDED", pod("c", 14))
    again = event("ADDED", pod("b", 13)) + event("ADDED", pod("c", 14))
    world = World([listing(11)], [Stream([first], end="hang"), Stream([again], end="hang")])
    with structlog.testing.capture_logs() as logs:
        async with world.run():
            await world.after(("added", "a", "12"), ("added", "b", "13"), ("added", "c", "14"))
            assert world.watched_from() == ["11", "12"]
    assert len([log for log in logs if log["event"] == "malformed object"]) == 1


async def test_an_object_that_cannot_be_decoded_is_reported_once_and_leaves_the_last_good_version() -> None:
    bad = pod("a", 12) | {"spec": 3}
    lines = event("MODIFIED", bad) + event("ADDED", pod("b", 13))
    relisted = listing(30, bad, pod("b", 13))
    world = World([listing(11, pod("a", 10)), relisted], [Stream([lines]), status(410), SILENT])
    with structlog.testing.capture_logs() as logs:
        async with world.run():
            await world.watching(3)
            assert world.names == {"a": "10", "b": "13"}
    assert len([log for log in logs if log["event"] == "malformed object"]) == 1
    assert world.counts["malformed"] == 2


def deep(name: str, version: int, levels: int) -> bytes:
    nested = b'{"a":' * levels + b"[]" + b"}" * levels
    return json.dumps(pod(name, version, d=0)).encode().replace(b'"d": 0', b'"d": ' + nested)


class Strict(Item, frozen=True):
    """Cannot be made of an object with `bad`, which ends in an error that no decoder announces."""

    def __post_init__(self) -> None:
        if self.spec and "bad" in self.spec:
            raise {"key": KeyError, "range": OverflowError, "type": AttributeError}[self.spec["bad"]]("oops")


#: Objects `b` that cannot be read, as the API server has them.
UNREADABLE: dict[str, bytes] = {
    **{f"{levels} levels": deep("b", 12, levels) for levels in (1_500, 10_000)},
    **{f"an error of {what}": json.dumps(pod("b", 12, bad=what)).encode() for what in ("key", "range", "type")},
    "a wrong type": json.dumps(pod("b", 12) | {"spec": 3}).encode(),
    "a number out of range": json.dumps(pod("b", 12)).encode().replace(b'"spec": {', b'"spec": {"n": 1e999, '),
}


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize("place", ["list", "watch"])
async def test_an_object_that_cannot_be_read_is_left_out_until_it_can_be(what: str, place: str) -> None:
    """The rest of its page and watch goes on, and a good object that becomes unreadable stays as it was."""
    unread = UNREADABLE[what]
    good_then_unread = unread.replace(b'"uid-b"', b'"uid-a"').replace(b'"12"', b'"14"')

    def line(kind: str, thing: bytes) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), thing)

    def items(version: int, *things: bytes) -> Answer:
        head = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[' % version
        return Answer(body=head + b",".join(things) + b"]}")

    a, c = (json.dumps(pod(name, number)).encode() for name, number in (("a", 10), ("c", 13)))
    ends = event("MODIFIED", pod("b", 20)) + event("MODIFIED", pod("a", 21))
    if place == "list":
        lists = [items(11, a), items(15, good_then_unread, unread, c)]
        watches = [status(410), Stream([ends], end="hang")]
    else:
        lists = [items(11, a)]
        lines = line("ADDED", unread) + line("ADDED", c) + line("MODIFIED", good_then_unread) + ends
        watches = [Stream([lines], end="hang")]
    world = World(list(lists), list(watches))
    with structlog.testing.capture_logs() as logs:
        async with world.run(decode=msgspec.json.Decoder(Strict).decode):
            await world.after(("added", "a", "10"), ("added", "c", "13"), ("added", "b", "20"), ("modified", "a", "21"))
    assert world.counts["malformed"] == 2
    told = [log for log in logs if log["event"] == "malformed object"]
    assert [(log["uid"], log["resource_version"], log["key"]) for log in told] in (
        [("uid-a", "14", "t/b"), ("uid-b", "12", "t/b")],
        [("uid-b", "12", "t/b"), ("uid-a", "14", "t/b")],
    )


async def test_a_list_with_an_object_without_a_readable_uid_deletes_nothing() -> None:
    odd = pod("a", 12)
    odd["metadata"]["uid"] = 7
    world = World([listing(11, pod("a", 10)), listing(13, odd), listing(15)], [status(410), status(410), SILENT])
    async with world.run():
        await world.after(("added", "a", "10"), ("deleted", "a", "10"))
        assert world.watched_from() == ["11", "13", "15"]


async def test_a_decoder_may_read_an_object_that_is_nested_too_deeply_in_a_way_of_its_own() -> None:
    def decode(raw: bytes | memoryview | msgspec.Raw) -> Item:
        return salvage(raw, Item)

    line = b'{"type":"ADDED","object":%b}\n' % deep("b", 12, 10_000)
    world = World([listing(11)], [Stream([line], end="hang")])
    async with world.run(decode=decode):
        await world.after(("added", "b", "12"))


@pytest.mark.parametrize("version", ["9223372036854775807", "9" * 5_000])
async def test_a_bookmark_of_an_enormous_version_is_no_proof_that_the_store_went_back(version: str) -> None:
    mark = event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}})
    world = World(
        [listing(11, pod("a", 10)), listing(14, pod("a", 12), pod("b", 13))],
        [Stream([event("MODIFIED", pod("a", 12)) + mark], end="hang"), *[status(504)] * 9, SILENT],
    )
    async with world.run():
        await world.after(("added", "a", "10"), ("modified", "a", "12"))
        await world.renewed()
        assert world.log[2:] == [("added", "b", "13")]
        assert world.reflector.view.version == "14"


async def test_events_after_a_bookmark_that_was_ahead_are_news() -> None:
    lines = bookmark(1_000_000) + event("ADDED", pod("b", 12)) + event("MODIFIED", pod("a", 11))
    world = World([listing(11, pod("a", 11))], [Stream([lines], end="hang")])
    async with world.run():
        await world.after(("added", "a", "11"), ("added", "b", "12"))
        assert world.counts["duplicate"] == 1
        assert world.reflector.view.version == "12"


async def test_the_deletion_of_an_object_that_cannot_be_decoded_is_a_deletion() -> None:
    lines = event("DELETED", pod("a", 12) | {"spec": 3})
    world = World([listing(11, pod("a", 10))], [Stream([lines], end="hang")])
    async with world.run():
        await world.after(("added", "a", "10"), ("deleted", "a", "10"))


@pytest.mark.parametrize("between", ["quiet", "news"])
async def test_watches_that_fail_far_apart_do_not_add_up_to_a_list(between: str) -> None:
    watches: list[Action] = []
    for number in range(3 * WATCH_FAILURES_BEFORE_LIST):
        news = Stream([event("ADDED", pod(f"p{number}", 20 + number))], end="reset")
        watches += [status(504), Stream([300.0]) if between == "quiet" else news]
    world = World([listing(11)], [*watches, SILENT])
    async with world.run():
        await world.watching(len(watches) + 1)
        assert {each for each in world.counts if each.startswith("list")} == {"list_initial"}
        # Nor do their pauses: each failure is the first of its row.
        assert set(world.time.slept) <= {1, 2}


async def test_what_the_handler_raises_ends_the_run() -> None:
    world = World([listing(11, pod("a", 10))], [SILENT])

    def broken(_batch: list[Change[Item]]) -> None:
        raise RuntimeError("a bug of the handler")

    world.handle = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a bug of the handler"):
        async with world.run():
            await asyncio.sleep(60)


async def test_cancelling_closes_the_watch() -> None:
    world = World([listing(11)], [SILENT])
    async with world.run():
        await world.watching(1)
    assert world.server.open == 0
