"""Devices: how much of a capacity a request takes, what is taken of a pool, and expressions about them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.dra.allocation import Use
from agent_scheduler.engine.dra.cel import CelError, Selector, selector
from agent_scheduler.engine.dra.celcost import MAX_COST
from agent_scheduler.engine.dra.devices import (
    Attribute,
    Capacity,
    DeviceId,
    Facts,
    PoolId,
    consumption,
    device,
    facts,
    fits,
)
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
def test_what_a_request_takes_of_a_capacity_with_a_policy(policy: Any, asked: str | None, taken: str | None) -> None:
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


def test_what_is_consumed_of_a_shared_device_is_added_up_and_given_back_share_by_share() -> None:
    books = pool(device_json("d", allowMultipleAllocations=True, capacity={"memory": {"value": "10"}}))
    one, other = (Use(DeviceId(DRIVER, "p", "d"), True, (("memory", size),)) for size in (3, 4))
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
    one, other = (Use(DeviceId(DRIVER, "p", name), False, ()) for name in "ab")
    books.take(one)
    books.take(other)
    assert books.counters_used == {key: 2 * each}
    books.give_back(one)
    assert books.counters_used == {key: each}
    books.give_back(other)
    assert books.counters_used == {}


def test_of_a_pool_that_names_a_counter_set_twice_nothing_is_given() -> None:
    counters = CARD["sharedCounters"][0]
    books = pool(device_json("a"), pool={"resourceSliceCount": 2}, **CARD)
    assert not books.complete and books.error == ""
    books.put(slice_of("t", device_json("b"), pool={"resourceSliceCount": 2}, sharedCounters=[counters]))
    assert books.complete and books.error == "duplicate counter set name set"
    books.drop("t")
    assert books.error == ""


D = "device.attributes['d.example.com']"
C = "device.capacity['d.example.com']"


@pytest.fixture
def gpu() -> Facts:
    return facts(
        "d.example.com",
        False,
        {
            "kind": Attribute("string", "gpu"),
            "numa": Attribute("int", 1),
            "ok": Attribute("bool", True),
            "ver": Attribute("version", "1.2.0+build"),
            "other.example.com/kind": Attribute("string", "nic"),
        },
        {"memory": Capacity(amount("40Gi"), None), "cores": Capacity(amount("1500m"), None)},
    )


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'd.example.com'",
        f"{D}.kind == 'gpu' && device.attributes['other.example.com'].kind == 'nic'",
        f"{D}.numa == 1 && {D}.ok",
        f"has({D}.numa) && !has({D}.nope)",
        f"{D}.?nope.orValue(3) == 3 && {D}.?numa.orValue(3) == 1 && {D}[?'numa'].hasValue()",
        f"cel.bind(a, {D}, a.kind == 'gpu' && a.numa < 2)",
        f"{D}.kind in ['gpu', 'net']",
        "'d.example.com' in device.attributes && !('x.example.com' in device.attributes)",
        "device.attributes.exists(domain, domain.startsWith('other'))",
        f"{D}.all(name, name.size() > 1)",
        f"{C}.memory.compareTo(quantity('40Gi')) == 0 && {C}.memory == quantity('40960Mi')",
        f"{C}.memory.isGreaterThan(quantity('30Gi')) && {C}.memory.isLessThan(quantity('1Ti'))",
        f"{C}.memory.asInteger() == 42949672960 && !{C}.cores.isInteger()",
        f"{C}.cores.asApproximateFloat() == 1.5 && {C}.cores.sign() == 1",
        f"{C}.memory.sub(quantity('39Gi')).add(1) == quantity('1073741825')",
        "isQuantity('1.5Gi') && !isQuantity('much')",
        f"{D}.ver.isLessThan(semver('2.0.0')) && {D}.ver == semver('1.2.0')",
        f"{D}.ver.major() == 1 && {D}.ver.minor() == 2 && {D}.ver.patch() == 0",
        "semver('1.0.0-rc.2').compareTo(semver('1.0.0-rc.10')) == -1",
        "semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
        "semver('v1.2', true) == semver('1.2.0') && !isSemver('1.2') && isSemver('v01.2', true)",
        "device.allowMultipleAllocations == false",
        "'a-b'.split('-') == ['a', 'b'] && 'Ab'.lowerAscii() == 'ab' && 'abc'.matches('^a.c$')",
        "[3, 1].sum() == 4 && [3, 1].max() == 3 && [3, 1].min() == 1 && [1, 3].isSorted()",
        "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1]) && sets.intersects([1], [1, 2])",
        f"{D}.nope == 1 || true",
        "!has(device.attributes['x.example.com'].kind)",
        "device.attributes['x.example.com'].?kind.orValue('none') == 'none'",
    ],
)
def test_an_expression_that_holds(expression: str, gpu: Facts) -> None:
    assert selector(expression).matches(gpu)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (f"{D}.nope == 1", "CEL runtime error: no such key: nope"),
        ("device.attributes['x.example.com'].kind == 'a'", "CEL runtime error: no such key: kind"),
        (f"{D}.kind + 1 == 2", "CEL runtime error: no such overload"),
        (f"{D}.kind.compareTo(quantity('1')) > 0", "CEL runtime error: no such overload"),
        ("quantity('much') == quantity('1')", "CEL runtime error: invalid quantity 'much'"),
        (f"{D}.kind", "CEL runtime error: CEL result of type string could not be converted to bool"),
        ("1 / 0 == 1", "CEL runtime error: divide by zero"),
        ("1 + 1", "CEL compile error: must evaluate to bool or the unknown type, not int"),
        ("nope == 1", "CEL compile error: ERROR: <input>:1:1: undeclared reference to 'nope'"),
        ("device.driver == ", "CEL compile error: ERROR: <input>:1:18: Syntax error"),
    ],
)
def test_what_is_said_of_an_expression_that_cannot_be_asked(expression: str, said: str, gpu: Facts) -> None:
    with pytest.raises(CelError) as error:
        selector(expression).matches(gpu)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [("version", "one", "attribute a: 'one' is not a semantic version"), ("", None, "unsupported attribute value")],
)
def test_an_attribute_that_has_no_meaning_is_an_error_of_whoever_asks_the_device(
    kind: str, value: object, said: str
) -> None:
    odd = facts("d.example.com", False, {"a": Attribute(kind, value)}, {})
    with pytest.raises(CelError, match=said):
        selector("true").matches(odd)


def test_a_number_that_no_driver_could_have_meant_is_an_error_and_no_crash() -> None:
    odd = facts("d.example.com", False, {"a": Attribute("int", 2**70)}, {})
    with pytest.raises(CelError, match="out of range"):
        selector("device.attributes['d.example.com'].a == 1").matches(odd)


_ten = "[1,2,3,4,5,6,7,8,9,10]"


@pytest.mark.parametrize(
    "expression",
    [
        "".join(f"{_ten}.all(a{index}, " for index in range(7)) + "true" + ")" * 7,
        "cel.bind(a0, 'xxxxxxxxxx', "
        + "".join(f"cel.bind(a{index + 1}, a{index} + a{index}, " for index in range(25))
        + "a25.size() > 1"
        + ")" * 26,
        "'x'.replace('', 'yyyyyyyyyyyyyyyyyyyy')"
        + "".join(f".replace('{letter}', 'yyyyyyyyyyyyyyyyyyyy')" for letter in "yyyyyyyy")
        + " == ''",
        "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, "
        "device.attributes.all(d, a.matches('a.*b.*c')))))",
        "!" * 50 + "(" * 40 + "true" + ")" * 40,
        "true" + " && true" * 1300,
    ],
)
def test_an_expression_that_may_cost_too_much_is_refused_before_it_is_run(expression: str, gpu: Facts) -> None:
    hostile = Selector(expression)
    assert hostile.error
    with pytest.raises(CelError, match="CEL compile error: "):
        hostile.matches(gpu)


def test_the_bound_is_that_of_kubernetes_and_leaves_room_for_what_people_write(gpu: Facts) -> None:
    assert MAX_COST == 1_000_000
    everything = "device.attributes.all(d, device.attributes[d].all(k, k.startsWith('x') || k.matches('^[a-z]+$')))"
    assert selector(everything).matches(gpu)
    assert Selector("x" * 10_241).error == "expression is longer than 10240 bytes"


def test_devices_that_say_the_same_share_their_facts_and_the_answers(gpu: Facts) -> None:
    again = facts(gpu.driver, gpu.shared, dict(gpu.attributes), dict(gpu.capacity))
    assert again is gpu
    assert facts(gpu.driver, True, gpu.attributes, gpu.capacity) is not gpu
    one, truth = (facts("d", False, {"a": Attribute(kind, value)}, {}) for kind, value in (("int", 1), ("bool", True)))
    assert one is not truth
