"""The ledger: who is where, counted exactly, whatever order the news comes in."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent_scheduler.engine.nodeinfo import same_for_scheduling
from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.snapshot import Snapshot

from .world import World, node


def test_a_pod_on_a_node_that_is_not_known_yet_counts_once_the_node_appears() -> None:
    world = World()
    world.place("late", requests={"cpu": "1"})
    world.ledger.set_node(node("late"))
    assert world.ledger.columns.requested[0, world.ledger.rows["late"]] == 1000


def test_a_node_that_goes_and_comes_back_has_its_pods_again() -> None:
    world = World(node("a"))
    pod = world.place("a", requests={"cpu": "1"})
    assert world.ledger.remove_node("a")
    assert not world.ledger.remove_node("a")
    world.ledger.set_node(node("a"))
    assert world.ledger.columns.requested[0, 0] == 1000
    world.ledger.remove_pod(pod.uid)
    assert world.ledger.columns.requested[0, 0] == 0
    assert world.ledger.check() == []


def test_an_assumed_pod_that_was_bound_elsewhere_is_counted_there() -> None:
    world = World(node("a"), node("b"))
    pod = world.pod(requests={"cpu": "1"})
    world.ledger.assume(pod.uid, pod.cls, world.ledger.rows["a"])
    assert world.ledger.assumed == 1
    assert world.ledger.set_pod(pod.uid, "b", pod.cls)
    assert world.ledger.columns.requested[0].tolist()[:2] == [0, 1000]
    assert world.ledger.assumed == 0
    assert world.ledger.forget(pod.uid) is None


def test_confirming_an_assumed_pod_changes_no_column() -> None:
    world = World(node("a"))
    pod = world.pod(requests={"cpu": "1"})
    world.ledger.assume(pod.uid, pod.cls, 0)
    sequence = world.ledger.sequence
    assert not world.ledger.set_pod(pod.uid, "a", pod.cls)
    assert world.ledger.sequence == sequence
    assert world.ledger.assumed == 0


def test_a_resized_pod_is_counted_at_its_new_size() -> None:
    world = World(node("a"))
    pod = world.place("a", requests={"cpu": "1"})
    bigger = world.pod(requests={"cpu": "2"})
    world.ledger.set_pod(pod.uid, "a", bigger.cls)
    assert world.ledger.columns.requested[0, 0] == 2000


def test_a_heartbeat_changes_nothing() -> None:
    world = World(node("a"))
    sequence = world.ledger.sequence
    assert not world.ledger.set_node(node("a"))
    assert world.ledger.sequence == sequence


def test_a_snapshot_does_not_change_until_it_is_refreshed() -> None:
    world = World(node("a"))
    snapshot = Snapshot(world.ledger)
    before = snapshot.columns.requested.copy()
    world.place("a", requests={"cpu": "1"})
    world.ledger.set_node(node("a", unschedulable=True))
    assert np.array_equal(snapshot.columns.requested, before)
    assert not snapshot.columns.unschedulable[0]
    assert snapshot.refresh()
    assert snapshot.columns.requested[0, 0] == 1000
    assert snapshot.columns.unschedulable[0]
    assert not snapshot.refresh()


def test_a_snapshot_that_lags_beyond_the_log_copies_everything() -> None:
    world = World(node("a"), node("b"))
    snapshot = Snapshot(world.ledger)
    pod = world.place("b", requests={"cpu": "1"})
    for _ in range(40_000):
        world.ledger.remove_pod(pod.uid)
        world.ledger.set_pod(pod.uid, "b", pod.cls)
    assert world.ledger.rows_since(0) is None
    snapshot.refresh()
    assert snapshot.columns.requested[0].tolist()[:2] == [0, 1000]


class LedgerMachine(RuleBasedStateMachine):
    """Any order of news; the columns must always equal what the placements add up to."""

    @initialize()
    def start(self) -> None:
        self.world = World(node("n0"), node("n1"))
        self.snapshot = Snapshot(self.world.ledger)
        self.pods: list[PodInfo] = []

    def _pod(self, cpu: int, port: int) -> PodInfo:
        ports = [{"containerPort": 1, "hostPort": port}] if port else []
        containers = [
            {"name": "c", "ports": ports, "resources": {"requests": {"cpu": str(cpu), "x.io/g": "1"}}}
        ]
        return self.world.pod(containers=containers)

    @rule(cpu=st.integers(0, 3), port=st.sampled_from([0, 80, 81]), where=st.integers(0, 3))
    def bound_pod(self, cpu: int, port: int, where: int) -> None:
        pod = self._pod(cpu, port)
        self.pods.append(pod)
        self.world.ledger.set_pod(pod.uid, f"n{where}", pod.cls)

    @rule(cpu=st.integers(0, 3), port=st.sampled_from([0, 80]))
    def assume(self, cpu: int, port: int) -> None:
        rows = list(self.world.ledger.rows.values())
        if rows:
            pod = self._pod(cpu, port)
            self.pods.append(pod)
            self.world.ledger.assume(pod.uid, pod.cls, rows[0])

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), how=st.sampled_from(["remove", "forget", "confirm", "move"]))
    def end(self, data: st.DataObject, how: str) -> None:
        pod = data.draw(st.sampled_from(self.pods))
        ledger = self.world.ledger
        if how == "remove":
            ledger.remove_pod(pod.uid)
        elif how == "forget":
            ledger.forget(pod.uid)
        elif how == "confirm":
            ledger.confirm(pod.uid)
        else:
            ledger.set_pod(pod.uid, "n1", pod.cls)

    @rule(index=st.integers(0, 3), gpus=st.booleans())
    def set_node(self, index: int, gpus: bool) -> None:
        self.world.ledger.set_node(node(f"n{index}", extended={"x.io/g": "4"} if gpus else {}))

    @rule(index=st.integers(0, 3))
    def remove_node(self, index: int) -> None:
        self.world.ledger.remove_node(f"n{index}")

    @invariant()
    def columns_are_the_sum_of_the_placements(self) -> None:
        assert self.world.ledger.check() == []

    @invariant()
    def a_refreshed_snapshot_equals_the_ledger(self) -> None:
        self.snapshot.refresh()
        live, copy = self.world.ledger.columns, self.snapshot.columns
        size = live.size
        assert np.array_equal(copy.requested[:, :size], live.requested[:, :size])
        assert np.array_equal(copy.allocatable[:, :size], live.allocatable[:, :size])
        assert np.array_equal(copy.present[:size], live.present[:size])
        for mine, theirs in zip(copy.nodes[:size], live.nodes[:size], strict=True):
            # A heartbeat replaces the ledger's node without being a change; decisions cannot tell them apart.
            assert (mine is None) == (theirs is None)
            assert mine is None or theirs is None or same_for_scheduling(mine, theirs)
        assert copy.ports == live.ports


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLedger = LedgerMachine.TestCase
