"""Clusters, pods and constraints for tests of PodTopologySpread, and its answers in the plain reading's form."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadScore
from agent_scheduler.engine.state.columns import Columns
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.decisions.clusters import Drawn, drawn_about
from tests.decisions.drawing import Choices
from tests.decisions.plain import Refusal
from tests.support.engine import World, node
from tests.support.terms import ZONE

FILTER, SCORE = PodTopologySpread(), PodTopologySpreadScore()


def waiting(world: World, *constraints: dict[str, Any], app: str = "web", **spec: Any) -> PodInfo:
    return world.pod(topologySpreadConstraints=list(constraints), labels={"app": app}, **spec)


def zones(*names: str) -> World:
    """Nodes a, b, c... in these zones; without the label where the name is empty."""
    return World(*(node("abcdefgh"[index], labels={ZONE: zone} if zone else {}) for index, zone in enumerate(names)))


def place(world: World, *names: str, app: str = "web", **more: Any) -> None:
    """A pod with this app on each of the nodes."""
    for name in names:
        world.place(name, labels={"app": app}, **more)


def refusals(pod: PodClass, handle: Handle, columns: Columns, plugin: Any = FILTER) -> list[Refusal | None]:
    """Row by row, and the same for all rows together."""
    rows = columns.all_rows()
    state = plugin.prepare(pod, handle)
    if state is None:
        return [None] * rows.shape[0]
    passed = plugin.feasible(state, columns, rows)
    assert [plugin.feasible_row(state, columns, row) for row in rows.tolist()] == passed.tolist()
    found: list[Refusal | None] = []
    total: dict[str, int] = {}
    for row, passes in zip(rows.tolist(), passed.tolist(), strict=True):
        if passes:
            found.append(None)
            continue
        alone = np.array((row,), dtype=np.intp)
        reasons = plugin.reasons(state, columns, alone)
        found.append(Refusal(tuple(reasons), not plugin.curable(state, columns, alone)[0]))
        for reason in reasons:
            total[reason] = total.get(reason, 0) + 1
    assert plugin.reasons(state, columns, rows[~passed]) == total
    return found


def ranks(
    pod: PodClass, handle: Handle, columns: Columns, feasible: list[int], plugin: Any = SCORE
) -> list[int] | None:
    state = plugin.prepare(pod, handle)
    if state is None:
        return None
    answers: list[int] = plugin.normalize(plugin.score(state, columns, np.array(feasible, dtype=np.intp))).tolist()
    return answers


def refused(world: World, *constraints: dict[str, Any], **more: Any) -> list[str]:
    pod = waiting(world, *constraints, **more)
    return ["".join(each.reasons) if each else "" for each in refusals(pod.cls, world.handle, world.columns)]


@st.composite
def clusters(draw: st.DrawFn, *about: str) -> Drawn:
    """About subjects of `tests.decisions.clusters`; by default a pod with constraints, and nodes that it cannot use."""

    def drawn(length: int) -> bytes:
        return draw(st.binary(min_size=length, max_size=length))

    found = drawn_about(frozenset(about or ("spread", "nodes", "taints")), Choices(drawn), drawn)
    found.pending["spec"].pop("nodeName", None)  # type: ignore[attr-defined]
    return found
