"""Which decisions are kept, and for how long."""

from __future__ import annotations

import pytest

from agent_scheduler.binding import past_decisions
from agent_scheduler.binding.past_decisions import KEPT_SECONDS, PastDecision, PastDecisions
from agent_scheduler.engine.decide.decide import CandidateNodes


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.past = PastDecisions(lambda: self.now)

    def decides(self, uid: str, node_name: str = "n1") -> None:
        self.past.add(PastDecision(self.now, uid, node_name, CandidateNodes(()), 1, 1, "worker 0"))
        self.now += 1

    def told(self, uid: str) -> str | None:
        found = self.past.of(uid)
        return None if found is None else found.node_name


def test_the_last_decision_on_a_pod_counts() -> None:
    world = World()
    for node_name in ("n1", "n2"):
        world.decides("a", node_name)
    world.decides("b")
    assert (world.told("a"), world.told("b"), world.told("c")) == ("n2", "n1", None)
    assert world.past.since == 100.0


def test_a_decision_is_kept_for_a_time() -> None:
    world = World()
    world.decides("a")
    world.now = 100.0 + KEPT_SECONDS
    assert world.told("a") == "n1"
    world.now += 1
    assert world.told("a") is None and len(world.past) == 0
    assert world.past.since == 101.0


def test_the_oldest_of_too_many_decisions_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_decisions, "KEPT", 2)
    world = World()
    for uid in ("a", "b", "c"):
        world.decides(uid)
    assert (world.told("a"), world.told("b"), world.told("c")) == (None, "n1", "n1")
    assert world.past.since == 101.0
