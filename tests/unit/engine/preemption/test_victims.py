"""What is kept of pods of lower priority is what a walk over the pods would find, whatever has happened."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs

from agent_scheduler.engine.preemption.pdbs import PDBs
from agent_scheduler.engine.preemption.victims import PotentialVictims, importance
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import World, covering, node, pod_json, read_pod
from tests.support.examples import examples

NODES = ("a", "b", "c")
PRIORITIES = (-5, 0, 10, 20)


class Machine(RuleBasedStateMachine):
    """Pods and nodes come and go; now and then somebody asks."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.victims = PotentialVictims(self.world.ledger)
        self.pdbs = PDBs()
        self.pods: dict[str, tuple[PodInfo, str]] = {}

    @rule(name=st.sampled_from(NODES), gpu=st.booleans())
    def node_comes_or_changes(self, name: str, gpu: bool) -> None:
        self.world.ledger.set_node(node(name, extended={"example.com/gpu": "4"} if gpu else {}))

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        self.world.ledger.remove_node(name)

    @rule(
        uid=st.sampled_from([f"p{number}" for number in range(8)]),
        name=st.sampled_from(NODES),
        priority=st.sampled_from(PRIORITIES),
        cpu=st.sampled_from(["0", "100m", "1"]),
        second=st.integers(0, 3),
    )
    def pod_comes(self, uid: str, name: str, priority: int, cpu: str, second: int) -> None:
        if uid in self.pods:
            self.pod_goes(uid)
        requests = {"cpu": cpu, "example.com/gpu": "1"}
        body: dict[str, Any] = pod_json(uid, requests=requests, priority=priority)
        body["metadata"] |= {"uid": uid, "labels": {"app": "x"}}
        body["status"] = {"startTime": f"2026-01-01T00:00:0{second}Z" if second else None}
        pod = read_pod(body, self.world.classes)
        self.pods[uid] = pod, name
        self.world.ledger.set_pod(pod, name)

    @rule(
        uid=st.sampled_from([f"p{number}" for number in range(8)]),
        second=st.integers(1, 3),
        app=st.sampled_from("xy"),
        leaves=st.booleans(),
    )
    def pod_starts_or_changes(self, uid: str, second: int, app: str, leaves: bool) -> None:
        if uid not in self.pods:
            return
        old, name = self.pods[uid]
        changes = {"started": f"2026-01-01T00:00:0{second}Z", "labels": {"app": app}, "deleting": leaves}
        pod = structs.replace(old, **changes)
        self.pods[uid] = pod, name
        self.world.ledger.set_pod(pod, name)

    @rule(uid=st.sampled_from([f"p{number}" for number in range(8)]))
    def pod_goes(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.world.ledger.remove_pod(uid)

    @rule(app=st.sampled_from("xy"), allowed=st.integers(0, 2))
    def budget_changes(self, app: str, allowed: int) -> None:
        self.pdbs.set(covering(app, allowed))

    @rule(app=st.sampled_from("xy"))
    def budget_goes(self, app: str) -> None:
        self.pdbs.delete("default", app)

    @rule(priority=st.sampled_from(PRIORITIES), first=st.integers(0, 2))
    def somebody_asks(self, priority: int, first: int = 0) -> None:
        victims = self.victims.below(priority)
        columns = self.world.ledger.columns
        # Of some rows first, as a search does, and of some never.
        victims.count(np.arange(first, columns.size))
        assert victims.usage.shape == columns.usage.shape
        everybody = self.world.ledger.placements.values()
        assert victims.is_empty() == all(placement.pod.priority >= priority for placement in everybody)
        for row in range(first, columns.size):
            info = columns.nodes[row]
            there = [
                pod
                for pod, name in self.pods.values()
                if info is not None and name == info.name and pod.priority < priority
            ]
            assert victims.pods[row] == len(there)
            amounts = self.world.ledger.amounts(pod.cls for pod in there).sum(axis=0)
            assert np.array_equal(victims.usage[:, :, row], amounts)
            if there:
                there_listed = victims.on_row(row)
                assert sorted(map(seen, there_listed.pods)) == sorted(map(seen, there))
                assert list(there_listed.pods) == sorted(there_listed.pods, key=importance)
                assert victims.violating(row, self.pdbs) == self.pdbs.violating(there_listed.pods)

    @invariant()
    def the_ledger_is_sound(self) -> None:
        assert contradictions(self.world.ledger) == []


def seen(pod: Any) -> tuple[str, str, str, bool]:
    return pod.uid, pod.started, pod.labels["app"], pod.deleting


TestLesser = Machine.TestCase
TestLesser.settings = settings(examples(60), stateful_step_count=30)


def test_priorities_that_nobody_asks_about_any_more_are_dropped() -> None:
    victims = PotentialVictims(World(node("a")).ledger)
    first = victims.below(0)
    for priority in range(1, 9):
        victims.below(priority)
    assert victims.below(8) is victims.below(8)
    assert victims.below(0) is not first


def test_what_is_kept_of_a_row_follows_pods_that_take_the_same_room_and_have_changed() -> None:
    machine = Machine()
    machine.node_comes_or_changes("a", gpu=False)
    machine.pod_comes("p1", "a", 0, "1", 0)
    for second, app, leaves in ((1, "x", False), (1, "y", False), (1, "y", True)):
        machine.somebody_asks(10)
        machine.pod_starts_or_changes("p1", second, app, leaves)
    machine.somebody_asks(10)


def test_a_row_that_was_counted_and_changes_is_counted_anew() -> None:
    machine = Machine()
    for name in NODES:
        machine.node_comes_or_changes(name, gpu=False)
    for name in NODES:
        machine.somebody_asks(10)
        machine.pod_comes(f"first-{name}", name, 0, "1", 0)
        machine.somebody_asks(10, first=1)
        machine.pod_comes(f"second-{name}", name, 0, "100m", 0)
        machine.somebody_asks(10)
        machine.pod_goes(f"first-{name}")
    machine.somebody_asks(10)


def test_a_budget_that_is_gone_is_broken_by_nobody() -> None:
    """Though another one stays."""
    world, pdbs = World(node("a")), PDBs()
    body: dict[str, Any] = pod_json("p", priority=0)
    body["metadata"] |= {"uid": "p", "labels": {"app": "x"}}
    world.ledger.set_pod(read_pod(body, world.classes), "a")
    victims = PotentialVictims(world.ledger).below(1)
    for app in "xy":
        pdbs.set(covering(app, 0))
    assert victims.violating(0, pdbs) == {"p"}
    pdbs.delete("default", "x")
    assert victims.violating(0, pdbs) == frozenset()
