"""capacity, proportion and the book of all schedulers in a session: what queues are held to, and get back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.queues.book import QuotaBook
from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.engine.quotas.capacity import CapacityAccounts
from agent_scheduler.engine.quotas.demand import JobDemand
from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.conf import QUEUE_ADMISSION_GATES, PluginOption, SessionConf
from agent_scheduler.engine.session.model import TaskStatus
from agent_scheduler.engine.session.session import Session
from agent_scheduler.engine.session.statement import Statement
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from tests.support.engine import queue_of
from tests.unit.engine.session.scene import (
    Part,
    Scene,
    bound,
    claimed,
    conf,
    evicted,
    has,
    opened,
    runs,
    sized,
    status_of,
    tasks_of,
    told,
    waits,
)

pytestmark = pytest.mark.promise("S28")

MANAGED = {QUEUE_ALLOCATION_GATE: "true"}
GATE = [{"name": QUEUE_ALLOCATION_GATE}]
GPU = "nvidia.com/gpu"
PLUGINS = ("priority", "gang", "predicates", "nodeorder")
EITHER = pytest.mark.parametrize("plugin", ["capacity", "proportion"])


def limited(cpu: int, name: str = "q", parent: str = "") -> QueueInfo:
    return queue_of(name, parent, capability=cpu * 1000)


def scene(*queues: QueueInfo | int, cpu: str = "64") -> Scene:
    """With these queues, or one `q` that may hold so many cpus."""
    found = sized(cpu)
    found.queues += (limited(each) if isinstance(each, int) else each for each in queues)
    return found


def capacity(*, hierarchy: bool = False, gates: bool = False) -> SessionConf:
    option = PluginOption("capacity", {}, {"enableHierarchy": hierarchy})
    return conf(*PLUGINS, option, features=frozenset({QUEUE_ADMISSION_GATES}) if gates else frozenset())


def two(mine: dict[str, Any], other: dict[str, Any], limit: int, *, gates: bool = True) -> tuple[Any, ...]:
    """An open session with a member each of the groups `mine` and `other` of a queue, and whether it may hold one."""
    made = scene(limit).holding(has("mine", mine, queue="q", minMember=2), has("other", other, queue="q"))
    session = opened(made.session(capacity(gates=gates)))
    (one,), (another,) = (tasks_of(session, name) for name in ("mine", "other"))
    return session, one, lambda: session.tiers.allocatable(session.queues["q"], another)


@EITHER
def test_a_gang_fills_its_queue_to_the_last_and_one_that_it_cannot_hold_whole_holds_nothing(plugin: str) -> None:
    there = scene(4).holding(
        *(waits(name, count, queue="q") for name, count in (("large", 5), ("exact", 4), ("late", 1)))
    )
    session, result = there.run(conf(*PLUGINS, plugin))
    assert set(bound(session)) == {f"exact-{index}" for index in range(4)}
    assert result.gauges["q"]["allocatedMilliCPU"] == 4000
    assert told(result)["late-0"][0] == "Unschedulable"


def test_gauges_say_all_of_a_queue_by_volcanos_names() -> None:
    there = scene(queue_of("q", deserved={"cpu": 4000, GPU: 2000}, capability=5000), cpu="8")
    there.running("runs", "n0", "n0", queue="q", minResources={"cpu": "1"})
    there.gang("waits", 1, cpu="3", queue="q", phase="Inqueue", minResources={"cpu": "3"})
    gauges = there.run(conf(*PLUGINS, "capacity", actions="enqueue"))[1].gauges["q"]
    assert gauges.pop("realCapacityMemory") > 2**32
    assert {name: value for name, value in gauges.items() if value} == {
        "allocatedMilliCPU": 2000, "allocatedScalar pods": 2, "requestMilliCPU": 5000, "requestScalar pods": 3,
        "inqueueMilliCPU": 3000, "deservedMilliCPU": 4000, "deservedScalar nvidia.com/gpu": 2000,
        "realCapacityMilliCPU": 5000, "realCapacityScalar pods": 110, "share": 0.5,
    }  # fmt: skip
    assert gauges["overused"] == 0


@EITHER
def test_what_pods_of_other_schedulers_hold_is_not_there_for_gangs(plugin: str) -> None:
    there = scene(4).holding(waits("large", 3, queue="q"), waits("small", 2, queue="q"))
    held = {"cpu": 2000, "pods": 1}
    there.more["others"] = [JobDemand.of_others("q", held), JobDemand.of_others("unknown", held)]
    session, _ = there.run(conf(*PLUGINS, plugin))
    assert set(bound(session)) == {"small-0", "small-1"}


def test_pods_of_other_schedulers_in_an_inner_queue_are_no_fault() -> None:
    there = scene(limited(3, "p"), queue_of("a", "p"))
    there.more["others"] = [JobDemand.of_others("p", {"cpu": 2000, "pods": 1})]
    session, _ = there.holding(waits("large", 2, queue="a"), waits("small", queue="a")).run(capacity(hierarchy=True))
    assert set(bound(session)) == {"small-0"}


def test_a_queue_below_another_is_limited_by_it_too() -> None:
    there = scene(limited(3, "p"), queue_of("a", "p"), queue_of("b", "p"))
    there.holding(waits("one", 2, queue="a"), waits("two", 2, queue="b"))
    assert len(bound(there.run(capacity(hierarchy=True))[0])) == 2


def test_a_fault_of_the_tree_keeps_all_pods_waiting() -> None:
    there = scene(queue_of("a", "gone"), queue_of("b")).holding(waits("one", queue="b"))
    session, result = there.run(capacity(hierarchy=True))
    assert bound(session) == {}
    assert result.gauges["b"]["overused"] == 0


def test_members_of_a_gated_gang_are_let_in_as_far_as_the_queue_holds_them() -> None:
    gated = {"annotations": MANAGED, "schedulingGates": GATE}
    session, result = scene(3).holding(has("g", *[gated] * 4, minMember=3, queue="q")).run(capacity(gates=True))
    assert len(result.ungated) == 3
    assert bound(session) == {}


def test_a_gang_that_was_let_in_before_fills_the_queue_and_others_are_kept_out() -> None:
    about = {"queue": "q", "phase": "Inqueue"}
    managed = [{"annotations": MANAGED}] * 3
    there = scene(3).holding(
        has("mine", *managed, minMember=3, created="2026-01-01T00:00:01Z", **about),
        has("other", {}, created="2026-01-01T00:00:00Z", **about),
    )
    session, _ = there.run(capacity(gates=True))
    assert set(bound(session)) == {"mine-0", "mine-1", "mine-2"}


def test_what_is_taken_back_of_a_task_that_was_let_in_stays_reserved_for_it() -> None:
    session, task, other_may = two({"annotations": MANAGED}, {"cpu": "2"}, 2)
    statement = Statement(session)
    assert statement.allocate(task, 0, session.nodes.view(task))
    assert not other_may()
    statement.discard()
    assert task.status is TaskStatus.PENDING
    assert not other_may()


def test_the_room_of_a_task_that_is_evicted_is_there_at_once_though_it_was_let_in_by_a_gate() -> None:
    session, task, other_may = two({"annotations": MANAGED, "node": "n0"}, {}, 1)
    assert not other_may()
    statement = Statement(session)
    statement.evict(task, "preempt")
    assert other_may()
    statement.discard()
    assert not other_may()


def test_without_the_gates_feature_nothing_is_reserved() -> None:
    _, _, other_may = two({"annotations": MANAGED}, {}, 1, gates=False)
    assert other_may()


@pytest.mark.parametrize("level", [0, 1, "1", -3, "much"])
def test_levels_of_ancestors_that_are_judged_are_a_number_or_none(level: object) -> None:
    """Volcano takes what it cannot use for 0."""
    deserving = (("p", "", 9000), ("v", "p", 1000), ("w", "", 4000), ("x", "w", 4000))
    there = scene(*(queue_of(name, parent, deserved=cpu) for name, parent, cpu in deserving))
    there.holding(runs("runs", *["n0"] * 3, queue="v"), waits("waits", queue="x"))
    option = PluginOption("capacity", {"ancestorReclaimLevel": level}, {"enableHierarchy": True})
    session = opened(there.session(conf(option)))
    (waiting,) = tasks_of(session, "waits")
    victims = session.tiers.reclaimable(waiting, tasks_of(session, "runs"))
    assert len(victims) == (0 if str(level) == "1" else 2)


@pytest.mark.parametrize("plugin", ["capacity", "proportion", PluginOption("overcommit", {"overcommit-factor": "1.0"})])
def test_minimums_count_one_after_another_less_what_gates_of_others_hold_of_them(plugin: str | PluginOption) -> None:
    there = scene(4, cpu="4")
    for name, cpu in (("first", "2"), ("second", "2"), ("third", "1"), ("fourth", "1")):
        there.group(name, queue="q", minMember=2, minResources={"cpu": cpu})
    there.member("first", schedulingGates=[{"name": "example.com/wait"}])
    there.member("first", cpu="", schedulingGates=GATE)
    _, result = there.run(conf("gang", plugin))
    phases = [status_of(result, name).phase for name in ("first", "second", "third", "fourth")]
    assert phases == ["Inqueue", "Inqueue", "Inqueue", "Pending"]


def test_proportion_gives_each_queue_its_part_of_the_cluster() -> None:
    there = scene(queue_of("a", weight=1), queue_of("b", weight=3), cpu="8")
    there.holding(waits("of-a", queue="a", cpu="2"), *(waits(f"a-{each}", queue="a") for each in range(2)))
    there.holding(*(waits(f"of-b-{number}", queue="b") for number in range(8)))
    session, result = there.run(conf(*PLUGINS, "proportion"))
    assert sum(name.startswith("of-b") for name in bound(session)) == 6
    assert result.gauges["a"]["deservedMilliCPU"] == result.gauges["a"]["allocatedMilliCPU"] == 2000


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 3)), max_size=7),
    st.integers(1, 8),
    st.integers(1, 8),
    st.booleans(),
)
def test_no_queue_is_above_its_capability_or_its_parents_after_a_session(
    gangs: list[tuple[str, int, int]], parent: int, child: int, hierarchy: bool
) -> None:
    there = scene(limited(parent, "p"), limited(child, "a", "p"), queue_of("b", "p"))
    for number, (queue, members, cpu) in enumerate(gangs):
        there.gang(f"g{number}", members, queue=queue, cpu=str(cpu))
    session, _ = there.run(capacity(hierarchy=hierarchy))
    held = {"a": 0.0, "b": 0.0}
    for job in session.jobs.values():
        placed = sum(task.request["cpu"] for task in session.bound.get(job.uid, ()))
        held[job.queue] += placed / 1000
        assert not placed or len(session.bound[job.uid]) == job.minimum
    assert held["a"] <= child
    if hierarchy:
        assert sum(held.values()) <= parent


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8), st.booleans())
def test_a_discarded_statement_leaves_no_trace_in_the_queues(steps: list[tuple[int, bool]], gates: bool) -> None:
    there = scene(limited(9, "p"), limited(9, "q", "p"))
    members = ({"node": "n0" if number % 2 else "", "annotations": MANAGED} for number in range(4))
    there.holding(has("g", *members, queue="q", minMember=0))
    session = opened(there.session(capacity(hierarchy=True, gates=gates)))
    tasks = tasks_of(session, "g")
    queues = ("q", "p", "root")
    room = [_room(session, name) for name in queues]
    statement = Statement(session)
    for index, claim in steps:
        task = tasks[index]
        if task.status is TaskStatus.RUNNING:
            statement.evict(task, "reclaim")
        elif task.status is TaskStatus.PENDING and claim:
            statement.pipeline(task, 0)
        elif task.status is TaskStatus.PENDING:
            assert statement.allocate(task, 0, session.nodes.view(task))
    statement.discard()
    assert [_room(session, name) for name in queues] == room


def _room(session: Session, queue: str) -> tuple[dict[str, float], float, dict[str, float]]:
    """What the capacity plugin has of a queue."""
    hook = session.allocated[0]
    accounts: CapacityAccounts = hook.__self__.accounts
    account = accounts.accounts[queue]
    return dict(account.allocated), account.share, dict(accounts.reservations.of_others(queue, "nobody"))


#: No plugin of these asks queues.
ACTIONS = "enqueue allocate backfill preempt"
PLAIN = conf("priority", "predicates", "gang", actions=ACTIONS)


def below(cpu: int | None, **more: Any) -> Scene:
    """A large node, and a queue `q` that may hold so much, below `above`."""
    made = sized(64)
    made.more["priorities"] = {"high": 9}
    limit = None if cpu is None else {"cpu": cpu * 1000}
    made.queues += [queue_of("above", capability=limit), queue_of("q", "above", **more)]
    return made


def ran(made: Scene, *parts: Part, book: QuotaBook | None = None) -> Session:
    """The session with these groups, and with those of their pods that have a node in the book."""
    made.holding(*parts)
    return made.run(PLAIN, book=book or made.book(bound=True))[0]


def of_q(name: str, number: int = 1, **more: Any) -> Part:
    return waits(name, number, queue="q", **more)


@pytest.mark.parametrize(("limit", "fitting"), [(1, 1), (2, 2), (3, 3), (None, 4)])
def test_each_that_is_placed_counts_for_those_after_it(limit: int | None, fitting: int) -> None:
    made = below(limit).holding(*(of_q(f"g{number}") for number in range(4)))
    book = made.book()
    session, result = made.run(PLAIN, book=book)
    assert sorted(bound(session)) == [f"g{number}-0" for number in range(fitting)]
    assert {reason for reason, _ in told(result).values()} == ({"QueueFull"} if fitting < 4 else set())
    assert book.used("above")["cpu"] == fitting * 1000


def test_what_is_tried_for_a_gang_that_does_not_fit_whole_is_given_back() -> None:
    session = ran(below(4), of_q("large", 5), of_q("small", 2), of_q("other", 2))
    assert sorted(bound(session)) == ["other-0", "other-1", "small-0", "small-1"]


def test_what_the_committer_refused_is_given_back() -> None:
    made = below(2)
    made.cluster.refused = {"g-0", "g-1"}
    assert sorted(bound(ran(made, of_q("g", 2), of_q("later", 2)))) == ["later-0", "later-1"]


def test_room_that_is_reserved_for_a_pod_is_its_own_alone() -> None:
    made = below(2).holding(of_q("other", 2))
    (mine,) = made.gang("mine", 1, queue="q")
    book = made.book()
    book.set(mine.uid, "q", {"cpu": 1000}, Standing.RESERVED)
    assert sorted(bound(ran(made, book=book))) == ["mine-0"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_those_hold_who_are_evicted_is_free_for_who_they_leave_for(number: int) -> None:
    session = ran(below(4), runs("low", *["n0"] * 4, queue="q"), of_q("high", number, priorityClassName="high"))
    assert evicted(session) == ["low-3", "low-2", "low-1"][:number]
    assert len(claimed(session)) == number


def test_an_eviction_that_is_refused_leaves_the_queue_full() -> None:
    made = below(2)
    made.cluster.refused = {"low-1"}
    session = ran(made, runs("low", "n0", "n0", queue="q"), of_q("high", priorityClassName="high"))
    (task,) = tasks_of(session, "high")
    session.unplace(task)
    assert not session.tiers.allocatable(session.queues["q"], task)


def test_a_queue_that_is_not_open_takes_nothing_and_a_book_without_queues_refuses_nothing() -> None:
    made = below(None, state="Closed").holding(of_q("g"))
    session, result = made.run(PLAIN, book=made.book())
    assert bound(session) == {} and set(told(result).values()) == {
        ("QueueFull", "queue q takes no pods: its state is Closed")
    }
    assert bound(made.run(PLAIN, book=QuotaBook())[0]) == {"g-0": "n0"}
