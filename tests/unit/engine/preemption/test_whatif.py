"""Thinking a row otherwise changes nothing, and while it lasts the columns are what they would be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.preemption.whatif import WhatIf
from agent_scheduler.engine.state.columns import Columns
from agent_scheduler.engine.state.labelselector import LabelSelector, Requirement
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.podterms import PodMatch
from agent_scheduler.engine.state.recount import contradictions
from tests.examples import examples

from ..world import World, node, pod_json, read_pod, sums_are_right

NODES = ("a", "b")


def contents(columns: Columns) -> dict[str, Any]:
    """Everything that a filter could read of the rows in use."""
    assert sums_are_right(columns)
    size = columns.size
    return {
        "taken": columns.taken[:size],
        "usage": columns.usage[:, :, :size].tolist(),
        "requested": columns.requested[:, :size].tolist(),
        "allocatable": columns.allocatable[:, :size].tolist(),
        "version": columns.version[:size],
        "spec_version": columns.spec_version[:size],
        "ports": dict(columns.ports),
        "matching": {id(kind): column[:size].tolist() for kind, column in columns.matching.items()},
        "terms": {term: column[:size].tolist() for term, column in columns.terms.items()},
        "absent": set(columns.absent),
    }


def apart(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


class Cluster(World):
    """Two nodes, and somebody who counts the pods of app a."""

    def __init__(self) -> None:
        super().__init__(node("a", extended={"example.com/gpu": "4"}), node("b"))
        self.snapshot = Snapshot(self.ledger)
        requirement = Requirement("app", "In", frozenset(("a",)))
        match = PodMatch(frozenset(("default",)), None, LabelSelector((requirement,)))
        self.kind = self.snapshot.handle.count([match])

    def make(self, shape: tuple[int, int, str, str], uid: str) -> PodInfo:
        cpu, port, app, repels = shape
        container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": f"{cpu}m"}}}
        if port:
            container["ports"] = [{"containerPort": 1, "hostPort": port, "protocol": "TCP"}]
        body = pod_json(uid, containers=[container], **({"affinity": apart(repels)} if repels else {}))
        body["metadata"] |= {"uid": uid, "labels": {"app": app}}
        return read_pod(body, self.classes)


shapes = st.tuples(
    st.sampled_from([0, 100, 500]),
    st.sampled_from([0, 0, 80, 81]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "", "a", "b"]),
)


@examples(200)
@given(st.lists(st.tuples(shapes, st.sampled_from(NODES)), max_size=6), st.data())
def test_columns_are_as_if_pods_had_left_and_come_and_then_as_they_were(
    placed: list[tuple[tuple[int, int, str, str], str]], data: st.DataObject
) -> None:
    world = Cluster()
    pods = [(world.make(shape, f"p{number}"), name) for number, (shape, name) in enumerate(placed)]
    for pod, name in pods:
        world.ledger.set_pod(pod, name)
    world.snapshot.refresh()
    live = data.draw(st.booleans())
    columns = world.ledger.columns if live else world.snapshot.columns
    before = contents(columns)
    name = data.draw(st.sampled_from(NODES))
    here = [pod for pod, where in pods if where == name]
    gone = [pod for pod in here if data.draw(st.booleans())]
    come = [
        world.make(shape, f"new{number}")
        for number, shape in enumerate(data.draw(st.lists(shapes, max_size=3)))
    ]
    with WhatIf(world.ledger, columns, world.ledger.rows[name]) as there:
        for pod in gone:
            there.remove_pod(pod)
        for pod in come:
            there.add_pod(pod)
        if gone and data.draw(st.booleans()):
            there.add_pod(gone.pop())
        seen = contents(columns)

    other = Cluster()
    for pod, where in [
        *((pod, where) for pod, where in pods if pod not in gone),
        *((pod, name) for pod in come),
    ]:
        other.ledger.set_pod(pod, where)
    other.snapshot.refresh()
    would_be = contents(other.snapshot.columns)
    for key in ("usage", "requested", "ports"):
        assert seen[key] == would_be[key]
    assert list(seen["matching"].values()) == list(would_be["matching"].values())
    assert {term: counts for term, counts in seen["terms"].items() if any(counts)} == would_be["terms"]
    assert seen["absent"] == {pod.uid for pod in gone}

    assert contents(columns) == before
    assert contradictions(world.ledger) == []


def test_columns_are_as_they_were_after_a_filter_has_raised() -> None:
    world = Cluster()
    pod = world.make((500, 80, "a", "b"), "p")
    world.ledger.set_pod(pod, "a")
    before = contents(world.ledger.columns)
    with pytest.raises(RuntimeError), WhatIf(world.ledger, world.ledger.columns, 0) as there:
        there.remove_pod(pod)
        raise RuntimeError
    assert contents(world.ledger.columns) == before


def test_the_usage_that_filters_read_can_be_replaced_and_put_back() -> None:
    world = Cluster()
    world.place("a", requests={"cpu": "1"})
    columns = world.ledger.columns
    usage = columns.usage
    columns.set_usage(np.zeros_like(usage))
    assert not columns.requested.any() and not columns.scored.any()
    columns.set_usage(usage)
    assert columns.requested[0, 0] == columns.scored[0, 0] == 1000
