"""Thinking rows otherwise changes nothing, and while it lasts the columns are what they would be."""

from __future__ import annotations

import gc
import operator
import weakref
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent_scheduler.engine.decide import decide as decide_module
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.trial import START, Mark, Trial, WhatIf
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.gpus import ANNOTATION as GPU_INDEX
from agent_scheduler.engine.state.gpus import RESOURCE as GPU
from agent_scheduler.engine.state.gpus import text_of
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.podterms import PodMatch
from apimachinery.labels import LabelSelector, Requirement
from tests.support.engine import SPREAD, World, contents, node
from tests.support.examples import FACTOR, examples, in_time
from tests.support.terms import beside, pod_term

from .changing import BURSTS
from .changing import Cluster as ChangingCluster
from .live import Live, Obj, Objects

NODES = ("a", "b")

#: CPU, host port, app, the app that it stays away from, and thousandths of GPUs with the devices that it was given.
Shape = tuple[int, int, str, str, tuple[int, str]]


class Cluster(World):
    """Two nodes, and somebody who counts the pods of app a."""

    def __init__(self) -> None:
        super().__init__(node("a", extended={"example.com/gpu": "4", GPU: "3000"}), node("b"))
        requirement = Requirement("app", "In", frozenset(("a",)))
        match = PodMatch(frozenset(("default",)), None, LabelSelector((requirement,)))
        self.kind = self.snapshot.handle.count([match])

    def make(self, shape: Shape, uid: str, node_name: str = "") -> PodInfo:
        cpu, port, app, repels, (milli, devices) = shape
        about: dict[str, Any] = {"requests": {"cpu": f"{cpu}m"} | ({GPU: f"{milli}"} if milli else {})}
        about |= {"labels": {"app": app}, "annotations": {GPU_INDEX: devices} if devices else {}}
        if repels:
            about["affinity"] = beside("podAntiAffinity", pod_term(repels))
        return self.pod(uid, uid=uid, ports=[port] if port else [], nodeName=node_name or None, **about)

    def run_all(self, placed: list[tuple[Shape, str]]) -> list[tuple[PodInfo, str]]:
        """The pods, each with its node, when the ledger and the snapshot know of them."""
        pods = [(self.make(shape, f"p{number}", name), name) for number, (shape, name) in enumerate(placed)]
        for pod, name in pods:
            self.ledger.set_pod(pod, name)
        self.snapshot.refresh()
        return pods


shapes = st.tuples(
    st.sampled_from([0, 100, 500]),
    st.sampled_from([0, 0, 80, 81]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "", "a", "b"]),
    # Others may have put too much on one, or have named none.
    st.sampled_from([(0, ""), (0, ""), (300, "0"), (700, "0"), (700, "1"), (700, ""), (1000, "2"), (2000, "1,2")]),
)


@examples(200)
@given(st.lists(st.tuples(shapes, st.sampled_from(NODES)), max_size=6), st.data())
def test_columns_are_as_if_pods_had_left_and_come_and_then_as_they_were(
    placed: list[tuple[Shape, str]], data: st.DataObject
) -> None:
    world = Cluster()
    pods = world.run_all(placed)
    live = data.draw(st.booleans())
    columns = world.ledger.columns if live else world.snapshot.columns
    before = contents(columns)
    name = data.draw(st.sampled_from(NODES))
    here = [pod for pod, where in pods if where == name]
    gone = [pod for pod in here if data.draw(st.booleans())]
    come = [world.make(shape, f"new{number}") for number, shape in enumerate(data.draw(st.lists(shapes, max_size=3)))]
    with WhatIf(world.ledger, columns) as there:
        for pod in gone:
            there.remove(pod, world.ledger.rows[name])
        for pod in come:
            there.place(pod, world.ledger.rows[name])
        back = [gone.pop()] if gone and data.draw(st.booleans()) else []
        for pod in back:
            there.place(pod, world.ledger.rows[name])
        seen = contents(columns)

    other = Cluster()
    for pod, where in pods:
        if pod not in [*gone, *back]:
            other.ledger.set_pod(pod, where)
    for pod in come:
        other.ledger.assume(pod, other.ledger.rows[name])
    for pod in back:
        other.ledger.set_pod(pod, name)
    other.snapshot.refresh()
    would_be = contents(other.snapshot.columns)
    for key in ("usage", "requested", "ports", "gpus"):
        assert seen[key] == would_be[key]
    assert list(seen["matching"].values()) == list(would_be["matching"].values())
    assert {term: counts for term, counts in seen["terms"].items() if any(counts)} == would_be["terms"]
    assert seen["absent"] == {pod.uid for pod in gone}

    assert contents(columns) == before
    assert contradictions(world.ledger) == []


@examples(300)
@given(
    st.lists(st.tuples(shapes, st.sampled_from(NODES)), max_size=4),
    st.lists(st.sampled_from([300, 700, 1000, 2000]), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.sampled_from(["change", "change", "change", "mark", "back"]), st.integers(0, 8)), max_size=14
    ),
    st.booleans(),
)
# One that did not fit when it came is on no device, though there is room when it leaves.
@example(
    placed=[],
    amounts=[2000, 2000],
    steps=[("change", 1), ("change", 0), ("change", 1), ("mark", 0), ("change", 0), ("back", 0)],
    tried=False,
)
def test_undone_to_any_mark_gpus_are_what_they_were_there(
    placed: list[tuple[Shape, str]], amounts: list[int], steps: list[tuple[str, int]], tried: bool
) -> None:
    """Pods come to a node whether they fit or not, and leave it again in any order."""
    world = Cluster()
    there = world.run_all(placed)
    columns, row = world.snapshot.columns, world.ledger.rows["a"]
    new = [world.make((0, 0, "a", "", (milli, "")), f"new{at}") for at, milli in enumerate(amounts)]
    pods = [*new, *(pod for pod, name in there if name == "a")]
    standing = {pod.uid for pod in pods[len(new) :]}
    start = contents(columns)
    marks: list[tuple[Mark, set[str], dict[str, Any]]] = []
    what_if = Trial(world.ledger, world.snapshot, {}, cast(Any, None)) if tried else WhatIf(world.ledger, columns)
    for what, number in steps:
        pod = pods[number % len(pods)]
        if what == "mark":
            marks.append((what_if.mark(), set(standing), contents(columns)))
        elif what == "back":
            if marks:
                mark, standing, then = marks.pop(number % len(marks))
                marks = [each for each in marks if each[0] <= mark]
                what_if.rollback(mark)
                assert contents(columns) == then
        elif pod.uid in standing:
            standing.remove(pod.uid)
            what_if.remove(pod, row)
        else:
            standing.add(pod.uid)
            what_if.place(pod, row)
    what_if.rollback(START)
    assert contents(columns) == start


def test_columns_are_as_they_were_after_a_filter_has_raised() -> None:
    world = Cluster()
    pod = world.make((500, 80, "a", "b", (300, "1")), "p", "a")
    world.ledger.set_pod(pod, "a")
    before = contents(world.ledger.columns)
    with pytest.raises(RuntimeError), WhatIf(world.ledger, world.ledger.columns) as there:
        there.remove(pod, 0)
        raise RuntimeError
    assert contents(world.ledger.columns) == before


def test_a_resource_that_a_node_brings_meanwhile_changes_no_amount_of_another() -> None:
    world = World(node("a"))
    snapshot = world.snapshot
    trial = Trial(world.ledger, snapshot, {}, cast(Any, None))
    before = contents(snapshot.columns)
    pod = world.pod(requests={"cpu": "1", "memory": "1Gi", "example.com/new": "1"})
    world.ledger.set_node(node("b", extended={"example.com/new": "1"}))
    trial.place(pod, 0)
    assert snapshot.columns.taken[0] == (1000, 2**30, 0, 1) * 2
    trial.remove(pod, 0)
    assert contents(snapshot.columns) == before


def test_the_usage_that_filters_read_can_be_replaced_and_put_back() -> None:
    world = Cluster()
    world.place("a", requests={"cpu": "1"})
    columns = world.ledger.columns
    usage = columns.usage
    columns.set_usage(np.zeros_like(usage))
    assert not columns.requested.any() and not columns.scored.any()
    columns.set_usage(usage)
    assert columns.requested[0, 0] == columns.scored[0, 0] == 1000


def share(world: World, amount: int) -> PodInfo:
    return world.pod(requests={GPU: str(amount)})


def test_a_pod_that_leaves_gives_its_devices_back_and_takes_them_again() -> None:
    world = World(node("a", extended={GPU: "2000"}))
    first, second = share(world, 700), share(world, 400)
    world.ledger.set_pod(replace(first, node_name="a", gpus=(1,)), "a")
    columns = world.ledger.columns
    with WhatIf(world.ledger, columns) as there:
        there.remove(first, 0)
        assert columns.gpus[0] == (1000, 1000)
        assert there.gpus_now(0) == (1000, 300)
        there.place(second, 0)
        assert columns.gpus[0] == (600, 1000)
        there.place(first, 0)
        assert columns.gpus[0] == (600, 300) == there.gpus_now(0)
        there.remove(second, 0)
        assert columns.gpus[0] == (1000, 300)
    assert columns.gpus[0] == (1000, 300) and not columns.hypothetical_gpus


def test_a_pod_that_is_placed_while_it_is_thought_of_counts_once() -> None:
    world = World(node("a", extended={GPU: "2000"}))
    snapshot = world.snapshot
    trial = Trial(world.ledger, snapshot, {}, cast(Any, None))
    first, second, third = (share(world, 400) for _ in range(3))
    trial.reset()
    trial.place(first, 0)
    world.ledger.assume(first, 0)
    trial.place(second, 0)
    assert snapshot.columns.gpus[0] == (200, 1000) and snapshot.columns.gpu_most[0] == 1000
    trial.place(third, 0)
    assert snapshot.columns.gpus[0] == (200, 600)
    trial.remove(first, 0)
    assert snapshot.columns.gpus[0] == (600, 600)
    trial.rollback(START)
    assert snapshot.columns.gpus[0] == (1000, 1000)
    trial.reset()
    assert snapshot.columns.gpus[0] == (600, 1000)


# ---- a trial: as if its pods were really where it has them


def test_of_the_views_of_many_classes_only_those_that_are_kept_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide_module, "VIEWS_KEPT", 2)
    world = Cluster()
    name = "agent-scheduler"
    trial = Trial(world.ledger, world.snapshot, {name: ClassViews(SPREAD, world.snapshot)}, cast(Any, None))
    pods = [world.make((100 + number // 2, 0, "a", "", (0, "")), f"p{number}") for number in range(20)]
    held: list[weakref.ref[ClassView]] = []
    for pod, view in zip(pods, trial.views_of(pods), strict=True):
        assert view.pod is pod.cls
        held.append(weakref.ref(view))
        gc.collect()
        assert len({id(found) for each in held if (found := each()) is not None}) <= 2
    assert len({id(each) for each in held}) == 10


class Tried(Live):
    """An engine in which a trial goes on."""

    def __init__(self, objects: Objects, rows: Sequence[str | None]) -> None:
        super().__init__(objects, rows)
        self.trial = Trial(self.ledger, self.snapshot, self.views_of, cast(Any, None))

    def view_of(self, pod: PodInfo) -> ClassView:
        return self.trial.view_of(pod)


class Changing(ChangingCluster):
    """A cluster that changes between trials, and in one of two also while one goes on."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.live: Tried = Tried(self.objects, self.live.names_of_rows)

    def try_out(self) -> None:
        """A trial that begins, places and evicts pods, goes back some way and on again, and is undone."""
        rng, live, trial = self._random, self.live, self.live.trial
        for _ in range(rng.choice(BURSTS)):
            self._change()
        trial.reset()
        before = contents(live.snapshot.columns)
        pods = dict(self.objects["pods"])
        marks: list[tuple[Mark, dict[str, Obj], dict[str, Any]]] = []
        changes = rng.random() < 0.5
        for _ in range(rng.choice((1, 5, 20))):
            match rng.randrange(6):
                case 0:
                    marks.append((trial.mark(), dict(pods), contents(live.snapshot.columns)))
                case 1 if marks:
                    mark, pods, then = marks.pop(rng.randrange(len(marks)))
                    marks = [each for each in marks if each[0] <= mark]
                    trial.rollback(mark)
                    if not changes:
                        same_contents(contents(live.snapshot.columns), then)
                case 2:
                    self._evict(pods)
                case _:
                    self._place(pods)
            if changes:
                self._bind(rng.choice(self._waiting))
            else:
                self._compare(pods)
        trial.rollback(START)
        same_contents(contents(live.snapshot.columns), before)
        trial.reset()
        assert contradictions(live.ledger) == []
        pods = dict(self.objects["pods"])
        self._compare(pods)

    def _bind(self, body: Obj) -> bool:
        """Somebody else's pod is bound meanwhile, or goes."""
        if self._random.random() < 0.5:
            self._run_pod()
        else:
            self._end_pod()
        return True

    def _place(self, pods: dict[str, Obj]) -> None:
        body = self._called(self._random.choice(self._waiting))
        pod = self.live.read(body)
        view = self.live.trial.view_of(pod)
        rows = view.feasible_rows(self.live.snapshot.columns).tolist()
        if not rows or pod.claims or pod.cls.volumes is not None:
            return
        row = self._random.choice(rows)
        assert self.live.trial.try_place(pod, row, view)
        columns = self.live.snapshot.columns
        node = columns.nodes[row]
        assert node is not None
        given = columns.hypothetical_gpus.get(row, {}).get(pod.uid, ())
        pods[pod.uid] = {
            "metadata": {**body["metadata"], "annotations": {GPU_INDEX: text_of(given)}},
            "spec": {**body["spec"], "nodeName": node.name},
        }

    def _evict(self, pods: dict[str, Obj]) -> None:
        """One that is placed, or that the trial has placed."""
        rows = self.live.ledger.rows
        here = [uid for uid, body in pods.items() if body["spec"]["nodeName"] in rows]
        if here:
            body = pods.pop(self._random.choice(here))
            self.live.trial.remove(self.live.read(body), rows[body["spec"]["nodeName"]])

    def _compare(self, pods: dict[str, Obj]) -> None:
        fresh = Live({**self.objects, "pods": pods}, self.live.names_of_rows)
        for body in self._random.sample(self._waiting, 3):
            assert operator.eq(*self._ask(fresh, body)), body


def same_contents(now: dict[str, Any], then: dict[str, Any]) -> None:
    """Columns of kinds come and go with the views that ask for them, and new ones count what was bound since."""
    for key in ("matching", "terms"):
        both = now[key].keys() & then[key].keys()
        now[key], then[key] = ({each: counts[key][each] for each in both} for counts in (now, then))
    assert now == then


@pytest.mark.promise("S29")
@in_time
@pytest.mark.drawn
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(1, 5))])
def test_a_trial_answers_as_an_engine_in_which_its_pods_are_placed_and_leaves_no_trace(seed: int) -> None:
    for number in range(FACTOR):
        cluster = Changing(seed + 1000 * number)
        for _ in range(8):
            cluster.try_out()
