"""Groups that are let into their queues, beside gated pods and others, against a ledger and its book; and that pods and
groups move by the table of `engine.queues.standings` alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from operator import attrgetter
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from agent_scheduler.engine.queues.asks import Ask, turn_of_group, turn_of_pod
from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.engine.queues.gated import GatedMembers
from agent_scheduler.engine.queues.shortfall import Shortfall
from agent_scheduler.engine.queues.standings import MOVES, QuotaState, table
from agent_scheduler.engine.quotas.vector import EMPTY, Vector
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.batch import TASK_SPEC, PodGroup, PodGroupCondition
from tests.support import objects
from tests.support.places import ROOT

from .test_gated import Gates, gated, with_gates
from .test_usage import pod, queue

pytestmark = pytest.mark.promise("S32", "S34")


def group(name: str, phase: str = "Pending", *, cpu: int = 2, named: str = "q", **more: Any) -> PodGroup:
    body = objects.pod_group(name, queue=named, phase=phase, minResources={"cpu": str(cpu)}, **more)
    body["metadata"] |= {"namespace": "team", "uid": f"of-{name}"}
    return msgspec.convert(body, PodGroup)


def key_of(name: str) -> GroupKey:
    return GroupKey("team", name)


def ask(name: str, *members: PodInfo, cpu: int = 2, named: str = "q", created: str = "") -> Ask:
    own = turn_of_group(members, 0, created, name, f"of-{name}", ())
    return Ask(key_of(name), named, {"cpu": cpu * 1000}, members, own)


class Groups(Gates):
    """Gangs of which all members that are there are needed."""

    def __init__(self, *queues: Any) -> None:
        super().__init__(*queues)
        self.promises = self.usage.promises
        self.promises.ask_for_groups(True, ())
        self.gated.choose = lambda key, members, _has: GatedMembers(
            sorted(members, key=turn_of_pod) if key in self.known else (), () if key in self.known else [*members]
        )
        self.known: set[GroupKey] = set()
        self.told: list[str] = []
        self.promises.events.let_in.connect(lambda key: self.told.append(key.name))

    def made(self, *groups: PodGroup, members: tuple[PodInfo, ...] = ()) -> None:
        for each in groups:
            key = key_of(each.metadata.name)
            self.known.add(key)
            self.usage.set_group(key, each.spec.queue, [pod.uid for pod in members])
            self.promises.see(each, members)
            self.gated.group_changed(key)
        self.gated.admit()

    def ask(self, *asks: Ask, may_go: Vector = EMPTY) -> None:
        """As a session does."""
        self.promises.begin(asks)
        for each in sorted(asks, key=attrgetter("turn")):
            self.promises.ask(each, may_go)
        self.gated.admit()

    def let_in(self) -> list[str]:
        return sorted(key.name for key, _, _ in self.promises.promises())


def test_a_group_is_let_in_and_past_before_one_that_came_later_and_has_its_pods_first() -> None:
    world = Groups(queue("q", "2"))
    world.made(group("early"), group("late"))
    world.ask(*[ask("early", created="1"), ask("late", created="2")])
    assert world.let_in() == ["early"]
    world.see(gated("l", group="late", cpu="2"))
    assert world.let == [] and world.gated.explain(world.gated.held["l"]) is not None
    world.see(gated("e", group="early", cpu="2"))
    assert world.let == ["e"] and world.promises.left(key_of("early")) == EMPTY and world.cpu("q") == 2


def test_a_group_has_its_turn_before_a_session_has_looked_at_it() -> None:
    """The podgroup controller has made a group for the first of two pods."""
    world = Groups(queue("q", "1"))
    first, second = gated("p-1", group="g"), gated("p-2")
    world.gated.choose = lambda key, members, _has: (
        GatedMembers((), [*members]) if key.name == "p-2" else GatedMembers([*members]) if key in world.known else None
    )
    world.see(first, second)
    assert world.let == [] and world.let_in() == ["g"], "the group itself has not been seen yet"
    world.made(group("g", cpu=1), members=(first,))
    assert world.let == [] and world.let_in() == ["g"], "its room is kept until a session has voted"
    world.ask(ask("g", first, cpu=1))
    assert world.let == ["p-1"]
    world.usage.left("p-1")
    world.promises.withdraw(key_of("g"))
    world.gated.admit()
    assert world.let == ["p-1", "p-2"]


def test_no_turn_is_kept_for_a_group_without_gated_members() -> None:
    """They go before anybody has seen the group."""
    world = Groups(queue("q", "1"))
    world.gated.choose = lambda key, members, _has: None if key.name == "g" else GatedMembers((), [*members])
    world.see(gated("p-1", group="g"), gated("p-2"))
    assert world.let == [] and world.let_in() == ["g"]
    world.usage.left("p-1")
    world.gated.admit()
    assert world.let == ["p-2"] and world.let_in() == []


def test_a_group_that_runs_has_no_turn_kept_any_more() -> None:
    """It was made again while its members ran, one of them behind the gate."""
    world = Groups(queue("q", "2"))
    runs, held = pod("runs", group="g", cpu="2"), gated("held", group="g", cpu="2")
    world.ledger.set_pod(runs, "n")
    world.made(group("g"), members=(runs, held))
    world.see(held)
    world.made(group("g", "Running"), members=(runs, held))
    world.ledger.remove_pod("runs")
    assert world.let == ["held"]


def test_room_that_comes_free_lets_the_next_group_in_between_sessions() -> None:
    world = Groups(queue("q", "2"))
    world.made(group("a"), group("b"))
    world.ask(*[ask("a"), ask("b")])
    world.promises.settle(key_of("a"), "Running", roles_wait=True)
    assert world.let_in() == ["a"]
    world.promises.settle(key_of("a"), "Running", roles_wait=False)
    world.usage.call()
    assert world.let_in() == ["b"] and world.told == ["b"]


def test_what_a_group_was_promised_is_nobody_elses_until_its_members_are_placed() -> None:
    world = Groups(queue("q", "3"))
    world.made(group("g"))
    world.ask(*[ask("g")])
    agent, member = pod("agent", "q", cpu="2"), pod("m", group="g")
    assert world.usage.full(agent) is not None and world.usage.full(member) is None
    world.ledger.assume(member, 0)
    assert world.promises.left(key_of("g")) == {"cpu": 1000} and world.cpu("q") == 2
    world.ledger.forget("m")
    assert world.promises.left(key_of("g")) == {"cpu": 2000}, "its bind has failed"
    world.ledger.set_pod(member, "n")
    world.ledger.remove_pod("m")
    assert world.promises.left(key_of("g")) == {"cpu": 1000}, "it has run"


@pytest.mark.parametrize("is_assumed", [True, False])
def test_a_placed_member_that_names_another_group_returns_what_it_used_of_the_promise(is_assumed: bool) -> None:
    world = Groups(queue("q", "4"))
    world.made(group("g"), group("h"))
    world.ask(ask("g"), ask("h"))
    if is_assumed:
        world.ledger.assume(pod("m", "q", group="g"), 0)
    else:
        world.ledger.set_pod(pod("m", "q", group="g"), "n")
    assert [world.promises.left(key_of(name))["cpu"] for name in "gh"] == [1000, 2000]
    world.ledger.set_pod(pod("m", "q", group="h"), "n")
    assert [world.promises.left(key_of(name))["cpu"] for name in "gh"] == [2000, 1000]


def test_a_group_that_needs_more_than_it_was_promised_has_that_too_or_waits_for_all_of_it() -> None:
    world = Groups(queue("q", "5"))
    world.made(group("a"), group("b"))
    world.ask(*[ask("a"), ask("b")])
    world.ask(*[ask("a", cpu=3)])
    assert world.promises.left(key_of("a")) == {"cpu": 3000}
    world.ask(*[ask("b", cpu=4)])
    assert world.let_in() == ["a"], "two that keep half of what they need would wait for one another"
    world.ask(*[ask("a", cpu=1)])
    assert world.let_in() == ["a", "b"]


def test_members_of_a_group_that_was_let_in_keep_their_gate_while_the_room_is_not_there() -> None:
    """Another process lets groups in, or binds pods, and did not know who else had the room."""
    world = Groups(queue("q", "3"))
    first, second = gated("first", cpu="2"), gated("second", group="g", cpu="2")
    world.made(group("g"))
    world.see(first, second)
    assert world.let == ["first"]
    world.made(group("g", "Inqueue"), members=(second,))
    held = world.gated.explain(world.gated.held["second"])
    assert world.let == ["first"] and held is not None
    assert held.why == "queue q has too little capability left: 1 of cpu missing"
    assert world.usage.full(first) is None, "pods that were let past come before groups that were let in"
    world.usage.left("first")
    world.gated.admit()
    assert world.let == ["first", "second"]


def test_what_is_promised_to_a_group_lets_one_of_its_members_past_and_no_second() -> None:
    """A member has left, so that the others are above the minimum, and each waits by itself."""
    world = Groups(queue("q", "3"))
    members = [gated(f"m-{number}", group="g", cpu="2") for number in range(2)]
    world.gated.choose = lambda _key, held, _has: GatedMembers((), sorted(held, key=turn_of_pod))
    world.made(group("g"))
    world.ask(ask("g", cpu=1))
    world.see(*members)
    assert world.let == ["m-0"] and world.cpu("q") == 2


def test_a_group_that_needs_more_than_its_queue_has_keeps_what_its_members_hold() -> None:
    world = Groups(queue("q", "2"))
    member = with_gates(gated("m", group="g"))
    world.made(group("g"), members=(member,))
    world.see(member)
    world.ask(ask("g", member))
    assert world.let_in() == ["g"] and world.promises.left(key_of("g")) == {"cpu": 1000}
    world.ask(ask("g", member, cpu=3))
    assert world.let_in() == [] and world.cpu("q") == 1, "as a new process finds it"


@pytest.mark.parametrize(("phase", "roles", "kept"), [("Inqueue", "", 2), ("Running", "", 0), ("Running", "b", 1)])
def test_a_new_process_finds_what_was_promised(phase: str, roles: str, kept: int) -> None:
    world = Groups(queue("q", "2"))
    ended = replace(pod("a", group="g"), finished=True, node_name="n")
    annotations = {"agent-scheduler.io/waiting-roles": roles} if roles else {}
    world.made(group("g", phase, annotations=annotations), members=(ended,) if roles else ())
    assert world.cpu("q") == kept
    world.promises.gone(key_of("g"))
    assert world.cpu("q") == 0


def test_a_group_that_runs_keeps_for_its_stages_what_a_new_process_would_find() -> None:
    """A session had found more members than it needs, and it comes to run."""
    world = Groups(queue("q", "4"))
    world.made(group("g"))
    world.ask(*[ask("g", cpu=3)])
    assert world.cpu("q") == 3
    runs = group("g", "Running", annotations={"agent-scheduler.io/waiting-roles": "b"})
    world.made(runs)
    assert world.cpu("q") == 2
    world.promises.read_anew([(runs, ())])
    assert world.cpu("q") == 2


def test_a_new_process_goes_by_members_that_are_seen_after_their_group() -> None:
    """Of a group that says less than its members ask for."""
    world = Groups(queue("q", "4"))
    found, members = group("g", "Inqueue", cpu=1, minMember=2), [gated(name, group="g") for name in "ab"]
    world.made(found)
    assert world.cpu("q") == 1
    world.promises.read_anew([(found, members)])
    assert world.cpu("q") == 2
    # The group was let in for more, and one whose turn is before has come meanwhile.
    world.see(gated("first", cpu="2", priority=1))
    world.ask(ask("g", *members, cpu=3))
    assert world.let_in() == [] and world.cpu("q") == 2
    world.usage.left("first")
    world.promises.read_anew([(found, members)])
    world.ask(ask("g", *members, cpu=3))
    assert world.promises.left(key_of("g")) == {"cpu": 3000}


def test_a_new_process_promises_nothing_to_a_group_that_was_let_in_and_says_that_its_queue_is_full() -> None:
    """Its turn is before the turn of one that was promised the room that is left."""
    world = Groups(queue("q", "2"))
    first, second = group("first", "Inqueue"), group("second", "Inqueue", cpu=1)
    full = PodGroupCondition(type="Unschedulable", status="True", reason="QueueFull")
    first = replace(first, status=replace(first.status, conditions=(full,)))
    asks = ask("first", created="1"), ask("second", cpu=1, created="2")
    world.made(first, second)
    world.promises.read_anew([(first, ()), (second, ())])
    assert world.cpu("q") == 1 and world.let_in() == ["first", "second"]
    world.ask(*asks, may_go={"cpu": 1000})
    assert world.cpu("q") == 1 and world.let_in() == ["first", "second"], "others may be evicted for it still"
    world.ask(*asks)
    assert world.cpu("q") == 1 and world.let_in() == ["second"]
    world.promises.gone(key_of("second"))
    world.gated.admit()
    assert world.cpu("q") == 2 and world.let_in() == ["first"]


def test_a_new_process_promises_what_the_minimums_of_roles_ask_for() -> None:
    world = Groups(queue("q", "4"))
    workers = [pod(name, group="g", annotations={TASK_SPEC: "worker"}) for name in "ab"]
    head = pod("c", cpu="2", group="g", annotations={TASK_SPEC: "head"})
    found = group("g", "Inqueue", cpu=2, minMember=2, minTaskMember={"head": 1, "worker": 1})
    world.made(found, members=(*workers, head))
    assert world.cpu("q") == 3


def test_a_group_moves_to_another_queue_without_what_it_was_promised() -> None:
    world = Groups(queue("q", "2"), queue("p", "1"))
    world.made(group("g"))
    world.ask(*[ask("g")])
    world.made(group("g", "Inqueue", named="p"))
    assert world.let_in() == [] and world.cpu("q") == world.cpu("p") == 0
    world.ask(*[ask("g", named="p")])
    assert str(world.promises.shortfall(key_of("g"))) == "queue p has too little capability left: 1 of cpu missing"


def test_members_of_other_schedulers_use_the_promise_that_a_session_made_without_them() -> None:
    world = Groups(queue("q", "4"))
    members = tuple(pod(name, group="g", scheduler="other") for name in "ab")
    world.made(group("g"), members=members)
    for each in members:
        world.ledger.set_pod(each, "n")
    world.ask(ask("g"))
    assert world.cpu("q") == 4, "the session knows no members"
    freed: list[bool] = []
    world.usage.events.unreserved.connect(lambda: freed.append(True))
    for _ in range(2):
        world.made(group("g", "Inqueue"), members=members)
    assert (world.cpu("q"), world.promises.left(key_of("g")), freed) == (2, EMPTY, [True])


def test_what_jobs_hold_above_their_minimums_lets_a_group_in_that_has_no_gates() -> None:
    world = Groups(queue("q", "2"))
    world.ledger.set_pod(pod("low", "q", cpu="2"), "n")
    held = gated("h", group="h", cpu="2")
    world.made(group("g"), group("h"))
    world.see(held)
    world.ask(*[ask("h", held)], may_go={"cpu": 2000})
    assert world.let_in() == [], "nobody is evicted for a pod behind its gate"
    world.ask(*[ask("g")], may_go={"cpu": 2000})
    assert world.let_in() == ["g"] and world.cpu("q") == 2, "nothing is kept of what others hold"
    told: list[bool] = []
    world.usage.events.unreserved.connect(lambda: told.append(True))
    world.ask(*[ask("g")], may_go={"cpu": 2000})
    assert world.let_in() == ["g"] and told == [], "each session would have to be followed by another"
    world.promises.gone(key_of("h"))
    world.ledger.remove_pod("low")
    assert world.promises.left(key_of("g")) == {"cpu": 2000} and not world.promises.asks_for(key_of("g"))


def test_a_group_that_lacks_members_for_long_gives_way_to_those_who_have_theirs() -> None:
    world = Groups(queue("q", "2"))
    world.made(group("g"), group("h"))
    lacking = [ask(name)._replace(complete=False) for name in ("g", "h")]
    world.ask(*lacking)
    # Pods of a Job are made when its group is let in, so each is given one turn.
    assert [world.promises.give_way(now, 30) for now in (0.0, 29.0)] == [False, False]
    assert [world.promises.gives_way_at(now, 30) for now in (29.0, 30.0)] == [30.0, inf]
    assert world.promises.give_way(30.0, 30)
    world.ask(lacking[0])
    assert world.let_in() == ["h"]
    assert not any(world.promises.give_way(now, 30) for now in (40.0, 100.0)), "nobody else could use it"
    world.see(gated("a"))
    assert world.promises.give_way(101.0, 30) and world.let == ["a"] and world.let_in() == []
    for _ in range(2):
        world.ask(*lacking)
        assert world.let_in() == []
    world.usage.left("a")
    world.ask(*[ask("g")])
    assert not any(world.promises.give_way(now, 30) for now in (0.0, 100.0))


def test_a_group_that_lacks_members_gives_way_to_those_alone_who_then_have_room() -> None:
    world = Groups(queue("q", "2"), queue("r", "1"))
    world.made(group("g"))
    lacking = ask("g")._replace(complete=False)
    world.ask(lacking)
    world.see(gated("elsewhere", "r", cpu="2"), gated("large", cpu="3"))
    assert not any(world.promises.give_way(now, 30) for now in (0.0, 100.0))
    # A session has refused a group that asked for nothing, and does not wait in line.
    world.promises.outside.set_lacking([Shortfall("q", {"cpu": 2500}), Shortfall("r", {"cpu": 500})])
    assert not world.promises.give_way(101.0, 30)
    world.promises.outside.set_lacking([Shortfall("q", {"cpu": 500})])
    assert world.promises.give_way(102.0, 30)
    for _ in range(2):
        world.ask(lacking)
        assert world.let_in() == [], "it would have the room again before a session gives it to the other"
    world.promises.outside.set_lacking([])
    world.ask(lacking)
    assert world.let_in() == ["g"]


@pytest.mark.parametrize("missing", [1500, 2500])
def test_groups_that_lack_members_give_way_together_if_none_of_them_is_enough(missing: int) -> None:
    world = Groups(queue("q", "2"))
    world.made(group("g", cpu=1), group("h", cpu=1))
    lacking = [ask(name, cpu=1)._replace(complete=False) for name in ("g", "h")]
    world.ask(*lacking)
    world.promises.outside.set_lacking([Shortfall("q", {"cpu": missing})])
    assert [world.promises.give_way(now, 30) for now in (0.0, 30.0)] == [False, missing == 1500]
    assert [world.usage.book.used("q").get("cpu", 0)] == [0 if missing == 1500 else 2000]


@pytest.mark.parametrize("missing", [1000, 1500, 2000])
def test_a_group_that_comes_last_leaves_room_that_came_free_to_those_whom_a_session_refused(missing: int) -> None:
    world = Groups(queue("q", "3"))
    world.made(group("g", cpu=1))
    lacking = ask("g", cpu=1)._replace(complete=False)
    world.ask(lacking)
    world.see(gated("a", cpu="3"))
    assert [world.promises.give_way(now, 30) for now in (0.0, 30.0)] == [False, True]
    world.ask(lacking)
    assert world.let == ["a"] and world.let_in() == []
    world.promises.outside.set_lacking([Shortfall("q", {"cpu": missing})])
    world.usage.left("a")
    world.ledger.set_pod(pod("other", "q", cpu="1"), "n")
    world.ask(lacking)
    # Two are free, and the group needs one.
    assert world.let_in() == (["g"] if missing == 1000 else [])


def test_a_group_that_has_given_way_comes_after_all_who_have_their_members_for_an_hour() -> None:
    world = Groups(queue("q", "2"))
    world.made(group("g"), group("h"))
    lacking = [ask(name)._replace(complete=False) for name in ("g", "h")]
    world.ask(*lacking)
    assert [world.promises.give_way(now, 30) for now in (0.0, 30.0)] == [False, True]
    world.ask(*lacking)
    assert world.let_in() == ["h"]
    # One that comes now is after both, and has the room: it says that it wants a node.
    single = pod("single", "q")
    assert world.usage.full(single) is not None
    assert [world.promises.give_way(now, 30) for now in (31.0, 61.0)] == [False, True]
    assert world.called == ["single"] and world.usage.full(single) is None
    for _ in range(2):
        world.ask(*lacking)
        assert world.let_in() == [], "neither is to have it while the other has given way"
        world.usage.wants_node(single, nominated=False)
    assert not world.promises.give_way(3600.0, 30)
    # Members of sessions want nodes, too.
    world.usage.left("single")
    world.promises.outside.wanted = {"q": {"cpu": 1000}}
    assert not world.promises.give_way(3629.0, 30)
    assert world.promises.give_way(3630.0, 30), "the first of them has its turn again"
    world.ask(*lacking)
    assert world.let_in() == ["g"]


def test_a_member_is_let_past_with_what_its_group_was_promised_when_others_have_given_theirs_back() -> None:
    """Else the promise would be kept for a member that never uses it."""
    world = Groups(queue("q", "2"))
    first, last = with_gates(gated("m-1", group="g")), with_gates(gated("m-2", group="g"), "other", "ours")
    world.made(group("g"))
    world.gated.choose = lambda key, members, _has: (
        GatedMembers((first, last)) if key in world.known else GatedMembers((), [*members])
    )
    world.see(first)
    world.ask(ask("g", first, last))
    world.gated.give_back("m-1", "too long")
    world.see(gated("m-2", group="g"), gated("late"))
    assert world.let == ["m-2", "late"]


def test_a_pod_that_wants_a_node_is_tried_again_when_a_group_is_promised_its_room() -> None:
    """Otherwise an autoscaler adds nodes for a pod that has no room in its queue."""
    world = Groups(queue("q", "2"))
    world.usage.wants_node(pod("wants", "q"), nominated=False)
    world.made(group("g"))
    world.ask(ask("g"))
    assert world.called == ["wants"]


@pytest.mark.parametrize("cpu", [3, 4])
def test_a_group_whose_members_gave_their_room_back_needs_that_again_to_be_let_in(cpu: int) -> None:
    """Otherwise a group that is too large for its queue, or has become so, would keep room for which others wait."""
    world = Groups(queue("q", "3"))
    members = with_gates(gated("m-1", group="g")), with_gates(gated("m-2", group="g"))
    world.made(group("g"))
    world.see(*members)
    world.ask(ask("g", *members, cpu=cpu))
    fits = cpu == 3
    assert world.let_in() == (["g"] if fits else [])
    for member in members:
        world.gated.give_back(member.uid, "too long")
    world.usage.set_queue(queue("q", "2"))
    world.see(gated("late", cpu="2"))
    assert world.let == ([] if fits else ["late"])
    world.ask(ask("g", *members, cpu=cpu))
    assert world.let_in() == [] and world.let == ["late"]


def test_room_is_kept_for_pods_for_which_others_leave_and_what_a_gate_reserved_stays() -> None:
    world = Groups(queue("q", "2"))
    world.ledger.set_pod(pod("low", "q", cpu="2"), "n")
    high, late = pod("high", "q"), gated("late")
    world.usage.claim([high])
    world.ledger.remove_pod("low")
    world.see(late)
    assert world.let == ["late"] and world.cpu("q") == 2
    world.see(gated("later"))
    assert world.let == ["late"], "the rest is kept for the one for which another left"
    world.usage.claim([late])
    assert world.let == ["late", "later"]
    world.gated.give_back("late", "it had no node for too long")
    assert world.cpu("q") == 2 and contradictions(world.ledger) == [], "others leave for it"
    world.usage.claim([])
    assert world.cpu("q") == 1 and contradictions(world.ledger) == []


_NAMES = ("a", "b", "c")


class Model(RuleBasedStateMachine):
    """Groups of two, gated or not, in two queues below one, and pods of the fast path."""

    @initialize()
    def begin(self) -> None:
        self.world = Groups(queue("top", "5"), queue("left", "3", "top"), queue("right", None, "top"))
        self.pods: dict[str, PodInfo] = {}
        self.queues: dict[str, str] = {}
        self.states: dict[str, QuotaState] = {}
        self.world.gated.events.admitted.connect(self._let_past)

    def _let_past(self, pods: Sequence[PodInfo]) -> None:
        """No gate goes beyond what there is, whoever has used how much."""
        book = self.world.usage.book
        for name in {self.world.usage.queue_of(each) for each in pods}:
            for info, limits in book.upwards(name):
                kept = [
                    entry.vector
                    for _, entry in book.entries()
                    if entry.standing is not Standing.PROMISED and book.reaches(entry.queue, (info.name,))
                ]
                assert sum(each.get("cpu", 0) for each in kept) <= limits.get("cpu", inf)

    def _members(self, name: str) -> tuple[PodInfo, ...]:
        return tuple(each for each in self.pods.values() if each.batch and each.batch.group == key_of(name))

    @rule(name=st.sampled_from(_NAMES), named=st.sampled_from(["left", "right"]))
    def make(self, name: str, named: str) -> None:
        if name not in self.queues:
            self.queues[name] = named
            self.world.made(group(name, named=named), members=self._members(name))

    @rule()
    def hold_a_session(self) -> None:
        waiting = [each for each in self.queues if not self.world.promises.is_let_in(key_of(each))]
        self.world.ask(*[ask(each, *self._members(each), named=self.queues[each], created=each) for each in waiting])

    @rule(name=st.sampled_from(_NAMES), number=st.integers(0, 1), has_gate=st.booleans())
    def come(self, name: str, number: int, has_gate: bool) -> None:
        uid = f"{name}-m-{number}"
        if uid not in self.pods and name in self.queues:
            self.pods[uid] = (gated if has_gate else pod)(uid, self.queues[name], group=name)
            self.world.see(self.pods[uid])

    @rule(number=st.integers(0, 2), has_gate=st.booleans())
    def come_alone(self, number: int, has_gate: bool) -> None:
        uid = f"alone-{number}"
        if uid not in self.pods:
            self.pods[uid] = (gated if has_gate else pod)(uid, "left")
            self.world.see(self.pods[uid])

    @rule(number=st.integers(0, 1))
    def be_bound_by_others(self, number: int) -> None:
        uid = f"other-{number}"
        self.pods[uid] = pod(uid, "right", cpu="3")
        self.world.ledger.set_pod(self.pods[uid], "n")

    @rule(name=st.sampled_from(_NAMES))
    def be_let_in_by_others(self, name: str) -> None:
        if name in self.queues:
            named = self.queues[name]
            self.world.made(group(name, "Inqueue", named=named), members=self._members(name))

    @rule()
    def lose_gates(self) -> None:
        for uid in list(self.world.gated.reserved):
            self.pods[uid] = with_gates(self.pods[uid])
            self.world.see(self.pods[uid])

    @rule(data=st.data())
    def be_assumed(self, data: st.DataObject) -> None:
        waiting = [uid for uid, each in self.pods.items() if not each.gates and not self._is_placed(uid)]
        if waiting:
            found = self.pods[data.draw(st.sampled_from(waiting))]
            if self.world.usage.full(found) is None:
                self.world.ledger.assume(found, 0)

    @rule(data=st.data(), other=st.sampled_from(_NAMES))
    def name_another_group(self, data: st.DataObject, other: str) -> None:
        placed = [uid for uid in self.pods if self._is_placed(uid) and uid[0] in _NAMES and "-m-" in uid]
        if placed and other in self.queues:
            uid = data.draw(st.sampled_from(sorted(placed)))
            self.pods[uid] = pod(uid, self.queues[other], group=other)
            self.world.ledger.set_pod(self.pods[uid], "n")
            self.world.gated.admit()

    @rule(bound=st.booleans())
    def be_answered(self, bound: bool) -> None:
        for uid, placement in list(self.world.ledger.placements.items()):
            if placement.assumed:
                if bound:
                    self.world.ledger.confirm(uid)
                    self.world.usage.left(uid)
                else:
                    self.world.ledger.forget(uid)
        self.world.gated.admit()

    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        if self.pods:
            uid = data.draw(st.sampled_from(sorted(self.pods)))
            del self.pods[uid]
            self.states.pop(uid, None)
            self.world.ledger.remove_pod(uid)
            self.world.usage.left(uid)
            self.world.gated.admit()

    def _is_placed(self, uid: str) -> bool:
        return uid in self.world.ledger.placements

    @invariant()
    def all_move_by_the_table(self) -> None:
        moves = {(each.of, each.before, each.after) for each in MOVES}
        now = {uid: self.world.usage.state_of(each) for uid, each in self.pods.items()}
        now |= {name: self.world.usage.state_of_group(key_of(name)) for name in self.queues}
        for name, state in now.items():
            before = self.states.get(name)
            of = "group" if name in self.queues else "pod"
            steps = {state} | {through for kind, start, through in moves if (kind, start) == (of, before)}
            assert before is state or any(step is state or (of, step, state) in moves for step in steps), (
                f"{name}: {before} to {state}"
            )
        self.states = now

    @invariant()
    def the_ledger_is_of_one_mind(self) -> None:
        assert contradictions(self.world.ledger) == []

    @invariant()
    def placed_members_use_the_promise_of_their_group_and_no_other(self) -> None:
        spender = self.world.promises._spender
        for uid, placement in self.world.ledger.placements.items():
            batch = placement.pod.batch if isinstance(placement.pod, PodInfo) else None
            key = batch.group if batch is not None else None
            expected = key if key in self.world.promises._promises else None
            assert spender.get(uid) == expected

    @invariant()
    def nobody_waits_for_room_that_there_is(self) -> None:
        usage = self.world.usage
        for held in self.world.gated.held.values():
            key = held.batch.group if held.batch is not None else None
            if key is None:
                assert usage.book.shortfall(usage.queue_of(held), usage.vector(held)) is not None
            else:
                short = usage.promises.shortfall(key)
                assert short is not None or not usage.promises.is_let_in(key), "whoever is let in is let past"
        for name in self.queues:
            if usage.promises.asks_for(key_of(name)):
                assert usage.promises.shortfall(key_of(name)) is not None


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_page_on_gates_has_the_table_of_states() -> None:
    assert table() in (ROOT / "docs" / "gates.md").read_text()
