"""CEL about devices: what expressions mean, what is said of those that fail, and that none costs much."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.dra.cel import CelError, Selector, selector
from agent_scheduler.engine.dra.celcost import MAX_COST
from agent_scheduler.engine.dra.devices import Attribute, Capacity, Facts, facts
from agent_scheduler.engine.state.amounts import amount

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
    [
        ("version", "one", "attribute a: 'one' is not a semantic version"),
        ("", None, "unsupported attribute value"),
    ],
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
def test_an_expression_that_may_cost_too_much_is_refused_before_it_is_run(
    expression: str, gpu: Facts
) -> None:
    hostile = Selector(expression)
    assert hostile.error
    with pytest.raises(CelError, match="CEL compile error: "):
        hostile.matches(gpu)


def test_the_bound_is_that_of_kubernetes_and_leaves_room_for_what_people_write(gpu: Facts) -> None:
    assert MAX_COST == 1_000_000
    everything = (
        "device.attributes.all(d, device.attributes[d].all(k, k.startsWith('x') || k.matches('^[a-z]+$')))"
    )
    assert selector(everything).matches(gpu)
    assert Selector("x" * 10_241).error == "expression is longer than 10240 bytes"


def test_devices_that_say_the_same_share_their_facts_and_the_answers(gpu: Facts) -> None:
    again = facts(gpu.driver, gpu.shared, dict(gpu.attributes), dict(gpu.capacity))
    assert again is gpu
    assert facts(gpu.driver, True, gpu.attributes, gpu.capacity) is not gpu
    one, truth = (
        facts("d", False, {"a": Attribute(kind, value)}, {}) for kind, value in (("int", 1), ("bool", True))
    )
    assert one is not truth
