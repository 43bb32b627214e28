"""An explanation of a pod's placement: every plugin's own answer, and the distance to the nearest nodes.

A cycle stops at the first filter that refuses a node, and the message of a refusal counts only this filter. Here every
filter is asked about every node, so that the answer lists every obstacle before a pod or a node is changed. This costs
a cycle without kept answers, so it serves requests of people only and no scheduling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ..framework.plugin import Profile
from ..ledger import Ledger
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.podinfo import PodInfo
from .classview import ClassView
from .compiled import CompiledFilter
from .snapshot import Snapshot
from .trial import WhatIf

#: The most near misses of a plugin, and the most best nodes, in an explanation.
_SHOWN: Final = 3


class NearMiss(NamedTuple):
    """A node that only one plugin refuses, and what the node lacks."""

    node: str
    missing: str


class PluginAnswer(NamedTuple):
    """The answer of one filter for all nodes.

    `refused` counts the nodes that it refuses, `alone` those that no other filter refuses; `near` has the nearest of
    the latter. `reasons` maps kube-scheduler's reasons to their numbers of nodes.
    """

    plugin: str
    refused: int
    alone: int
    reasons: Mapping[str, int]
    near: tuple[NearMiss, ...]


class RankedNode(NamedTuple):
    """A feasible node, its final score, and each plugin's part of it: its weight times 0 to 100 points."""

    node: str
    total: float
    scores: Mapping[str, float]


class Explanation(NamedTuple):
    """The explanation of a class. `message` is that of the refusal, empty if a node is feasible.

    `plugins` are in the order of asking. `weights` are those of the plugins that tell nodes apart.
    """

    nodes: int
    feasible: int
    message: str
    plugins: tuple[PluginAnswer, ...]
    best: tuple[RankedNode, ...]
    weights: Mapping[str, float]


def explain(view: ClassView, columns: Columns, *, per_point: int = 1, also: Sequence[int] = ()) -> Explanation:
    """Explain a class on the snapshot that `view` was refreshed with. `per_point` is that of the profile.

    `best` has the rows `also`, too, if they are feasible.
    """
    rows = np.flatnonzero(columns.present[: columns.size])
    # A filter that narrows nodes refuses only nodes that its plugin's own filter refuses, too.
    filters = {entry.plugin.name: entry for entry in view.filters}.values()
    answers = [entry.feasible(columns, rows) for entry in filters]
    refusals: Ints = np.zeros(rows.shape[0], dtype=np.int64)
    for each in answers:
        refusals += ~each
    plugins = tuple(
        _answer(entry, columns, rows, passed, refusals)
        for entry, passed in zip(filters, answers, strict=True)
        if not passed.all()
    )
    if view.rejection is not None:
        # The filter rejected the class before any other was compiled.
        everything = rows.shape[0]
        reasons = {view.rejection.message: everything}
        plugins = (PluginAnswer(view.rejection.plugin, everything, everything, reasons, ()),)
    feasible = view.feasible_rows(columns)
    return Explanation(
        nodes=rows.shape[0],
        feasible=feasible.shape[0],
        message="" if feasible.size else view.refusal(columns).message,
        plugins=plugins,
        best=_best(view, columns, feasible, per_point, also),
        weights={name: points(weight, per_point) for name, weight in view.weights.items()},
    )


def explain_without(
    pod: PodInfo, row: int, profile: Profile, ledger: Ledger, snapshot: Snapshot, also: Sequence[int]
) -> Explanation:
    """Explain a pod that is placed on `row` as if it were not, on the ledger as it is; `also` as in `explain`.

    Afterwards `snapshot` is as it was, with `row` touched.
    """
    snapshot.refresh()
    cls = snapshot.handle.class_of(pod)
    # Makes the ledger count what the class needs. Kept until the end, because counts that no class needs are dropped.
    counting = ClassView(profile, cls, snapshot)
    try:
        with WhatIf(ledger, snapshot.columns) as there:
            there.remove(pod, row)
            snapshot.touched.append(row)
            view = ClassView(profile, counting.pod, snapshot)
            view.refresh(snapshot)
            return explain(view, snapshot.columns, per_point=profile.per_point, also=also)
    finally:
        snapshot.touched.append(row)


def _answer(entry: CompiledFilter, columns: Columns, rows: Rows, passed: Bools, refusals: Ints) -> PluginAnswer:
    refused = rows[~passed]
    alone = rows[~passed & (refusals == 1)]
    plugin = entry.plugin
    return PluginAnswer(
        plugin.name,
        refused.shape[0],
        alone.shape[0],
        dict(plugin.reasons(entry.state, columns, refused)),
        tuple(
            NearMiss(_name(columns, row), plugin.missing(entry.state, columns, row))
            for row in plugin.nearest(entry.state, columns, alone)[:_SHOWN].tolist()
        ),
    )


def _best(view: ClassView, columns: Columns, rows: Rows, per_point: int, also: Sequence[int]) -> tuple[RankedNode, ...]:
    if not rows.size:
        return ()
    scores = view.plugin_scores(columns, rows)
    totals: Ints = sum(scores.values(), np.zeros(rows.shape[0], dtype=np.int64))
    order = np.argsort(-totals, kind="stable")
    shown = np.isin(rows[order], also)
    shown[:_SHOWN] = True
    return tuple(
        RankedNode(
            _name(columns, int(rows[index])),
            points(totals.item(index), per_point),
            {name: points(values.item(index), per_point) for name, values in scores.items()},
        )
        for index in order[shown].tolist()
    )


def points(score: int, per_point: int) -> float:
    """Return a score in points: a whole number if it is one."""
    return score // per_point if score % per_point == 0 else round(score / per_point, 2)


def _name(columns: Columns, row: int) -> str:
    node = columns.nodes[row]
    assert node is not None, "a row that is present has a node"
    return node.name


def plain(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as data that encodes as JSON."""
    return {
        "nodes": explanation.nodes,
        "feasible": explanation.feasible,
        "message": explanation.message,
        "plugins": [
            {
                "plugin": each.plugin,
                "refused": each.refused,
                "alone": each.alone,
                "reasons": dict(each.reasons),
                "near": [miss._asdict() for miss in each.near],
            }
            for each in explanation.plugins
        ],
        "best": [ranking._asdict() for ranking in explanation.best],
        "weights": dict(explanation.weights),
    }
