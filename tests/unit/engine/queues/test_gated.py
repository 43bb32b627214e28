"""Who is let past the gate of a queue's capacity, and what is reserved for them, against a ledger and its book."""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from agent_scheduler.engine.queues.asks import turn_of_pod
from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.engine.queues.gated import Choose, GatedMembers, GateStatus
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE

from .test_usage import World, pod, queue

pytestmark = pytest.mark.promise("S32", "S34")

OTHER = "example.com/other"


def gated(name: str, named: str = "q", *, gates: tuple[str, ...] = (QUEUE_ALLOCATION_GATE,), **more: Any) -> PodInfo:
    found = pod(name, named, annotations={QUEUE_ALLOCATION_GATE: "true"}, **more)
    return with_gates(found, *gates)


def with_gates(found: PodInfo, *gates: str) -> PodInfo:
    return replace(found, gates=gates)


class Gates(World):
    """`let` are the names of those that were let past, in turn."""

    def __init__(self, *queues: Any) -> None:
        super().__init__(*queues)
        self.gated = self.usage.gated
        self.let: list[str] = []
        self.due = 0
        self.gated.events.admitted.connect(lambda pods: self.let.extend(each.name for each in pods))
        self.gated.events.gates_due.connect(self._is_due)
        self.gated.admits = True

    def _is_due(self) -> None:
        self.due += 1

    def see(self, *pods: PodInfo) -> None:
        for each in pods:
            self.usage.seen(each)
        self.gated.admit()

    def standing(self, name: str) -> Standing | None:
        entry = self.usage.book.entry(name)
        return None if entry is None else entry.standing


def test_those_that_fit_are_let_past_in_their_turn_and_reserved() -> None:
    world = Gates(queue("q", "2"))
    world.see(gated("c"), gated("a"), gated("b", priority=1))
    assert world.let == ["b", "a"]
    assert world.cpu("q") == 2 and world.standing("a") is Standing.RESERVED and world.standing("c") is None


def test_one_that_was_let_past_and_has_another_gate_after_all_holds_no_room() -> None:
    """As the store goes back to before that one was removed."""
    world = Gates(queue("q", "1"))
    found = gated("a")
    world.see(found, gated("b"))
    world.see(with_gates(found, OTHER))
    assert world.standing("a") is None and world.let == ["a", "b"]
    world.see(with_gates(found))
    assert world.standing("a") is Standing.RESERVED


def test_one_that_is_reserved_is_counted_once_on_its_way_to_a_node() -> None:
    world = Gates(queue("q", "1"))
    found = gated("a")
    world.see(found)
    ungated = with_gates(found)
    world.see(ungated)
    assert world.usage.full(ungated) is None and world.usage.admit(ungated) == ""
    assert world.standing("a") is Standing.ASSUMED and world.cpu("q") == 1
    world.usage.withdraw(ungated)
    assert world.standing("a") is Standing.RESERVED


def test_a_pod_whose_gate_is_gone_before_anybody_let_it_past_is_reserved_from_then_on() -> None:
    world = Gates(queue("q", "1"))
    world.see(gated("a", gates=()))
    assert world.let == [] and world.standing("a") is Standing.RESERVED
    world.see(gated("b"))
    assert world.let == []


def test_room_of_a_member_whose_group_is_deleted_admits_no_other_member() -> None:
    world, key = Gates(queue("q", "1")), GroupKey("team", "g", native=True)
    exists = [key]
    world.gated.choose = lambda found, members, _has: GatedMembers((), [*members]) if found in exists else None
    world.usage.set_native_group(key, exists=True)
    in_group = {"schedulingGroup": {"podGroupName": "g"}}
    world.see(gated("a", gates=(), **in_group), gated("b", **in_group))
    assert world.standing("a") is Standing.RESERVED and world.let == []
    exists.clear()
    world.usage.set_native_group(key, exists=False)
    world.gated.admit()
    assert world.standing("a") is None and world.let == []


def test_a_pod_with_another_gate_is_not_let_past() -> None:
    world = Gates(queue("q", "1"))
    both = gated("a", gates=(QUEUE_ALLOCATION_GATE, OTHER))
    world.see(both)
    assert world.let == [] and not world.gated
    world.see(with_gates(both, QUEUE_ALLOCATION_GATE))
    assert world.let == ["a"]


def test_a_pod_that_no_longer_asks_for_this_is_forgotten() -> None:
    world = Gates(queue("q", "1"))
    world.see(gated("a"), gated("b"))
    world.see(pod("a", "q"))
    assert world.let == ["a", "b"]
    world.see(pod("b", "q"))
    assert not world.gated and world.cpu("q") == 0


def test_room_for_both_is_given_to_pods_without_a_gate_and_to_those_behind_it_at_once() -> None:
    world = Gates(queue("q", "3"))
    world.ledger.assume(pod("placed", "q", cpu="3"), 0)
    world.see(gated("behind"), gated("next"))
    for name in ("waits", "late"):
        assert world.usage.full(pod(name, "q")) is not None
    world.ledger.forget("placed")
    assert (world.let, world.called) == (["behind", "next"], ["late"]), "by name, as all are of one age"


def test_who_was_refused_for_a_full_queue_before_its_room_was_reserved_is_called_for_that_room() -> None:
    """Not for as much beside it."""
    world = Gates(queue("q", "1"))
    world.ledger.assume(pod("placed", "q"), 0)
    late = gated("late", gates=())
    assert world.usage.full(late) is not None
    world.see(late)
    world.ledger.forget("placed")
    assert world.called == ["late"]


def test_with_queues_not_asked_nobody_is_reserved_whenever_queues_come() -> None:
    world = Gates()
    world.usage.room.asks_queues = False
    world.see(gated("a", gates=()), gated("b"))
    world.usage.set_queue(queue("q", "1"))
    world.see(with_gates(gated("b")))
    assert world.standing("a") is None and world.standing("b") is None
    world.ledger.assume(gated("a", gates=()), 0)
    world.ledger.forget("a")
    assert world.standing("a") is None
    # Others are leaving a node for it.
    world.usage.claim([gated("a", gates=())])
    assert world.standing("a") is Standing.STANDS_BY and contradictions(world.ledger) == []
    world.usage.claim([])
    assert world.standing("a") is None


def test_whoever_is_let_past_as_room_is_given_back_finds_that_it_was() -> None:
    world = Gates(queue("q", "1"))
    world.see(gated("a", gates=()), gated("b"))
    known: list[bool] = []
    world.gated.events.admitted.connect(lambda pods: known.append("a" in world.gated.given_back))
    world.gated.give_back("a", "it took too long")
    assert known == [True] and world.standing("a") is None


def test_of_a_gang_that_has_changed_it_is_decided_anew_who_is_let_past_when_room_comes() -> None:
    world = Gates(queue("q", "2"))
    needed: list[PodInfo] = []

    def choose(key: GroupKey, members: Collection[PodInfo], _has: Container[str]) -> GatedMembers | None:
        first = sorted(members, key=turn_of_pod)
        if not key.name.endswith("g"):
            return GatedMembers((), first)
        return GatedMembers(first, ()) if needed else GatedMembers((), first)

    world.gated.choose = choose
    world.ledger.assume(pod("placed", "q", cpu="2"), 0)
    members = [gated(name, group="g") for name in ("a", "b")]
    world.see(*members, gated("z"))
    needed.extend(members)
    key = members[0].batch and members[0].batch.group
    assert key is not None
    world.gated.group_changed(key)
    world.ledger.forget("placed")
    assert world.let == [], "what was decided before is no good, and its room is nobody else's"
    world.gated.admit()
    assert world.let == ["a", "b"]


def test_room_of_a_member_that_is_reserved_no_more_is_not_for_those_above_the_minimum_that_it_was_part_of() -> None:
    world = Gates(queue("q", "1"))

    def choose(_key: GroupKey, members: Collection[PodInfo], reserved: Container[str]) -> GatedMembers | None:
        return GatedMembers((), sorted(members, key=turn_of_pod)) if "first" in reserved else None

    world.gated.choose = choose
    world.see(gated("first", gates=(), group="g"), gated("second", group="g"))
    world.gated.give_back("first", "it took too long")
    world.gated.admit()
    assert world.let == [] and world.cpu("q") == 0


def test_nothing_is_due_when_nothing_has_changed() -> None:
    world = Gates(queue("q", "1"))
    world.see(*(gated(f"p-{number}") for number in range(50)))
    before = world.due
    world.gated.admit()
    assert world.due == before and len(world.usage.waiting) == 49


def test_what_is_told_while_nobody_is_let_past_is_made_up_for() -> None:
    world = Gates(queue("q", "1"))
    world.gated.admits = False
    world.see(gated("a"))
    assert world.let == []
    world.gated.admits = True
    world.gated.admit()
    assert world.let == ["a"]


def test_who_still_has_a_gate_when_its_removals_end_is_held_again() -> None:
    world = Gates(queue("q", "1"))
    world.see(gated("a"))
    world.see(gated("b"))
    world.gated.stop()
    assert world.standing("a") is None and {"a", "b"} == world.gated.held.keys()
    world.gated.admit()
    assert world.let == ["a"]
    world.gated.start()
    world.gated.admit()
    assert world.let == ["a", "a"]


def test_one_that_gave_its_room_back_does_not_reserve_it_again() -> None:
    world = Gates(queue("q", "1"))
    found = gated("a")
    world.see(found, gated("b"))
    world.see(with_gates(found))
    world.gated.give_back("a", "why")
    world.see(with_gates(found))
    assert world.let == ["a", "b"] and world.standing("a") is None
    world.usage.left("a")
    assert "a" not in world.gated


def test_without_queues_a_pod_has_nothing_to_wait_for_and_a_queue_that_comes_counts_it() -> None:
    world = Gates()
    world.usage.delete_queue("root")
    world.see(gated("a"))
    assert world.let == ["a"] and world.standing("a") is None
    world.usage.set_queue(queue("q", "1"))
    assert world.standing("a") is Standing.RESERVED


def in_a_gang(needed: int) -> Choose:
    """Members of the group `g` are let past with `needed` of them, or beside others of theirs; other pods alone."""

    def choose(key: GroupKey, members: Collection[PodInfo], with_room: Container[str]) -> GatedMembers | None:
        found = sorted(members, key=turn_of_pod)
        if any(name in with_room for name in "abcdef") or not key.name.endswith("g"):
            return GatedMembers((), found)
        return GatedMembers(found[:needed], found[needed:]) if len(found) >= needed else None

    return choose


def test_members_of_a_gang_are_let_past_as_many_as_it_needs_and_then_the_others() -> None:
    world = Gates(queue("q", "4"))
    world.gated.choose = in_a_gang(3)
    world.see(gated("a", group="g"), gated("b", group="g"))
    assert world.let == []
    world.see(*(gated(name, group="g") for name in "cdef"))
    assert world.let == ["a", "b", "c", "d"]


def test_a_held_pod_says_what_its_queue_lacks_with_whom_it_waits_and_whose_turn_comes_before() -> None:
    world = Gates(queue("q", "3"))
    world.gated.choose = in_a_gang(2)
    world.ledger.assume(pod("placed", "q", cpu="2"), 0)
    members = [gated(name, group="g") for name in "abc"]
    world.see(*members, gated("y", cpu="2"), gated("z", cpu="2"))
    missing = "queue q has too little capability left: 1 of cpu missing"
    explained = world.gated.explain
    assert explained(members[0]) == GateStatus("q", missing, ("team/b",), ())
    assert explained(members[1]) == GateStatus("q", missing, ("team/a",), ())
    assert explained(members[2]) == GateStatus("q", "its gang's minimum comes first", (), ())
    found = explained(gated("z", cpu="2"))
    assert found is not None and (found.why, found.before) == (missing, ("team/g", "team/y"))
    assert explained(pod("placed", "q")) is None
    world.gated.stop()
    assert explained(members[0]) == GateStatus("q", "this process does not remove gates", (), ())


def test_a_gang_of_which_one_leaves_is_let_past_with_whom_it_has_then_not_with_whom_it_waited() -> None:
    world = Gates(queue("q", "2"))
    world.gated.choose = in_a_gang(2)
    world.ledger.assume(pod("placed", "q"), 0)
    world.see(gated("a", group="g"), gated("b", group="g"))
    world.usage.left("a")
    world.ledger.forget("placed")
    world.gated.admit()
    assert world.let == [], "one alone is not its minimum"
    world.see(gated("c", group="g"))
    assert world.let == ["b", "c"]


def test_members_of_a_gang_that_lacks_some_say_so() -> None:
    world = Gates(queue("q", "3"))
    world.gated.choose = in_a_gang(3)
    members = [gated(name, group="g") for name in "ab"]
    world.see(*members)
    why = "group team/g does not exist, or has not its minimum of members"
    assert world.gated.explain(members[0]) == GateStatus("q", why, (), ())


def test_those_that_come_to_wait_for_a_queue_are_named_once_with_the_reason_and_again_for_another_queue() -> None:
    world = Gates(queue("q", "1"), queue("r", "1"))
    heard: list[tuple[list[str], str]] = []
    world.gated.events.held.connect(lambda pods, why: heard.append(([each.name for each in pods], why)))
    world.gated.choose = in_a_gang(2)
    world.see(*(gated(name, group="g") for name in "ab"), gated("z", cpu="2"))
    missing = "has too little capability left: 1 of cpu missing"
    assert heard == [(["a", "b"], f"queue q {missing}, for 2 pods together"), (["z"], f"queue q {missing}")]
    heard.clear()
    world.see(gated("a", group="g", priority=1), gated("z", cpu="2"))
    assert heard == []
    world.see(gated("z", "r", cpu="2"))
    assert heard == [(["z"], f"queue r {missing}")]
    heard.clear()
    world.see(gated("c", group="g"))
    assert heard == [], "it is above the minimum"


_NAMES = [f"p{number}" for number in range(6)]


class Model(RuleBasedStateMachine):
    """Pods come, are bound or not, and go, in two queues below one."""

    @initialize()
    def begin(self) -> None:
        self.world = Gates(queue("top", "4"), queue("left", "3", "top"), queue("right", None, "top"))
        self.pods: dict[str, PodInfo] = {}

    @rule(name=st.sampled_from(_NAMES), named=st.sampled_from(["left", "right"]), cpu=st.sampled_from("12"))
    def come(self, name: str, named: str, cpu: str) -> None:
        if name not in self.pods:
            self.pods[name] = gated(name, named, cpu=cpu)
            self.world.see(self.pods[name])

    @rule(name=st.sampled_from(_NAMES))
    def lose_its_gate(self, name: str) -> None:
        if name in self.world.gated.reserved:
            self.pods[name] = with_gates(self.pods[name])
            self.world.see(self.pods[name])

    @rule(name=st.sampled_from(_NAMES))
    def be_assumed(self, name: str) -> None:
        found = self.pods.get(name)
        if found is not None and not found.gates and name not in self.world.ledger.placements:
            assert self.world.usage.full(found) is None, "its room is its own"
            self.world.ledger.assume(found, 0)

    @rule(name=st.sampled_from(_NAMES), bound=st.booleans())
    def be_answered(self, name: str, bound: bool) -> None:
        placement = self.world.ledger.placements.get(name)
        if placement is not None and placement.assumed:
            if bound:
                self.world.ledger.confirm(name)
                self.world.usage.left(name)
            else:
                self.world.ledger.forget(name)

    @rule(name=st.sampled_from(_NAMES))
    def go(self, name: str) -> None:
        if self.pods.pop(name, None) is not None:
            self.world.ledger.remove_pod(name)
            self.world.usage.left(name)
            self.world.gated.admit()

    @precondition(lambda self: self.pods)
    @invariant()
    def nobody_is_held_for_whom_there_is_room(self) -> None:
        usage = self.world.usage
        for held in self.world.gated.held.values():
            assert usage.book.shortfall(usage.queue_of(held), usage.vector(held)) is not None

    @invariant()
    def no_queue_holds_more_than_it_may_and_all_that_were_let_past_are_in_one(self) -> None:
        assert list(self.world.usage.book.above_capability()) == []
        for uid in self.world.gated.reserved:
            standing = self.world.standing(uid)
            assert standing is (Standing.ASSUMED if uid in self.world.ledger.placements else Standing.RESERVED)
        assert contradictions(self.world.ledger) == []


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_gang_has_the_turn_of_the_first_of_its_members() -> None:
    world = Gates(queue("q", "2"))
    world.gated.choose = in_a_gang(2)
    world.see(gated("a", group="g", priority=5), gated("b", group="g"), gated("z", priority=3))
    assert world.let == ["a", "b"]


def test_a_queue_is_to_have_room_for_what_a_group_asks_for_at_least() -> None:
    world = Gates(queue("q", "3"))
    world.gated.choose = lambda _key, members, _has: GatedMembers(sorted(members, key=turn_of_pod), (), {"cpu": 4000})
    world.see(gated("a", group="g"))
    assert world.let == []
    world.usage.set_queue(queue("q", "4"))
    world.gated.admit()
    assert world.let == ["a"]


def test_a_gang_that_is_gone_keeps_no_turn_in_its_queue() -> None:
    world = Gates(queue("q", "1"))
    world.gated.choose = in_a_gang(2)
    world.see(gated("a", group="g", priority=5), gated("b", group="g", priority=5), gated("z"))
    world.usage.left("a")
    world.usage.left("b")
    world.gated.admit()
    assert world.let == ["z"] and not len(world.usage.waiting)


def test_a_pod_that_changes_its_group_counts_for_the_new_one_alone() -> None:
    world = Gates(queue("q", "9"))
    world.gated.choose = in_a_gang(2)
    world.see(gated("a", group="g"))
    world.see(gated("a", group="other-g"))
    world.see(gated("b", group="g"))
    assert world.let == []


def test_a_pod_that_comes_to_name_a_group_keeps_its_room_until_that_is_deleted() -> None:
    """The podgroup controller has created the group, and the watch of groups has not delivered it yet."""
    world = Gates(queue("q", "1"))
    world.usage.members.batch_schedulers, key = ("volcano",), GroupKey("team", "g")
    world.see(gated("a", scheduler="volcano"), gated("b"))
    for _ in range(2):
        world.see(with_gates(gated("a", scheduler="volcano", group="g")))
        assert world.let == ["a"] and world.standing("a") is Standing.RESERVED
    world.usage.set_group(key, "q", ())
    assert world.let == ["a"]
    world.usage.set_group(key, None, ())
    world.see(with_gates(gated("a", scheduler="volcano", group="g")))
    assert world.let == ["a", "b"] and world.standing("a") is None


def test_where_no_queue_is_asked_gates_of_others_hold_their_pods_all_the_same() -> None:
    world = Gates(queue("q", "1"))
    world.usage.room.asks_queues = False
    world.see(gated("a", gates=(OTHER,)), gated("b"))
    assert world.let == ["b"] and "a" not in world.gated.held


def test_the_end_of_a_reservation_is_called_once() -> None:
    world = Gates(queue("q", "1"))
    ended: list[str] = []
    world.gated.events.reservation_ended.connect(lambda each: ended.append(each.name))
    world.see(gated("a"))
    world.gated.give_back("a", "it took too long")
    world.usage.left("a")
    assert ended == ["a"]
