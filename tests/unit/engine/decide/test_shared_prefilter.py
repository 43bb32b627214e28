"""Classes that differ in amounts alone share what was compiled, and no others do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.compiled import every_filter
from agent_scheduler.engine.decide.decide import ClassViews, decide
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.framework.plugin import Depends, Filter, PodRejected, Profile, Score
from agent_scheduler.engine.state.columns import Bools, Columns, Rows
from agent_scheduler.engine.state.podclass import PodClass
from tests.support.engine import PACK, SPREAD, World, node
from tests.support.handles import handle_of
from tests.support.terms import beside, pod_term, preferring, spread, term

IN_ZONE = term("zone", "a")
SPECS: list[dict[str, Any]] = [
    {},
    {"nodeSelector": {"zone": "a"}},
    {"tolerations": [{"operator": "Exists"}]},
    {"topologySpreadConstraints": [spread("zone", "a"), spread("zone", "a", when="ScheduleAnyway")]},
    {"affinity": beside("podAntiAffinity", pod_term("a", "zone"))},
    {"affinity": {"nodeAffinity": preferring((2, IN_ZONE))}},
    {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
]
PROFILES = pytest.mark.parametrize("profile", [PACK, SPREAD])


class WithoutAmounts:
    """A class of which nobody may ask how much it wants."""

    def __init__(self, pod: PodClass) -> None:
        self._pod = pod

    def __getattr__(self, name: str) -> Any:
        if name in ("requests", "nonzero", "extended", "gpu"):
            raise LookupError(name)
        return getattr(self._pod, name)


@PROFILES
def test_plugins_read_amounts_just_if_they_say_so(profile: Profile) -> None:
    world = World(node("n", labels={"zone": "a"}))
    world.place("n", **SPECS[4])
    handle = handle_of(world.ledger)
    read = set()
    plugins: list[Filter | Score] = [*every_filter(profile), *(each.plugin for each in profile.scores)]
    for spec in SPECS:
        pod: Any = WithoutAmounts(handle.class_of(world.pod(requests={"cpu": "1"}, **spec)))
        for plugin in plugins:
            try:
                plugin.prepare(pod, handle)
            except LookupError:
                read.add(plugin)
            except PodRejected:
                pass
    assert read == {plugin for plugin in plugins if plugin.reads_requests}


class Asked(Filter):
    """Counts the classes that it is prepared for. With `of_others` it reads what may change meanwhile."""

    name = "Asked"
    depends = Depends.NODE

    def __init__(self, *, reads_requests: bool = False, of_others: bool = False) -> None:
        self.reads_requests = reads_requests
        self.prepared = 0
        self._of_others = of_others

    def prepare(self, pod: PodClass, handle: Handle) -> str:
        self.prepared += 1
        if self._of_others:
            assert handle.catalogue is not None
        return pod.node_selector.get("zone", "")

    def feasible(self, state: str, nodes: Columns, rows: Rows) -> Bools:
        return np.ones(rows.shape[0], dtype=np.bool_)

    def reasons(self, state: str, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        return {}


def views_with(plugin: Filter, world: World) -> ClassViews:
    return ClassViews(replace(PACK, filters=(*PACK.filters, plugin)), world.snapshot)


def test_what_does_not_read_amounts_is_prepared_once_for_all_classes_that_are_otherwise_the_same() -> None:
    world = World(node("n", labels={"zone": "a"}))
    plugin = Asked()
    views = views_with(plugin, world)
    for cpu in ("1", "2", "3"):
        views.of(world.pod(requests={"cpu": cpu}).cls)
    assert plugin.prepared == 1
    for cpu in ("1", "2", "3"):
        views.of(world.pod(requests={"cpu": cpu}, nodeSelector={"zone": "a"}).cls)
    assert plugin.prepared == 2


@pytest.mark.parametrize("plugin", [Asked(reads_requests=True), Asked(of_others=True)])
def test_what_reads_amounts_or_other_objects_is_prepared_for_each_class(plugin: Asked) -> None:
    world = World(node("n"))
    views = views_with(plugin, world)
    pods = [world.pod(requests={"cpu": cpu}) for cpu in ("1", "2", "3")]
    for pod in pods:
        views.of(pod.cls)
    assert plugin.prepared == 3


def test_a_class_that_is_asked_once_keeps_nothing_of_rows() -> None:
    world = World(*(node(f"n{index}") for index in range(50)))
    snapshot, views, pod = world.snapshot, world.views, world.pod(requests={"cpu": "1"})
    view = views.of(pod.cls)
    first = decide(view, snapshot.columns, candidates=3)
    assert view._rows.ranking.scores.size == 0
    assert decide(views.of(pod.cls), snapshot.columns, candidates=3) == first
    assert view._rows.ranking.scores.size >= 50


@PROFILES
def test_classes_that_share_an_outline_decide_as_if_each_were_alone(profile: Profile) -> None:
    world = World(*(node(f"n{index}", cpu=f"{index + 1}", labels={"zone": "ab"[index % 2]}) for index in range(6)))
    snapshot = world.snapshot
    views = ClassViews(profile, snapshot)
    # Held, as classes live no longer than a pod.
    pods = [world.pod(requests={"cpu": cpu}, **spec) for cpu in ("1", "2500m", "9") for spec in SPECS]
    for pod in pods:
        cls = snapshot.handle.class_of(pod)
        alone = ClassView(profile, cls, snapshot)
        alone.refresh(snapshot)
        kept = views.of(cls)
        assert kept.rejection == alone.rejection
        assert [each.plugin.name for each in kept.filters] == [each.plugin.name for each in alone.filters]
        assert decide(kept, snapshot.columns, candidates=3) == decide(alone, snapshot.columns, candidates=3)
