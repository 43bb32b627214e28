"""Which gangs are given nodes, in which order, and what of a gang that is not complete; pods that ask for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from agent_scheduler.engine.gangs.group import SubGroup
from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.actions.backfill import backfill
from agent_scheduler.engine.session.model import TaskInfo, TaskStatus
from agent_scheduler.engine.session.tiers import Tiers
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, TASK_SPEC
from tests.support.engine import node, queue_of
from tests.unit.engine.session.scene import (
    GATED,
    Scene,
    bound,
    claimed,
    conf,
    has,
    opened,
    runs,
    sized,
    status_of,
    told,
    waits,
)

pytestmark = pytest.mark.promise("S27")

#: A pod that is being deleted on the first node.
LEAVES = has("old", {"node": "n0", "deleting": True}, phase="Running")


def scene(cpu: int, *queues: QueueInfo) -> Scene:
    made = sized(cpu)
    made.queues += queues
    return made


def test_every_queue_has_its_turn_and_every_job_of_it() -> None:
    made = scene(9, *(queue_of(name, "root") for name in "abc"))
    made.holding(waits("out", queue="a", minResources={"cpu": "99"}))
    made.holding(*(waits(name, queue=name[0]) for name in ("a0", "b0", "b1", "b2", "c0", "c1")))
    session, result = made.run(conf("priority", "gang", "overcommit", "predicates", "nodeorder"))
    assert set(bound(session)) == {"a0-0", "b0-0", "b1-0", "b2-0", "c0-0", "c1-0"}
    assert status_of(result, "out").phase == "Pending"


def test_a_queue_that_has_more_than_its_part_is_passed_over_and_the_next_one_is_not() -> None:
    made = scene(8, queue_of("rich", "root", priority=9), queue_of("poor", "root"))
    made.holding(runs("runs", *["n0"] * 5, queue="rich"), waits("more", queue="rich"))
    made.gang("poor", 4, queue="poor", minMember=1)
    session, _ = made.run(conf("priority", "gang", "proportion", "predicates", "nodeorder"))
    assert set(bound(session)) == {"poor-0", "poor-1", "poor-2"}


def test_without_nodes_a_group_that_needs_no_member_waits_like_others() -> None:
    session, _ = sized().holding(waits("g", 2, minMember=0)).run()
    assert bound(session) == {}
    assert session.jobs["default/g"].count(TaskStatus.PENDING) == 2


def test_where_no_action_lets_groups_in_one_that_finds_no_node_is_in_its_queue_all_the_same() -> None:
    _, result = sized(1).holding(waits("g", 2)).run(conf(actions="allocate"))
    assert status_of(result, "g").phase == "Inqueue"


@pytest.mark.parametrize("number", [2, 3])
def test_a_gang_with_claims_on_room_to_come_keeps_it_and_what_it_has_now_and_nothing_is_sent(number: int) -> None:
    made = sized(number).holding(LEAVES, waits("g", number), waits("later"))
    session = made.session()
    let_go: list[str] = []

    def let_go_of(tasks: Iterable[TaskInfo]) -> None:
        let_go.extend(task.pod.name for task in tasks)

    session.nodes.let_go = let_go_of  # type: ignore[method-assign]
    for _ in session.run():
        pass
    assert made.cluster.commits == []
    assert claimed(session) == {f"g-{number - 1}": "n0"}
    assert session.jobs["default/g"].count(TaskStatus.ALLOCATED) == number - 1
    assert let_go == [f"g-{index}" for index in range(number - 1)], "what plugins reserved is for others"
    assert session.jobs["default/later"].count(TaskStatus.PENDING) == 1
    assert session.claims


def test_a_task_that_its_queue_cannot_hold_keeps_no_smaller_one_from_it() -> None:
    made = scene(9, queue_of("q", "root", capability=2000))
    made.holding(has("g", *({"cpu": cpu} for cpu in ("3", "1", "1", "1")), queue="q"))
    session, _ = made.run(conf("priority", "gang", "capacity", "predicates", "nodeorder"))
    assert set(bound(session)) == {"g-1", "g-2"}
    assert session.held_back == {"default/g"}


@pytest.mark.parametrize(
    ("minimum", "roles", "members", "expected", "tried"),
    [
        # All are needed: with the first one the gang has failed.
        (3, {}, ["big", "small", "small"], [], False),
        (2, {}, ["big", "small", "small"], [1, 2], True),
        # Any two count, as the roles ask for more than the group.
        (2, {"big": 1, "small": 2}, ["big", "small", "small"], [1, 2], True),
        (3, {"big": 2, "small": 2}, ["big", "big", "small", "small"], [], False),
        # Each role counts: without one of the first nothing else helps, beyond its minimum it does not matter.
        (2, {"big": 1, "small": 1}, ["big", "small", "small"], [], False),
        (1, {"small": 1}, ["big", "small", "small"], [1, 2], True),
    ],
)
def test_a_gang_goes_on_after_a_member_without_a_node_if_it_may_still_become_complete(
    minimum: int, roles: dict[str, int], members: list[str], expected: list[int], tried: bool
) -> None:
    kinds = {"big": {"cpu": "9", "priority": 1}, "small": {"cpu": "1"}}
    there = ({**kinds[role], "annotations": {TASK_SPEC: role}} for role in members)
    session, result = sized(4).holding(has("g", *there, minMember=minimum, minTaskMember=roles)).run()
    assert sorted(bound(session)) == [f"g-{index}" for index in expected]
    if not tried:
        assert {reason for reason, _ in told(result).values()} == {"Unschedulable"}, "no other member was tried"


def test_a_member_behind_a_gate_of_somebody_else_is_given_no_node() -> None:
    made = scene(4)
    made.group("g", minMember=1)
    made.member("g", **GATED)
    made.member("g")
    made.member("g", schedulingGates=[{"name": QUEUE_ALLOCATION_GATE}])
    session, result = made.run()
    assert "g-0" not in bound(session) and "g-1" in bound(session)
    assert "g-0" not in told(result), "it waits for no node"


@pytest.mark.parametrize(("actions", "placed"), [("enqueue allocate", 0), ("enqueue backfill", 1)])
def test_a_member_that_asks_for_nothing_is_left_to_backfill(actions: str, placed: int) -> None:
    made = scene(4)
    made.group("g", minMember=1)
    made.member("g", cpu="")
    session, _ = made.run(conf(actions=actions))
    assert len(bound(session)) == placed


# ---- gangs of sub-groups


def parts(cpu: int, *members: tuple[str, str], least: int, minimum: int, **more: Any) -> Scene:
    """A gang of `members`, (part, cpu): by policy `p`, and those of parts from 5 on by `q`, parts of two each, but for
    those of `-`, which are in none; it needs `least` parts of `p`."""
    made = sized(cpu)
    policies = [{"name": "p", "subGroupSize": 2, "minSubGroups": least, "matchLabelKeys": ["part"]}]
    if any(part >= "5" for part, _ in members):
        policies.append({"name": "q", "subGroupSize": 2, "minSubGroups": 1, "matchLabelKeys": ["other"]})
    made.group("g", minMember=minimum, subGroupPolicy=policies, **more)
    for number, (part, amount) in enumerate(members):
        label = "other" if part >= "5" else "part"
        made.member("g", f"{part}-{number}", cpu=amount, labels={} if part == "-" else {label: part})
    return made


def two(*names: str, cpu: str = "1") -> list[tuple[str, str]]:
    return [(name, cpu) for name in names for _ in range(2)]


@pytest.mark.parametrize(
    ("cpu", "members", "least", "minimum", "expected"),
    [
        (2, two("0", "1"), 1, 2, "00"),
        (3, two("0", "1"), 1, 2, "00"),
        (4, two("0", "1"), 1, 2, "0011"),
        (5, two("0", "1", "2"), 2, 4, "0011"),
        (3, two("0", "1"), 2, 4, ""),
        # One part has enough members for the gang, which needs two parts.
        (3, two("0", "1"), 2, 2, ""),
        # By number, whatever their order.
        (2, two("1", "0"), 1, 2, "00"),
        # A part that fits nowhere keeps no other from a place.
        (3, [*two("0", cpu="9"), *two("1")], 1, 2, "11"),
        (3, [*two("0", cpu="9"), *two("1")], 2, 4, ""),
        (5, [*two("0"), *two("1", cpu="9"), *two("2")], 2, 4, "0022"),
        # Beyond its size a part takes what is left.
        (3, [*two("0"), ("0", "1")], 1, 2, "000"),
        (2, [*two("0"), ("0", "1")], 1, 2, "00"),
        (4, [*two("0"), ("0", "1"), *two("1")], 2, 4, "0011"),
        # Of each policy first what is needed of it.
        (4, two("0", "1", "5"), 1, 4, "0055"),
        (6, two("0", "1", "5"), 1, 4, "001155"),
        (3, two("0", "1", "5"), 1, 4, ""),
        # And who is in no part takes what these leave.
        (2, [("-", "1"), *two("0")], 1, 2, "00"),
        (3, [("-", "1"), *two("0")], 1, 2, "-00"),
        # A part that lacks a member is none.
        (9, [("0", "1"), *two("1")], 1, 2, "11"),
        (9, [("0", "1"), ("1", "1")], 1, 2, ""),
        # Parts alone are not enough for a gang that needs more members.
        (9, two("0"), 1, 3, ""),
    ],
)
def test_parts_of_a_gang_are_placed_whole_first_those_that_it_needs(
    cpu: int, members: list[tuple[str, str]], least: int, minimum: int, expected: str
) -> None:
    made = parts(cpu, *members, least=least, minimum=minimum)
    session, _ = made.run()
    assert "".join(sorted(name[0] for name in bound(session))) == expected
    taken = sum(session.nodes.columns.taken[0])
    assert (taken > 0) == bool(expected), "what was tried is taken back"


@pytest.mark.parametrize(("cpu", "expected"), [(4, "1"), (3, "")])
def test_a_part_of_which_some_run_needs_the_rest_alone(cpu: int, expected: str) -> None:
    """Part 0 runs, and of part 1 one member does."""
    made = parts(cpu, least=2, minimum=4, phase="Running")
    for name, place in (("0-0", "n0"), ("0-1", "n0"), ("1-2", "n0"), ("1-3", ""), ("2-4", "")):
        made.member("g", name, labels={"part": name[0]}, node=place)
    assert "".join(name[0] for name in bound(made.run()[0])) == expected


def test_of_a_policy_that_has_its_parts_no_other_part_comes_before_those_that_are_needed() -> None:
    made = parts(4, *two("1", "5"), least=1, minimum=4)
    for number in range(2):
        made.member("g", f"0-{number}", labels={"part": "0"}, node="n0")
    assert "".join(name[0] for name in bound(made.run()[0])) == "55"


def test_parts_of_higher_priority_come_first() -> None:
    made = parts(2, least=1, minimum=2)
    for number, part in enumerate("0011"):
        made.member("g", f"{part}-{number}", labels={"part": part}, priority=int(part))
    session, _ = made.run()
    assert sorted(bound(session)) == ["1-2", "1-3"]


def test_a_part_waits_for_room_to_come_and_the_gang_keeps_its_claims() -> None:
    session, _ = parts(4, *two("0", "1"), least=2, minimum=4).holding(LEAVES).run()
    assert bound(session) == {}
    assert claimed(session) == {"1-3": "n0"}
    assert session.jobs["default/g"].count(TaskStatus.ALLOCATED) == 3


HOW = conf(actions="enqueue allocate backfill")


def test_what_is_reserved_for_each_gang_that_stays_incomplete_is_let_go_for_the_last_one_too() -> None:
    members = ({"cpu": "9"}, {"cpu": ""}, {"cpu": ""})
    names = ("first", "second", "last")
    scene = sized(1).holding(*(has(name, *members, minMember=3, phase="Inqueue") for name in names))
    session = scene.session(HOW)
    let_go: list[list[str]] = []

    def let_go_of(tasks: Iterable[TaskInfo]) -> None:
        if names := [task.pod.name for task in tasks]:
            let_go.append(names)

    session.nodes.let_go = let_go_of  # type: ignore[method-assign]
    for _ in session.run():
        pass
    assert let_go == [["first-1", "first-2"], ["second-1", "second-2"], ["last-1", "last-2"]]
    assert bound(session) == {} and session.claims


def test_a_gang_is_bound_whole_once_pods_that_ask_for_nothing_complete_it() -> None:
    scene = sized(1).holding(has("g", {}, {"cpu": ""}, {"cpu": ""}, minMember=3))
    session, _ = scene.run(HOW)
    assert scene.cluster.commits == [("g", ["g-0"], 1), ("g", ["g-1"], 1), ("g", ["g-2"], 1)]
    assert session.jobs["default/g"].ready == 3


def test_gated_pods_jobs_that_wait_and_jobs_that_lack_members_are_left_out() -> None:
    scene = sized(4).holding(
        has("gated", {"cpu": "", **GATED}),
        waits("few", cpu="", minMember=2),
        waits("waits", cpu="", minResources={"cpu": "9"}),
        waits("free", cpu=""),
    )
    session, _ = scene.run(conf("priority", "gang", "overcommit", "predicates", "nodeorder"))
    assert bound(session) == {"free-0": "n0"}


def test_a_claim_on_room_to_come_is_tried_again_as_room_that_is_there() -> None:
    scene = Scene(node("a", pods="2"))
    scene.gang("g", 2, cpu="", minMember=1)
    session = opened(scene.session(HOW))
    job = session.jobs["default/g"]
    job.phase = "Inqueue"
    session.allocate(next(iter(job.tasks.values())), 0)
    assert job.count(TaskStatus.PIPELINED) == 1
    for _ in backfill(session):
        pass
    assert bound(session) == {"g-0": "a", "g-1": "a"}


def test_they_come_in_the_order_of_jobs_and_tasks() -> None:
    scene = Scene(node("a", pods="3"))
    scene.more["priorities"] = {"high": 9}
    later, sooner = ({"cpu": "", "priority": priority} for priority in (1, 2))
    scene.holding(waits("low", 2, cpu="", minMember=1), has("high", later, sooner, priorityClassName="high"))
    session, _ = scene.run(HOW)
    sent = [name for _, names, _ in scene.cluster.commits for name in names]
    assert sent == ["high-1", "high-0", "low-0"]
    assert session.jobs["default/low"].fit_errors.keys() == {scene.members[scene.groups[0].key][1].uid}


def test_sub_groups_are_not_compared_with_each_other_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    number = 300
    made = sized(number, pods=number)
    policy = {"subGroupSize": 1, "minSubGroups": 1, "matchLabelKeys": ["part"]}
    policies = [
        {**policy, "name": f"p{each}", "labelSelector": {"matchLabels": {"role": f"r{each}"}}} for each in range(number)
    ]
    made.group("g", minMember=1, subGroupPolicy=policies)
    for each in range(number):
        made.member("g", labels={"role": f"r{each}", "part": "x"})
    calls: Counter[str] = Counter()

    def count(of: Any, name: str) -> None:
        call = getattr(of, name)

        def counted(*given: Any) -> Any:
            calls[name] += 1
            return call(*given)

        monkeypatch.setattr(of, name, counted)

    count(Tiers, "sub_job_key")
    count(SubGroup, "values_of")
    session = made.session(conf("gang"))
    steps = sum(1 for _ in session.run())
    assert steps > number
    assert len(bound(session)) == number
    assert calls == {"sub_job_key": 2 * number, "values_of": number}
