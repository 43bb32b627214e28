"""Which pods are evicted for a job of their queue, for a task of their job or for another queue, and when none is."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.engine.session.model import TaskStatus
from agent_scheduler.objects.batch import PREEMPTABLE, QUEUE_ALLOCATION_GATE
from tests.support.engine import node, queue_of
from tests.unit.engine.session.scene import GATED, Part, Scene, bound, claimed, conf, evicted, has, runs, sized, waits

pytestmark = pytest.mark.promise("S30")

ACTIONS = "enqueue allocate preempt"
GANGS = conf("priority", "gang", "predicates", "nodeorder", actions=ACTIONS)
#: Under these a gang may be evicted as a whole, and tasks of one job for one another.
NO_GANGS = conf("priority", "predicates", "nodeorder", actions=ACTIONS)
OVERCOMMIT = conf("priority", "gang", "overcommit", "predicates", "nodeorder", actions=ACTIONS)
CAPACITY = conf("priority", "gang", "capacity", "predicates", "nodeorder", actions=ACTIONS)
LOW: dict[str, Any] = {"priorityClassName": "low"}
MIDDLE: dict[str, Any] = {"priorityClassName": "middle"}
HIGH: dict[str, Any] = {"priorityClassName": "high"}
ON: dict[str, Any] = {"node": "n0"}
STAYS: dict[str, Any] = {"annotations": {PREEMPTABLE: "false"}}


def scene(*cpus: int) -> Scene:
    made = sized(*cpus)
    made.more["priorities"] = {"low": 1, "middle": 2, "high": 3}
    made.queues += [queue_of(name, "root") for name in "ab"]
    made.queues.append(queue_of("q", "root", capability=3000))
    return made


def low(number: int, **more: Any) -> Part:
    """So many that run on n0."""
    return runs("low", *["n0"] * number, **LOW, **more)


def high(number: int = 1, **more: Any) -> Part:
    return waits("high", number, **HIGH, **more)


def running(name: str, *members: Any, **more: Any) -> Part:
    return has(name, *members, phase="Running", **more)


def of_roles(places: str, **more: Any) -> Part:
    """A gang that needs one `first` and one `other`, who run on these nodes, as in `other:n0 first:n1`."""
    pairs = [each.split(":") for each in places.split()]
    members = [{"node": place, "annotations": {"volcano.sh/task-spec": role}} for role, place in pairs]
    return running("low", *members, minMember=2, minTaskMember={"first": 1, "other": 1}, **LOW)


def ran(made: Scene, how: Any) -> tuple[str, str]:
    """Who was evicted, in order, and the claims on the room."""
    session, _ = made.run(how)
    claims = " ".join(f"{name}@{place}" for name, place in sorted(claimed(session).items()))
    return " ".join(evicted(session)), claims


@pytest.mark.parametrize("number", [1, 2, 3])
def test_as_many_are_evicted_as_a_job_needs_the_last_first(number: int) -> None:
    made = scene(4).holding(low(4), high(number))
    session, result = made.run(GANGS)
    assert evicted(session) == ["low-3", "low-2", "low-1"][:number]
    assert claimed(session) == {f"high-{index}": "n0" for index in range(number)}
    assert session.preemptions == number
    assert made.cluster.evictions == [(name, "preempt") for name in evicted(session)]
    assert [each.preempts for each in result.groups] == [False, True]


@pytest.mark.parametrize(
    ("cpus", "parts", "gone", "claims"),
    [
        # None for a gang that would not have its minimum; the next one has its turn.
        ([3], [low(3), high(3)], "", ""),
        ([3], [low(3), high(3), waits("middle", 2, **MIDDLE)], "low-2 low-1", "middle-0@n0 middle-1@n0"),
        # A gang of which some run lacks one for its minimum.
        ([5], [low(3), running("high", ON, ON, {}, {}, {}, minMember=3, **HIGH)], "low-2", "high-2@n0"),
        # Of a gang with a gated member the others count, if the minimum does not need it.
        ([3], [low(3), has("high", {**GATED, "priority": 9}, {}, **HIGH)], "low-2", "high-1@n0"),
        ([3], [low(3), has("high", GATED, {}, minMember=2, **HIGH)], "", ""),
        # Only jobs of lower priority in the same queue lose pods, those that start too.
        ([2], [runs("low", "n0", "n0", **HIGH), high()], "", ""),
        ([2], [low(2, queue="a"), high()], "", ""),
        ([2], [running("low", *[{**ON, "phase": "Pending"}] * 2, **LOW), high()], "low-1", "high-0@n0"),
        # Jobs of several queues each have pods of their own evicted.
        (
            [6],
            [runs(f"low-{name}", *["n0"] * 3, queue=name, **LOW) for name in "ab"]
            + [waits("high-a", 1, queue="a", **HIGH), waits("high-b", 2, queue="b", **HIGH)],
            "low-a-2 low-b-2 low-b-1",
            "high-a-0@n0 high-b-0@n0 high-b-1@n0",
        ),
        # Of two jobs the later one loses pods; who is more important is helped first.
        (
            [4],
            [low(2), runs("new", "n0", "n0", **LOW), waits("middle", 1, **MIDDLE), high()],
            "new-1 low-1",
            "high-0@n0 middle-0@n0",
        ),
        # Pods leave the node where enough may go.
        ([2, 2], [low(2, minMember=2), runs("spare", "n1", "n1", **LOW), high()], "spare-1", "high-0@n1"),
        # Its own pods are not evicted for a gang that has its minimum.
        ([2], [running("g", *[{**ON, "priority": 1}] * 2, {"priority": 9})], "", ""),
    ],
)
def test_pods_of_the_queue_are_evicted_for_a_gang_that_then_has_its_minimum(
    cpus: list[int], parts: list[Part], gone: str, claims: str
) -> None:
    made = scene(*cpus).holding(*parts)
    assert ran(made, GANGS) == (gone, claims)
    assert made.cluster.evictions == [(name, "preempt") for name in gone.split()]


@pytest.mark.promise("GATE-6", "S30")
@pytest.mark.parametrize("gate", ["example.com/wait", QUEUE_ALLOCATION_GATE])
def test_no_pod_is_evicted_for_a_pod_behind_a_gate(gate: str) -> None:
    made = scene(2).holding(low(2), has("high", {"schedulingGates": [{"name": gate}]}, **HIGH))
    assert ran(made, GANGS) == ("", "")


@pytest.mark.parametrize(
    ("victim", "preemptor"),
    [
        (STAYS, {}),
        ({"labels": {PREEMPTABLE: "false"}}, {}),
        ({"phase": "Succeeded"}, {}),
        ({"deleting": True}, {}),
        ({}, {"preemptionPolicy": "Never"}),
        ({}, {"cpu": ""}),
        ({}, {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/x": "1"}}}]}),
        ({}, {"nodeSelector": {"not": "there"}}),
    ],
)
def test_a_pod_stays_that_may_not_go_or_is_of_no_use(victim: Any, preemptor: Any) -> None:
    victims = running("low", *[{**ON, **victim}] * 2, minMember=0, **LOW)
    assert ran(scene(2).holding(victims, has("high", preemptor, **HIGH)), GANGS)[0] == ""


@pytest.mark.parametrize("liked", ["n0", "n1", "n2"])
def test_pods_leave_the_node_that_the_plugins_like_most(liked: str) -> None:
    wish = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [liked]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9, "preference": wish}]}
    preemptor = has("high", {"affinity": {"nodeAffinity": preferred}}, **HIGH)
    made = scene(1, 1, 1).holding(runs("low", "n0", "n1", "n2", minMember=0, **LOW), preemptor)
    assert ran(made, GANGS) == (f"low-{liked[1]}", f"high-0@{liked}")


def test_a_pod_that_asks_for_nothing_makes_only_such_pods_leave() -> None:
    made = Scene(node("n0", pods="2"))
    made.more["priorities"] = {"low": 1, "high": 3}
    made.holding(running("low", {**ON, "cpu": ""}, ON, minMember=0, **LOW), high(cpu=""))
    assert ran(made, GANGS)[0] == "low-0"


def test_a_job_that_was_not_let_in_or_lacks_members_has_no_pod_evicted() -> None:
    made = scene(2).holding(low(2), high(minResources={"cpu": "9"}), waits("few", 1, minMember=2, **HIGH))
    assert ran(made, OVERCOMMIT) == ("", "")


def test_a_full_queue_is_room_that_is_missing_too() -> None:
    made = scene(9).holding(low(3, queue="q"), high(2, queue="q"))
    assert ran(made, CAPACITY)[0] == "low-2 low-1"


def test_an_eviction_that_is_refused_gives_no_claim_to_a_later_task() -> None:
    made = scene(2).holding(low(2), high())
    made.cluster.refused = {"low-1"}
    session, _ = made.run(GANGS)
    assert made.cluster.evictions == [("low-1", "preempt")]
    assert evicted(session) == []
    assert session.jobs["default/low"].count(TaskStatus.RUNNING) == 2


def test_tasks_have_those_of_lower_priority_in_their_job_evicted_one_each() -> None:
    places = (("n0", 1), ("n0", 1), ("n0", 5), ("", 4), ("", 5), ("", 1))
    made = scene(3).holding(running("g", *({"node": place, "priority": each} for place, each in places)))
    assert ran(made, NO_GANGS) == ("g-1 g-0", "g-3@n0 g-4@n0")


@pytest.mark.parametrize("spec", [GATED, {"preemptionPolicy": "Never"}, {"priority": 1}])
def test_within_a_job_no_pod_is_evicted_for_a_task_that_cannot_run_or_comes_no_earlier(spec: Any) -> None:
    made = scene(1).holding(running("g", {**ON, "priority": 1}, {"priority": 9, **spec}))
    assert ran(made, NO_GANGS) == ("", "")


# ---- gangs that are evicted whole


@pytest.mark.parametrize(
    ("cpus", "parts", "gone"),
    [
        # Whole wherever its pods are, or not at all.
        (
            [1, 4],
            [runs("low", "n0", "n1", "n1", minMember=3, **LOW), runs("rest", "n1", "n1", **HIGH), high()],
            "low-2 low-1 low-0",
        ),
        # What it has above its minimum goes before the rest of it.
        ([4], [low(4, minMember=2), high(cpu="1")], "low-3"),
        ([4], [low(4, minMember=2), high(cpu="2")], "low-3 low-2"),
        ([4], [low(4, minMember=2), high(cpu="3")], "low-3 low-2 low-1 low-0"),
        ([4], [low(4, minMember=2), high(cpu="4")], "low-3 low-2 low-1 low-0"),
        # One of which a member may not go stays.
        ([1, 1], [running("low", ON, {"node": "n1", **STAYS}, minMember=2, **LOW), high()], ""),
        # A role keeps its minimum while others have more.
        ([4], [of_roles("other:n0 other:n0 other:n0 first:n0"), high(2)], "low-2 low-1"),
        # No more of a role go than it has above its minimum, though the gang has more: then all of it.
        (
            [2, 2],
            [of_roles("first:n1 first:n1 other:n0 other:n0"), runs("rest", "n1", **HIGH), high(cpu="2")],
            "low-3 low-2 low-1 low-0",
        ),
    ],
)
def test_a_gang_loses_what_it_has_above_its_minimum_or_goes_whole(
    cpus: list[int], parts: list[Part], gone: str
) -> None:
    assert ran(scene(*cpus).holding(*parts), NO_GANGS)[0] == gone


def test_a_gang_with_a_member_on_its_way_to_a_node_stays() -> None:
    going = running("low", {**ON, "cpu": "2"}, {}, minMember=2, **LOW)
    session, _ = scene(2, 1).holding(going, high(cpu="2")).run(NO_GANGS)
    assert bound(session) == {"low-1": "n1"}
    assert evicted(session) == []


def test_where_too_few_may_go_none_goes_and_all_run_as_before() -> None:
    members = [*[ON] * 3, {"node": "n1", **STAYS}]
    made = scene(3, 1).holding(running("low", *members, minMember=3, **LOW), high(cpu="2"))
    session, _ = made.holding(waits("middle", 1, **MIDDLE)).run(NO_GANGS)
    assert evicted(session) == ["low-2"], "for the one that needs no more"
    assert session.jobs["default/low"].count(TaskStatus.RUNNING) == 3
    assert claimed(session) == {"middle-0": "n0"}


# ---- pods of other queues, for one that has less than it deserves

RECLAIMING = "enqueue allocate reclaim"


def reclaiming(*more: str | PluginOption) -> SessionConf:
    return conf("priority", "gang", *more, "predicates", "nodeorder", actions=RECLAIMING)


BY_CAPACITY = reclaiming("capacity")


def deserving(name: str, cpu: int, *, parent: str = "root", **more: Any) -> QueueInfo:
    return queue_of(name, parent, deserved=cpu * 1000, **more)


def in_queues(*queues: QueueInfo, cpus: tuple[int, ...] = (4,)) -> Scene:
    """With the queues `rich` and `poor`, which deserve 2 each, or others."""
    made = sized(*cpus)
    made.queues += queues or (deserving("rich", 2), deserving("poor", 2))
    return made


def rich(number: int, name: str = "rich", queue: str = "") -> Part:
    """So many that run on n0, in the queue of their name or another."""
    return runs(name, *["n0"] * number, queue=queue or name)


def poor(number: int = 1, name: str = "poor", queue: str = "poor", **more: Any) -> Part:
    return waits(name, number, queue=queue, **more)


@pytest.mark.parametrize(
    ("queues", "cpus", "parts", "gone", "claims"),
    [
        # What the queue deserves, and for a gang that needs more nothing.
        ((), (4,), [rich(4), poor(1)], "rich-3", ["poor-0"]),
        ((), (4,), [rich(4), poor(2)], "rich-3 rich-2", ["poor-0", "poor-1"]),
        ((), (4,), [rich(4), poor(3)], "", []),
        # What it holds already counts in that.
        ((), (6,), [rich(5), rich(1, "some", "poor"), poor(name="first"), poor(name="second")], "rich-4", ["first-0"]),
        # A queue that is not reclaimable and the job's own queue keep what they have.
        (
            (deserving("kept", 0, reclaimable=False), deserving("poor", 3)),
            (4,),
            [rich(2, "kept"), rich(2, "own", "poor"), poor()],
            "",
            [],
        ),
        # Each task is given room on one node, and others keep their pods.
        (
            (deserving("rich", 0), deserving("poor", 4)),
            (2, 2),
            [rich(2), runs("two", "n1", "n1", queue="rich"), poor(2)],
            "rich-1 two-1",
            ["poor-0", "poor-1"],
        ),
        # A job above its minimum takes nothing back.
        ((), (4,), [rich(3), has("poor", ON, {}, queue="poor", phase="Running")], "", []),
    ],
)
def test_a_queue_takes_back_what_it_deserves(
    queues: tuple[QueueInfo, ...], cpus: tuple[int, ...], parts: list[Part], gone: str, claims: list[str]
) -> None:
    made = in_queues(*queues, cpus=cpus)
    session, _ = made.holding(*parts).run(BY_CAPACITY)
    assert (evicted(session), sorted(claimed(session))) == (gone.split(), claims)
    assert made.cluster.evictions == [(name, "reclaim") for name in gone.split()]


@pytest.mark.parametrize(
    ("victim", "reclaimer"),
    [
        ({"annotations": {PREEMPTABLE: "false"}}, {}),
        ({"phase": "Pending"}, {}),
        ({"deleting": True}, {}),
        ({}, {"preemptionPolicy": "Never"}),
        ({}, {"schedulingGates": [{"name": "example.com/wait"}]}),
        ({}, {"nodeSelector": {"not": "there"}}),
    ],
)
def test_a_pod_of_another_queue_stays_that_may_not_go_or_is_of_no_use(victim: Any, reclaimer: Any) -> None:
    victims = has("rich", *[{**ON, **victim}] * 4, queue="rich", phase="Running")
    made = in_queues().holding(victims, has("poor", reclaimer, queue="poor"))
    assert evicted(made.run(BY_CAPACITY)[0]) == []


@pytest.mark.parametrize(("queue", "expected"), [("poor", []), ("rich", ["runs-1"])])
def test_without_a_plugin_that_asks_queues_only_pods_of_other_queues_go(queue: str, expected: list[str]) -> None:
    made = in_queues(cpus=(2,)).holding(rich(2, "runs", queue), poor())
    assert evicted(made.run(reclaiming())[0]) == expected


def test_all_jobs_of_a_queue_have_their_turn_and_all_queues() -> None:
    made = in_queues(*(deserving(name, 2) for name in ("rich", "poor", "bare")), cpus=(6,)).holding(rich(6))
    for name in ("poor", "bare"):
        made.holding(*(poor(number, f"{name}-{each}", name) for each, number in (("l", 5), ("a", 1), ("b", 1))))
    session, _ = made.run(BY_CAPACITY)
    assert sorted(claimed(session)) == ["bare-a-0", "bare-b-0", "poor-a-0", "poor-b-0"]
    assert len(evicted(session)) == 4


def test_a_job_that_was_not_let_in_or_lacks_members_takes_nothing_back() -> None:
    made = in_queues().holding(rich(4), poor(minResources={"cpu": "9"}), poor(name="few", minMember=2))
    assert evicted(made.run(reclaiming("overcommit", "capacity"))[0]) == []


@pytest.mark.parametrize(("held", "expected"), [(1, ["rich-6"]), (4, [])])
def test_with_proportion_a_queue_at_its_part_of_the_cluster_takes_nothing_back(held: int, expected: list[str]) -> None:
    made = in_queues(queue_of("rich"), queue_of("poor"), cpus=(8,))
    made.holding(rich(8 - held), rich(held, "some", "poor"), poor())
    assert evicted(made.run(reclaiming("proportion"))[0]) == expected


@pytest.mark.parametrize(("level", "expected"), [(0, 3), (1, 2)])
def test_what_several_queues_of_a_branch_lose_counts_in_what_the_branch_deserves(level: int, expected: int) -> None:
    """Three leaves of the branch each hold twice what they deserve; the branch may lose two before it has less."""
    leaves = (deserving(f"leaf-{number}", 1, parent="branch") for number in range(3))
    made = in_queues(deserving("branch", 4), *leaves, deserving("poor", 4), cpus=(6,))
    made.holding(*(rich(2, f"runs-{number}", f"leaf-{number}") for number in range(3)))
    made.holding(has("poor", queue="poor", minMember=0), *(poor(name=f"poor-{each}") for each in range(3)))
    tree = PluginOption("capacity", {"ancestorReclaimLevel": level}, {"enableHierarchy": True})
    session, _ = made.run(reclaiming(tree))
    assert len(evicted(session)) == expected


@pytest.mark.parametrize(("tree", "gone"), [(False, "rich-2"), (True, "some-1")])
def test_of_two_queues_that_have_too_much_the_nearer_one_loses_pods_or_else_the_one_that_has_more(
    tree: bool, gone: str
) -> None:
    queues = (("near", 4, "root"), ("some", 1, "near"), ("poor", 1, "near"), ("far", 1, "root"), ("rich", 1, "far"))
    made = in_queues(*(deserving(name, cpu, parent=parent) for name, cpu, parent in queues), cpus=(5,))
    made.holding(rich(2, "some"), rich(3), poor())
    option = PluginOption("capacity", {}, {"enableHierarchy": tree})
    assert evicted(made.run(reclaiming(option))[0]) == [gone]
