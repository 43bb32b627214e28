"""Watches: transitions, replay, initial events, bookmarks, and slow readers."""

from __future__ import annotations

from embedded_kubernetes.pacing import StreamTimers
from embedded_kubernetes.requests import Request, Response, Stream

from ..sockets import Timers
from ..support import METADATA, PODS, TABLE, World, cases


@cases("""
    query
    watch=1&sendInitialEvents=true
    watch=1&sendInitialEvents=true&resourceVersionMatch=Exact
    watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1
    """)
def test_initial_events_and_matches_that_do_not_go_together_are_invalid(query: str) -> None:
    assert World().refused("GET", f"{PODS}?{query}") == (422, "Invalid")


def test_lines_are_taken_in_bites_and_in_order(world: World) -> None:
    watch = world.watch(f"{PODS}?watch=1&resourceVersion={world.store.rv}")
    for number in range(5):
        world.pod(f"p{number}")
    watcher = watch.stream.watcher
    bites = []
    while lines := watcher.take(1):
        assert len(lines) == 1
        bites += lines
    assert [f'"p{number}"'.encode() in line for number, line in enumerate(bites)] == [True] * 5
    assert watcher.size == 0


def test_watchers_of_one_view_share_one_encoding(world: World) -> None:
    lines = []
    for query in ("watch=1", "watch=1&labelSelector=!none"):
        watch = world.watch(f"{PODS}?{query}&resourceVersion={world.store.rv}")
        lines.append(watch.stream.watcher)
    world.pod("a")
    (one,), (other,) = (watcher.take(1 << 20) for watcher in lines)
    assert one is other


def test_tables_and_metadata_can_be_watched(world: World) -> None:
    table = world.watch(f"{PODS}?watch=1&resourceVersion={world.store.rv}", accept=TABLE)
    partial = world.watch(f"{PODS}?watch=1&resourceVersion={world.store.rv}", accept=METADATA)
    world.pod("a")
    world.pod("b")
    first, second = table.events()
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"] and second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][0] == "b"
    event = partial.events()[0]["object"]
    assert event["kind"] == "PartialObjectMetadata" and "spec" not in event


def opened(world: World, query: str) -> Stream:
    result = world.api.handle(Request("GET", PODS, query))
    assert not isinstance(result, Response)
    return result


def test_bookmarks_come_every_minute_and_just_before_the_deadline(world: World) -> None:
    stream = opened(world, "watch=1&resourceVersion=1&allowWatchBookmarks=1&timeoutSeconds=150")
    loop = Timers()
    StreamTimers(loop, stream)  # type: ignore[arg-type]
    sent = []
    for second in range(151):
        loop.advance(second - loop.now)
        sent += [second] * len(stream.watcher.take(1 << 20))
    assert sent == [60, 120, 148]
    assert stream.watcher.drained


def test_watches_without_a_timeout_end_between_half_an_hour_and_an_hour(world: World) -> None:
    timeouts = {opened(world, "watch=1").timeout for _ in range(20)}
    assert all(1800 <= timeout <= 3600 for timeout in timeouts)
    assert len(timeouts) > 1


def test_a_watch_may_be_asked_for_by_the_path(world: World) -> None:
    world.pod("a")
    for path in ("/api/v1/watch/namespaces/default/pods", "/api/v1/watch/namespaces/default/pods/a"):
        assert world.watch(path).seen() == [("ADDED", "a")]
