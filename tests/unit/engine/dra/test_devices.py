"""How much of a capacity a request takes, and what is taken of a pool before any more is given."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.dra.allocation import Use
from agent_scheduler.engine.dra.devices import DeviceId, Facts, PoolId, consumption, device, fits
from agent_scheduler.engine.dra.pools import Pool
from agent_scheduler.engine.state.amounts import amount, written_like
from agent_scheduler.objects import dra
from tests.support.devices import DRIVER, counter, draws, slice_of
from tests.support.devices import device as device_json

RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}}
VALUES = {"default": "2", "validValues": ["2", "4", "8"]}


def facts_of(**capacity: dict[str, Any]) -> Facts:
    body = {"name": "a", "allowMultipleAllocations": True, "capacity": capacity}
    return device(msgspec.convert(body, dra.Device), "d.example.com", None).facts


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        (None, None, "10Gi"),
        (None, "3Gi", "3Gi"),
        (None, "11Gi", None),
        (RANGE, None, "1Gi"),
        (RANGE, "1", "1Gi"),
        (RANGE, "1Gi", "1Gi"),
        (RANGE, "1025Mi", "2Gi"),
        (RANGE, "8Gi", "8Gi"),
        (RANGE, "8193Mi", None),
        (VALUES, None, "2"),
        (VALUES, "1", "2"),
        (VALUES, "3", "4"),
        (VALUES, "9", None),
        ({"validRange": {"min": "2Gi"}}, "1Gi", "2Gi"),
        ({"validRange": {"min": "2Gi", "max": "4Gi"}}, None, None),
    ],
)
def test_what_a_request_takes_of_a_capacity_with_a_policy(
    policy: Any, asked: str | None, taken: str | None
) -> None:
    facts = facts_of(m={"value": "10Gi", **({"requestPolicy": policy} if policy else {})})
    found = consumption(facts, (("m", amount(asked)),) if asked else ())
    if taken is None:
        assert found is None
    else:
        assert found is not None
        assert [(each.name, each.size.text) for each in found] == [("m", taken)]


@pytest.mark.parametrize("published", ["m", "d.example.com/m"])
def test_a_capacity_is_meant_by_the_name_under_which_it_is_published_and_no_other(published: str) -> None:
    facts = facts_of(**{published: {"value": "10"}})
    for name in ("m", "d.example.com/m", "x.example.com/m"):
        found = consumption(facts, ((name, amount("1")),))
        assert (found is not None) == (name == published)
    assert consumption(facts, (("m", amount("1")), ("d.example.com/m", amount("1")))) is None


def test_capacities_whose_names_differ_in_the_domain_alone_are_two() -> None:
    both = facts_of(**{"m": {"value": "10"}, "d.example.com/m": {"value": "20"}})
    found = consumption(both, (("m", amount("1")),))
    assert found is not None
    assert {each.name: each.size.text for each in found} == {"m": "1", "d.example.com/m": "20"}
    assert fits(found, {"m": 9 * 10**9}, both)
    assert not fits(found, {"m": 10 * 10**9}, both)
    assert not fits(found, {"d.example.com/m": 1}, both)


def test_a_negative_request_takes_nothing_and_is_no_request() -> None:
    assert consumption(facts_of(m={"value": "10"}), (("m", amount("-1")),)) is None


@pytest.mark.parametrize(
    ("nano", "model", "text"),
    [
        (3 * 2**30 * 10**9, "1Gi", "3Gi"),
        (1536 * 2**20 * 10**9, "1Gi", "1536Mi"),
        (1500 * 10**9, "1", "1500"),
        (2000 * 10**9, "1", "2k"),
        (1500 * 10**6, "1", "1500m"),
        (2000 * 10**9, "1e3", "2e3"),
        (0, "1Gi", "0"),
    ],
)
def test_what_was_rounded_is_written_in_the_form_of_its_step(nano: int, model: str, text: str) -> None:
    assert written_like(nano, amount(model)).text == text
    assert amount(text).nano == nano


CARD = counter(7)


def pool(*devices: dict[str, Any], **spec: Any) -> Pool:
    found = Pool(PoolId(DRIVER, "p"))
    found.put(slice_of("s", *devices, **spec))
    return found


def use(name: str, *, shared: bool = False, **consumed: int) -> Use:
    return Use(DeviceId(DRIVER, "p", name), shared, tuple(consumed.items()))


def test_what_is_consumed_of_a_shared_device_is_added_up_and_given_back_share_by_share() -> None:
    books = pool(device_json("d", allowMultipleAllocations=True, capacity={"memory": {"value": "10"}}))
    one, other = use("d", shared=True, memory=3), use("d", shared=True, memory=4)
    books.take(one)
    books.take(other)
    assert (books.shares, books.consumed) == ({"d": 2}, {"d": {"memory": 7}})
    books.give_back(one)
    assert (books.shares, books.consumed) == ({"d": 1}, {"d": {"memory": 4}})
    books.give_back(other)
    assert (books.shares, books.consumed) == ({}, {})


def test_counters_follow_what_is_taken_and_given_back() -> None:
    books = pool(device_json("a", **draws(2)), device_json("b", **draws(2)), **CARD)
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
    books = pool(device_json("a"), pool={"resourceSliceCount": 2}, **CARD)
    assert not books.complete and books.error == ""
    books.put(slice_of("t", device_json("b"), pool={"resourceSliceCount": 2}, sharedCounters=[counters]))
    assert books.complete and books.error == "duplicate counter set name set"
    books.drop("t")
    assert books.error == ""
