"""What pods say of themselves, so that autoscalers add nodes where nodes are wanted, and nowhere else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.quotas.book import QuotaBook, Standing
from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.close import close
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.engine.session.written import Hold, written_condition
from agent_scheduler.objects.batch import ResourceQuotaStatus
from tests.support.engine import node

from .scene import Scene, conf, finished, told

pytestmark = pytest.mark.promise("S33")

QUEUES = conf("priority", "gang", "capacity", "predicates", "nodeorder")
FULL = "queue q has too little capability left: {} of cpu missing"


def scene(*nodes: str, **queue: Any) -> tuple[Scene, QuotaBook]:
    """Nodes with so many cpus each, and a queue `q`."""
    made = Scene(*(node(f"n{index}", cpu=cpu) for index, cpu in enumerate(nodes)))
    queue = {name: {"cpu": amount * 1000} for name, amount in queue.items()}
    made.queues.append(QueueInfo(name="q", parent="root", **queue))
    book = QuotaBook()
    for each in made.queues:
        book.set_queue(each)
    return made, book


def reasons(made: Scene, book: QuotaBook, how: SessionConf = QUEUES) -> dict[str, str]:
    _, result = made.run(how, book=book)
    return {name: reason for name, (reason, _) in told(result).items()}


def test_who_would_fit_and_waits_for_the_rest_of_its_gang_asks_for_nodes_like_the_rest() -> None:
    """Else an autoscaler takes the one node's room for free and adds one node, which is one too few for two gangs."""
    made, book = scene("1")
    made.gang("g", 2)
    _, volcano = made.run()
    assert {reason for reason, _ in told(volcano).values()} == {"Schedulable", "Unschedulable"}
    _, result = made.run(book=book)
    assert told(result) == {
        "g-0": (
            "Unschedulable",
            "Pod default/g-0 can possibly be assigned to n0, once minAvailable is satisfied",
        ),
        "g-1": ("Unschedulable", "0/1 nodes are unavailable: 1 Insufficient cpu."),
    }


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
@pytest.mark.parametrize("minimum", [None, {"cpu": "3"}])
def test_of_a_gang_that_its_queue_holds_back_no_member_asks_for_nodes(phase: str, minimum: Any) -> None:
    made, book = scene("8", capability=2)
    made.gang("g", 3, queue="q", phase=phase, minResources=minimum)
    _, result = made.run(QUEUES, book=book)
    assert told(result) == dict.fromkeys(("g-0", "g-1", "g-2"), ("QueueFull", FULL.format(1)))


@pytest.mark.parametrize(
    ("placed", "capability", "reason"),
    [(1, 3, "Unschedulable"), (2, 3, "Unschedulable"), (1, 2, "QueueFull"), (2, 2, "QueueFull")],
)
def test_what_a_gang_has_already_is_taken_off_the_minimum_that_it_still_asks_its_queue_for(
    placed: int, capability: int, reason: str
) -> None:
    made, book = scene(str(placed), capability=capability)
    made.group("g", queue="q", minMember=3, minResources={"cpu": "3"}, phase="Inqueue")
    for index in range(3):
        pod = made.member("g", node="n0" if index < placed else "")
        if index < placed:
            book.set(pod.uid, "q", {"cpu": 1000}, Standing.BOUND)
    assert reasons(made, book) == {f"g-{index}": reason for index in range(placed, 3)}


def test_of_a_gang_half_placed_only_what_its_minimum_still_lacks_is_asked_for_as_a_whole() -> None:
    """Two of the three that wait complete it, for which the queue has room; the third is above the minimum."""
    made, book = scene("1", capability=3)
    made.group("g", queue="q", minMember=3, phase="Running")
    pods = [made.member("g", node="n0" if index == 0 else "") for index in range(4)]
    book.set(pods[0].uid, "q", {"cpu": 1000}, Standing.BOUND)
    assert reasons(made, book) == {"g-1": "Unschedulable", "g-2": "Unschedulable", "g-3": "QueueFull"}


def test_of_a_gang_half_placed_those_are_above_the_minimum_that_come_last_by_priority() -> None:
    made, book = scene("1", capability=3)
    made.group("g", queue="q", minMember=3, phase="Running")
    pods = [made.member("g", node="n0" if index == 0 else "", priority=index) for index in range(4)]
    book.set(pods[0].uid, "q", {"cpu": 1000}, Standing.BOUND)
    assert reasons(made, book) == {"g-1": "QueueFull", "g-2": "Unschedulable", "g-3": "Unschedulable"}


def test_of_a_gang_half_placed_a_role_lacks_what_it_has_not_placed() -> None:
    """One worker completes the minimum, for which the queue has room; the other is above it."""
    made, book = scene("2", capability=3)
    made.group("g", queue="q", minMember=3, minTaskMember={"master": 1, "worker": 2}, phase="Running")
    for index, role in enumerate(("master", "worker", "worker", "worker")):
        annotations = {"volcano.sh/task-spec": role}
        pod = made.member("g", node="n0" if index < 2 else "", annotations=annotations)
        if index < 2:
            book.set(pod.uid, "q", {"cpu": 1000}, Standing.BOUND)
    assert reasons(made, book) == {"g-2": "Unschedulable", "g-3": "QueueFull"}


def test_what_others_hold_in_the_queue_counts() -> None:
    made, book = scene("8", capability=4)
    made.gang("g", 3, queue="q")
    book.set("an agent's pod", "q", {"cpu": 2000}, Standing.BOUND)
    made.cluster.refused = {"g-0", "g-1", "g-2"}
    assert set(reasons(made, book).values()) == {"QueueFull"}


def test_of_a_gang_that_has_its_minimum_those_are_held_that_do_not_fit_into_the_queue() -> None:
    made, book = scene("2", capability=4)
    made.group("g", queue="q", minMember=3)
    for _ in range(6):
        made.member("g")
    assert reasons(made, book) == {
        **dict.fromkeys(("g-0", "g-1", "g-2", "g-3"), "Unschedulable"),
        **dict.fromkeys(("g-4", "g-5"), "QueueFull"),
    }


def test_of_two_gangs_for_which_a_queue_has_room_once_the_one_asks_for_nodes_that_was_let_in() -> None:
    made, book = scene("1", capability=2)
    made.gang("late", 2, queue="q", minResources={"cpu": "2"}, created="2026-01-01T00:00:00Z")
    made.gang(
        "first", 2, queue="q", minResources={"cpu": "2"}, phase="Inqueue", created="2026-01-02T00:00:00Z"
    )
    assert reasons(made, book) == {
        "first-0": "Unschedulable",
        "first-1": "Unschedulable",
        "late-0": "QueueFull",
        "late-1": "QueueFull",
    }


def test_a_gang_that_lacks_members_keeps_nobody_from_asking_for_nodes() -> None:
    made, book = scene("0", capability=2)
    made.group("few", queue="q", phase="Inqueue", minMember=2, minResources={"cpu": "2"})
    made.member("few")
    made.gang("whole", 2, queue="q", phase="Inqueue")
    found = reasons(made, book)
    assert found["whole-0"] == found["whole-1"] == "Unschedulable"


def test_roles_that_lack_their_minimum_count_first() -> None:
    """Three workers fit into the queue, but one of them has to be the master, which is large."""
    made, book = scene("8", capability=3)
    made.group("g", queue="q", minMember=3, minTaskMember={"master": 1, "worker": 2})
    for role, cpu in (("worker", "1"), ("worker", "1"), ("worker", "1"), ("master", "2")):
        made.member("g", cpu=cpu, annotations={"volcano.sh/task-spec": role})
    _, result = made.run(QUEUES, book=book)
    assert set(told(result).values()) == {("QueueFull", FULL.format(1))}


def test_a_queue_that_is_full_because_the_cluster_is_does_not_keep_nodes_from_coming() -> None:
    """capacity lets nobody past what the cluster has, whatever queues declare; with more nodes there would be more."""
    made, book = scene("1")
    made.gang("g", 2, queue="q", minResources={"cpu": "2"})
    assert set(reasons(made, book).values()) == {"Unschedulable"}


def test_in_a_queue_that_is_closed_nobody_asks_for_nodes() -> None:
    made, _ = scene("8")
    made.queues[-1] = QueueInfo(name="q", parent="root", state="Closed")
    book = QuotaBook()
    for each in made.queues:
        book.set_queue(each)
    made.gang("g", 2, queue="q")
    _, result = made.run(QUEUES, book=book)
    assert set(told(result).values()) == {("QueueFull", "queue q takes no pods: its state is Closed")}


def test_while_there_is_a_fault_in_the_tree_of_queues_nobody_asks_for_nodes_who_asks_queues_for_room() -> (
    None
):
    tree = PluginOption("capacity", switches={"enableHierarchy": True})
    made, book = scene("1")
    made.queues.append(QueueInfo(name="lost", parent="gone"))
    book.set_queue(made.queues[-1])
    made.gang("g", 2, queue="q", phase="Inqueue")
    made.group("nothing", queue="q", phase="Inqueue", minMember=2)
    for _ in range(2):
        made.member("nothing", cpu="", nodeSelector={"not": "there"})
    made.group("mixed", queue="q", phase="Inqueue", minMember=2)
    for cpu in ("1", ""):
        made.member("mixed", cpu=cpu, nodeSelector={"not": "there"})
    made.group("waits", queue="q", minResources={"cpu": "1"})
    made.member("waits", cpu="")
    how = conf("priority", "gang", tree, "predicates", "nodeorder", actions="allocate backfill enqueue")
    _, result = made.run(how, book=book)
    held = (
        "QueueFull",
        "queues take no pods while there is a fault in them: queue lost has the parent gone, which does not exist",
    )
    said = told(result)
    asking = ("g-0", "g-1", "mixed-0", "mixed-1", "waits-0")
    assert {name: said[name] for name in asking} == dict.fromkeys(asking, held)
    assert said["nothing-0"][0] == said["nothing-1"][0] == "Unschedulable", "a node would do"
    made.queues[-1] = QueueInfo(name="lost", parent="root")
    assert "QueueFull" not in reasons(made, book, how).values()


def test_a_gang_that_a_quota_of_its_namespace_holds_back_does_not_ask_for_nodes() -> None:
    made, book = scene("8")
    made.gang("g", 2, minResources={"cpu": "2"})
    made.more["quotas"] = {"default": [ResourceQuotaStatus(hard={"cpu": "1"}, used={"cpu": "0"})]}
    _, result = made.run(conf("gang", "resourcequota", "predicates"), book=book)
    assert set(told(result).values()) == {
        ("QuotaExceeded", "resource quota insufficient, requested: cpu=2, used: cpu=0, limited: cpu=1")
    }


def test_what_is_written_is_not_written_again_and_is_when_the_cause_changes() -> None:
    made, book = scene("1", capability=1)
    made.gang("g", 2, queue="q")
    _, first = made.run(QUEUES, book=book)
    there = made.members[made.groups[0].key]
    for index, each in enumerate(first.pods):
        there[index] = _with(each.pod, each.reason, each.message)
    assert not made.run(QUEUES, book=book)[1].pods
    made.queues[-1] = QueueInfo(name="q", parent="root")
    book.set_queue(made.queues[-1])
    assert set(reasons(made, book).values()) == {"Unschedulable"}


def _with(pod: Any, reason: str, message: str) -> Any:
    return msgspec.structs.replace(pod, condition=("False", reason, message, 0))


@pytest.mark.parametrize(
    ("members", "expected"),
    [(1, {"g-0": "Unschedulable"}), (2, {"g-0": "Unschedulable", "g-1": "QueueFull"})],
)
def test_who_is_about_to_have_room_says_so_whatever_the_queue_holds_now_and_who_is_above_the_minimum_does_not(
    members: int, expected: dict[str, str]
) -> None:
    """As others of the queue leave for it, which the book still counts."""
    made, book = scene("1", capability=1)
    made.more["priorities"] = {"high": 9}
    (leaves,) = made.running("old", "n0", queue="q")
    book.set(leaves.uid, "q", {"cpu": 1000}, Standing.BOUND)
    made.gang("g", members, minMember=1, queue="q", phase="Inqueue", priorityClassName="high")
    evicting = conf("priority", "predicates", "capacity", actions="allocate preempt")
    assert reasons(made, book, evicting) == expected


def test_a_member_for_which_room_is_kept_asks_for_a_node_though_its_queue_has_none_for_others() -> None:
    made, book = scene(capability=1)
    members = made.gang("g", 3, minMember=1, queue="q", phase="Inqueue")
    book.set(members[2].uid, "q", {"cpu": 1000}, Standing.RESERVED)
    _, result = made.run(QUEUES, book=book)
    found = {name: reason for name, (reason, _) in told(result).items()}
    assert found == {"g-0": "QueueFull", "g-1": "QueueFull", "g-2": "Unschedulable"}


def test_a_pod_that_gave_its_room_back_says_so_unless_something_else_holds_it() -> None:
    made, book = scene("0", capability=1)
    first, second, third = made.gang("g", 3, minMember=1, queue="q", phase="Inqueue")
    session = made.session(QUEUES, book=book)
    for _ in session.run():
        pass
    given_back = {each.uid: "it gave its room back" for each in (first, third)}
    result = finished(close(session, book, given_back))
    assert told(result) == {
        "g-0": ("QueueFull", "it gave its room back"),
        "g-1": ("QueueFull", FULL.format(1)),
        "g-2": ("QueueFull", FULL.format(1)),
    }
    assert result.held.keys() == {first.uid, second.uid, third.uid}


def test_while_it_is_not_known_which_nodes_may_be_used_no_pod_asks_for_any() -> None:
    made, book = scene("8", capability=1)
    made.more["unready"] = "no shard"
    made.more["shard_full"] = lambda pods: "never asked"
    made.group("g", queue="q", minMember=1)
    made.member("g", cpu="9")
    made.member("g", schedulingGates=[{"name": "example.com/wait"}])
    made.running("old", "n0", cpu="8")
    made.more["priorities"] = {"high": 1}
    made.gang("claims", 1, priorityClassName="high")
    _, result = made.run(conf("priority", "predicates", actions="allocate preempt"), book=book)
    said = told(result)
    assert said["g-0"] == ("NodeShardNotReady", "0/1 nodes are available: no shard.")
    assert said["claims-0"][0] == "Unschedulable", "others leave for it"


@pytest.mark.parametrize(
    ("minimum", "enough", "held"),
    [
        # By how many pods the shard is too small for, all of them together: 0 if it is for none.
        (3, 1, {"g-0", "g-1", "g-2"}),
        (3, 3, {"g-0", "g-1", "g-2"}),
        (3, 4, set()),
        (2, 2, {"g-0", "g-1"}),
        (2, 1, {"g-0", "g-1", "g-2"}),
        (1, 1, {"g-0", "g-1", "g-2"}),
        (0, 1, {"g-0", "g-1", "g-2"}),
    ],
)
def test_members_for_which_the_shard_is_full_and_other_nodes_are_not_ask_for_none_the_minimum_together(
    minimum: int, enough: int, held: set[str]
) -> None:
    made, book = scene("1")
    made.more["shard_full"] = lambda pods: "other nodes are free" if len(pods) >= enough else ""
    made.gang("g", 3, minMember=minimum, cpu="2")
    made.member("g", "gated", schedulingGates=[{"name": "example.com/wait"}])
    said = reasons(made, book)
    assert {name for name, reason in said.items() if reason == "NodeShardFull"} == held
    assert said.keys() == {"g-0", "g-1", "g-2"}


@pytest.mark.parametrize("reason", ["Schedulable", "Unschedulable"])
def test_a_hold_comes_before_what_volcano_says(reason: str) -> None:
    assert written_condition(reason, "text", Hold("QueueFull", "full")) == ("QueueFull", "full")
    assert written_condition(reason, "text", None) == ("Unschedulable", "text")


def test_other_reasons_stay() -> None:
    assert written_condition("SchedulerError", "text", None) == ("SchedulerError", "text")
