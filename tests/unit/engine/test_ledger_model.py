"""The ledger, its snapshots and what is decided on them, against a picture that is added up anew at every step."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent_scheduler.engine import ledger as ledger_module
from agent_scheduler.engine.decide import decide as decide_module
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import ClassViews, ConflictPolicy, decide, judge
from agent_scheduler.engine.decide.explain import explain_without
from agent_scheduler.engine.decide.ranking import REFUSED, best_of
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state import columns as columns_module
from agent_scheduler.engine.state.columns import Columns
from agent_scheduler.engine.state.gpus import ANNOTATION as GPU_INDEX
from agent_scheduler.engine.state.gpus import WHOLE, indices_in
from agent_scheduler.engine.state.interns import BASE_RESOURCES
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_info
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects import wire
from tests.support.engine import PACK, SPREAD, contents, read_pod
from tests.support.handles import handle_of
from tests.support.ledger_model import NODE_SHAPES, POD_SHAPES, PODS, TAKES, Json, Picture, Placed, Row, node_json
from tests.support.stateful import model_test

pytestmark = pytest.mark.promise("S7")

PROFILES = [PACK, SPREAD]
NAMES = [f"n{index}" for index in range(5)]
NAME = st.sampled_from(NAMES)
NODE_SHAPE = st.integers(0, len(NODE_SHAPES) - 1)
POD_SHAPE = st.integers(0, len(POD_SHAPES) - 1)
ANY = st.integers(0, 11)
WHICH = st.integers(0, 1)


def read_node(body: Json) -> NodeInfo:
    return node_info(msgspec.convert(body, wire.Node))


def _apart(chosen: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Rows, and by how much their scores are below the first."""
    return [(row, chosen[0][1] - score) for row, score in chosen]


def row_of(columns: Columns, row: int) -> Row:
    """What `columns` say of one row, in the picture's words."""
    node = columns.nodes[row]
    assert node is not None and columns.present[row]
    names = list(columns.interns.resources)[: columns.allocatable.shape[0]]

    def amounts(column: Any) -> dict[str, int]:
        return {name: amount for name, amount in zip(names, column.tolist(), strict=True) if amount}

    # A row's plain numbers and its part of the arrays are one and the same.
    assert list(columns.offers[row]) == columns.allocatable[:, row].tolist()
    assert list(columns.taken[row]) == columns.usage[:, :, row].reshape(-1).tolist()
    labels = dict(node.labels)
    for key, values in columns._labels.items():
        seen = values.item(row)
        assert (columns.interns.values[seen - 1] if seen else None) == labels.get(key), f"label {key}"
    return Row(
        node.uid,
        amounts(columns.allocatable[:, row]),
        amounts(columns.requested[:, row]),
        amounts(columns.scored[:, row]),
        {port for _, _, port in columns.ports.get(row, ())},
        labels,
        [(taint.key, taint.effect) for taint in columns.interns.taints[columns.taints.item(row)]],
        bool(columns.unschedulable[row]),
        list(columns.gpus.get(row, ())),
    )


class Watched:
    """A snapshot, its views, and what the picture was when it was last refreshed."""

    def __init__(self, ledger: Ledger, profile: int) -> None:
        self.snapshot = Snapshot(ledger, handle_of(ledger))
        self.views = ClassViews(PROFILES[profile], self.snapshot)
        self.picture = Picture()
        self.frozen = contents(self.snapshot.columns)
        #: Shapes whose views were asked for, in that order.
        self.asked: list[int] = []
        #: Row -> how many pods had been assumed there, ever.
        self.assumes: Counter[int] = Counter()


class LedgerMachine(RuleBasedStateMachine):
    """Any order of news, assumptions and refreshes."""

    @initialize(profile=WHICH)
    def start(self, profile: int) -> None:
        # Small bounds: logs overflow, views and label columns are dropped and made again within a few steps.
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(ledger_module, "_LOG_LIMIT", 12)
        self.patches.setattr(decide_module, "VIEWS_KEPT", 5)
        self.patches.setattr(columns_module, "COLUMNS_KEPT", 2)
        self.ledger = Ledger()
        self.classes = PodClasses()
        self.picture = Picture()
        self.watched = [Watched(self.ledger, profile), Watched(self.ledger, 1 - profile)]
        self.uids: list[str] = []
        self.numbers = itertools.count()
        #: Resources that some node has offered, ever.
        self.offered = set(BASE_RESOURCES)
        self.newest_version = 0
        self.before: dict[str, tuple[int, Row]] = {}
        self.assumes: Counter[int] = Counter()
        for name in NAMES[:2]:
            self.set_node(name, 0, False)

    def teardown(self) -> None:
        if hasattr(self, "patches"):
            self.patches.undo()

    # -- nodes -------------------------------------------------------------------------------------------

    @rule(name=NAME, shape=NODE_SHAPE, recreated=st.booleans())
    def set_node(self, name: str, shape: int, recreated: bool) -> None:
        old = self.picture.nodes.get(name)
        if recreated or old is None:
            generation = next(self.numbers)
        else:
            generation = int(old["metadata"]["uid"].removeprefix(f"{name}-"))
        body = node_json(name, shape, generation)
        sequence = self.ledger.sequence
        assert self.ledger.set_node(read_node(body)) is (body != old)
        if body == old:
            assert self.ledger.sequence == sequence, "a heartbeat is no change"
        self.picture.nodes[name] = body
        self.offered |= body["status"]["allocatable"].keys()

    @rule(name=NAME)
    def remove_node(self, name: str) -> None:
        known = self.picture.nodes.pop(name, None) is not None
        assert self.ledger.remove_node(name) is known
        assert self.ledger.node(name) is None

    @rule(size=st.sampled_from([1, 2, 3, 70]))
    def a_rack_comes_and_goes(self, size: int) -> None:
        if self.ledger.columns.capacity > 64:
            size = 1
        for number in range(size):
            self.ledger.set_node(read_node(node_json(f"rack-{number}", 0)))
        for number in range(size):
            assert self.ledger.remove_node(f"rack-{number}")

    # -- pods --------------------------------------------------------------------------------------------

    def cls(self, shape: int) -> PodClass:
        return read_pod(PODS[shape], self.classes).cls

    def pod(self, uid: str, shape: int, node: str = "") -> PodInfo:
        return msgspec.structs.replace(read_pod(PODS[shape], self.classes), uid=uid, node_name=node)

    def new_uid(self) -> str:
        uid = f"u{next(self.numbers)}"
        self.uids = [*self.uids[-11:], uid]
        return uid

    def known_uid(self, pick: int) -> str:
        """Any pod of late, gone ones included; a stranger if there was none."""
        return self.uids[pick % len(self.uids)] if self.uids else "stranger"

    @rule(shape=POD_SHAPE, node=st.sampled_from([*NAMES, "elsewhere"]))
    def a_pod_is_bound(self, shape: int, node: str) -> None:
        uid = self.new_uid()
        assert self.ledger.set_pod(self.pod(uid, shape, node), node)
        self.picture.pods[uid] = Placed(node, shape, False)

    @rule(pick=ANY, devices=st.sampled_from(["0", "1", "0,1"]))
    def a_known_pod_is_seen_on_devices(self, pick: int, devices: str) -> None:
        """Which may be others than it was given, and may be full."""
        uid = self.known_uid(pick)
        placed = self.picture.pods.get(uid)
        if placed is None or not read_pod(PODS[placed.shape], self.classes).cls.gpu:
            return
        pod = msgspec.structs.replace(self.pod(uid, placed.shape, placed.node), gpus=indices_in(devices, 2 * WHOLE))
        assert self.ledger.set_pod(pod, placed.node) is (placed.devices != devices)
        self.picture.pods[uid] = placed._replace(assumed=False, devices=devices)

    @rule(pick=ANY, shape=st.none() | POD_SHAPE, node=st.none() | NAME)
    def a_known_pod_is_seen(self, pick: int, shape: int | None, node: str | None) -> None:
        uid = self.known_uid(pick)
        placed = self.picture.pods.get(uid)
        if placed is None:
            return
        seen = Placed(placed.node if node is None else node, placed.shape if shape is None else shape, False)
        sequence = self.ledger.sequence
        changed = self.ledger.set_pod(self.pod(uid, seen.shape, seen.node), seen.node)
        # Whether it tolerates a taint, or prefers a zone, no column can tell.
        moved = (seen.node, TAKES[seen.shape]) != (placed.node, TAKES[placed.shape])
        assert changed is moved
        if not moved:
            seen = seen._replace(devices=placed.devices)
        assert changed or self.ledger.sequence == sequence
        self.picture.pods[uid] = seen

    def assumed(self, shape: int, name: str) -> None:
        row, uid = self.ledger.rows[name], self.new_uid()
        devices = self.picture.devices(name, shape)
        self.ledger.assume(self.pod(uid, shape), row)
        assert self.ledger.bound_with.get(uid, {}) == ({GPU_INDEX: devices} if devices else {})
        self.assumes[row] += 1
        self.picture.pods[uid] = Placed(name, shape, True, devices)

    @rule(shape=POD_SHAPE, name=NAME)
    def assume(self, shape: int, name: str) -> None:
        if name in self.picture.nodes:
            self.assumed(shape, name)

    @rule(pick=ANY)
    def confirm(self, pick: int) -> None:
        uid = self.known_uid(pick)
        sequence = self.ledger.sequence
        self.ledger.confirm(uid)
        assert self.ledger.sequence == sequence
        if uid in self.picture.pods:
            self.picture.pods[uid] = self.picture.pods[uid]._replace(assumed=False)

    @rule(pick=ANY)
    def forget(self, pick: int) -> None:
        uid = self.known_uid(pick)
        placed = self.picture.pods.get(uid)
        expected = placed.node if placed is not None and placed.assumed else None
        assert self.ledger.forget(uid) == expected
        if expected is not None:
            del self.picture.pods[uid]

    @rule(pick=ANY)
    def remove_pod(self, pick: int) -> None:
        uid = self.known_uid(pick)
        removed, placed = self.ledger.remove_pod(uid), self.picture.pods.pop(uid, None)
        assert (removed and removed.node_name) == (placed and placed.node)

    # -- snapshots and what is decided on them -----------------------------------------------------------

    @rule(which=WHICH, forgets=st.booleans())
    def refresh(self, which: int, forgets: bool) -> None:
        watched = self.watched[which]
        snapshot, columns = watched.snapshot, watched.snapshot.columns
        behind = snapshot.sequence != self.ledger.sequence
        assert snapshot.refresh() is behind
        assert not snapshot.refresh()
        watched.picture = self.picture.copy()
        watched.assumes = self.assumes.copy()
        watched.frozen = contents(columns)
        for name, expected in self.rows(watched.picture).items():
            row = self.ledger.rows[name]
            assert row_of(columns, row) == expected
            assert columns.version[row] == self.ledger.columns.version[row]
        assert int(columns.present.sum()) == len(watched.picture.nodes)
        if forgets:
            # As its log does when it overflows: views that are behind cannot be told what they missed.
            snapshot.touched.forget(snapshot.touched.end)
            for shape in watched.asked[-4:]:
                self.view(watched, shape)

    @rule(which=WHICH, key=st.sampled_from(["zone", "disk", "rack"]))
    def a_selector_asks_for_a_label(self, which: int, key: str) -> None:
        """Of the ledger as of a snapshot; from then on the column is kept in step, which `row_of` looks at."""
        for columns in (self.ledger.columns, self.watched[which].snapshot.columns):
            columns.label(key)

    def view(self, watched: Watched, shape: int) -> ClassView:
        """The class's view. One that was kept answers like one made now, and both like the rules read plainly."""
        watched.asked.append(shape)
        cls = self.cls(shape)
        view = watched.views.of(cls)
        columns = watched.snapshot.columns
        fresh = ClassView(watched.views.profile, cls, watched.snapshot)
        fresh.refresh(watched.snapshot)
        rows = view.feasible_rows(columns)
        found = {node.name for row in rows.tolist() if (node := columns.nodes[row]) is not None}
        assert found == watched.picture.feasible(shape)
        kept, new = view.ranked(columns), fresh.ranked(columns)
        assert np.array_equal(np.flatnonzero(kept != REFUSED), rows)
        assert np.array_equal(np.flatnonzero(new != REFUSED), rows)
        # Scores count up to a constant that all nodes share.
        assert len(set((kept[rows] - new[rows]).tolist())) <= 1
        for offset in (0, columns.size // 2):
            expected = _apart(best_of(new.copy(), 2, offset))
            assert _apart(view.best(columns, 2, offset)) == expected
            # A view's first answer may come about in another way than all others.
            first = ClassView(watched.views.profile, cls, watched.snapshot)
            first.refresh(watched.snapshot)
            assert [_apart(first.best(columns, 2, offset)) for _ in range(2)] == [expected, expected]
        return view

    @rule(which=WHICH, shape=POD_SHAPE, late=st.booleans())
    def ask(self, which: int, shape: int, late: bool) -> None:
        if not late:
            self.refresh(which, False)
        self.view(self.watched[which], shape)

    @rule(which=WHICH, pick=ANY)
    def explain_a_placed_pod(self, which: int, pick: int) -> None:
        uid = self.known_uid(pick)
        placed = self.picture.pods.get(uid)
        if placed is None or placed.node not in self.ledger.rows:
            return
        self.refresh(which, False)
        watched = self.watched[which]
        without = watched.picture.copy()
        del without.pods[uid]
        pod, row = self.ledger.placements[uid].pod, self.ledger.rows[placed.node]
        assert isinstance(pod, PodInfo)
        found = explain_without(pod, row, watched.views.profile, self.ledger, watched.snapshot, (row,))
        feasible = without.feasible(placed.shape)
        assert (found.nodes, found.feasible) == (len(without.nodes), len(feasible))
        assert {each.node for each in found.best} <= feasible
        assert any(each.node == placed.node for each in found.best) is (placed.node in feasible)

    @rule(
        which=WHICH,
        shape=POD_SHAPE,
        policy=st.sampled_from(ConflictPolicy),
        count=st.integers(1, 3),
        offset=st.integers(0, 4),
        late=st.booleans(),
    )
    def decide_judge_assume(
        self, which: int, shape: int, policy: ConflictPolicy, count: int, offset: int, late: bool
    ) -> None:
        watched = self.watched[which]
        if not late:
            self.refresh(which, False)
        view = self.view(watched, shape)
        decision = decide(view, watched.snapshot.columns, candidates=count, offset=offset)
        if isinstance(decision, Refusal):
            assert decision.message == self.refusal(watched.picture, shape)
            return
        names = [candidate.node_name for candidate in decision.candidates]
        feasible = watched.picture.feasible(shape)
        assert len(set(names)) == len(names) == min(count, len(feasible))
        assert feasible.issuperset(names)
        expected, unfit = None, 0
        for candidate in decision.candidates:
            name, row = candidate.node_name, candidate.row
            used = self.assumes[row] > watched.assumes[row]
            assert self.ledger.used(row, candidate.version) is used
            if self.ledger.rows.get(name) != row or (policy is ConflictPolicy.STRICT and used):
                continue
            if not self.picture.reasons(name, shape)[0]:
                expected = name
                break
            unfit += 1
        verdict = judge(self.ledger, decision.candidates, view.filters, policy)
        assert (verdict.candidate and verdict.candidate.node_name) == expected
        assert verdict.outdated == unfit
        assert verdict.conflicts == (len(names) if expected is None else names.index(expected))
        if expected is not None:
            self.assumed(shape, expected)

    def refusal(self, picture: Picture, shape: int) -> str:
        counts: Counter[str] = Counter()
        for name in picture.nodes:
            counts.update(picture.reasons(name, shape)[1])
        if not picture.nodes:
            return "no nodes available to schedule pods"
        reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
        return f"0/{len(picture.nodes)} nodes are available: {reasons}."

    # -- what always holds -------------------------------------------------------------------------------

    def rows(self, picture: Picture) -> dict[str, Row]:
        """The picture's rows, without resources that no node has ever offered: these have no column."""
        return {
            name: row._replace(
                requested={key: each for key, each in row.requested.items() if key in self.offered},
                scored={key: each for key, each in row.scored.items() if key in self.offered},
            )
            for name, row in picture.rows().items()
        }

    @invariant()
    def columns_equal_the_picture(self) -> None:
        assert contradictions(self.ledger) == []
        assert self.ledger.rows.keys() == self.picture.nodes.keys()
        columns = self.ledger.columns
        after = {}
        for name, expected in self.rows(self.picture).items():
            row = self.ledger.rows[name]
            assert row_of(columns, row) == expected
            after[name] = columns.version[row], expected
        assert int(columns.present.sum()) == len(self.picture.nodes)
        assert columns.ports.keys() <= set(self.ledger.rows.values())
        self.versions_never_repeat(after)

    def versions_never_repeat(self, after: dict[str, tuple[int, Row]]) -> None:
        newest = self.newest_version
        for name, (version, row) in after.items():
            if self.before.get(name) != (version, row):
                assert version > self.newest_version, f"{name} changed and kept, or got again, a version"
                newest = max(newest, version)
        versions = [version for version, _ in after.values()]
        assert len(set(versions)) == len(versions)
        self.newest_version, self.before = newest, after

    @invariant()
    def every_pod_is_where_the_picture_has_it(self) -> None:
        placements = self.ledger.placements
        found = {uid: (each.node_name, each.assumed) for uid, each in placements.items()}
        assert found == {uid: (each.node, each.assumed) for uid, each in self.picture.pods.items()}
        assert self.ledger.assumed == sum(each.assumed for each in self.picture.pods.values())

    @invariant()
    def a_snapshot_has_not_changed_since_its_refresh(self) -> None:
        for watched in self.watched:
            assert contents(watched.snapshot.columns) == watched.frozen


TestLedgerModel = model_test(LedgerMachine, examples=130, steps=55)
