"""The engine decides random clusters like the plain rules, including the victims."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from hypothesis import given

from tests.decisions.clusters import Drawn, cluster, clusters
from tests.decisions.comparing import differences
from tests.decisions.plain import SCORES, Decision, decide
from tests.support.examples import examples, in_time


@in_time
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.wide) for part in (1, 2, 3))])
@examples(1_000)
@given(drawn=clusters())
def test_engine_and_plain_reading_decide_alike(part: int, drawn: Drawn) -> None:
    """The parts draw different clusters."""
    assert differences(drawn) == []


RESOURCES = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi", "example.com/nowhere")
REASONS = (
    *("Too many pods", *(f"Insufficient {resource}" for resource in RESOURCES)),
    *("node(s) were unschedulable", "node(s) didn't match the requested node name"),
    *("node(s) had untolerated taint(s)", "node(s) didn't match Pod's node affinity/selector"),
    "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    "node(s) didn't have free ports for the requested pod ports",
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod topology spread constraints (missing required label)",
    *("node(s) didn't match pod affinity rules", "node(s) didn't match pod anti-affinity rules"),
    "node(s) didn't satisfy existing pods anti-affinity rules",
    *("Preemption is not helpful for scheduling", "No preemption victims found for incoming pod"),
)


@pytest.fixture(scope="module")
def decided() -> list[Decision]:
    """Return the decisions about a few thousand such clusters, from a seed of their own."""
    chance = random.Random(4)
    drawn = (cluster(chance.randbytes) for _ in range(3500))
    return [decide(each.pending, each.world, each.budgets) for each in drawn]


@pytest.mark.wide
def test_half_of_the_pods_fit_on_two_nodes_or_more_and_many_on_none(decided: list[Decision]) -> None:
    several = sum(len(each.feasible) > 1 for each in decided)
    none = sum(not each.feasible for each in decided)
    assert 0.4 < several / len(decided) < 0.6
    assert none / len(decided) > 0.2
    evicting = [each.candidates for each in decided if each.candidates]
    assert len(evicting) > len(decided) / 100, "preemption helps some"
    assert any(candidates[0].violations for candidates in evicting), "against a budget"


@pytest.mark.wide
def test_every_reason_refuses_nodes(decided: list[Decision]) -> None:
    refused = Counter(
        re.sub(r"^\d+ ", "", part)
        for each in decided
        if each.message
        for sentence in each.message.removesuffix(".").split("no new claims to deallocate, preemption: ")
        for part in sentence.strip(" .").partition("available: ")[2].split(", ")
    )
    assert {reason for reason in REASONS if refused[reason] < 3} == set()


@pytest.mark.wide
def test_every_score_decides_between_nodes(decided: list[Decision]) -> None:
    """The best nodes would differ without it."""
    decides: Counter[str] = Counter()
    for each in decided:
        for plugin in SCORES:
            rest = {node: sum(of.values()) - of.get(plugin, 0) for node, of in each.scores.items()}
            best = frozenset(node for node, total in rest.items() if total == max(rest.values()))
            decides[plugin] += best != each.best and len(each.feasible) > 1
    assert decides.pop("DynamicResources") == 0, "no pod here has claims"
    assert {plugin: count for plugin, count in decides.items() if count < 10} == {}
