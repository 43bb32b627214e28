"""The accounts of the plugin capacity, flat and in a hierarchy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.quotas.capacity import CapacityAccounts, CapacityReclaiming
from agent_scheduler.engine.quotas.demand import JobDemand
from agent_scheduler.engine.quotas.queues import QueueInfo, QueueTree
from agent_scheduler.engine.quotas.vector import UNLIMITED, Vector, add_to
from tests.support.engine import queue_of

TOTAL = {"cpu": 10_000, "memory": 1000, "pods": 100}


def cpu(amount: int) -> Vector:
    return {"cpu": amount, "pods": 1}


def holding(queue: str, amount: int) -> JobDemand:
    return JobDemand(queue=queue, phase="Running", allocated=cpu(amount), holding=1)


def opened(
    *queues: QueueInfo,
    jobs: tuple[JobDemand, ...] = (),
    held: dict[str, int] | None = None,
    hierarchy: bool = False,
    level: int = 0,
    total: Vector = TOTAL,
    others: tuple[JobDemand, ...] = (),
) -> CapacityAccounts:
    """`held`: by the queue how much of the CPU a job of it holds."""
    tree = QueueTree([queue_of("root"), *queues])
    jobs += tuple(holding(name, amount) for name, amount in (held or {}).items())
    return CapacityAccounts(tree, jobs, total, others=others, hierarchy=hierarchy, ancestor_reclaim_level=level)


@pytest.mark.parametrize("hierarchy", [False, True])
def test_what_pods_of_no_job_hold_counts_in_their_queue_and_of_queues_that_are_gone_nowhere(hierarchy: bool) -> None:
    others = tuple(JobDemand.of_others(name, cpu(500)) for name in ("a", "gone"))
    accounts = opened(
        queue_of("a", "root" if hierarchy else ""), jobs=(holding("a", 1000),), others=others, hierarchy=hierarchy
    )
    assert accounts.accounts["a"].allocated["cpu"] == 1500
    assert accounts.fault == "" and "gone" not in accounts.accounts


def nested(*queues: QueueInfo, **more: Any) -> CapacityAccounts:
    return opened(*queues, hierarchy=True, **more)


def test_a_queue_may_hold_what_others_are_not_guaranteed() -> None:
    accounts = opened(queue_of("a", guarantee=3000), queue_of("b", capability={"memory": 500}), held={"a": 1, "b": 1})
    assert accounts.accounts["a"].real_capability["cpu"] == 10_000
    assert accounts.accounts["b"].real_capability == {"cpu": 7000, "memory": 500, "pods": 100}


def test_a_guarantee_is_deserved() -> None:
    accounts = opened(queue_of("a", guarantee=3000, deserved=1000), held={"a": 1500})
    assert accounts.accounts["a"].deserved["cpu"] == 3000
    assert accounts.accounts["a"].share == 0.5


def test_a_queue_that_deserves_nothing_comes_after_those_with_less_than_they_deserve() -> None:
    accounts = opened(
        queue_of("none"),
        queue_of("under", deserved=2000),
        queue_of("full", deserved=1000),
        queue_of("first", priority=1),
        jobs=tuple(holding(name, 1000) for name in ("none", "under", "full", "first")),
    )
    assert accounts.compare("under", "none") < 0
    assert accounts.compare("full", "none") < 0
    assert accounts.compare("none", "full") > 0
    assert accounts.compare("under", "full") < 0
    assert accounts.compare("first", "under") < 0


def test_the_real_capability_limits_what_is_allocated_of_what_is_wanted() -> None:
    accounts = opened(queue_of("a", capability=2000), held={"a": 1500})
    assert accounts.cannot_allocate("a", cpu(500), "u") is None
    refusal = accounts.cannot_allocate("a", cpu(501), "u")
    assert refusal is not None
    assert (refusal.queue, refusal.resources) == ("a", ["cpu"])
    accounts.allocate("a", cpu(501), "u")
    assert accounts.cannot_allocate("a", {"cpu": 0, "memory": 1000}, "u") is None, "what is not wanted does not count"


def test_of_a_resource_that_no_pod_holds_yet_all_may_be_taken_and_where_no_limit_names_it_none() -> None:
    gpu = "nvidia.com/gpu"
    accounts = opened(queue_of("a", capability={gpu: 2}), held={"a": 1}, total={**TOTAL, gpu: 2})
    assert accounts.cannot_allocate("a", {gpu: 2}, "u") is None
    assert accounts.cannot_allocate("a", {gpu: 3}, "u") is not None
    assert accounts.cannot_allocate("a", {"example.com/x": 1}, "u") is not None
    none = opened(queue_of("a", capability={"cpu": 0, gpu: 0}), held={"a": 1}, total={**TOTAL, gpu: 2})
    assert none.cannot_allocate("a", {gpu: 1}, "u") is not None
    assert none.cannot_allocate("a", {"cpu": 9999}, "u") is None, "0 of cpu is no limit"
    accounts.reservations.add("a", "other", {gpu: 1})
    assert accounts.cannot_allocate("a", {gpu: 1}, "u") is None
    assert accounts.cannot_allocate("a", {gpu: 2}, "u") is not None


def test_what_other_tasks_reserved_is_not_there_and_a_tasks_own_is() -> None:
    accounts = opened(queue_of("a", capability=2000), held={"a": 500})
    accounts.reservations.add("a", "u", cpu(1000))
    assert accounts.cannot_allocate("a", cpu(1000), "other") is not None
    assert accounts.cannot_allocate("a", cpu(1000), "u") is None
    accounts.allocate("a", cpu(1000), "u")
    assert accounts.cannot_allocate("a", cpu(500), "other") is None


def test_a_jobs_minimum_is_admitted_beside_what_was_admitted_and_without_what_is_elastic() -> None:
    running = JobDemand(queue="a", phase="Running", minimum={"cpu": 500}, allocated=cpu(1500), holding=1)
    waiting = JobDemand(queue="a", phase="Inqueue", minimum={"cpu": 400}, pending=cpu(400))
    accounts = opened(queue_of("a", capability=2000), jobs=(running, waiting))
    assert accounts.cannot_admit("a", {"cpu": 1100}) is None
    assert accounts.cannot_admit("a", {"cpu": 1101}) is not None
    accounts.admit("a", {"cpu": 1100})
    assert accounts.cannot_admit("a", {"cpu": 1}) is not None


def test_a_closed_queue_takes_no_jobs() -> None:
    accounts = opened(queue_of("a", state="Closed"), queue_of("b"), held={"a": 1})
    assert [accounts.takes_jobs(name) for name in ("a", "b")] == [False, True]
    for hierarchy in (False, True):
        tree = opened(queue_of("p"), queue_of("a", "p"), hierarchy=hierarchy)
        assert tree.takes_jobs("p") is not hierarchy and tree.takes_jobs("a")


@pytest.mark.parametrize(("held", "overused"), [(999, False), (1000, False), (1001, True), (1999, True)])
def test_a_queue_is_overused_that_holds_more_than_it_deserves(held: int, overused: bool) -> None:
    accounts = opened(queue_of("a", deserved=1000), jobs=(holding("a", held),))
    accounts.close()
    assert accounts.gauges["a"].overused is overused


def test_a_child_is_limited_by_its_parent_and_inherits_what_it_says_nothing_of() -> None:
    accounts = nested(
        queue_of("p", capability=4000),
        queue_of("a", "p", capability={"memory": 300}),
        queue_of("b", "p", guarantee=1000),
    )
    assert accounts.accounts["root"].real_capability == dict.fromkeys(TOTAL, UNLIMITED)
    assert accounts.accounts["a"].real_capability["cpu"] == 3000
    assert accounts.accounts["b"].real_capability == {"cpu": 4000, "memory": UNLIMITED, "pods": UNLIMITED}
    assert accounts.accounts["a"].real_capability["memory"] == 300
    assert not accounts.takes_jobs("p")


def test_what_a_child_holds_counts_in_all_of_its_ancestors() -> None:
    accounts = nested(queue_of("p", capability=4000), queue_of("a", "p"), queue_of("b", "p"), held={"a": 3000})
    refusal = accounts.cannot_allocate("b", cpu(1001), "u")
    assert refusal is not None
    assert refusal.queue == "b" or refusal.queue == "p"
    accounts.deallocate("a", cpu(3000))
    assert accounts.cannot_allocate("b", cpu(4000), "u") is None
    assert accounts.gauges["p"].allocated["cpu"] == 3000, "Volcano's gauge of an inner queue is that of the opening"


def test_one_fault_of_the_tree_stops_all_queues() -> None:
    lost = nested(queue_of("a", "gone"), queue_of("b"), held={"b": 1})
    assert "gone" in lost.fault
    assert not lost.takes_jobs("b")
    inner = nested(queue_of("p"), queue_of("a", "p"), held={"p": 1})
    assert "queue p has both jobs and queues" in inner.fault
    assert not inner.may_reclaim("a", cpu(1))
    assert inner.compare("p", "a") == inner.compare_victims("p", "a", "a") == 0


def test_a_hierarchy_orders_leaves_by_the_branches_that_part_them() -> None:
    accounts = nested(
        queue_of("p", deserved=8000),
        queue_of("q", deserved=2000),
        queue_of("p1", "p", deserved=1000),
        queue_of("q1", "q", deserved=1900),
        held={"p1": 900, "q1": 900},
    )
    assert accounts.accounts["p1"].share > accounts.accounts["q1"].share
    assert accounts.compare("p1", "q1") < 0, "p holds less of what it deserves than q"
    assert accounts.compare("p1", "p") < 0, "leaves come before inner queues"


def test_the_victims_nearest_in_the_tree_go_first() -> None:
    accounts = nested(queue_of("p"), queue_of("p1", "p"), queue_of("p2", "p"), queue_of("q"))
    assert accounts.compare_victims("p2", "q", "p1") < 0
    assert accounts.compare_victims("q", "p2", "p1") > 0


def test_a_queue_may_reclaim_up_to_what_it_deserves() -> None:
    accounts = opened(queue_of("a", deserved=2000), held={"a": 1000})
    assert accounts.may_reclaim("a", cpu(1000))
    assert not accounts.may_reclaim("a", cpu(1001))
    closed = opened(queue_of("a", deserved=2000, state="Closed"), held={"a": 1})
    assert not closed.may_reclaim("a", cpu(1))


def test_what_is_admitted_counts_in_all_queues_above() -> None:
    accounts = nested(queue_of("p", capability=4000), queue_of("a", "p"), queue_of("b", "p"))
    for queue, amount in (("a", 2000), ("b", 1000), ("b", 500)):
        accounts.admit(queue, {"cpu": amount})
    assert accounts.cannot_admit("a", {"cpu": 500}) is None
    refusal = accounts.cannot_admit("a", {"cpu": 501})
    assert refusal is not None and refusal.queue in ("a", "p")


@pytest.mark.parametrize(("level", "within", "beyond"), [(0, False, False), (1, True, False), (2, True, True)])
def test_a_queue_may_reclaim_by_what_the_queues_above_it_deserve_as_far_as_they_are_judged(
    level: int, within: bool, beyond: bool
) -> None:
    """`a` deserves nothing, `p` above it 2 of which 1 is held, and `o` above that 9."""
    accounts = nested(
        queue_of("o", deserved=9000),
        queue_of("p", "o", deserved=2000),
        queue_of("a", "p", capability=5000),
        queue_of("b", "p"),
        held={"b": 1000},
        level=level,
    )
    assert accounts.may_reclaim("a", cpu(1000)) is within
    assert accounts.may_reclaim("a", cpu(1001)) is beyond
    assert not accounts.may_reclaim("a", cpu(5001)), "its own limit holds"


@pytest.mark.parametrize(
    ("level", "reclaimer", "may_go"), [(0, "x", True), (1, "x", False), (1, "z", True), (1, "d", True)]
)
def test_of_two_queues_of_a_branch_that_deserve_nothing_neither_takes_from_the_other(
    level: int, reclaimer: str, may_go: bool
) -> None:
    """But one does that deserves some of what it wants, or is of another branch, whose queues are all judged."""
    accounts = nested(
        queue_of("p"),
        queue_of("x", "p"),
        queue_of("y", "p"),
        queue_of("d", "p", deserved=1),
        queue_of("o"),
        queue_of("z", "o"),
        held={"y": 1000},
        level=level,
    )
    assert CapacityReclaiming(accounts, reclaimer, cpu(500)).may_go("y", cpu(1000)) is may_go


def test_tasks_may_go_from_a_queue_until_it_holds_what_it_deserves() -> None:
    accounts = opened(queue_of("a", deserved=2000), queue_of("v", deserved=1000), held={"a": 1, "v": 2500})
    asked = CapacityReclaiming(accounts, "a", cpu(2000))
    assert [asked.may_go("v", cpu(1000)) for _ in range(3)] == [True, True, False]


def test_a_guarantee_is_not_reclaimed_and_neither_is_what_the_reclaimer_cannot_use() -> None:
    accounts = opened(queue_of("a"), queue_of("v", guarantee=1000), held={"a": 1, "v": 1500})
    assert not CapacityReclaiming(accounts, "a", cpu(1)).may_go("v", cpu(501))
    assert CapacityReclaiming(accounts, "a", cpu(1)).may_go("v", cpu(500))
    assert not CapacityReclaiming(accounts, "a", {"memory": 1, "pods": 1}).may_go("v", cpu(500))


def test_with_ancestors_judged_a_branch_keeps_what_it_deserves() -> None:
    queues = (
        queue_of("p", deserved=5000),
        queue_of("p1", "p", deserved=1000),
        queue_of("a", deserved=5000),
        queue_of("a1", "a", deserved=1000),
    )
    jobs = (holding("p1", 3000), holding("a1", 1))
    assert CapacityReclaiming(nested(*queues, jobs=jobs), "a1", cpu(1)).may_go("p1", cpu(1000))
    assert not CapacityReclaiming(nested(*queues, jobs=jobs, level=1), "a1", cpu(1)).may_go("p1", cpu(1000))


@pytest.mark.parametrize(
    ("level", "reclaimer", "may_go"),
    [
        (0, "a1", ["x", "y", "z", "w"]),
        (1, "a1", ["x", "y", "w"]),
        (2, "a1", ["x"]),
        # What lies above both is not judged where it is at the same level above them.
        (2, "z", ["x", "y", "w"]),
        (2, "w", ["x"]),
        (1, "w", ["x", "y"]),
        (3, "a1", ["x"]),
    ],
)
def test_victims_of_several_queues_of_a_branch_count_in_all_that_is_judged_above_them(
    level: int, reclaimer: str, may_go: list[str]
) -> None:
    """`x`, `y` and `z` hold 2 each below `inner`, which deserves 4; `inner` and `w` lie below `outer`, which deserves 8
    of the 9 that are held there."""
    queues = (
        queue_of("outer", deserved=8000),
        queue_of("inner", "outer", deserved=4000),
        *(queue_of(name, "inner", deserved=1000) for name in "xyz"),
        queue_of("w", "outer", deserved=2000),
        queue_of("a", deserved=9000),
        queue_of("a1", "a", deserved=9000),
    )
    jobs = (*(holding(name, 2000) for name in "xyz"), holding("w", 3000), holding("a1", 1))
    accounts = nested(*queues, jobs=jobs, level=level)
    asked = CapacityReclaiming(accounts, reclaimer, cpu(9000))
    victims = [name for name in "xyzw" if name != reclaimer]
    assert [name for name in victims if asked.may_go(name, cpu(1000))] == may_go


changes = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 9)), max_size=30)


@given(changes, changes)
def test_accounts_agree_with_a_recount_after_any_allocations(
    given: list[tuple[str, int]], taken: list[tuple[str, int]]
) -> None:
    queues = (queue_of("p"), queue_of("a", "p"), queue_of("b", "p"), queue_of("c"))
    accounts = nested(*queues)
    held: list[tuple[str, int]] = []
    for number, (queue, amount) in enumerate(given):
        accounts.allocate(queue, cpu(amount), str(number))
        held.append((queue, amount))
    for change in taken:
        if change in held:
            held.remove(change)
            accounts.deallocate(change[0], cpu(change[1]))
    for name in accounts.accounts:
        recount: dict[str, float] = {"cpu": 0, "memory": 0}
        for queue, amount in held:
            if name in (queue, *accounts.tree.ancestors[queue]):
                add_to(recount, cpu(amount))
        assert {each: amount for each, amount in accounts.accounts[name].allocated.items() if amount} == {
            each: amount for each, amount in recount.items() if amount
        }
