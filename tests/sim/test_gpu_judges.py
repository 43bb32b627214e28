"""The judges of worlds with GPUs see a scheduler that loses devices, or gives them away twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agent_scheduler.engine.plugins.gpu_share import GPUShare
from agent_scheduler.engine.state import ledger, podinfo
from agent_scheduler.engine.state.columns import Columns
from agent_scheduler.kube.bind import Binds

from .judging import found
from .world import Options, run


@pytest.mark.parametrize("scenario", ["gpus", "gpus-batch"])
def test_all_is_well_in_what_they_see_otherwise(scenario: str) -> None:
    for seed in (0, 1, 2):
        assert not run(Options(seed=seed, scenario=scenario, faults=())).violations


@pytest.mark.parametrize(("scenario", "first"), [("gpus", 1), ("gpus-batch", 11)])
def test_a_filter_that_lets_everything_through_is_seen(
    monkeypatch: pytest.MonkeyPatch, scenario: str, first: int
) -> None:
    everywhere = lambda _self, _state, _nodes, rows: np.ones(rows.shape[0], dtype=np.bool_)  # noqa: E731
    monkeypatch.setattr(GPUShare, "feasible", everywhere)
    monkeypatch.setattr(GPUShare, "feasible_row", lambda *_args: True)
    assert "reserves" in found(scenario, "S39:", first=first)


def test_devices_that_are_not_given_back_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    recount = Columns.recount_gpus

    def never_more(columns: Columns, row: int, placements: Any) -> None:
        before = columns.gpus.get(row, ())
        recount(columns, row, placements)
        if len(before) == len(columns.gpus.get(row, ())):
            columns.set_gpus(row, tuple(map(min, before, columns.gpus.get(row, ()))))

    monkeypatch.setattr(Columns, "recount_gpus", never_more)
    assert found("gpus", faults=None).startswith("S7:")


def test_devices_that_the_binding_does_not_name_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Binds.send_bind

    def without(binds: Binds, *about: Any) -> bool:
        binds._annotations = {}
        return begin(binds, *about)

    monkeypatch.setattr(Binds, "send_bind", without)
    assert "with the devices ()" in found("gpus", "S39:")


def test_one_device_that_all_pods_are_told_of_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "text_of", lambda _given: "0")
    assert "gave more of a device" in found("gpus", "S38:")


def test_devices_that_are_forgotten_with_a_restart_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podinfo, "indices_in", lambda _text: ())
    assert "reserves the devices" in found("gpus", "S39:", faults=("crash", "pod_deleted"))


def test_devices_that_only_the_scheduler_gives_a_pod_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    regive = ledger.Ledger._regive
    monkeypatch.setattr(
        ledger.Ledger, "_regive", lambda self, at, gpus: bool(gpus) and regive(self, at, gpus)
    )
    assert "it names ()" in found("gpus", "L20:", faults=("bound_elsewhere", "denied"))


def test_devices_of_others_that_are_not_counted_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    indices = podinfo.indices_in
    monkeypatch.setattr(podinfo, "indices_in", lambda text: indices(text)[:1])
    assert found("gpus", faults=("gpu_taken", "crash"), first=7).startswith(("S39:", "S25:", "L20:", "L13:"))
