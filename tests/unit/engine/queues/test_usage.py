"""Which queue a pod is in, and that what queues hold follows the ledger."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.queues.shortfall import Shortfall
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects import batch
from tests.support import objects
from tests.support.engine import node, read_pod

_classes = PodClasses()


def pod(name: str, queue: str = "", *, annotations: Mapping[str, str] | None = None, **more: Any) -> PodInfo:
    """One that asks for a CPU. `queue`: the one that it names."""
    named = {**(annotations or {}), **(objects.in_queue(queue) if queue else {})}
    about = {"cpu": "1", "namespace": "team", "uid": name, "annotations": named, **more}
    return read_pod(objects.pod(name, **about), _classes)


def queue(name: str, cpu: str | None = None, parent: str = "") -> batch.Queue:
    capability = {} if cpu is None else {"capability": {"cpu": cpu}}
    body = objects.queue(name, parent=parent, status={"state": "Open"}, **capability)
    return msgspec.convert(body, batch.Queue)


class World:
    """A ledger of one node with room for all, and who is called for room in the queues."""

    def __init__(self, *queues: batch.Queue) -> None:
        self.ledger = Ledger()
        self.ledger.set_node(node("n", cpu="1000", pods="1000"))
        self.usage = self.ledger.usage
        self.called: list[str] = []
        self.usage.events.room.connect(self.called.extend)
        for each in (queue("root"), *queues):
            assert self.usage.set_queue(each) == []

    def cpu(self, name: str) -> float:
        return self.usage.book.used(name).get("cpu", 0) / 1000


def test_a_pod_is_in_the_queue_that_it_names_or_its_group_or_its_namespace() -> None:
    usage = World().usage
    usage.set_namespace("team", "of-namespace")
    usage.set_group(GroupKey("team", "g"), "of-group", ())
    assert usage.queue_of(pod("a", "own", group="g")) == "of-group", "all of a group are in one queue"
    assert usage.queue_of(pod("a", "own", group="unknown")) == "own"
    assert usage.queue_of(pod("a", group="unknown")) == "of-namespace"
    assert usage.queue_of(pod("a")) == "of-namespace"
    usage.set_namespace("team", "")
    assert usage.queue_of(pod("a")) == ""


def test_who_names_no_queue_is_in_the_default_one_with_the_batch_scheduler_alone() -> None:
    usage = World().usage
    usage.members.batch_schedulers, usage.members.default_queue = ("volcano",), "all"
    assert usage.queue_of(pod("a", scheduler="volcano")) == "all"
    assert usage.queue_of(pod("a")) == ""
    usage.set_group(GroupKey("team", "g"), "", ())
    assert usage.queue_of(pod("a", "own", group="g")) == "all"
    native = {"schedulingGroup": {"podGroupName": "n"}}
    assert usage.queue_of(pod("a", "own", scheduler="volcano", **native)) == "all"
    assert usage.queue_of(pod("a", "own", **native)) == "own"


def test_what_others_than_the_batch_scheduler_hold_is_told_of_each_queue() -> None:
    world = World(queue("a"))
    world.usage.members.batch_schedulers = ("volcano",)
    world.ledger.set_pod(pod("one", "a", cpu="2"), "n")
    world.ledger.set_pod(pod("two", "a", scheduler="volcano"), "n")
    world.ledger.set_pod(pod("three"), "n")
    assert world.usage.others() == {"a": {"cpu": 2000, "pods": 1}}
    world.ledger.remove_pod("one")
    assert world.usage.others() == {}
    world.usage.removed("one")
    assert world.usage.others() == {}, "nothing is taken off twice"


def test_without_queues_nothing_is_counted_and_with_the_first_one_all_that_is_placed() -> None:
    world = World()
    world.usage.delete_queue("root")
    world.ledger.set_pod(pod("u", "a"), "n")
    assert not world.usage.room.active and not world.usage.concerns(pod("u", "a"))
    assert not list(world.usage.book.entries())
    world.usage.set_queue(queue("a"))
    assert world.cpu("a") == 1 and world.usage.concerns(pod("u", "a")) and not world.usage.concerns(pod("u"))


def test_what_cannot_be_read_of_a_queue_is_told_and_the_rest_holds() -> None:
    world = World()
    raw = objects.queue("q", capability={"cpu": "much", "memory": "1Gi"}, status={"state": "Open"})
    problems = world.usage.set_queue(msgspec.convert(raw, batch.Queue))
    assert [problem.split(":")[0] for problem in problems] == ["spec.capability[cpu]"]
    info = world.usage.book.info("q")
    assert info is not None
    assert info.capability == {"memory": 2**30}


def test_members_of_a_group_are_admitted_one_beside_the_other() -> None:
    world = World(queue("a", "2"))
    members = [pod(name, "a") for name in ("one", "two", "three")]
    assert [world.usage.admit(each) for each in members] == [
        "",
        "",
        "queue a has too little capability left: 1 of cpu missing",
    ]
    world.usage.withdraw(members[0])
    assert world.usage.admit(members[2]) == ""
    assert world.usage.admit(pod("nobody's")) == ""


def test_those_that_wait_are_called_when_room_comes_and_the_next_when_one_does_not_take_it() -> None:
    world = World(queue("a", "1"))
    world.ledger.set_pod(pod("first", "a"), "n")
    for name in ("second", "third"):
        assert world.usage.full(pod(name, "a")) is not None
    world.ledger.remove_pod("first")
    assert world.called == ["second"]
    world.usage.unplaced("second")
    assert world.called == ["second", "third"]
    world.usage.left("third")
    assert world.called == ["second", "third"]


def test_for_a_pod_that_takes_less_those_are_called_that_the_rest_holds_and_no_more() -> None:
    world = World(queue("a", "3"))
    world.ledger.set_pod(pod("first", "a", cpu="3"), "n")
    assert world.usage.full(pod("large", "a", cpu="2")) and world.usage.full(pod("small", "a"))
    world.ledger.set_pod(pod("first", "a", cpu="2"), "n")
    assert world.called == ["small"]


def test_one_that_was_called_and_is_refused_leaves_to_a_smaller_one_what_others_did_not_take() -> None:
    world = World(queue("a", "18"))
    world.ledger.set_pod(pod("first", "a", cpu="15"), "n")
    world.ledger.set_pod(pod("second", "a", cpu="3"), "n")
    waiting = [pod(name, "a", cpu=cpu) for name, cpu in (("w", "15"), ("x", "7"), ("y", "10"), ("z", "3"))]
    assert all(map(world.usage.full, waiting))
    world.ledger.remove_pod("first")
    world.ledger.remove_pod("second")
    assert world.called == ["w", "x", "y"], "w has no place so far, so that its room seems to be free"
    world.ledger.set_pod(waiting[0], "n")
    assert world.usage.full(waiting[1])
    assert world.called == ["w", "x", "y", "z"]


def test_for_a_pod_that_takes_more_those_say_so_that_want_nodes_and_have_no_room_any_more() -> None:
    world = World(queue("a", "3"))
    world.ledger.set_pod(pod("first", "a"), "n")
    world.usage.wants_node(pod("wants", "a", cpu="2"), nominated=False)
    world.ledger.set_pod(pod("first", "a", cpu="2"), "n")
    assert world.called == ["wants"]


def test_one_that_was_called_and_is_in_another_queue_by_then_leaves_the_room_to_the_next() -> None:
    world = World(queue("a", "1"), queue("b", "1"))
    for name in ("a", "b"):
        world.ledger.set_pod(pod(f"in-{name}", name), "n")
    assert world.usage.full(pod("second", "a")) and world.usage.full(pod("third", "a"))
    world.ledger.remove_pod("in-a")
    world.usage.seen(pod("second", "b"))
    assert world.called == ["second", "third"]


def test_those_that_wait_for_a_queue_are_asked_again_when_it_closes_goes_and_comes() -> None:
    world = World(queue("a", "500m"))
    closed = msgspec.structs.replace(queue("a", "500m"), status=batch.QueueStatus(state="Closed"))
    for change in (lambda: world.usage.set_queue(closed), lambda: world.usage.delete_queue("a")):
        assert world.usage.full(pod("p", "a")) is not None
        world.called.clear()
        change()
        assert world.called == ["p"]


def test_a_pod_that_names_another_queue_than_the_one_it_waits_for_is_tried_again() -> None:
    world = World(queue("a", "1"), queue("b", "1"))
    world.ledger.set_pod(pod("first", "a"), "n")
    assert world.usage.full(pod("second", "a")) is not None
    world.usage.seen(pod("second", "a", priority=5))
    assert world.called == [] and world.usage.is_held("second")
    world.usage.seen(pod("second", "b"))
    assert world.called == ["second"] and not world.usage.is_held("second")


def test_a_pod_that_wants_a_node_is_tried_again_when_its_namespace_or_group_puts_it_into_a_full_queue() -> None:
    world = World(queue("a"), queue("full", "1"))
    world.ledger.set_pod(pod("placed", "full"), "n")
    world.usage.set_namespace("team", "a")
    world.usage.set_group(GroupKey("team", "g"), "a", ())
    for each in (pod("plain"), pod("member", group="g")):
        world.usage.wants_node(each, nominated=False)
    world.usage.set_namespace("team", "full")
    assert world.called == ["plain"]
    world.called.clear()
    world.usage.set_group(GroupKey("team", "g"), "full", ("member",))
    assert "member" in world.called


def calls_of_a_moved_group(others: int) -> int:
    """Return the number of calls when a group with two pods moves while other pods wait for nodes and for room."""
    world = World(queue("a"), queue("full", "1"))
    world.ledger.set_pod(pod("placed", "full"), "n")
    for number in range(others):
        world.usage.wants_node(pod(f"other-{number}", "a"), nominated=False)
        assert world.usage.full(pod(f"late-{number}", "full")) is not None
    world.usage.set_group(GroupKey("team", "g"), "a", ())
    for name in ("x", "y"):
        world.usage.wants_node(pod(name, group="g"), nominated=False)
    world.called.clear()
    calls = [0]

    def count(_frame: object, event: str, _arg: object) -> None:
        calls[0] += event == "call"

    sys.setprofile(count)
    world.usage.set_group(GroupKey("team", "g"), "full", ("x", "y"))
    sys.setprofile(None)
    assert {*world.called} == {"x", "y"}
    return calls[0]


def test_a_group_that_moves_costs_the_same_beside_any_number_of_waiting_pods() -> None:
    assert calls_of_a_moved_group(5) == calls_of_a_moved_group(300)


def test_when_the_last_queue_goes_and_when_the_first_comes_all_is_asked_again() -> None:
    world = World(queue("a", "1"))
    changes: list[bool] = []
    world.usage.events.active_changed.connect(lambda: changes.append(world.usage.room.active))
    world.ledger.set_pod(pod("first", "a"), "n")
    assert world.usage.full(pod("second", "a")) is not None
    world.usage.delete_queue("root")
    assert world.called == [] and changes == []
    world.usage.delete_queue("a")
    assert world.called == ["second"] and changes == [False]
    assert world.usage.others() == {} and not list(world.usage.book.entries())
    world.usage.set_queue(queue("a", "1"))
    assert changes == [False, True] and world.usage.others() == {"a": {"cpu": 1000, "pods": 1}}


def test_one_whose_reserved_room_its_queue_has_not_any_more_waits_for_any_room_there() -> None:
    world = World(queue("a", "2"))
    asks = {batch.QUEUE_ALLOCATION_GATE: "true"}
    late = pod("late", "a", annotations=asks)
    for each in (pod("early", "a", annotations=asks), late):
        world.usage.seen(each)
    world.usage.set_queue(queue("a", "1"))
    assert world.usage.full(late) is not None and world.usage.is_held("late")
    assert "late" not in world.usage.waiting, "its own room is counted, and would never be free for it"
    world.called.clear()
    world.usage.left("early")
    assert world.called == ["late"] and not world.usage.is_held("late")
    assert world.usage.full(late) is None


def test_one_that_waits_for_any_room_in_its_queue_is_asked_again_when_pods_may_be_in_others() -> None:
    world = World(queue("a", "2"))
    both = [pod(name, "a", annotations={batch.QUEUE_ALLOCATION_GATE: "true"}) for name in ("early", "late")]
    for each in both:
        world.usage.seen(each)
    world.usage.set_queue(queue("a", "1"))
    assert world.usage.full(both[1]) is not None
    world.called.clear()
    world.usage.set_namespace("team", "other")
    assert world.called == ["late"] and not world.usage.is_held("late")


def test_a_gang_that_its_queue_cannot_hold_waits_whole_and_a_member_that_leaves_lets_the_next_be_asked() -> None:
    world = World(queue("a", "3"))
    for name in ("first", "second"):
        world.ledger.set_pod(pod(name, "a"), "n")
    members = [pod(f"m{number}", "a") for number in range(3)]
    assert isinstance(world.usage.gang_fitting(members, 3), Shortfall)
    assert all(world.usage.is_held(each.uid) for each in members)
    world.ledger.remove_pod("first")
    assert world.called == [], "two have room, and three are needed"
    world.ledger.remove_pod("second")
    assert world.called == ["m0"]
    world.usage.left("m0")
    assert world.called == ["m0", "m1"]


def test_a_member_in_a_queue_with_room_waits_for_the_full_queue_of_its_gang() -> None:
    world = World(queue("full", "2"), queue("wide"))
    world.ledger.set_pod(pod("first", "full", cpu="2"), "n")
    members = [pod("m0", "full"), pod("m1", "full"), pod("m2", "wide")]
    assert isinstance(world.usage.gang_fitting(members, 3), Shortfall)
    assert not world.usage.waiting.would_fit(world.usage.book.headroom())
    world.usage.seen(members[2])
    assert world.called == [], "it waits for its own queue, too"
    world.usage.left("m0")
    world.usage.left("m1")
    world.ledger.remove_pod("first")
    assert world.called == ["m2"]


def test_the_smallest_members_come_first_where_their_order_would_keep_the_gang_out() -> None:
    world = World(queue("a", "3"))
    large, one, two = pod("large", "a", cpu="3"), pod("one", "a"), pod("two", "a")
    assert world.usage.gang_fitting([one, large, two], 2) == [one, large, two]
    assert world.usage.gang_fitting([large, one, two], 2) == [one, two, large]
    world.ledger.set_pod(pod("other", "a", cpu="2"), "n")
    assert str(world.usage.gang_fitting([large, one, two], 2)) == (
        "queue a has too little capability left: 1 of cpu missing"
    )
    world.ledger.remove_pod("other")
    assert world.called == ["large"], "the smallest two have room, and whoever is woken decides for all"


def test_a_gang_that_was_woken_and_finds_no_room_leaves_it_to_other_pods() -> None:
    world = World(queue("a", "3"))
    for name in ("first", "second"):
        world.ledger.set_pod(pod(name, "a", cpu="1500m"), "n")
    gang, small = [pod("m0", "a", cpu="1"), pod("m1", "a", cpu="1")], pod("small", "a")
    assert isinstance(world.usage.gang_fitting(gang, 2), Shortfall)
    assert world.usage.full(small) is not None
    world.ledger.remove_pod("first")
    world.ledger.remove_pod("second")
    called = list(world.called)
    assert "m0" in called
    world.ledger.set_pod(pod("third", "a", cpu="2"), "n")
    assert isinstance(world.usage.gang_fitting(gang, 2), Shortfall)
    assert "small" in world.called


steps = st.lists(
    st.tuples(
        st.sampled_from(["place", "remove", "queue", "no queue", "namespace", "group"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),
    ),
    max_size=30,
)


@given(steps)
def test_what_queues_hold_agrees_with_the_placements_after_any_changes(steps: list[tuple[str, str, int]]) -> None:
    world = World()
    members: set[str] = set()
    for step, name, number in steps:
        uid = str(number)
        if step == "place":
            group = "g" if number % 3 == 0 else ""
            world.ledger.set_pod(pod(uid, "" if group or number % 3 == 1 else name, group=group), "n")
            members |= {uid} if group else set()
        elif step == "remove":
            world.ledger.remove_pod(uid)
        elif step == "queue":
            world.usage.set_queue(queue(name, str(number), "b" if name == "a" and number % 2 else ""))
        elif step == "no queue":
            world.usage.delete_queue(name if number % 2 else "root")
        elif step == "namespace":
            world.usage.set_namespace("team", name if number % 2 else "")
        else:
            world.usage.set_group(GroupKey("team", "g"), name if number % 2 else None, members)
        assert contradictions(world.ledger) == []
        others: dict[str, float] = {}
        for _, entry in world.usage.book.entries():
            others[entry.queue] = others.get(entry.queue, 0) + entry.vector["cpu"]
        assert {queue: held["cpu"] for queue, held in world.usage.others().items()} == others


def test_pods_of_a_gang_wait_for_room_for_as_many_as_it_needs_in_each_of_their_queues() -> None:
    world = World(queue("root", "5"), queue("a", "3", "root"), queue("b", "3", "root"))
    pods = [pod(f"p{number}", "a" if number < 3 else "b") for number in range(6)]
    assert world.usage.gang_fitting(pods, 5) == pods
    # Of a gang that lacks more than there are, all are to fit.
    for lacking in (6, 7):
        assert str(world.usage.gang_fitting(pods, lacking)) == (
            "queue root has too little capability left: 1 of cpu missing"
        )
    p, large = pod("p", "a"), pod("large", "a", cpu="3")
    assert world.usage.gang_fitting([p, large], 1) == [p, large]
    assert str(world.usage.gang_fitting([large, p], 2)) == ("queue a has too little capability left: 1 of cpu missing")


def listing(name: str, parent: str = "", **annotations: str) -> batch.Queue:
    """Return a queue that lists namespaces."""
    said = {f"agent-scheduler.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    found = queue(name, "100", parent)
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, annotations=said))


def test_a_pod_of_a_namespace_that_a_queue_does_not_list_takes_none_of_its_room_and_is_told() -> None:
    world = World(listing("q", namespaces="others"), queue("free", "100"))
    stranger, friend = pod("a", "q"), pod("b", "q", namespace="others")
    short = world.usage.full(stranger)
    assert str(short) == "namespace team is not among those that may use queue q"
    assert world.usage.full(friend) is None and world.usage.full(pod("c", "free")) is None
    assert world.usage.admit(stranger) == str(short)
    assert world.usage.room.keeping_queue(stranger) == ""
    # A pod that names its node is not asked.
    world.ledger.set_pod(stranger, "n")
    assert world.cpu("q") == world.cpu("root") == 0


def test_what_a_queue_lists_may_change_and_pods_are_counted_and_called_anew() -> None:
    world = World(queue("q", "100"))
    world.ledger.set_pod(pod("there", "q"), "n")
    assert world.cpu("q") == 1
    for found, counted in (
        (listing("q", namespaces="others"), 0),
        (listing("q", namespaces="others,team"), 1),
        (listing("q", namespace_selector="team=a"), 0),
    ):
        waiting = pod("waits", "q")
        world.usage.full(waiting)
        world.called.clear()
        world.usage.set_queue(found)
        assert world.cpu("q") == world.cpu("root") == counted
        assert (world.usage.full(waiting) is None) == bool(counted)
        assert contradictions(world.ledger) == []
    world.called.clear()
    assert world.usage.set_namespace("team", "", {"team": "a"})
    assert world.cpu("q") == 1 and world.called == ["waits"]
    assert not world.usage.set_namespace("team", "", {"team": "a"})
    assert world.usage.set_namespace("team", "", {})
    assert world.cpu("q") == 0
    world.usage.delete_queue("q")
    world.usage.set_queue(queue("q", "100"))
    assert world.cpu("q") == 1 and contradictions(world.ledger) == []
    assert not world.usage.set_namespace("team", "", {"team": "b"}), "nothing is listed any more"


def test_a_list_is_inherited_and_follows_the_tree() -> None:
    world = World(listing("above", namespaces="others"), queue("q", "100", "above"), queue("free"))
    own = pod("a", "q")
    world.ledger.set_pod(own, "n")
    assert world.cpu("above") == 0
    world.usage.set_queue(listing("q", "above", namespaces="team"))
    assert world.cpu("above") == world.cpu("q") == 1
    world.usage.set_queue(queue("q", "100", "above"))
    assert world.cpu("above") == world.cpu("q") == 0
    world.usage.set_queue(queue("q", "100", "free"))
    assert world.cpu("free") == world.cpu("q") == 1
    assert contradictions(world.ledger) == []
    world.usage.set_queue(queue("q", "100", "above"))
    world.usage.delete_queue("above")
    assert world.cpu("q") == 1 and contradictions(world.ledger) == []


def test_a_group_is_in_no_queue_that_its_namespace_may_not_use() -> None:
    usage = World(listing("q", namespaces="others"), listing("default", namespaces="others")).usage
    usage.members.batch_schedulers = ("volcano",)
    for group in ("q", ""):
        usage.set_group(GroupKey("team", "g"), group, ())
        named = group or "default"
        assert usage.queue_of(pod("a", group="g", scheduler="volcano")) == f"{named} closed to team"
    usage.set_group(GroupKey("others", "g"), "q", ())
    assert usage.queue_of(pod("a", group="g", namespace="others")) == "q"
