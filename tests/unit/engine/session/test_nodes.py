"""Which nodes a session takes first, which not at all, and what room it counts on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.engine import node

from .scene import Scene, Shard, bound, claimed, conf, evicted, told


def scene(*cpus: int, **more: Any) -> Scene:
    """Nodes `n0`, `n1`... with these amounts."""
    return Scene(*(node(f"n{index}", cpu=str(cpu), **more) for index, cpu in enumerate(cpus)))


# ---- nodes that are shared


def test_nodes_of_the_own_shard_come_first_and_those_of_others_where_no_own_one_has_room() -> None:
    made = scene(2, 8)
    made.shared = Shard("soft", "n0")
    made.gang("g", 3)
    session, _ = made.run()
    assert bound(session) == {"g-0": "n0", "g-1": "n0", "g-2": "n1"}


def test_a_node_of_others_that_has_room_now_comes_before_an_own_one_that_will_have_it() -> None:
    made = scene(1, 8)
    made.shared = Shard("soft", "n0")
    made.group("old", phase="Running")
    made.member("old", node="n0", deleting=True)
    made.gang("g", 1)
    assert bound(made.run()[0]) == {"g-0": "n1"}


def test_pods_of_own_nodes_are_evicted_before_those_of_others() -> None:
    made = scene(2, 2)
    made.shared = Shard("soft", "n1")
    made.more["priorities"] = {"high": 9}
    made.running("low", "n0", "n1", "n1", cpu="1")
    made.gang("g", 1, cpu="2", priorityClassName="high")
    session, _ = made.run(conf("priority", "predicates", "nodeorder", actions="enqueue allocate preempt"))
    assert claimed(session) == {"g-0": "n1"}
    assert sorted(evicted(session)) == ["low-1", "low-2"]


def test_in_a_shard_of_ones_own_alone_nodes_of_others_are_neither_taken_nor_room_for_groups() -> None:
    made = scene(2, 8)
    made.shared = Shard("hard", "n0")
    made.gang("g", 3, minMember=1)
    made.group("large", minResources={"cpu": "3"})
    session, result = made.run(conf("priority", "gang", "overcommit", "predicates", "nodeorder"))
    assert bound(session) == {"g-0": "n0", "g-1": "n0"}
    assert session.jobs["default/large"].is_pending, "1.2 times 2 is less than 3"
    assert session.total["cpu"] == 10_000, "queues share what all nodes offer"
    assert told(result)["g-2"][1] == (
        "0/2 nodes are unavailable: 1 Insufficient cpu, 1 node isn't in scheduler node shard."
    )


# ---- room


@pytest.mark.parametrize(
    ("spec", "is_room"),
    [
        ({}, True),
        (
            {
                "containers": [
                    {"name": "c", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "1"}}}
                ]
            },
            False,
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
                        ]
                    }
                }
            },
            False,
        ),
    ],
)
def test_room_that_a_pod_leaves_counts_unless_it_is_in_the_way_otherwise_until_it_is_gone(
    spec: dict[str, Any], is_room: bool
) -> None:
    made = scene(1)
    made.group("old", phase="Running")
    made.member("old", node="n0", deleting=True, **spec)
    made.gang("g", 1)
    assert bool(claimed(made.run()[0])) is is_room


def test_of_several_that_leave_and_claim_a_node_each_counts_once() -> None:
    """Two leave 3 of 4, of which two claims take 2: there is room for one more claim, and now for none."""
    made = scene(4)
    made.group("old", phase="Running")
    for cpu in ("1", "2"):
        made.member("old", cpu=cpu, node="n0", deleting=True)
    made.running("stays", "n0")
    for number in range(4):
        made.gang(f"g{number}", 1)
    session, _ = made.run()
    assert claimed(session) == {"g0-0": "n0", "g1-0": "n0", "g2-0": "n0"}
    assert bound(session) == {}


@pytest.mark.parametrize(
    ("nominated", "expected"), [("", "n1"), ("n0", "n0"), ("n2", "n1"), ("gone", "n1"), ("n3", "n1")]
)
def test_a_pod_goes_where_it_is_nominated_to_if_there_is_room(nominated: str, expected: str) -> None:
    made = scene(2, 16, 1)
    made.ledger.set_node(node("n3", cpu="8"))
    made.nominate("other", "n3", cpu="8")
    made.running("runs", "n2")
    made.group("g")
    made.member("g")
    members = made.members[made.groups[-1].key]
    members[0] = replace(members[0], nominated_node_name=nominated)
    assert bound(made.run()[0]) == {"g-0": expected}


def test_why_no_node_would_do_is_said_of_each_class_as_things_stand_then() -> None:
    """After the first gang took a node the second one finds it full."""
    made = scene(4, 2)
    made.group("large", minMember=1)
    made.member("large", cpu="5")
    made.gang("takes", 1, cpu="4")
    made.gang("third", 1, cpu="5", nodeSelector={"not": "there"})
    made.gang("late", 1, cpu="3")
    _, result = made.run()
    said = {name: message for name, (_, message) in told(result).items()}
    assert said["large-0"] == "0/2 nodes are unavailable: 2 Insufficient cpu."
    assert said["late-0"] == "0/2 nodes are unavailable: 2 Insufficient cpu."
