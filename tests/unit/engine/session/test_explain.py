"""What is said of a gang that waits: which minimum is short, on what, how near, and whose turn comes before."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.queues.book import QuotaBook
from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.engine.session.conf import SessionConf
from agent_scheduler.engine.session.explain import GangExplanation, Minimum, explain_gang
from agent_scheduler.engine.verdicts import LABELS
from agent_scheduler.objects.batch import TASK_SPEC
from tests.support.engine import queue_of

from .scene import GATED, Part, Scene, conf, has, sized, waits

QUEUES = conf("priority", "gang", "capacity", "predicates", "nodeorder")


def explained(
    scene: Scene, group: str = "g", *, book: QuotaBook | None = None, how: SessionConf = QUEUES
) -> GangExplanation:
    book = book or scene.book()
    session, result = scene.run(how, book=book)
    found = explain_gang(session, result, session.jobs[f"default/{group}"], book)
    assert found.waits_for in (*LABELS, "")
    assert [each.waits_for for each in result.groups if each.group.key.name == group] == [found.waits_for]
    return found


def in_role(role: str, **more: Any) -> dict[str, Any]:
    return {"annotations": {TASK_SPEC: role}, **more}


def holds(cpu: int) -> Part:
    """So much is all that the queue may hold."""
    return lambda scene: scene.queues.__setitem__(1, queue_of("default", "root", capability=cpu))


TWO = {"minResources": {"cpu": "2"}}
TOO_FEW = "Not enough valid tasks for gang-scheduling, valid: {}, min: {}"
BOTH, ENDS = {"m": 1, "w": 1}, ("Succeeded", "Failed")
LITTLE = "queue default has too little capability left: 1500m of cpu missing"
OUT = "queue resource quota insufficient: insufficient cpu"


@pytest.mark.parametrize(
    ("parts", "how", "waits_for", "why"),
    [
        ([waits("g")], QUEUES, "", ""),
        ([has("g", *({"node": "n0", "phase": each} for each in ENDS), minMember=2)], QUEUES, "", ""),
        ([waits("g", 3)], conf(), "nodes", "0/1 nodes are unavailable: 1 Insufficient cpu."),
        ([waits("g", 3)], QUEUES, "nodes", "its queue has all that it may have of what is in the cluster"),
        # Pods that are not there yet, or gated, whatever else it lacks.
        ([has("g", {}, minMember=2)], QUEUES, "members", TOO_FEW.format(1, 2)),
        ([has("g")], QUEUES, "members", TOO_FEW.format(0, 1)),
        (
            [holds(500), has("g", {}, GATED, minMember=2)],
            QUEUES,
            "gates",
            "1 of the gang's 2 pods have scheduling gates",
        ),
        (
            [has("g", in_role("m"), in_role("m"), in_role("w", **GATED), minMember=2, minTaskMember=BOTH)],
            QUEUES,
            "gates",
            "1 of the gang's 3 pods have scheduling gates",
        ),
        # The queue holds those above the minimum alone; one that has not let the gang in comes before its members.
        (
            [has("g", {"node": "n0"}, *[{"cpu": "3"}] * 2, minMember=2), holds(4000)],
            *(QUEUES, "nodes", "its queue has all that it may have of what is in the cluster"),
        ),
        ([has("g", {}, minMember=2, phase="Pending", **TWO), holds(500)], QUEUES, "queue", LITTLE),
        # Let in it waits for pods, before that for being let in.
        ([waits("g", 3, minResources={"cpu": "3"})], QUEUES, "admission", OUT),
        ([has("g", minMember=2, minResources={"cpu": "3"})], QUEUES, "admission", OUT),
        ([has("g", minMember=2, **TWO)], QUEUES, "members", TOO_FEW.format(0, 2)),
        (
            [waits("g", 2, **TWO)],
            conf("gang", "resourcequota", "predicates"),
            "quota",
            "resource quota insufficient, requested: cpu=2, used: cpu=0, limited: cpu=1",
        ),
        (
            [has("old", {"node": "n0", "cpu": "2", "deleting": True}), waits("g", 1, phase="Inqueue")],
            QUEUES,
            "release",
            "1 of its pods have a claim on room that pods are leaving",
        ),
    ],
)
def test_a_gang_says_what_it_waits_for(parts: list[Part], how: SessionConf, waits_for: str, why: str) -> None:
    scene = sized(2).holding(*parts)
    scene.quota({"cpu": "1"}, {"cpu": "0"})
    found = explained(scene, how=how)
    assert (found.waits_for, found.why) == (waits_for, why)


def test_a_gang_that_runs_waits_for_nothing() -> None:
    found = explained(sized(2).holding(waits("g", 2)))
    assert (found.place, found.waiting, found.members) == (0, 0, {"Binding": 2})
    assert found.minimums == (Minimum(of="group", needs=2, has=2),)


def test_a_gang_that_waits_for_nodes_says_how_many_members_would_fit_and_what_the_others_lack() -> None:
    found = explained(sized(2).holding(waits("g", 3)), how=conf())
    assert (found.minimums[0].missing, found.would_fit) == (3, 2)
    assert [(each.pods, each.pod) for each in found.refusals] == [(1, "g-2")]


def test_what_a_queue_deserves_is_shown_beside_what_it_has() -> None:
    scene = sized(2).holding(waits("g", 3, queue="q"))
    scene.queues.append(queue_of("q", "root", deserved=1500))
    (queue, *_) = explained(scene).queues
    assert (queue.name, queue.deserved, queue.used) == ("q", {"cpu": "1500m"}, {})


def test_the_role_is_named_that_is_short() -> None:
    members = (*[in_role("worker")] * 2, in_role("master", cpu="8"), in_role("worker", node="n0"))
    roles = {"master": 1, "worker": 2}
    found = explained(sized(4).holding(has("g", *members, minMember=3, minTaskMember=roles)))
    assert found.waits_for == "nodes"
    assert {each.of: (each.needs, each.has) for each in found.minimums} == {
        "group": (3, 1),
        "role master": (1, 0),
        "role worker": (2, 1),
    }


def test_members_that_ask_for_nothing_count_as_there() -> None:
    members = (in_role("w", **more) for more in ({"node": "n0"}, {"cpu": ""}, {"cpu": "9"}, {"cpu": "9"}))
    scene = sized(4).holding(has("g", *members, minMember=4, minTaskMember={"w": 4}))
    found = explained(scene, how=conf(actions="enqueue allocate"))
    assert found.minimums == (Minimum(of="group", needs=4, has=2), Minimum(of="role w", needs=4, has=2))
    assert [(each.pods, each.pod) for each in found.refusals] == [(1, "g-2")]


def test_the_kind_of_sub_groups_is_named_that_is_short() -> None:
    policy = {"name": "rack", "subGroupSize": 2, "minSubGroups": 2, "matchLabelKeys": ["rack"]}
    members = ({"labels": {"rack": str(index % 2)}} for index in range(4))
    found = explained(sized(1).holding(has("g", *members, minMember=4, subGroupPolicy=[policy])))
    assert found.minimums[1:] == (Minimum(of="sub-groups rack", needs=2, has=0),)


def test_a_gang_that_its_queue_holds_names_it_with_numbers_and_those_above_it() -> None:
    scene = sized(9).holding(waits("g", 3, queue="q"))
    scene.queues += [
        queue_of("team", "root", capability=4000),
        queue_of("q", "team", capability={"cpu": 8000, "memory": 2**31}),
    ]
    book = scene.book()
    book.set("an agent's pod", "team", {"cpu": 1500}, Standing.BOUND)
    scene.cluster.refused = {"g-0", "g-1", "g-2"}
    found = explained(scene, book=book)
    assert found.waits_for == "queue"
    assert found.why == "queue team has too little capability left: 500m of cpu missing"
    assert [(each.name, each.capability, each.used, each.missing) for each in found.queues] == [
        ("q", {"cpu": "8", "memory": "2Gi"}, {}, {}),
        ("team", {"cpu": "4"}, {"cpu": "1500m"}, {"cpu": "500m"}),
        ("root", {}, {"cpu": "1500m"}, {}),
    ]


def test_a_gang_that_is_not_let_in_says_what_the_session_said_of_it() -> None:
    found = explained(sized(1).holding(waits("g", 2, **TWO)))
    assert found.said[0] == ("Unschedulable", OUT)
    assert found.said[1][1].startswith("2/2 tasks in gang unschedulable: pod group is not ready")


def test_the_place_is_among_the_gangs_of_the_queue_that_wait() -> None:
    scene = sized(1)
    scene.queues.append(queue_of("other", "root"))
    scene.gang("elsewhere", 2, queue="other", created="2026-01-01T00:00:00Z")
    scene.gang("runs", 1, created="2026-01-01T00:00:00Z")
    names = ("first", "second", "third")
    for index, name in enumerate(names):
        scene.gang(name, 2, created=f"2026-01-0{index + 2}T00:00:00Z")
    found = [explained(scene, name) for name in names]
    assert [(each.place, each.waiting) for each in found] == [(1, 3), (2, 3), (3, 3)]
