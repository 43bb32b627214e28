"""What is taken of a pool's devices, and what its slices have to say before any is given."""

from __future__ import annotations

from typing import Any

from agent_scheduler.engine.dra.allocation import Use
from agent_scheduler.engine.dra.devices import DeviceId, PoolId
from agent_scheduler.engine.dra.pools import Pool
from tests.support.devices import DRIVER, counter, device, draws, slice_of

CARD = counter(7)


def pool(*devices: dict[str, Any], **spec: Any) -> Pool:
    found = Pool(PoolId(DRIVER, "p"))
    found.put(slice_of("s", *devices, **spec))
    return found


def use(name: str, *, shared: bool = False, **consumed: int) -> Use:
    return Use(DeviceId(DRIVER, "p", name), shared, tuple(consumed.items()))


def test_what_is_consumed_of_a_shared_device_is_added_up_and_given_back_share_by_share() -> None:
    books = pool(device("d", allowMultipleAllocations=True, capacity={"memory": {"value": "10"}}))
    one, other = use("d", shared=True, memory=3), use("d", shared=True, memory=4)
    books.take(one)
    books.take(other)
    assert (books.shares, books.consumed) == ({"d": 2}, {"d": {"memory": 7}})
    books.give_back(one)
    assert (books.shares, books.consumed) == ({"d": 1}, {"d": {"memory": 4}})
    books.give_back(other)
    assert (books.shares, books.consumed) == ({}, {})


def test_counters_follow_what_is_taken_and_given_back() -> None:
    books = pool(device("a", **draws(2)), device("b", **draws(2)), **CARD)
    key, each = ("set", "k"), books.counters["set", "k"] // 7 * 2
    for name in ("a", "b"):
        books.take(use(name))
    assert books.counters_used == {key: 2 * each}
    books.give_back(use("a"))
    assert books.counters_used == {key: each}
    books.give_back(use("b"))
    assert books.counters_used == {}


def test_of_a_pool_that_names_a_counter_set_twice_nothing_is_given() -> None:
    counters = CARD["sharedCounters"][0]
    books = pool(device("a"), pool={"resourceSliceCount": 2}, **CARD)
    assert not books.complete and books.error == ""
    books.put(slice_of("t", device("b"), pool={"resourceSliceCount": 2}, sharedCounters=[counters]))
    assert books.complete and books.error == "duplicate counter set name set"
    books.drop("t")
    assert books.error == ""
