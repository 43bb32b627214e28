"""Budgets hold for all that a session evicts."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.preemption.pdbs import PDB, PDBs
from agent_scheduler.engine.state.labelselector import label_selector
from agent_scheduler.objects.wire import LabelSelector
from tests.support.engine import node
from tests.unit.engine.session.scene import Scene, conf


@pytest.mark.parametrize(("allowed", "evicted"), [(2, 2), (1, 0), (0, 0)])
def test_what_went_elsewhere_counts_in_a_budget(allowed: int, evicted: int) -> None:
    scene = Scene(*(node(name, cpu="1") for name in "abc"))
    scene.group("low", minMember=1, priorityClassName="low", phase="Running")
    for where in "abc":
        scene.member("low", node=where, labels={"app": "x"})
    scene.gang("high", 2, priorityClassName="high")
    selector = label_selector(LabelSelector(match_labels={"app": "x"}), "")
    budget = PDB(
        uid="u",
        name="budget",
        namespace="default",
        resource_version="1",
        selector=selector,
        disruptions_allowed=allowed,
        disrupted_pods=frozenset(),
    )
    scene.more["pdbs"] = pdbs = PDBs()
    pdbs.set(budget)
    scene.more["priorities"] = {"low": 1, "high": 2}
    plugins = ("priority", "gang", "pdb", "predicates", "nodeorder")
    session, _ = scene.run(conf(*plugins, actions="enqueue allocate preempt"))
    assert len(session.evicted) == evicted
