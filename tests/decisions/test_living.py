"""An engine that exists while its cluster changes decides like one that sees the cluster for the first time."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.state import interns
from tests.decisions import clusters, podparts
from tests.decisions.clusters import ABOUT, drawn_about
from tests.decisions.comparing import between_engines
from tests.decisions.drawing import Choices, Draw
from tests.decisions.engine import AGENT, DEFAULT, Engine
from tests.decisions.living import Living
from tests.decisions.plain import Obj, World
from tests.support.examples import examples, in_time

STEPS = 16
#: Subjects for which an engine caches most.
KEPT = [about for about in ABOUT if {"pods", "images"} & set(about)]


def live(draw: Draw, profile: Profile, happened: Counter[str]) -> list[str]:
    """Change a cluster in steps; return the differences of the two engines after the first step that has any."""
    choices = Choices(draw)
    about = frozenset(choices.pick(KEPT))
    steps = 1 + choices.below(STEPS)
    drawn = drawn_about(about, choices, draw)
    living = Living(drawn, about, profile)
    waiting = [drawn.pending, podparts.pending(Choices(draw), about)]
    for number in range(steps):
        what = living.step(Choices(draw), waiting[number % 2])
        happened[what] += 1
        fresh = Engine(living.world, profile)
        for pod in waiting:
            found = between_engines(living.engine.decide(pod), fresh.decide(pod))
            if found:
                return [f"step {number}, {what}", *found, f"{living.world}", f"{pod}"]
    return []


@in_time
@pytest.mark.parametrize("profile", [DEFAULT, pytest.param(AGENT, marks=pytest.mark.wide)])
@examples(100)
@given(data=st.data())
def test_what_an_engine_keeps_is_what_a_new_one_finds(profile: Profile, data: st.DataObject) -> None:
    def draw(length: int) -> bytes:
        return data.draw(st.binary(min_size=length, max_size=length))

    assert live(draw, profile, Counter()) == []


@pytest.mark.wide
def test_everything_happens_that_may() -> None:
    chance, happened = random.Random(5), Counter[str]()
    for _ in range(30):
        assert live(chance.randbytes, DEFAULT, happened) == []
    assert len(happened) == 11
    assert min(happened.values()) >= 3


def test_numbers_that_are_given_anew_at_every_change_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of taints and labels are kept in use as long as few nodes are deleted."""
    monkeypatch.setattr(interns, "_DROPPED_AT_LEAST", -1_000)
    chance, happened = random.Random(6), Counter[str]()
    for _ in range(25):
        assert live(chance.randbytes, DEFAULT, happened) == []
    assert happened["_change_node"] and happened["_delete_node"]


def test_a_namespace_with_another_label_is_meant_by_other_terms() -> None:
    """Few random clusters evaluate a term again after its namespaces have changed."""
    nodes = tuple(clusters.node(Choices(bytes), called, frozenset()) for called in ("n0", "n1"))
    near: Obj = {
        "topologyKey": podparts.HOST,
        "labelSelector": {"matchLabels": {"app": "a"}},
        "namespaceSelector": {"matchLabels": {"team": "x"}},
    }
    placed, pending = (podparts.pending(Choices(bytes), frozenset()) for _ in range(2))
    placed["metadata"]["namespace"], placed["spec"]["nodeName"] = "blue", "n0"
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [near]}
    pending["spec"]["affinity"] = {"podAntiAffinity": required}
    engine = Engine(World(nodes, (placed,), clusters.NAMESPACES))
    assert engine.decide(pending).feasible == ("n1",)
    engine.namespaces.set("blue", {"team": "y"})
    assert engine.decide(pending).feasible == ("n0", "n1")
    engine.namespaces.set("blue", {"team": "x"})
    assert engine.decide(pending).feasible == ("n1",)
