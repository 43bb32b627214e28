"""Who has which nodes, whatever happens to processes and nodes: step by step against what the processes do."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent_scheduler.processes.parts import Parts
from tests.examples import examples

FENCE = 5.0
NODES = [f"n{number}" for number in range(9)]
PROCESSES = range(4)


class PartsMachine(RuleBasedStateMachine):
    """The processes use what they were told to, bind there, and leave late; what a dead one sent arrives late."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = Parts(fence=FENCE)
        self.now = 100.0
        self.wanted: dict[str, bool] = {}
        #: Process -> what it uses; what it was asked for and has not answered.
        self.uses: dict[int, set[str]] = {}
        self.asked: dict[int, set[str]] = {}
        #: Node -> until when something of a process that has ended may arrive.
        self.late: dict[str, float] = {}
        #: Nodes that anybody has used.
        self.used: set[str] = set()

    def move(self) -> None:
        for move in self.parts.moves(self.now):
            assert move.part in self.uses, "a process that is not there was told something"
            assert set(move.leave) <= self.uses[move.part]
            self.uses[move.part] -= set(move.leave)
            self.asked[move.part] |= set(move.leave)
            for name in move.add:
                others = [mine | self.asked[part] for part, mine in self.uses.items()]
                assert not any(name in each for each in others), f"{name} is used by two"
                assert self.late.get(name, 0.0) <= self.now, f"{name} was given before the fence"
            assert move.used_before == (not self.used.isdisjoint(move.add))
            self.uses[move.part] |= set(move.add)
            self.used |= set(move.add)

    @rule(nodes=st.dictionaries(st.sampled_from(NODES), st.booleans()))
    def nodes_change(self, nodes: dict[str, bool]) -> None:
        self.wanted = nodes
        self.parts.divide(
            [name for name, first in nodes.items() if first],
            [name for name, first in nodes.items() if not first],
        )
        self.move()

    @precondition(lambda self: len(self.uses) < len(PROCESSES))
    @rule(data=st.data())
    def a_process_comes(self, data: st.DataObject) -> None:
        part = data.draw(st.sampled_from([each for each in PROCESSES if each not in self.uses]))
        self.uses[part], self.asked[part] = set(), set()
        self.parts.join(part)
        self.move()

    @precondition(lambda self: self.uses)
    @rule(data=st.data())
    def a_process_ends(self, data: st.DataObject) -> None:
        part = data.draw(st.sampled_from(sorted(self.uses)))
        for name in self.uses.pop(part) | self.asked.pop(part):
            self.late[name] = self.now + FENCE
        self.parts.end(part, self.now)
        self.move()

    @precondition(lambda self: any(self.asked.values()))
    @rule(data=st.data())
    def a_process_leaves_nodes(self, data: st.DataObject) -> None:
        part = data.draw(st.sampled_from(sorted(each for each in self.asked if self.asked[each])))
        names = data.draw(st.sets(st.sampled_from(sorted(self.asked[part])), min_size=1))
        self.asked[part] -= names
        self.parts.left(part, names)
        self.move()

    @rule(seconds=st.sampled_from([1.0, FENCE]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.move()

    @rule()
    def it_comes_to_rest(self) -> None:
        """When everybody has answered and every fence is over, all nodes are used, and in even parts."""
        for _ in range(4):
            for part, names in self.asked.items():
                self.parts.left(part, names)
                names.clear()
            if (free := self.parts.next_free()) is not None:
                self.now = max(self.now, free)
            self.move()
        assert self.parts.settled or not self.uses
        if not self.uses:
            return
        for first in (True, False):
            names = {name for name, is_first in self.wanted.items() if is_first is first}
            counts = [len(mine & names) for mine in self.uses.values()]
            assert sum(counts) == len(names)
            assert max(counts) - min(counts) <= 1
        assert self.parts.under_way(NODES) == {name for name, first in self.wanted.items() if first}

    @invariant()
    def what_is_asked_is_answered_truly(self) -> None:
        for name in NODES:
            holders = [part for part, mine in self.uses.items() if name in mine]
            assert self.parts.holder(name) == (holders[0] if holders else None)


PartsMachine.TestCase.settings = settings(examples(150), stateful_step_count=30)
TestParts = PartsMachine.TestCase


def given(parts: Parts, now: float) -> dict[str, int]:
    return {name: move.part for move in parts.moves(now) for name in move.add}


def test_a_process_that_is_back_before_the_fence_ends_gets_its_own_nodes_and_nobody_else_gives_any() -> None:
    parts = Parts(fence=FENCE)
    parts.join(0)
    parts.join(1)
    parts.divide(NODES[:6])
    before = given(parts, 0.0)
    parts.end(1, 10.0)
    assert parts.moves(10.0) == []
    parts.join(1)
    assert parts.moves(12.0) == []
    after = parts.moves(15.0)
    assert [(move.part, move.leave) for move in after] == [(1, ())]
    assert set(after[0].add) == {name for name, part in before.items() if part == 1}
    assert after[0].used_before


def test_a_process_that_is_not_back_has_its_nodes_given_to_the_others_after_the_fence() -> None:
    parts = Parts(fence=FENCE)
    parts.join(0)
    parts.join(1)
    parts.divide(NODES[:4])
    mine = {name for name, part in given(parts, 0.0).items() if part == 1}
    parts.end(1, 10.0)
    assert given(parts, 14.9) == {}
    # Also for somebody who asks a little late, and would wait for nothing more otherwise.
    assert parts.next_free() == 15.0
    assert given(parts, 15.0) == dict.fromkeys(mine, 0)
    assert parts.next_free() is None


def test_a_node_that_is_no_longer_among_the_first_is_asked_back_before_it_is_given_again() -> None:
    parts = Parts(fence=FENCE)
    parts.join(0)
    parts.divide(["a"])
    assert given(parts, 0.0) == {"a": 0}
    parts.divide([], ["a"])
    assert [(move.leave, move.add) for move in parts.moves(0.0)] == [(("a",), ())]
    assert parts.under_way(["a"]) == {"a"}
    parts.left(0, ["a"])
    assert given(parts, 0.0) == {"a": 0}
    assert parts.under_way(["a"]) == set()


def test_a_node_that_comes_back_under_its_name_was_used_before_until_no_watch_can_be_that_late() -> None:
    parts = Parts(fence=FENCE)
    parts.join(0)
    parts.divide(["a"])
    parts.moves(0.0)
    for gone, back, used_before in ((100.0, 900.0, True), (2000.0, 2900.0, False)):
        parts.divide([])
        (move,) = parts.moves(gone)
        assert move.leave == ("a",)
        parts.left(0, ["a"])
        parts.divide(["a"])
        (move,) = parts.moves(back)
        assert (move.add, move.used_before) == (("a",), used_before)
