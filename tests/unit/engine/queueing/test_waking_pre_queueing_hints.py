"""KEP-6132's acceptance cases: whom an event is put to, plugin by plugin, and that nobody sleeps through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.events.hints import QueueingHint
from agent_scheduler.engine.events.prehints import ALL_PODS, AllPods, Amount, ByKeys, PodIndex, UpTo

from .queue_world import QUEUE, SKIP, Hint, Pod, World, on, own_update, pod, replace

CLAIM_ADD = ClusterEvent(Resource.RESOURCE_CLAIM, ActionType.ADD)
CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, ActionType.UPDATE)
CLAIM_DELETE = ClusterEvent(Resource.RESOURCE_CLAIM, ActionType.DELETE)
GENERATED = ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM)


def names(*pods: Pod) -> Callable[..., list[str]]:
    return lambda event, old, new: [each.uid for each in pods]


def claims_of(one: Pod) -> Iterable[str]:
    """By name in its spec, and as they were made for it."""
    return [*(one.spec or ()), *(name for _, name in one.claim_statuses)]


class Claims:
    """A plugin that waits for claims, of the shape of DynamicResources. An event's objects are (name, allocated)."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        index = PodIndex(keys_of=claims_of)
        changes = ClusterEvent(Resource.RESOURCE_CLAIM, ActionType.ADD | ActionType.UPDATE | ActionType.DELETE)
        self.events = [on(changes, self.hint, ByKeys(index, self.keys)), on(GENERATED, own_update)]

    def keys(self, event: ClusterEvent, old: Any, new: Any) -> AllPods | Iterable[str]:
        if old is not None and old[1] and (new is None or not new[1]):
            return ALL_PODS
        return [each[0] for each in (old, new) if each is not None]

    def hint(self, one: Pod, old: Any, new: Any) -> QueueingHint:
        self.asked.append(one.name)
        freed = old is not None and old[1] and (new is None or not new[1])
        return QUEUE if freed or (new is not None and new[0] in claims_of(one)) else SKIP


@pytest.mark.parametrize("pre_hint", [None, lambda event, old, new: ALL_PODS])
def test_cases_a_and_b_a_plugin_that_narrows_nothing_sees_all_pods_that_it_refused_and_enlarges_no_other(
    pre_hint: Any,
) -> None:
    one, other = pod("one"), pod("other")
    narrow, wide = Hint(SKIP), Hint(SKIP)
    world = World({"narrow": [on(CLAIM_ADD, narrow, names(one))], "wide": [on(CLAIM_ADD, wide, pre_hint)]})
    for each in (one, other):
        world.refuse(each, "narrow", "wide")
    world.queue.move_all(CLAIM_ADD, None, object())
    assert narrow.asked == ["one"]
    assert sorted(wide.asked) == ["one", "other"]
    asked = [("narrow", "ResourceClaimAdd", 1), ("wide", "ResourceClaimAdd", None)]
    assert world.recorder.pre_hints == (asked if pre_hint else asked[:1])


def _raises(event: ClusterEvent, old: object, new: object) -> list[str]:
    raise ValueError("the index is gone")


def _raises_on_the_way(event: ClusterEvent, old: object, new: object) -> Iterable[str]:
    yield "one-uid"
    raise ValueError("the index is gone")


@pytest.mark.parametrize(
    "wrong",
    [
        _raises,
        _raises_on_the_way,
        lambda event, old, new: None,
        lambda event, old, new: "one-uid",
        lambda event, old, new: [17],
        ByKeys(PodIndex(keys_of=lambda one: [one.name]), _raises),
        ByKeys(PodIndex(keys_of=lambda one: [one.name]), lambda event, old, new: None),  # type: ignore[arg-type, return-value]
        ByKeys(PodIndex(keys_of=lambda one: [one.name]), lambda event, old, new: [["unhashable"]]),  # type: ignore[list-item]
    ],
)
def test_case_c_an_error_means_all_pods_for_that_plugin_alone_and_is_told_once(wrong: Any) -> None:
    one, other = pod("one"), pod("other")
    faulty, narrow = Hint(SKIP), Hint(SKIP)
    world = World({"faulty": [on(CLAIM_ADD, faulty, wrong)], "narrow": [on(CLAIM_ADD, narrow, names(one))]})
    for each in (one, other):
        world.refuse(each, "faulty", "narrow")
    world.queue.move_all(CLAIM_ADD, None, object())
    assert sorted(faulty.asked) == ["one", "other"]
    assert narrow.asked == ["one"]
    assert [(plugin, where) for plugin, where, _ in world.recorder.raised] == [("faulty", "PreQueueingHint")]
    assert ("faulty", "ResourceClaimAdd", None) in world.recorder.pre_hints


def test_case_c_a_pod_whose_keys_raise_hears_of_every_event_and_others_do_not() -> None:
    def keys_of(one: Pod) -> list[str]:
        return [one.spec["claim"]]

    index = PodIndex(keys_of=keys_of)
    hint = Hint(SKIP)
    world = World({"claims": [on(CLAIM_ADD, hint, ByKeys(index, lambda event, old, new: [new]))]})
    world.refuse(pod("broken"), "claims")
    world.refuse(pod("sound", spec={"claim": "a"}), "claims")
    world.queue.move_all(CLAIM_ADD, None, "b")
    assert hint.asked == ["broken"]
    world.queue.move_all(CLAIM_ADD, None, "a")
    assert sorted(hint.asked) == ["broken", "broken", "sound"]
    assert [where for _, where, _ in world.recorder.raised] == ["PreQueueingHint"]
    world.queue.check_invariants()


def test_case_d_an_empty_answer_means_no_pods_for_that_plugin_alone() -> None:
    one = pod("one")
    none, wide = Hint(QUEUE), Hint(SKIP)
    world = World({"none": [on(CLAIM_ADD, none, names())], "wide": [on(CLAIM_ADD, wide)]})
    world.refuse(one, "none", "wide")
    assert world.queue.move_all(CLAIM_ADD, None, object()) == 0
    assert none.asked == [] and wide.asked == ["one"]
    assert world.where(one) == "unschedulable"
    assert world.recorder.pre_hints == [("none", "ResourceClaimAdd", 0)]


@pytest.mark.parametrize(
    ("event", "old", "new", "asked"),
    [
        (CLAIM_UPDATE, ("a", True), ("a", False), ["one", "other"]),
        (CLAIM_DELETE, ("a", True), None, ["one", "other"]),
        (CLAIM_DELETE, ("a", False), None, ["one"]),
        (CLAIM_UPDATE, ("a", False), ("a", True), ["one"]),
        (CLAIM_ADD, None, ("c", False), []),
    ],
)
def test_case_e_what_a_claim_gives_back_is_for_all_and_all_else_for_its_own_pods(
    event: ClusterEvent, old: Any, new: Any, asked: list[str]
) -> None:
    claims = Claims()
    world = World({"claims": claims.events})
    world.refuse(pod("one", spec=["a"]), "claims")
    world.refuse(pod("other", spec=["b"]), "claims")
    world.queue.move_all(event, old, new)
    assert sorted(claims.asked) == asked


@pytest.mark.parametrize("in_flight", [False, True])
def test_case_f_a_pod_that_is_told_late_of_its_claim_is_woken_by_that_and_by_the_claim_from_then_on(
    in_flight: bool,
) -> None:
    claims = Claims()
    world = World({"claims": claims.events})
    early = pod("late", resource_version="1")
    late = replace(early, claim_statuses=(("gpu", "late-gpu"),), resource_version="2")
    entry = world.try_pod(early)
    if in_flight:
        world.queue.add(late)
    world.queue.add_unschedulable(entry, unschedulable_plugins=("claims",))
    if not in_flight:
        assert world.queue.move_all(CLAIM_ADD, None, ("late-gpu", False)) == 0
        world.queue.add(late)
    assert world.where(late) == "backoff"
    # Refused once more, it is found by the name that it has now.
    assert world.pop() is entry
    world.queue.add_unschedulable(entry, unschedulable_plugins=("claims",))
    assert world.where(late) == "unschedulable"
    claims.asked.clear()
    assert world.queue.move_all(CLAIM_UPDATE, ("other", False), ("other", True)) == 0
    assert world.queue.move_all(CLAIM_UPDATE, ("late-gpu", False), ("late-gpu", True)) == 1
    assert claims.asked == ["late"]
    assert not entry.was_flushed


def test_case_f_a_pod_that_stays_in_the_pool_is_found_by_its_newest_keys() -> None:
    claims = Claims()
    world = World({"claims": claims.events[:1]})
    old = pod("one", spec=["a"], resource_version="1")
    new = replace(old, spec=["b"], resource_version="2")
    world.refuse(old, "claims")
    world.queue.add(new)
    assert world.queue.move_all(CLAIM_ADD, None, ("a", False)) == 0
    assert claims.asked == []
    assert world.queue.move_all(CLAIM_ADD, None, ("b", False)) == 1
    assert world.where(new) == "backoff"


@pytest.mark.parametrize("pre_hints", [False, True])
@pytest.mark.parametrize(("claim", "place"), [("a", "backoff"), ("b", "unschedulable")])
def test_case_g_a_pod_in_flight_gets_the_same_answer_when_it_fails(claim: str, place: str, pre_hints: bool) -> None:
    claims = Claims()
    world = World({"claims": claims.events}, pre_queueing_hints=pre_hints)
    one = pod("one", spec=["a"])
    entry = world.try_pod(one)
    world.queue.move_all(CLAIM_ADD, None, (claim, False))
    world.queue.add_unschedulable(entry, unschedulable_plugins=("claims",))
    assert world.where(one) == place
    assert claims.asked == (["one"] if claim == "a" or not pre_hints else [])


def test_case_g_what_an_error_named_for_all_is_put_to_pods_in_flight_too() -> None:
    hint = Hint(QUEUE)
    world = World({"faulty": [on(CLAIM_ADD, hint, _raises)]})
    one = pod("one")
    entry = world.try_pod(one)
    world.queue.move_all(CLAIM_ADD, None, object())
    world.queue.add_unschedulable(entry, unschedulable_plugins=("faulty",))
    assert world.where(one) == "backoff"


def test_case_h_an_entity_of_several_pods_is_asked_as_a_whole_whichever_member_is_named() -> None:
    hint = Hint(QUEUE)
    gangs = PodIndex(keys_of=lambda one: (one.spec,), shared=lambda one: one.spec)
    world = World({"gang": [on(CLAIM_ADD, hint, ByKeys(gangs, lambda event, old, new: [new.spec], once=True))]})
    members = [pod(f"member-{number}", spec="gang") for number in range(3)]
    stranger = pod("stranger", spec="other gang")
    for each in (*members, stranger):
        world.refuse(each, "gang")
    assert world.queue.move_all(CLAIM_ADD, None, members[2]) == 3
    assert len(hint.asked) == 1, "one answer is for all members"
    assert [world.where(each) for each in members] == ["backoff"] * 3
    assert world.where(stranger) == "unschedulable"


# ---- the gate, and what else an index promises


def test_without_the_gate_no_pre_hint_is_asked_and_every_pod_is() -> None:
    claims = Claims()
    world = World({"claims": claims.events}, pre_queueing_hints=False)
    world.refuse(pod("one", spec=["a"]), "claims")
    world.refuse(pod("other", spec=["b"]), "claims")
    assert world.queue.move_all(CLAIM_ADD, None, ("b", False)) == 1
    assert sorted(claims.asked) == ["one", "other"]
    assert world.recorder.pre_hints == []


def test_pods_may_be_named_by_namespace_and_name() -> None:
    one, other = pod("one", namespace="a"), pod("one", namespace="b", uid="other")
    hint = Hint(QUEUE)
    world = World({"narrow": [on(CLAIM_ADD, hint, lambda event, old, new: [("b", "one"), ("c", "x")])]})
    for each in (one, other):
        world.refuse(each, "narrow")
    assert world.queue.move_all(CLAIM_ADD, None, object()) == 1
    assert (world.where(one), world.where(other)) == ("unschedulable", "backoff")
    world.refuse(pod("one", namespace="b", uid="again"), "narrow")
    assert world.queue.move_all(CLAIM_ADD, None, object()) == 1
    world.queue.check_invariants()


def test_pods_that_want_more_than_an_event_offers_are_not_looked_at() -> None:
    hint = Hint(SKIP)
    index = PodIndex(keys_of=lambda one: [Amount(*item) for item in one.requests.items()])
    offers = ByKeys(index, lambda event, old, new: [UpTo(*item) for item in new.items()])
    world = World({"fit": [on(ev.NODE_ADD, hint, offers)]})
    for name, cpu in (("small", 1), ("fitting", 4), ("large", 5)):
        world.refuse(pod(name, requests={"cpu": cpu}), "fit")
    world.refuse(pod("other", requests={"gpu": 1}), "fit")
    world.queue.move_all(ev.NODE_ADD, None, {"cpu": 4, "memory": 9})
    assert sorted(hint.asked) == ["fitting", "small"]


def test_pods_that_share_all_that_a_hint_depends_on_are_asked_once() -> None:
    hint = Hint(QUEUE)
    index = PodIndex(keys_of=lambda one: (), shared=lambda one: one.spec)
    world = World({"class": [on(ev.NODE_ADD, hint, ByKeys(index, once=True))]})
    for number in range(10):
        world.refuse(pod(f"pod-{number}", spec=number % 2), "class")
    assert world.queue.move_all(ev.NODE_ADD, None, object()) == 10
    assert len(hint.asked) == 2
    assert world.recorder.pre_hints == [], "who is asked at once is no narrowing"


def test_a_burst_tells_waiters_once_and_the_same_change_asks_once() -> None:
    hint = Hint(SKIP)
    world = World({"quiet": [on(ev.NODE_UPDATE_LABEL, hint)], "loud": [on(ev.NODE_ADD)]})
    quiet, loud, third = pod("quiet"), pod("loud"), pod("third")
    world.refuse(quiet, "quiet")
    world.refuse(loud, "loud")
    ready = world.ready
    old, new = object(), object()
    with world.queue.burst():
        for _ in range(3):
            world.queue.move_all(ev.NODE_UPDATE_LABEL, old, new)
        world.queue.move_all(ev.NODE_ADD, None, new)
        assert hint.asked == [] and world.ready == ready
        world.queue.add(third)
    assert hint.asked == ["quiet"]
    assert world.ready == ready + 2, "once for the pod that was added, once for the events"
    assert [world.where(each) for each in (quiet, loud, third)] == ["unschedulable", "backoff", "active"]


def test_changes_of_the_same_kind_in_a_burst_are_told_each() -> None:
    def large(pod: object, old: object | None, new: object | None) -> QueueingHint:
        return QUEUE if new == "large" else SKIP

    world = World({"foo": [on(ev.NODE_ADD, large)]})
    one = pod("one")
    world.refuse(one, "foo")
    with world.queue.burst():
        for node in ("small", "large"):
            world.queue.move_all(ev.NODE_ADD, None, node)
    assert world.where(one) == "backoff"


def test_the_same_change_in_another_burst_is_told_again() -> None:
    """What is told of nothing in particular looks the same each time, and a freed object's place is used again."""
    world = World({"foo": [on(ev.NODE_ADD)]})
    one, new = pod("one"), object()
    for _ in range(2):
        world.refuse(one, "foo")
        with world.queue.burst():
            world.queue.move_all(ev.NODE_ADD, None, new)
        assert world.where(one) == "backoff"
        world.clock.step(60)
        world.queue.flush_backoff()


@pytest.mark.parametrize("helped", ["x", "y"])
def test_a_pod_that_is_no_longer_like_its_group_speaks_for_itself_alone(helped: str) -> None:
    """What it needs follows from other objects, such as its claims, so it changes without being told."""
    needs = {"one": "x", "two": "x"}
    index = PodIndex(keys_of=lambda pod: (needs[pod.name],), shared=lambda pod: needs[pod.name], volatile=True)

    def helps(pod: Any, old: object | None, new: object | None) -> QueueingHint:
        return QUEUE if needs[pod.name] == new else SKIP

    events = [on(CLAIM_ADD, helps, ByKeys(index, once=True))]
    world = World({"claims": events}, pre_queueing_hints=True)
    one, two = pod("one"), pod("two")
    for each in (one, two):
        world.refuse(each, "claims")
    needs["one"] = "y"
    world.queue.move_all(CLAIM_ADD, None, helped)
    woken = {each.name for each in (one, two) if world.where(each) == "backoff"}
    assert woken == {"x": {"two"}, "y": {"one"}}[helped]


def test_a_pod_that_changes_within_a_burst_was_asked_as_it_was_before() -> None:
    claims = Claims()
    world = World({"claims": claims.events})
    old = pod("one", spec=["a"], resource_version="1")
    world.refuse(old, "claims")
    with world.queue.burst():
        world.queue.move_all(CLAIM_ADD, None, ("a", False))
        world.queue.add(replace(old, spec=["b"], resource_version="2"))
    assert world.where(old) == "backoff"
