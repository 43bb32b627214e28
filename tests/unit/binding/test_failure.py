"""What becomes of an attempt that failed: how its pod is queued, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_scheduler.binding.failure import FailureHandler
from agent_scheduler.binding.history import History
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.framework.plugin import NO_NODES, POD_SPEC
from agent_scheduler.engine.plugins.node_shard import NAME as NODE_SHARD
from agent_scheduler.engine.queues.shortfall import Shortfall
from agent_scheduler.engine.queues.usage import QueueUsage

POD = cast(Any, SimpleNamespace(uid="u", scheduler_name="agent-scheduler", cls=SimpleNamespace(error="no quantity")))
ENTRY = cast(Any, object())
LACKS = Shortfall("q", {"cpu": 1000})


class World:
    """A pod whose attempt has failed. `waits`: whether it is still there to wait."""

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits
        #: By what it is waited for; what people are told; results that are counted; nodes it is nominated to.
        self.queued: list[set[str]] = []
        self.told: list[tuple[str, str]] = []
        self.counted: list[str] = []
        self.nominated: list[str] = []
        #: UID -> node, of pods that the nominator knows as nominated.
        self.known: dict[str, str] = {}
        self.history = History(lambda: 5.0)
        queue = SimpleNamespace(
            add_unschedulable=self._add,
            nominate=lambda _pod, node: self.nominated.append(node),
            nominator=SimpleNamespace(nominated=self.known),
        )
        messenger = SimpleNamespace(refused=lambda _pod, reason, message, **_more: self.told.append((reason, message)))
        observer = SimpleNamespace(attempted=lambda _pod, result, *_: self.counted.append(result))
        self.handler = FailureHandler(
            queue=cast(Any, queue),
            messenger=cast(Any, messenger),
            observer=cast(Any, observer),
            history=self.history,
            usage=QueueUsage({}),
            outside=None,
        )

    def _add(self, entry: object, *, unschedulable_plugins: Any = ()) -> object | None:
        assert entry is ENTRY
        self.queued.append(set(unschedulable_plugins))
        return object() if self.waits else None


def refusal(*plugins: str) -> Refusal:
    return cast(Refusal, SimpleNamespace(plugins=frozenset(plugins), message="0/1 nodes are available."))


def refused(*plugins: str, **more: bool) -> Callable[[FailureHandler], object]:
    return lambda it: it.unschedulable(ENTRY, POD, refusal(*plugins), started=1.0, nominated="n1", **more)


FULL = ("Unschedulable", "0/1 nodes are available.")
#: How an attempt fails -> what the pod waits for, what is counted, and what people are told.
FAILURES: list[tuple[Callable[[FailureHandler], object], set[str], str, tuple[str, str]]] = [
    (refused("NodePorts"), {"NodePorts"}, "unschedulable", FULL),
    (refused(), {NO_NODES}, "unschedulable", FULL),
    (refused("NodePorts", again=True), set(), "unschedulable", FULL),
    (
        lambda it: it.without_shard(ENTRY, POD, "no shard", nodes=3, started=1.0),
        {NODE_SHARD},
        "unschedulable",
        ("NodeShardNotReady", "0/3 nodes are available: no shard."),
    ),
    (lambda it: it.unreadable(ENTRY, POD, started=1.0), {POD_SPEC}, "error", ("SchedulerError", "no quantity")),
    (lambda it: it.error(ENTRY, POD, "why", started=1.0), set(), "error", ("SchedulerError", "why")),
]
NAMES = ["refused", "no nodes", "refused and to be tried again", "without a shard", "unreadable", "error"]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(("fails", "waits_for", "result", "told"), FAILURES, ids=NAMES)
def test_a_pod_waits_for_what_refused_it_and_people_are_told_why_unless_it_went_meanwhile(
    fails: Callable[[FailureHandler], object], waits_for: set[str], result: str, told: tuple[str, str], waits: bool
) -> None:
    world = World(waits=waits)
    still_waits = fails(world.handler)
    assert (world.queued, world.counted) == ([waits_for], [result])
    if not waits:
        assert not still_waits
        assert world.told == [] and world.nominated == [] and world.history.of(POD.uid) == ()
        return
    assert still_waits in (True, None)
    assert world.told == [told]
    assert world.nominated == (["n1"] if still_waits else [])
    (attempt,) = world.history.of(POD.uid)
    assert (attempt.began, attempt.seconds, attempt.result, attempt.message) == (1.0, 4.0, result, told[1])


def test_an_error_that_was_told_before_is_not_told_again() -> None:
    world = World(waits=True)
    world.handler.error(ENTRY, POD, "why", started=1.0, tell=False)
    assert world.told == [] and len(world.history.of(POD.uid)) == 1


@pytest.mark.parametrize(("known", "on_object", "cleared"), [("", "", False), ("n1", "", True), ("", "n1", True)])
def test_a_pod_whose_queue_is_full_keeps_no_nomination(known: str, on_object: str, cleared: bool) -> None:
    world = World(waits=True)
    if known:
        world.known[POD.uid] = known
    pod = cast(Any, SimpleNamespace(**vars(POD), nominated_node_name=on_object))
    world.handler.queue_full(ENTRY, pod, LACKS, started=1.0)
    assert world.nominated == ([""] if cleared else [])
    assert world.told == [("QueueFull", str(LACKS))]


@pytest.mark.parametrize("waits_for_queue", [False, True])
def test_a_pod_that_failed_gives_up_its_room_in_a_queue_unless_it_waits_for_it(waits_for_queue: bool) -> None:
    world, unplaced = World(waits=True), list[str]()
    wanting = SimpleNamespace(drop=lambda _uid: None)
    room = SimpleNamespace(active=True)
    world.handler._usage = cast(Any, SimpleNamespace(room=room, unplaced=unplaced.append, wanting=wanting))
    pod = cast(Any, SimpleNamespace(**vars(POD), nominated_node_name=""))
    if waits_for_queue:
        world.handler.queue_full(ENTRY, pod, LACKS, started=1.0)
    else:
        world.handler.error(ENTRY, pod, "why", started=1.0)
    assert unplaced == ([] if waits_for_queue else ["u"])
