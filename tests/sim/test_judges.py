"""The judges of worlds see a scheduler that lets a pod go where it may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.claim_writer import ClaimWriter
from agent_scheduler.binding.device_waits import DeviceWaits
from agent_scheduler.cluster import informers
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.dra import pools
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.framework.plugin import Filter
from agent_scheduler.engine.plugins.inter_pod_affinity import InterPodAffinity
from agent_scheduler.engine.plugins.node_affinity import NodeAffinity
from agent_scheduler.engine.plugins.node_ports import NodePorts
from agent_scheduler.engine.plugins.node_resources_fit import NodeResourcesFit
from agent_scheduler.engine.plugins.node_unschedulable import NodeUnschedulable
from agent_scheduler.engine.plugins.node_volume_limits import NodeVolumeLimits
from agent_scheduler.engine.plugins.pod_topology_spread import PodTopologySpread
from agent_scheduler.engine.plugins.taint_toleration import TaintToleration
from agent_scheduler.engine.plugins.volume_restrictions import VolumeRestrictions
from agent_scheduler.engine.plugins.volume_zone import VolumeZone
from agent_scheduler.kube import lease, reflector
from agent_scheduler.kube.tls import Tls

from .judging import found


@pytest.mark.parametrize(
    ("plugin", "scenario", "invariant"),
    [
        (NodeAffinity, "constrained", "S25"),
        (TaintToleration, "constrained", "S25"),
        (NodeUnschedulable, "constrained", "S25"),
        (NodePorts, "constrained", "S25"),
        (PodTopologySpread, "constrained", "S25"),
        (InterPodAffinity, "constrained", "S25"),
        (NodeResourcesFit, "tight", "S25"),
        (NodeVolumeLimits, "claims", "S25"),
        (VolumeRestrictions, "claims", "S25"),
        (VolumeZone, "claims", "S25"),
    ],
)
def test_a_filter_that_lets_everything_through_is_seen(
    monkeypatch: pytest.MonkeyPatch, plugin: type[Filter], scenario: str, invariant: str
) -> None:
    everywhere = lambda _self, _state, _nodes, rows: np.ones(rows.shape[0], dtype=np.bool_)  # noqa: E731
    monkeypatch.setattr(plugin, "feasible", everywhere)
    monkeypatch.setattr(plugin, "feasible_row", lambda *_args: True)
    assert found(scenario, faults=None).startswith(f"{invariant}:")


def test_counters_of_devices_that_are_not_added_up_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_alone(pool: Any) -> dict[Any, int]:
        names = pool.exclusive.keys() | pool.shares.keys()
        return {
            counter: size
            for name in sorted(names & pool.devices.keys())
            for counter, size in pool.devices[name][0].consumes
        }

    monkeypatch.setattr(pools.Pool, "counters_used", property(last_alone))
    assert found("devices", faults=None).startswith("S17:")


def test_a_change_of_a_node_that_is_not_taken_in_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    set_node = Cluster.set_node

    def once(cluster: Cluster, node: Any) -> None:
        if cluster.ledger.node(node.name) is None:
            set_node(cluster, node)

    monkeypatch.setattr(Cluster, "set_node", once)
    # What it leads to shows in other worlds before.
    assert found("constrained", "S26:", faults=None)


def test_who_goes_by_what_was_undone_with_the_store_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any) -> str:
        return ""

    monkeypatch.setattr(reflector, "version_of", unknown)
    monkeypatch.setattr(lease, "is_older", lambda *_: False)
    assert found("replicas", faults=("rolled_back",), first=6)


def test_files_that_are_never_read_again_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tls, "_look", lambda _self: None)
    assert found("churn", faults=("rotated",)).startswith(("L1:", "L13:"))


def test_a_bind_before_its_devices_are_ready_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(*_: Any, **__: Any) -> str:
        return ""

    monkeypatch.setattr(DeviceWaits, "wait", at_once)
    assert found("devices", faults=("not_attached",)).startswith("S18:")


def test_a_device_that_failed_and_is_kept_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(Devices, "binding_failed", lambda *_: False)
    monkeypatch.setattr(ClaimWriter, "take_back", nothing)
    assert found("devices", faults=("not_attached",), first=25).startswith(("L1:", "L10:"))


def test_a_bind_to_another_node_than_the_reserved_one_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, carry_out = Binder._sent_at_once, Binder._carry_out

    def elsewhere(binder: Binder, node_name: str) -> str:
        names = sorted(binder._cluster.ledger.rows)
        return names[(names.index(node_name) + 1) % len(names)]

    def begins(binder: Binder, result: Any, node_name: str) -> bool:
        return begun(binder, result, elsewhere(binder, node_name))

    async def carries_out(binder: Binder, result: Any, node_name: str, sent: Any) -> None:
        await carry_out(binder, result, elsewhere(binder, node_name), sent)

    monkeypatch.setattr(Binder, "_sent_at_once", begins)
    monkeypatch.setattr(Binder, "_carry_out", carries_out)
    assert found("burst", faults=None).startswith("S25:")


def test_a_leader_that_waits_for_a_list_which_it_may_not_have_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(informers, "OTHERS_PATIENCE", 1e9)
    assert "decides nothing" in found("replicas", "L14:", faults=("unlistable", "crash"), first=6)
