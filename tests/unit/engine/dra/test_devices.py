"""How much of a capacity a request takes: as it is asked, by default, or rounded up to what the policy allows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.dra.devices import Facts, consumption, device, fits
from agent_scheduler.engine.state.amounts import amount, written_like
from agent_scheduler.objects import dra

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
