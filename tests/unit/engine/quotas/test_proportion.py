"""The accounts of the plugin proportion: how the cluster is divided by weights."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.quotas.demand import JobDemand
from agent_scheduler.engine.quotas.proportion import ProportionAccounts, ProportionReclaiming
from agent_scheduler.engine.quotas.queues import QueueInfo, QueueTree
from tests.support.engine import queue_of


def opened(*queues: QueueInfo, total: int = 12_000, **wanted: tuple[int, int]) -> ProportionAccounts:
    """`wanted`: what each queue's job holds, and what it asks for besides."""
    jobs = [
        JobDemand(queue=name, phase="Running", allocated={"cpu": held}, holding=1, pending={"cpu": pending})
        for name, (held, pending) in wanted.items()
    ]
    return ProportionAccounts(QueueTree([queue_of("root"), *queues]), jobs, {"cpu": total, "memory": 0, "pods": 99})


def deserved(accounts: ProportionAccounts) -> dict[str, float]:
    return {name: account.deserved["cpu"] for name, account in accounts.accounts.items()}


def test_queues_deserve_by_weight() -> None:
    accounts = opened(queue_of("a", weight=1), queue_of("b", weight=3), a=(0, 20_000), b=(0, 20_000))
    assert deserved(accounts) == {"a": 3000, "b": 9000}


def test_what_one_does_not_ask_for_goes_to_the_others() -> None:
    accounts = opened(queue_of("a"), queue_of("b"), a=(0, 1000), b=(0, 20_000))
    assert deserved(accounts) == {"a": 1000, "b": 11_000}


def test_a_capability_limits_and_a_guarantee_is_kept_free() -> None:
    accounts = opened(
        queue_of("a", capability=2000), queue_of("b"), queue_of("c", guarantee=4000), a=(0, 20_000), b=(0, 20_000)
    )
    assert deserved(accounts) == {"a": 2000, "b": 8000}


def test_a_queue_without_weight_deserves_nothing() -> None:
    assert deserved(opened(queue_of("a", weight=0), a=(0, 1000))) == {"a": 0}


def test_a_queue_is_overused_when_it_holds_all_that_it_deserves() -> None:
    accounts = opened(queue_of("a"), queue_of("b"), a=(6000, 6000), b=(0, 9000))
    assert (accounts.overused("a"), accounts.overused("b")) == (True, False)
    assert accounts.gauges["a"].overused is True
    assert accounts.compare("b", "a") < 0
    accounts.deallocate("a", {"cpu": 1000})
    assert not accounts.overused("a")


def test_tasks_are_allocated_up_to_what_is_deserved_in_open_queues() -> None:
    accounts = opened(queue_of("a"), queue_of("b", state="Closed"), a=(0, 6000), b=(0, 6000))
    assert accounts.cannot_allocate("a", {"cpu": 6000}) is None
    assert accounts.cannot_allocate("a", {"cpu": 6001}) is not None
    assert accounts.cannot_allocate("b", {"cpu": 1}) is not None


def test_tasks_may_go_from_a_queue_until_it_holds_what_it_deserves() -> None:
    accounts = opened(queue_of("a"), queue_of("b"), a=(8000, 9000), b=(0, 9000))
    asked = ProportionReclaiming(accounts)
    assert [asked.may_go("a", {"cpu": 1500}) for _ in range(3)] == [True, True, False]


def test_minimums_are_admitted_one_after_another_up_to_what_a_queue_may_hold() -> None:
    accounts = opened(queue_of("a", capability=4000), a=(1000, 9000))
    for _ in range(3):
        assert accounts.cannot_admit("a", {"cpu": 1000}) is None
        accounts.admit("a", {"cpu": 1000})
    assert accounts.cannot_admit("a", {"cpu": 1000}) is None, "what runs beyond a minimum may be had back"
    refusal = accounts.cannot_admit("a", {"cpu": 1001})
    assert refusal is not None and (refusal.queue, refusal.resources) == ("a", ["cpu"])


def test_a_queue_without_jobs_holds_and_asks_for_nothing() -> None:
    gauges = opened(queue_of("a"), queue_of("idle"), a=(1000, 0)).gauges
    assert gauges.keys() == {"root", "a", "idle"}
    idle = gauges["idle"]
    assert (idle.allocated, idle.request, idle.deserved) == ({"cpu": 0, "memory": 0}, {}, None)


def test_a_higher_priority_comes_before_a_smaller_share() -> None:
    accounts = opened(queue_of("a", priority=1), queue_of("b"), a=(6000, 1), b=(0, 9000))
    assert accounts.compare("a", "b") < 0 < accounts.compare("b", "a")
    assert not ProportionReclaiming(accounts).may_go("nobody", {"cpu": 1})


amounts = st.integers(0, 20) | st.integers(0, 50_000)


@given(
    st.lists(st.tuples(st.integers(1, 9), amounts, st.none() | amounts, st.integers(0, 2000)), min_size=1, max_size=5),
    st.integers(10_000, 30_000),
)
def test_no_queue_deserves_more_than_it_wants_or_may_hold_and_all_together_no_more_than_there_is(
    queues: list[tuple[int, int, int | None, int]], total: int
) -> None:
    infos = [
        queue_of(f"q{index}", weight=weight, guarantee=guarantee, capability=limit)
        for index, (weight, _, limit, guarantee) in enumerate(queues)
    ]
    accounts = opened(
        *infos, total=total, **{f"q{index}": (0, wanted) for index, (_, wanted, _, _) in enumerate(queues)}
    )
    given_out = 0.0
    for account in accounts.accounts.values():
        got, guarantee = account.deserved["cpu"], account.guarantee["cpu"]
        assert got >= guarantee
        assert got <= max(account.request["cpu"], guarantee) + 0.1
        assert got <= max(account.real_capability["cpu"], guarantee) + 0.1
        given_out += got
    assert given_out <= total + 1
