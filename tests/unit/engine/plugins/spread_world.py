"""Clusters, pods and constraints for tests of PodTopologySpread, and its answers in the plain reading's form."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.plugins.pod_topology_spread import (
    PodTopologySpread,
    PodTopologySpreadScore,
)
from agent_scheduler.engine.state.columns import Columns
from agent_scheduler.engine.state.podclass import PodClass
from tests.decisions.plain import Obj, Refusal
from tests.unit.engine.world import World, node, pod_json, read_pod

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
FILTER, SCORE = PodTopologySpread(), PodTopologySpreadScore()


def constraint(key: str = ZONE, app: str = "web", *, skew: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


def pod_with(*constraints: dict[str, Any], app: str = "web", **spec: Any) -> dict[str, Any]:
    body = pod_json(topologySpreadConstraints=list(constraints), **spec)
    body["metadata"]["labels"] = {"app": app}
    return body


def zones(*names: str) -> World:
    """Nodes a, b, c... in these zones; without the label where the name is empty."""
    return World(
        *(node("abcdefgh"[index], labels={ZONE: zone} if zone else {}) for index, zone in enumerate(names))
    )


def place(world: World, name: str, *, app: str = "web", **metadata: Any) -> None:
    body = pod_json()
    body["metadata"] |= {"labels": {"app": app}, **metadata}
    world.ledger.set_pod(read_pod(body, world.classes), name)


def refusals(
    pod: PodClass, handle: Handle, columns: Columns, plugin: PodTopologySpread = FILTER
) -> list[Refusal | None]:
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
    pod: PodClass,
    handle: Handle,
    columns: Columns,
    feasible: list[int],
    plugin: PodTopologySpreadScore = SCORE,
) -> list[int] | None:
    state = plugin.prepare(pod, handle)
    if state is None:
        return None
    answers: list[int] = plugin.normalize(
        plugin.score(state, columns, np.array(feasible, dtype=np.intp))
    ).tolist()
    return answers


def refused(world: World, body: dict[str, Any]) -> list[str]:
    pod, handle = read_pod(body, world.classes), Handle(world.ledger)
    return ["".join(each.reasons) if each else "" for each in refusals(pod.cls, handle, world.ledger.columns)]


KEYS = st.sampled_from([ZONE, HOSTNAME, "rack"])
LABELS = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from(["web", "db"]), "version": st.sampled_from(["1", "2"])}
)
SELECTORS = st.one_of(
    st.sampled_from(
        [
            None,
            {},
            {"matchLabels": {"app": "web"}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
            {"matchExpressions": [{"key": "version", "operator": "NotIn", "values": ["1"]}]},
            {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
        ]
    )
)
CONSTRAINTS = st.fixed_dictionaries(
    {
        "topologyKey": KEYS,
        "maxSkew": st.integers(1, 3),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": SELECTORS,
    },
    optional={
        "minDomains": st.integers(1, 4),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore"]),
        "matchLabelKeys": st.lists(st.sampled_from(["version", "missing"]), max_size=2, unique=True),
    },
).filter(lambda each: each["labelSelector"] is not None or not each.get("matchLabelKeys"))
TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["k1", "k2"]),
            "effect": st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]),
        }
    ),
    max_size=1,
)
AFFINITIES = st.sampled_from(
    [
        {},
        {"nodeSelector": {"disk": "ssd"}},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["hdd"]}]}
                        ]
                    }
                }
            }
        },
    ]
)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Obj, ...]:
    return tuple(
        {
            "metadata": {
                "name": f"n{index}",
                "uid": f"n{index}",
                "labels": {
                    **draw(st.sampled_from([{HOSTNAME: f"n{index}"}, {HOSTNAME: f"n{index}"}, {}])),
                    **draw(
                        st.dictionaries(st.sampled_from([ZONE, "rack"]), st.sampled_from(["x", "y", "z"]))
                    ),
                    **draw(st.sampled_from([{}, {"disk": "ssd"}, {"disk": "hdd"}])),
                },
            },
            "spec": {"taints": draw(TAINTS)},
            "status": {"allocatable": {"pods": "110"}},
        }
        for index in range(draw(st.integers(1, 6)))
    )


@st.composite
def placed(draw: st.DrawFn) -> Obj:
    body = pod_json(nodeName=f"n{draw(st.integers(0, 5))}")
    body["metadata"] |= {
        "labels": draw(LABELS),
        "namespace": draw(st.sampled_from(["default", "default", "other"])),
        **draw(st.sampled_from([{}, {}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}])),
    }
    return body


@st.composite
def pending(draw: st.DrawFn) -> Obj:
    body = pod_json(
        topologySpreadConstraints=draw(st.lists(CONSTRAINTS, min_size=1, max_size=3)),
        tolerations=draw(st.sampled_from([[], [{"key": "k1", "operator": "Exists"}]])),
        **draw(AFFINITIES),
    )
    body["metadata"]["labels"] = draw(LABELS)
    return body
