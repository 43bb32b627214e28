"""Who says that it wants a node, and that this is so."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE

from .test_usage import World, pod, queue

pytestmark = pytest.mark.promise("S33")

NUMBERS = st.integers(0, 11)


def made(number: int, *, cpu: int = 0, name: str = "") -> PodInfo:
    """Half of them are reserved for as long as they have no node; a third are in the queue of their namespace."""
    return pod(
        f"p{number}",
        name or ("a", "b", "")[number % 3],
        cpu=str(cpu or 1 + number // 2 % 2),
        annotations={QUEUE_ALLOCATION_GATE: "true"} if number % 2 else {},
    )


def test_of_those_that_have_room_reserved_whose_turn_is_last_is_refused_first() -> None:
    world = World(queue("a", "3"))
    early, late = made(1, name="a"), made(9)
    other = pod("p99", "a", annotations={QUEUE_ALLOCATION_GATE: "true"})
    for each in (early, late, other):
        world.usage.seen(each)
        world.usage.wants_node(each, nominated=False)
    assert world.called == []
    world.usage.set_queue(queue("a", "2"))
    assert world.called == ["p99"]
    world.called.clear()
    assert world.usage.full(other) is not None
    world.ledger.assume(other, 0)
    assert world.called == ["p9"], "it has counted only for those that came after it"


def test_who_waits_for_others_to_leave_a_node_keeps_that_while_the_queue_holds_them_too() -> None:
    world = World(queue("a", "3"))
    for number, nominated in ((0, False), (4, True)):
        world.usage.wants_node(made(number, name="a"), nominated=nominated)
    world.ledger.set_pod(made(3, cpu=3), "n")
    assert world.called == ["p0"]
    world.usage.set_queue(queue("a", "2"))
    assert world.called == ["p0", "p0", "p4"]


def test_one_that_has_left_or_has_a_node_is_not_asked_and_the_others_of_its_gang_are() -> None:
    world = World(queue("a", "3"))
    pods = [made(number, cpu=1, name="a") for number in (0, 4, 6, 8)]
    together = world.usage.wanting.together(pods, 2)
    assert together is not None and together.wanted == {"a": {"cpu": 2000, "pods": 2}}
    assert world.usage.wanting.together(pods, 0) is None
    for each in pods:
        world.usage.wants_node(each, nominated=False, together=together)
    world.usage.left("p0")
    world.ledger.set_pod(pods[1], "n")
    assert world.called == [], "there is room for both that they lack"
    world.ledger.set_pod(made(10, cpu=1, name="a"), "n")
    assert sorted(world.called) == ["p6", "p8"]


class Wanting(RuleBasedStateMachine):
    """No node takes any of those that wait, but for those that are placed by force."""

    @initialize()
    def begin(self) -> None:
        self.world = World(queue("a", "4"), queue("b", "3"))
        self.due: list[str] = []
        self.world.usage.events.room.connect(self.due.extend)
        self.pods: dict[str, PodInfo] = {}

    def settle(self) -> None:
        usage = self.world.usage
        while self.due:
            uid = self.due.pop(0)
            found = self.pods.get(uid)
            if found is not None and uid not in self.world.ledger.placements:
                self.attempt(found)
        usage.call()

    def attempt(self, found: PodInfo) -> None:
        usage = self.world.usage
        if usage.full(found) is None:
            usage.unplaced(found.uid)
            if usage.full(found) is None:
                usage.wants_node(found, nominated=False)

    @rule(number=NUMBERS)
    def comes(self, number: int) -> None:
        found = made(number)
        if found.uid not in self.world.ledger.placements:
            self.pods[found.uid] = found
            self.world.usage.seen(found)
            self.attempt(found)
            self.settle()

    @rule(number=NUMBERS, assumed=st.booleans())
    def is_placed(self, number: int, assumed: bool) -> None:
        found = made(number)
        if found.uid in self.world.ledger.placements:
            self.world.ledger.confirm(found.uid)
        elif assumed and found.uid in self.pods and self.world.usage.full(found) is None:
            self.world.usage.admit(found)
            self.world.ledger.assume(found, 0)
        else:
            self.world.ledger.set_pod(found, "n")
        self.settle()

    @rule(number=NUMBERS, returns=st.booleans())
    def goes(self, number: int, returns: bool) -> None:
        uid = made(number).uid
        self.world.ledger.remove_pod(uid)
        if returns and uid in self.pods:
            self.due.append(uid)
        else:
            self.world.usage.left(uid)
            self.pods.pop(uid, None)
        self.settle()

    @rule(number=NUMBERS)
    def gives_its_room_back(self, number: int) -> None:
        uid = made(number).uid
        gated = self.world.usage.gated
        if uid in gated.reserved and uid not in self.world.ledger.placements:
            gated.give_back(uid, "its room was given back")
            self.settle()

    @rule(name=st.sampled_from(["a", "b", "root"]), cpu=st.integers(0, 6), inside=st.booleans())
    def queue_changes(self, name: str, cpu: int, inside: bool) -> None:
        parent = "a" if name == "b" and inside else ""
        self.world.usage.set_queue(queue(name, str(cpu), parent))
        self.settle()

    @rule(name=st.sampled_from(["a", "b", ""]))
    def namespace_changes(self, name: str) -> None:
        self.world.usage.set_namespace("team", name)
        self.settle()

    @invariant()
    def all_that_want_nodes_are_right(self) -> None:
        if hasattr(self, "world"):
            assert self.world.usage.wanting.refused() == []


TestWanting = Wanting.TestCase
