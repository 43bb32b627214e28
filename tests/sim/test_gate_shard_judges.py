"""The judges of worlds in which two processes share nodes and queues see what is wrong with gates there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent_scheduler.binding.failure import FailureHandler
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.binding.queue_admission import Always
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.session import written
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.queueusage import QueueUsage
from agent_scheduler.fastpath.outside import OutsideShard

from .gate_safety import GateSafety
from .judging import found
from .world import Options, run

SCENARIO = "gates-shards"
#: What leads to the moments at which most can go wrong.
_FAULTS = ("crash", "sigterm", "owner_gone", "shards_changed", "webhook_down", "lost_after", "stop")


@pytest.mark.parametrize(("seed", "faults"), [(seed, _FAULTS) for seed in range(100, 103)])
def test_all_is_well_in_what_they_see_otherwise(seed: int, faults: tuple[str, ...] | None) -> None:
    assert not run(Options(seed=seed, scenario=SCENARIO, faults=faults)).violations


def test_a_process_without_a_batch_scheduler_that_removes_gates_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_scheduler.fastpath.settings._removes_gates", lambda _configuration: True)
    assert "has no batch scheduler" in found(SCENARIO, "S32:", first=3)


def test_a_gate_that_goes_by_who_does_not_hold_the_lease_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.process.runtime.gates_turn", lambda *_, **__: Always())
    assert "removes a gate while" in found(SCENARIO, "S32:")


def test_room_that_one_process_has_reserved_and_the_other_gives_away_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = Cluster._counts_of_others
    monkeypatch.setattr(Cluster, "_counts_of_others", lambda self, pod: bool(pod.gates) and counts(self, pod))
    assert "keeps no room" in found(SCENARIO, "S34: agent-fast")
    # By what the queues hold in the end, it is seen as well.
    monkeypatch.setattr(GateSafety, "look_inside", lambda *_: None)
    monkeypatch.setattr(GateSafety, "_refuses", lambda *_, **__: "")
    assert "takes the gate of" in found(SCENARIO, "S32:", first=11)


def test_room_that_is_kept_for_another_process_s_pod_that_is_gone_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = QueueUsage.left
    monkeypatch.setattr(
        QueueUsage, "left", lambda self, uid: None if uid in self.gated.reserved else left(self, uid)
    )
    assert "waits no more" in found(SCENARIO, "S34:", faults=("pod_deleted", "webhook_down"))


def test_a_queue_that_the_fast_process_fills_beyond_its_limits_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(QueueUsage, "full", lambda *_: None)
    monkeypatch.setattr(QueueUsage, "admit", lambda *_: "")
    assert "room, and queue" in found(SCENARIO, "S28: agent-fast", faults=("webhook_down",), first=18)


@pytest.mark.parametrize("answer", ["", "is full"])
def test_what_is_said_of_nodes_outside_of_a_shard_and_is_not_so_is_seen(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(OutsideShard, "full", lambda *_: answer)
    assert "would do" in found(SCENARIO, "S33:")


def test_a_pod_of_a_full_shard_that_wants_a_node_where_others_have_room_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FailureHandler, "shard_full", lambda *_: "")
    assert "nodes outside would do: None" in found(SCENARIO, "S33:")


def test_a_gang_of_a_full_shard_that_wants_nodes_where_others_have_room_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(written, "_held_by_shard", lambda *_: {})
    assert "say that nodes are missing" in found(SCENARIO, "L18:", first=5)


def test_words_of_full_shards_that_are_not_looked_at_again_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_self: OutsideShard) -> None:
        pass

    monkeypatch.setattr(OutsideShard, "_look", never)
    # The other nodes are gone, and no new one comes.
    assert "fits on a node to come" in found(SCENARIO, "L17:", first=13)


def test_a_pod_behind_its_gate_that_says_unschedulable_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def held(self: KubeMessenger, pods: Sequence[PodInfo], why: str) -> None:
        for pod in pods:
            self.refused(pod, "Unschedulable", why)

    monkeypatch.setattr(KubeMessenger, "held", held)
    assert "says Unschedulable" in found(SCENARIO, "S33:")
