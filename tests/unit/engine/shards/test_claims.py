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
    [
        ("n1 n2 n3", [], "n1 n2 n3"),
        ("n1 n2 n3", ["n3 n4"], "n1 n2"),
        ("n1 n2", ["n1", "n2"], ""),
        ("", ["n1"], ""),
    ],
)
def test_available_is_what_is_desired_and_nobody_else_uses(
    desired: str, used_by_others: list[str], left: str
) -> None:
    others = [rival(f"o{number}", used, used) for number, used in enumerate(used_by_others)]
    assert available(names(desired), others) == names(left)


def test_what_a_dead_scheduler_used_is_free() -> None:
    dead = rival("dead", "n1 n2", "n1", Liveness.DEAD)
    assert claimed([dead]) == frozenset()
    assert share("z", names("n1 n2"), frozenset(), [dead]) == names("n1 n2")


def test_what_a_scheduler_without_a_lease_uses_is_never_free() -> None:
    foreign = rival("volcano", "n1", "n1", Liveness.UNKNOWN)
    assert claimed([foreign]) == names("n1")
    for name in ("a", "z"):
        assert share(name, names("n1 n2"), frozenset(), [foreign]) == names("n2")


def test_of_two_that_desire_a_node_that_nobody_has_the_first_by_name_takes_it() -> None:
    a, b = rival("a", "n1", ""), rival("b", "n1", "")
    assert share("a", names("n1"), frozenset(), [b]) == names("n1")
    assert share("b", names("n1"), frozenset(), [a]) == frozenset()


def test_a_shard_that_nobody_is_behind_keeps_nobody_waiting() -> None:
    nobody = rival("a", "n1", "", Liveness.UNKNOWN)
    assert share("b", names("n1"), frozenset(), [nobody]) == names("n1")
    dead = rival("a", "n1", "", Liveness.DEAD)
    assert share("b", names("n1"), frozenset(), [dead]) == names("n1")


def test_a_scheduler_without_a_lease_that_uses_any_node_comes_first_by_name_like_one_that_lives() -> None:
    used = rival("b", "n1 n2", "n1", Liveness.UNKNOWN)
    assert share("c", names("n1 n2 n3"), frozenset(), [used]) == names("n3")
    assert share("a", names("n1 n2 n3"), frozenset(), [used]) == names("n2 n3")
    three = [used, rival("a", "n3", ""), rival("d", "n4", "")]
    assert share("c", names("n2 n3 n4"), frozenset(), three) == names("n4")


def test_a_membership_says_what_joined_and_left_and_whether_it_is_another_state() -> None:
    mine = Membership()
    assert mine.unready and mine.nodes == frozenset()
    assert mine.set(names("n1 n2")) == (names("n1 n2"), frozenset(), True)
    assert mine.set(names("n2 n3")) == (names("n3"), names("n1"), False)
    assert mine.set(frozenset(), "gone") == (frozenset(), names("n2 n3"), True)
    assert mine.set(frozenset(), "gone") == (frozenset(), frozenset(), False)
    assert (mine.nodes, mine.unready) == (frozenset(), "gone")


def test_who_has_a_node_keeps_it_though_the_first_by_name_desires_it_too() -> None:
    a = rival("a", "n1", "")
    assert share("b", names("n1"), names("n1"), [a]) == names("n1")


def test_what_is_no_longer_desired_is_left() -> None:
    assert share("a", names("n2"), names("n1 n2"), []) == names("n2")


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
        "volcano",
        volcano,
        before["volcano"],
        [Other("agent-scheduler", agent, agent_uses, Liveness.ALIVE)],
    )
    assert volcano_uses == volcano
    agent_uses = share(
        "agent-scheduler", agent, agent_uses, [Other("volcano", volcano, volcano_uses, Liveness.ALIVE)]
    )
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
