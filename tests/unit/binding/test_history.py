"""What is remembered of attempts, of whom, and for how long."""

from __future__ import annotations

import weakref

import pytest

from agent_scheduler.binding.history import KEPT, LINGERS, History


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.history = History(lambda: self.now)

    def fails(self, uid: str, message: str = "no room") -> None:
        self.now += 1
        self.history.failed(uid, "unschedulable", message, started=self.now - 0.25)

    def told(self, uid: str) -> list[tuple[str, str]]:
        return [(attempt.result, attempt.message) for attempt in self.history.of(uid)]


@pytest.fixture
def world() -> World:
    return World()


def test_an_attempt_says_when_it_began_what_it_took_and_how_it_ended(world: World) -> None:
    world.fails("a")
    (attempt,) = world.history.of("a")
    assert (attempt.began, attempt.seconds) == (100.75, 0.25)
    assert (attempt.result, attempt.message) == ("unschedulable", "no room")


def test_the_last_attempts_are_kept_and_no_more(world: World) -> None:
    for number in range(KEPT + 3):
        world.fails("a", f"reason {number}")
    assert world.told("a") == [("unschedulable", f"reason {number}") for number in range(3, KEPT + 3)]
    world.history.scheduled("a", "n1", started=world.now)
    assert len(world.told("a")) == KEPT
    assert world.told("a")[-1] == ("scheduled", "n1")


def test_the_same_words_are_kept_once(world: World) -> None:
    for uid in "ab":
        world.fails(uid, "".join(["no ", "room"]))
    first, second = (world.history.of(uid)[0].message for uid in "ab")
    assert first is second


def test_a_bound_pod_is_remembered_for_a_minute(world: World) -> None:
    world.fails("a")
    world.history.scheduled("a", "n1", started=world.now)
    world.history.leaves("a", gone=False)
    world.now += LINGERS - 0.1
    assert world.told("a") == [("unschedulable", "no room"), ("scheduled", "n1")]
    world.now += 0.1
    assert world.told("a") == []
    assert len(world.history) == 0


def test_a_deleted_pod_is_forgotten_at_once_even_one_that_is_leaving(world: World) -> None:
    world.fails("a")
    world.fails("b")
    world.history.leaves("b", gone=False)
    world.history.leaves("a", gone=True)
    world.history.leaves("b", gone=True)
    assert len(world.history) == 0
    world.now += LINGERS
    world.history.expire()


def test_a_pod_that_waits_once_more_stays(world: World) -> None:
    world.fails("a")
    world.history.leaves("a", gone=False)
    world.now += LINGERS / 2
    world.fails("a", "still no room")
    world.now += LINGERS
    assert world.told("a") == [("unschedulable", "no room"), ("unschedulable", "still no room")]


def test_whoever_left_first_goes_first(world: World) -> None:
    for uid in "abc":
        world.fails(uid)
        world.history.leaves(uid, gone=False)
    # Seen to leave once more, later than the others.
    world.history.leaves("a", gone=False)
    world.now += LINGERS - 0.5
    world.history.expire()
    assert [uid for uid in "abc" if world.told(uid)] == ["a", "c"]
    world.now += LINGERS
    world.history.expire()
    assert len(world.history) == 0


class Words(str):
    """A text that can be referred to weakly."""


def test_words_that_nobody_was_refused_with_lately_are_not_kept(world: World) -> None:
    said = []
    for number in range(5_000):
        message = Words(f"{number} nodes are too small")
        said.append(weakref.ref(message))
        world.fails(f"p{number}", message)
        del message
        world.history.leaves(f"p{number}", gone=True)
    assert len(world.history) == 0
    assert sum(each() is not None for each in said) < 1_100


def test_a_pod_whose_nodes_went_to_others_has_an_attempt_that_says_so(world: World) -> None:
    world.history.outraced("a", started=world.now - 2)
    assert world.told("a") == [("conflict", "other pods took its candidate nodes")]
    assert world.history.of("a")[0].seconds == 2


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("bound", [False, True])
def test_a_pod_that_never_failed_leaves_without_a_trace(world: World, bound: bool, gone: bool) -> None:
    if bound:
        world.history.scheduled("a", "n1", started=world.now)
    world.history.leaves("a", gone=gone)
    assert world.history.of("a") == () and len(world.history) == 0
    world.now += LINGERS + 1
    world.history.expire()
    assert world.history.of("a") == () and len(world.history) == 0
