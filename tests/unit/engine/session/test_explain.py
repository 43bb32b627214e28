"""What is said of a gang that waits: which minimum is short, on what, how near, and whose turn comes before."""

from __future__ import annotations

from agent_scheduler.engine.quotas.book import QuotaBook, Standing
from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.conf import SessionConf
from agent_scheduler.engine.session.explain import WAITS_FOR, GangExplanation, Minimum, explain_gang
from agent_scheduler.objects.batch import ResourceQuotaStatus
from tests.support.engine import node

from .scene import Scene, conf

QUEUES = conf("priority", "gang", "capacity", "predicates", "nodeorder")


def book_of(scene: Scene) -> QuotaBook:
    book = QuotaBook()
    for each in scene.queues:
        book.set_queue(each)
    return book


def explained(
    scene: Scene, group: str = "g", *, book: QuotaBook | None = None, how: SessionConf = QUEUES
) -> GangExplanation:
    book = book or book_of(scene)
    session, result = scene.run(how, book=book)
    found = explain_gang(session, result, session.jobs[f"default/{group}"], book)
    assert found.waits_for in (*WAITS_FOR, "")
    assert [each.waits_for for each in result.groups if each.group.key.name == group] == [found.waits_for]
    return found


def test_a_gang_that_runs_waits_for_nothing() -> None:
    scene = Scene(node("a", cpu="2"))
    scene.gang("g", 2)
    found = explained(scene)
    assert (found.waits_for, found.why, found.place, found.waiting) == ("", "", 0, 0)
    assert found.minimums == (Minimum(of="group", needs=2, has=2),)
    assert found.members == {"Binding": 2}


def test_a_gang_that_waits_for_nodes_says_how_many_members_would_fit_and_what_the_others_lack() -> None:
    scene = Scene(node("a", cpu="2"))
    scene.gang("g", 3)
    found = explained(scene, how=conf())
    assert (found.waits_for, found.why) == ("nodes", "0/1 nodes are unavailable: 1 Insufficient cpu.")
    assert (found.minimums[0].missing, found.would_fit) == (3, 2)
    assert [(each.pods, each.pod) for each in found.refusals] == [(1, "g-2")]


def test_a_gang_for_which_its_queue_has_nothing_left_of_the_cluster_waits_for_nodes_too() -> None:
    scene = Scene(node("a", cpu="2"))
    scene.gang("g", 3)
    found = explained(scene)
    assert (found.waits_for, found.why) == (
        "nodes",
        "its queue has all that it may have of what is in the cluster",
    )


def test_what_a_queue_deserves_is_shown_beside_what_it_has() -> None:
    scene = Scene(node("a", cpu="2"))
    scene.queues.append(QueueInfo(name="q", parent="root", deserved={"cpu": 1500}))
    scene.gang("g", 3, queue="q")
    (queue, *_) = explained(scene).queues
    assert (queue.name, queue.deserved, queue.used) == ("q", {"cpu": "1500m"}, {})


def test_the_role_is_named_that_is_short() -> None:
    scene = Scene(node("a", cpu="4"))
    scene.group("g", minMember=3, minTaskMember={"master": 1, "worker": 2})
    for role, cpu in (("worker", "1"), ("worker", "1"), ("master", "8")):
        scene.member("g", cpu=cpu, annotations={"volcano.sh/task-spec": role})
    scene.member("g", "old", node="a", annotations={"volcano.sh/task-spec": "worker"})
    found = explained(scene)
    assert found.waits_for == "nodes"
    assert {each.of: (each.needs, each.has) for each in found.minimums} == {
        "group": (3, 1),
        "role master": (1, 0),
        "role worker": (2, 1),
    }


def test_members_that_ask_for_nothing_count_as_there() -> None:
    scene = Scene(node("a", cpu="4"))
    scene.group("g", minMember=4, minTaskMember={"w": 4})
    for more in ({"node": "a"}, {"cpu": ""}, {"cpu": "9"}, {"cpu": "9"}):
        scene.member("g", annotations={"volcano.sh/task-spec": "w"}, **more)
    found = explained(scene, how=conf(actions="enqueue allocate"))
    assert found.minimums == (Minimum(of="group", needs=4, has=2), Minimum(of="role w", needs=4, has=2))
    assert [(each.pods, each.pod) for each in found.refusals] == [(1, "g-2")]


def test_the_kind_of_sub_groups_is_named_that_is_short() -> None:
    scene = Scene(node("a", cpu="1"))
    policy = {"name": "rack", "subGroupSize": 2, "minSubGroups": 2, "matchLabelKeys": ["rack"]}
    scene.group("g", minMember=4, subGroupPolicy=[policy])
    for index in range(4):
        scene.member("g", labels={"rack": str(index % 2)})
    found = explained(scene)
    assert found.minimums[1:] == (Minimum(of="sub-groups rack", needs=2, has=0),)


def test_a_gang_whose_pods_are_not_there_yet_waits_for_these() -> None:
    scene = Scene(node("a"))
    scene.group("g", minMember=2)
    scene.member("g")
    found = explained(scene)
    assert (found.waits_for, found.why) == (
        "members",
        "Not enough valid tasks for gang-scheduling, valid: 1, min: 2",
    )
    scene.group("none")
    assert explained(scene, "none").why.startswith("Not enough valid tasks")


def test_a_gang_whose_pods_are_gated_waits_for_the_gates() -> None:
    scene = Scene(node("a"))
    scene.group("g", minMember=2)
    scene.member("g")
    scene.member("g", schedulingGates=[{"name": "example.com/quota"}])
    scene.queues[1] = QueueInfo(name="default", parent="root", capability={"cpu": 500})
    found = explained(scene)
    assert (found.waits_for, found.why) == ("gates", "1 of its 2 pods have scheduling gates")


def test_a_gang_that_its_queue_holds_names_it_with_numbers_and_those_above_it() -> None:
    scene = Scene(node("a", cpu="9"))
    scene.queues += [
        QueueInfo(name="team", parent="root", capability={"cpu": 4000}),
        QueueInfo(name="q", parent="team", capability={"cpu": 8000, "memory": 2**31}),
    ]
    book = book_of(scene)
    book.set("an agent's pod", "team", {"cpu": 1500}, Standing.BOUND)
    scene.gang("g", 3, queue="q")
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
    scene = Scene(node("a", cpu="1"))
    scene.gang("g", 2, minResources={"cpu": "2"})
    found = explained(scene)
    assert (found.waits_for, found.why) == (
        "admission",
        "queue resource quota insufficient: insufficient cpu",
    )
    assert found.said[0] == ("Unschedulable", found.why)
    assert found.said[1][1].startswith("2/2 tasks in gang unschedulable: pod group is not ready")


def test_a_gang_without_pods_waits_for_admission_until_it_is_let_in_and_then_for_pods() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.group("g", minMember=2, minResources={"cpu": "2"})
    found = explained(scene)
    assert (found.waits_for, found.why) == (
        "admission",
        "queue resource quota insufficient: insufficient cpu",
    )
    scene = Scene(node("a", cpu="2"))
    scene.group("g", minMember=2, minResources={"cpu": "2"})
    found = explained(scene)
    assert (found.waits_for, found.phase) == ("members", "Inqueue")


def test_a_gang_that_a_quota_keeps_out_waits_for_that() -> None:
    scene = Scene(node("a"))
    scene.gang("g", 2, minResources={"cpu": "2"})
    scene.more["quotas"] = {"default": [ResourceQuotaStatus(hard={"cpu": "1"}, used={"cpu": "0"})]}
    found = explained(scene, how=conf("gang", "resourcequota", "predicates"))
    assert (found.waits_for, found.why) == (
        "quota",
        "resource quota insufficient, requested: cpu=2, used: cpu=0, limited: cpu=1",
    )


def test_a_gang_with_claims_on_room_that_is_being_left_waits_for_the_release() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.group("old")
    scene.member("old", node="a", deleting=True)
    scene.gang("g", 1, phase="Inqueue")
    found = explained(scene)
    assert (found.waits_for, found.why) == (
        "release",
        "1 of its pods have a claim on room that pods are leaving",
    )


def test_the_place_is_among_the_gangs_of_the_queue_that_wait() -> None:
    scene = Scene(node("a", cpu="1"))
    scene.queues.append(QueueInfo(name="other", parent="root"))
    scene.gang("elsewhere", 2, queue="other", created="2026-01-01T00:00:00Z")
    scene.gang("runs", 1, created="2026-01-01T00:00:00Z")
    for index, name in enumerate(("first", "second", "third")):
        scene.gang(name, 2, created=f"2026-01-0{index + 2}T00:00:00Z")
    assert [
        (found.place, found.waiting)
        for name in ("first", "second", "third")
        for found in [explained(scene, name)]
    ] == [
        (1, 3),
        (2, 3),
        (3, 3),
    ]
