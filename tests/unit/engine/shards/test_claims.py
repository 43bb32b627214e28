"""The rules of who may use which node, without anybody to follow them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.shards.claims import (
    Liveness,
    Membership,
    Other,
    available,
    claimed,
    share,
    status,
    tells_the_same,
)
from agent_scheduler.objects.shard import NodeShardStatus

pytestmark = pytest.mark.promise("S21")


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def rival(name: str, desired: str, in_use: str, liveness: Liveness = Liveness.ALIVE) -> Other:
    return Other(name, names(desired), names(in_use), liveness)


@pytest.mark.parametrize(
    ("desired", "used_by_others", "left"),
    [("n1 n2 n3", [], "n1 n2 n3"), ("n1 n2 n3", ["n3 n4"], "n1 n2"), ("n1 n2", ["n1", "n2"], ""), ("", ["n1"], "")],
)
def test_available_is_what_is_desired_and_nobody_else_uses(desired: str, used_by_others: list[str], left: str) -> None:
    others = [rival(f"o{number}", used, used) for number, used in enumerate(used_by_others)]
    assert available(names(desired), others) == names(left)


ALIVE, DEAD, UNKNOWN = Liveness.ALIVE, Liveness.DEAD, Liveness.UNKNOWN
#: A scheduler without a lease that uses a node, and desires another.
USES = rival("b", "n1 n2", "n1", UNKNOWN)


@pytest.mark.parametrize(
    ("name", "desired", "held", "others", "mine"),
    [
        # What a dead scheduler used is free; what one without a lease uses never is.
        ("z", "n1 n2", "", [rival("dead", "n1 n2", "n1", DEAD)], "n1 n2"),
        ("a", "n1 n2", "", [rival("volcano", "n1", "n1", UNKNOWN)], "n2"),
        ("z", "n1 n2", "", [rival("volcano", "n1", "n1", UNKNOWN)], "n2"),
        # Of two that desire a node that nobody has the first by name takes it.
        ("a", "n1", "", [rival("b", "n1", "")], "n1"),
        ("b", "n1", "", [rival("a", "n1", "")], ""),
        # A shard that nobody is behind keeps nobody waiting.
        ("b", "n1", "", [rival("a", "n1", "", UNKNOWN)], "n1"),
        ("b", "n1", "", [rival("a", "n1", "", DEAD)], "n1"),
        # One without a lease that uses any node comes first by name like one that lives.
        ("c", "n1 n2 n3", "", [USES], "n3"),
        ("a", "n1 n2 n3", "", [USES], "n2 n3"),
        ("c", "n2 n3 n4", "", [USES, rival("a", "n3", ""), rival("d", "n4", "")], "n4"),
        # Who has a node keeps it though the first by name desires it too; what is no longer desired is left.
        ("b", "n1", "n1", [rival("a", "n1", "")], "n1"),
        ("a", "n2", "n1 n2", [], "n2"),
    ],
)
def test_a_scheduler_uses_what_it_desires_and_nobody_else_has_or_takes_first(
    name: str, desired: str, held: str, others: list[Other], mine: str
) -> None:
    assert share(name, names(desired), names(held), others) == names(mine)


def test_what_others_use_is_claimed_unless_they_are_dead() -> None:
    others = [rival(each.value, f"n-{each.value}", f"n-{each.value}", each) for each in Liveness]
    assert claimed(others) == {"n-alive", "n-unknown"}


def test_a_membership_says_what_joined_and_left_and_whether_it_is_another_state() -> None:
    mine = Membership()
    assert mine.unready and mine.nodes == frozenset()
    assert mine.set(names("n1 n2")) == (names("n1 n2"), frozenset(), True)
    assert mine.set(names("n2 n3")) == (names("n3"), names("n1"), False)
    assert mine.set(frozenset(), "gone") == (frozenset(), names("n2 n3"), True)
    assert mine.set(frozenset(), "gone") == (frozenset(), frozenset(), False)
    assert (mine.nodes, mine.unready) == (frozenset(), "gone")


def test_the_designs_tables_follow_from_the_rules() -> None:
    """`node0` goes from `volcano` to `agent-scheduler`, and `node3` the other way."""
    volcano, agent = names("node1 node2 node3"), names("node0 node4 node5")
    before = {"volcano": names("node0 node1 node2"), "agent-scheduler": names("node3 node4 node5")}
    # Both shards have changed. Something of volcano's is still under way on node0.
    told = status(volcano, before["volcano"], now="t")
    assert told == NodeShardStatus("t", ("node0", "node1", "node2"), ("node3",), ("node0",))
    # The other one has nothing under way on node3: it gives it back, and waits for node0.
    agent_uses = share(
        "agent-scheduler",
        agent,
        before["agent-scheduler"],
        [Other("volcano", volcano, before["volcano"], Liveness.ALIVE)],
    )
    assert status(agent, agent_uses, now="t") == NodeShardStatus("t", ("node4", "node5"), ("node0",), ())
    # So volcano has node3, and when it is done on node0 both are as desired.
    volcano_uses = share(
        "volcano", volcano, before["volcano"], [Other("agent-scheduler", agent, agent_uses, Liveness.ALIVE)]
    )
    assert volcano_uses == volcano
    agent_uses = share("agent-scheduler", agent, agent_uses, [Other("volcano", volcano, volcano_uses, Liveness.ALIVE)])
    assert status(agent, agent_uses, now="t") == NodeShardStatus("t", ("node0", "node4", "node5"), (), ())


def test_statuses_tell_the_same_in_whatever_order_and_at_whatever_time() -> None:
    one = NodeShardStatus("t", ("a", "b"), (), None)
    assert tells_the_same(one, NodeShardStatus("u", ("b", "a"), None, ()))
    assert not tells_the_same(one, NodeShardStatus("t", ("a", "b"), ("c",), ()))
    assert not tells_the_same(one, NodeShardStatus("t", ("a", "b"), (), ("b",)))
    assert not tells_the_same(one, NodeShardStatus("t", ("a",), (), ()))


_NODES = st.frozensets(st.sampled_from("abcdef"), max_size=6)


@given(st.lists(_NODES, min_size=2, max_size=4))
def test_living_schedulers_that_take_turns_come_to_rest_and_leave_no_desired_node_unused(
    desired: list[frozenset[str]],
) -> None:
    """Whatever overlaps: after as many turns as there are schedulers nothing changes any more."""
    held = [frozenset[str]() for _ in desired]

    def turn(number: int) -> bool:
        others = [
            Other(f"s{each}", desired[each], held[each], Liveness.ALIVE)
            for each in range(len(desired))
            if each != number
        ]
        before, held[number] = held[number], share(f"s{number}", desired[number], held[number], others)
        return before != held[number]

    for _ in range(len(desired)):
        for number in range(len(desired)):
            turn(number)
    assert not any(turn(number) for number in range(len(desired)))
    assert sum(map(len, held)) == len(frozenset().union(*held)), "no node is used by two"
    assert frozenset().union(*held) == frozenset().union(*desired)
