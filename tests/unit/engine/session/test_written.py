"""What pods say of themselves, so that autoscalers add nodes where nodes are wanted, and nowhere else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.queues.asks import turn_of_pod
from agent_scheduler.engine.queues.book import QuotaBook
from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.engine.quotas.vector import of_requests
from agent_scheduler.engine.session.close import close
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.objects.batch import TASK_SPEC
from tests.support.engine import queue_of

from .scene import GATED, Scene, conf, finished, has, runs, sized, told, waits

pytestmark = pytest.mark.promise("S33")

QUEUES = conf("priority", "gang", "capacity", "predicates", "nodeorder")
FULL = "queue q has too little capability left: {} of cpu missing"


ON, FREE = {"node": "n0"}, dict[str, Any]()
ROLES = {"minMember": 3, "minTaskMember": {"master": 1, "worker": 2}}
EVICTING = conf("priority", "predicates", "capacity", actions="allocate preempt")


def of_role(role: str, **more: Any) -> dict[str, Any]:
    return {"annotations": {TASK_SPEC: role}, **more}


def scene(*nodes: str, **queue: Any) -> Scene:
    """Nodes with so many cpus each, and a queue `q`."""
    made = sized(*nodes)
    amounts = {name: {"cpu": amount * 1000} for name, amount in queue.items()}
    made.queues.append(queue_of("q", "root", **amounts))
    return made


def said(made: Scene, book: QuotaBook | None = None, how: SessionConf = QUEUES) -> dict[str, tuple[str, str]]:
    """What is written of each pod, by default with those in the book that are bound."""
    return told(made.run(how, book=book or made.book(bound=True))[1])


def reasons(made: Scene, book: QuotaBook | None = None, how: SessionConf = QUEUES) -> dict[str, str]:
    return {name: reason for name, (reason, _) in said(made, book, how).items()}


def test_who_would_fit_and_waits_for_the_rest_of_its_gang_asks_for_nodes_like_the_rest() -> None:
    """Else an autoscaler takes the one node's room for free and adds one node, which is one too few for two gangs."""
    made = scene("1").holding(waits("g", 2))
    _, volcano = made.run()
    assert {reason for reason, _ in told(volcano).values()} == {"Schedulable", "Unschedulable"}
    assert said(made, how=conf()) == {
        "g-0": ("Unschedulable", "Pod default/g-0 can possibly be assigned to n0, once minAvailable is satisfied"),
        "g-1": ("Unschedulable", "0/1 nodes are unavailable: 1 Insufficient cpu."),
    }


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
@pytest.mark.parametrize("minimum", [None, {"cpu": "3"}])
def test_of_a_gang_that_its_queue_holds_back_no_member_asks_for_nodes(phase: str, minimum: Any) -> None:
    made = scene("8", capability=2).holding(waits("g", 3, queue="q", phase=phase, minResources=minimum))
    assert said(made) == dict.fromkeys(("g-0", "g-1", "g-2"), ("QueueFull", FULL.format(1)))


MINIMUM = {"minMember": 3, "minResources": {"cpu": "3"}, "phase": "Inqueue"}
HALF: dict[str, Any] = {"minMember": 3, "phase": "Running"}


@pytest.mark.parametrize(
    ("cpu", "capability", "members", "group", "expected"),
    [
        # What a gang has already is taken off the minimum that it still asks its queue for.
        ("1", 3, [ON, FREE, FREE], MINIMUM, ".NN"),
        ("2", 3, [ON, ON, FREE], MINIMUM, "..N"),
        ("1", 2, [ON, FREE, FREE], MINIMUM, ".QQ"),
        ("2", 2, [ON, ON, FREE], MINIMUM, "..Q"),
        # Two of the three that wait complete it, for which the queue has room; the third is above the minimum.
        ("1", 3, [ON, FREE, FREE, FREE], HALF, ".NNQ"),
        # Those are above it that come last by priority.
        ("1", 3, [ON, *({"priority": each} for each in (1, 2, 3))], HALF, ".QNN"),
        # A role lacks what it has not placed: one worker completes the minimum.
        (
            "2",
            3,
            [of_role("master", **ON), of_role("worker", **ON), of_role("worker"), of_role("worker")],
            {**ROLES, "phase": "Running"},
            "..NQ",
        ),
        # Of a gang whose minimum the queue has room for, those are held that do not fit beside it.
        ("2", 4, [FREE] * 6, {"minMember": 3}, "NNNNQQ"),
        # Three workers fit into the queue, but one of them has to be the master, which is large.
        ("8", 3, [*[of_role("worker")] * 3, of_role("master", cpu="2")], ROLES, "QQQQ"),
    ],
)
def test_what_the_minimum_of_a_gang_still_lacks_is_asked_for_as_a_whole(
    cpu: str, capability: int, members: list[Any], group: Any, expected: str
) -> None:
    """N: the member asks for nodes; Q: its queue holds it back, for 1 cpu; `.`: it has a node."""
    found = said(scene(cpu, capability=capability).holding(has("g", *members, queue="q", **group)))
    letters = {"Unschedulable": "N", "QueueFull": "Q"}
    told = [letters[found[name][0]] if name in found else "." for name in (f"g-{at}" for at in range(len(members)))]
    assert "".join(told) == expected
    assert {text for reason, text in found.values() if reason == "QueueFull"} <= {FULL.format(1)}


def test_what_others_hold_in_the_queue_counts() -> None:
    made = scene("8", capability=4).holding(waits("g", 3, queue="q"))
    book = made.book()
    book.set("an agent's pod", "q", {"cpu": 2000}, Standing.BOUND)
    made.cluster.refused = {"g-0", "g-1", "g-2"}
    assert set(reasons(made, book).values()) == {"QueueFull"}


def test_of_two_gangs_for_which_a_queue_has_room_once_the_one_asks_for_nodes_that_was_let_in() -> None:
    one: dict[str, Any] = {"queue": "q", "minResources": {"cpu": "2"}}
    late = waits("late", 2, created="2026-01-01T00:00:00Z", **one)
    made = scene("1", capability=2).holding(
        late, waits("first", 2, phase="Inqueue", created="2026-01-02T00:00:00Z", **one)
    )
    assert reasons(made) == {
        **dict.fromkeys(("first-0", "first-1"), "Unschedulable"),
        **dict.fromkeys(("late-0", "late-1"), "QueueFull"),
    }


def test_a_gang_that_lacks_members_keeps_nobody_from_asking_for_nodes() -> None:
    few = has("few", FREE, queue="q", phase="Inqueue", minMember=2, minResources={"cpu": "2"})
    found = reasons(scene("0", capability=2).holding(few, waits("whole", 2, queue="q", phase="Inqueue")))
    assert found["whole-0"] == found["whole-1"] == "Unschedulable"


def test_a_queue_that_is_full_because_the_cluster_is_does_not_keep_nodes_from_coming() -> None:
    """capacity lets nobody past what the cluster has, whatever queues declare; with more nodes there would be more."""
    made = scene("1").holding(waits("g", 2, queue="q", minResources={"cpu": "2"}))
    assert set(reasons(made).values()) == {"Unschedulable"}


def test_while_there_is_a_fault_in_the_tree_of_queues_nobody_asks_for_nodes_who_asks_queues_for_room() -> None:
    tree = PluginOption("capacity", switches={"enableHierarchy": True})
    made = scene("1")
    made.queues.append(queue_of("lost", "gone"))
    book = made.book()
    nowhere = {"nodeSelector": {"not": "there"}}
    inqueue = {"queue": "q", "phase": "Inqueue", "minMember": 2}
    made.holding(
        waits("g", 2, queue="q", phase="Inqueue"),
        has("nothing", *[{"cpu": "", **nowhere}] * 2, **inqueue),
        has("mixed", *({"cpu": cpu, **nowhere} for cpu in ("1", "")), **inqueue),
        has("waits", {"cpu": ""}, queue="q", minResources={"cpu": "1"}),
    )
    how = conf("priority", "gang", tree, "predicates", "nodeorder", actions="allocate backfill enqueue")
    found = said(made, book, how)
    held = (
        "QueueFull",
        "queues take no pods while there is a fault in them: queue lost has the parent gone, which does not exist",
    )
    asking = ("g-0", "g-1", "mixed-0", "mixed-1", "waits-0")
    assert {name: found[name] for name in asking} == dict.fromkeys(asking, held)
    assert found["nothing-0"][0] == found["nothing-1"][0] == "Unschedulable", "a node would do"
    made.queues[-1] = queue_of("lost", "root")
    assert "QueueFull" not in reasons(made, book, how).values()


def test_a_gang_that_a_quota_of_its_namespace_holds_back_does_not_ask_for_nodes() -> None:
    made = scene("8").holding(waits("g", 2, minResources={"cpu": "2"}))
    made.quota({"cpu": "1"}, {"cpu": "0"})
    assert set(said(made, how=conf("gang", "resourcequota", "predicates")).values()) == {
        ("QuotaExceeded", "resource quota insufficient, requested: cpu=2, used: cpu=0, limited: cpu=1")
    }


def test_what_is_written_is_not_written_again_and_is_when_the_cause_changes() -> None:
    made = scene("1", capability=1).holding(waits("g", 2, queue="q"))
    _, first = made.run(QUEUES, book=made.book())
    there = made.members[made.groups[0].key]
    for index, each in enumerate(first.pods):
        condition = ("False", each.reason, each.message, 0)
        there[index] = msgspec.structs.replace(each.pod, condition=condition)
    assert not said(made)
    made.queues[-1] = queue_of("q", "root")
    assert set(reasons(made).values()) == {"Unschedulable"}


@pytest.mark.parametrize(
    ("members", "expected"), [(1, {"g-0": "Unschedulable"}), (2, {"g-0": "Unschedulable", "g-1": "QueueFull"})]
)
def test_who_is_about_to_have_room_says_so_whatever_the_queue_holds_now_and_who_is_above_the_minimum_does_not(
    members: int, expected: dict[str, str]
) -> None:
    """As others of the queue leave for it, which the book still counts."""
    made = scene("1", capability=1).holding(runs("old", "n0", queue="q"))
    made.more["priorities"] = {"high": 9}
    made.gang("g", members, minMember=1, queue="q", phase="Inqueue", priorityClassName="high")
    assert reasons(made, how=EVICTING) == expected


@pytest.mark.parametrize(
    ("minimum", "kept", "expected"), [(None, [2], "QQN"), ({"cpu": "2"}, [1, 2], "QNN"), ({"cpu": "2"}, [2], "QQQ")]
)
def test_a_member_for_which_room_is_kept_asks_for_a_node_though_its_queue_has_none_for_others(
    minimum: Any, kept: list[int], expected: str
) -> None:
    """And though its group says that it needs more to run than one member, where that is kept for several."""
    made = scene(capability=len(kept))
    members = made.gang("g", 3, minMember=1, minResources=minimum, queue="q", phase="Inqueue")
    book = made.book()
    for at in kept:
        book.set(members[at].uid, "q", {"cpu": 1000}, Standing.RESERVED)
    letters = {"N": "Unschedulable", "Q": "QueueFull"}
    assert reasons(made, book) == {f"g-{at}": letters[each] for at, each in enumerate(expected)}


def test_if_more_is_kept_for_members_than_their_queue_declares_the_first_in_its_order_asks_for_a_node() -> None:
    """Sessions take them by UID, as their names have no number of a controller."""
    made = scene(capability=1)
    members = made.gang("g", 2, minMember=1, queue="q", phase="Inqueue")
    there = made.members[made.groups[0].key]
    created = members[0].created
    there[:] = [msgspec.structs.replace(pod, uid=uid, created=created) for pod, uid in zip(members, "ba", strict=True)]
    book = made.book()
    for pod in there:
        book.set(pod.uid, "q", of_requests(pod.requests), Standing.RESERVED, turn_of_pod(pod))
    assert reasons(made, book) == {"g-0": "Unschedulable", "g-1": "QueueFull"}


def test_a_pod_that_gave_its_room_back_says_so_unless_something_else_holds_it() -> None:
    made = scene("0", capability=1)
    first, second, third = made.gang("g", 3, minMember=1, queue="q", phase="Inqueue")
    book = made.book()
    session = made.session(QUEUES, book=book)
    for _ in session.run():
        pass
    given_back = {each.uid: "it gave its room back" for each in (first, third)}
    result = finished(close(session, book, given_back))
    assert told(result) == {
        "g-0": ("QueueFull", "it gave its room back"),
        **dict.fromkeys(("g-1", "g-2"), ("QueueFull", FULL.format(1))),
    }
    assert result.held.keys() == {first.uid, second.uid, third.uid}


def test_a_member_asks_for_no_node_while_others_are_held_without_which_its_gang_has_not_its_minimum() -> None:
    """Nodes would have come for it in vain."""
    made = scene("0", capability=4)
    first, *_ = made.gang("g", 3, minMember=3, queue="q", phase="Pending")
    session = made.session(QUEUES, book=made.book())
    for _ in session.run():
        pass
    result = finished(close(session, made.book(), {first.uid: "it gave its room back"}))
    assert set(told(result).values()) == {("QueueFull", "it gave its room back")}


def test_while_it_is_not_known_which_nodes_may_be_used_no_pod_asks_for_any() -> None:
    made = scene("8", capability=1)
    made.more["unready"] = "no shard"
    made.more["shard_full"] = lambda pods: "never asked"
    made.holding(has("g", {"cpu": "9"}, GATED, queue="q"), runs("old", "n0", cpu="8"))
    made.more["priorities"] = {"high": 1}
    made.gang("claims", 1, priorityClassName="high")
    found = said(made, made.book(), conf("priority", "predicates", actions="allocate preempt"))
    assert found["g-0"] == ("NodeShardNotReady", "0/1 nodes are available: no shard.")
    assert found["claims-0"][0] == "Unschedulable", "others leave for it"


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
    made = scene("1")
    made.more["shard_full"] = lambda pods: "other nodes are free" if len(pods) >= enough else ""
    made.holding(has("g", *[{"cpu": "2"}] * 3, GATED, minMember=minimum))
    found = reasons(made)
    assert {name for name, reason in found.items() if reason == "NodeShardFull"} == held
    assert found.keys() == {"g-0", "g-1", "g-2"}
