"""Whatever has happened, a plan is the one that is made anew by plain rules."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from agent_scheduler.engine.shards.node_columns import NodeFacts
from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.shards.settings import PlanSettings, Stickiness
from tests.support.stateful import model_test

from .plain import PlainPlanner
from .world import WARM, limit, rate, settings, shard, warm, weighted

pytestmark = pytest.mark.promise("L12")

#: Not in the order of their names, as they come.
NAMES = [f"n{index * 7 % 23}" for index in range(14)]
SHARDS = ["a", "b", "c", "gone"]
GPU = "example.com/gpu"

SETTINGS: list[PlanSettings] = [
    settings(shard("a", rate(0, 0.6)), shard("b", rate(0.7, 1))),
    settings(shard("a", rate(0, 0.6), limit(2, 4)), shard("b", rate(0.7, 1), warm(), limit(2, 5)), leftover="a"),
    settings(shard("b", weighted(3, rate(0.5, 1)), warm(), limit(1, 3)), shard("a", limit(percent=40)), shard("c")),
    settings(
        shard("a", weighted(0, rate(0.1, 0.9)), rate(0, 0.6), limit(3, percent=25)),
        shard("c", weighted(0, warm()), limit(4)),
    ),
    settings(
        shard("c", rate(memory=(0.2, 0.8), cpu=(0, 1)), limit(capacity={"cpu": "10"})),
        shard("a", rate(**{GPU: (0, 0.5)}), limit(3)),
        shard("b", warm(), limit(2, 6, capacity={"cpu": "12", GPU: "2"})),
        leftover="b",
    ),
    PlanSettings(
        shards=(shard("b", limit(4)), shard("a", limit(5)), shard("c", rate(0.4, 0.4))),
        leftover="c",
        stickiness=Stickiness(gain=0, margin=0),
        cordoned_nodes="keep",
        not_ready_nodes="include",
    ),
    PlanSettings(
        shards=(shard("a", warm(), limit(percent=30)), shard("b", rate(0.1, 0.9), limit(0, 5))),
        stickiness=Stickiness(gain=0.5, margin=0.2),
        cordoned_nodes="include",
        not_ready_nodes="keep",
    ),
]

names = st.sampled_from(NAMES)
some_names = st.sets(names)
facts = st.builds(
    NodeFacts,
    name=names,
    labels=st.sampled_from([{}, {}, WARM]),
    allocatable=st.sampled_from(
        [
            {"cpu": 4000, "memory": 1000},
            {"cpu": 2000, "memory": 500},
            {"cpu": 2000, "memory": 1000, GPU: 2},
            {GPU: 1},
            {},
        ]
    ),
    cordoned=st.sampled_from([False, False, False, True]),
    ready=st.sampled_from([True, True, True, False]),
)
requests = st.builds(
    lambda cpu, memory, gpu: {"cpu": cpu, "memory": memory, GPU: gpu},
    st.integers(0, 30).map(lambda steps: steps * 70),
    st.sampled_from([0, 100, 400]),
    st.sampled_from([0, 0, 1]),
)


class PlannerMachine(RuleBasedStateMachine):
    """Beside the planner stands one in which everything is worked out anew."""

    @initialize(made=st.sampled_from(SETTINGS), nodes=st.lists(facts, max_size=20))
    def begin(self, made: PlanSettings, nodes: list[NodeFacts]) -> None:
        self.planner = Planner(made)
        self.plain = PlainPlanner(made)
        for node in nodes:
            self.set_node(node)

    @rule(node=facts)
    def set_node(self, node: NodeFacts) -> None:
        self.planner.set_node(node)
        self.plain.nodes[node.name] = node

    @rule(name=names)
    def delete_node(self, name: str) -> None:
        self.planner.delete_node(name)
        self.plain.nodes.pop(name, None)

    @rule(node=facts, other=facts)
    def a_node_is_gone_for_one_plan(self, node: NodeFacts, other: NodeFacts) -> None:
        """And another one may get its row, while its pods stay known."""
        self.delete_node(node.name)
        self.plan()
        self.set_node(other)
        self.set_node(node)

    @rule(uid=st.integers(0, 30), name=names, wanted=requests)
    def set_pod(self, uid: int, name: str, wanted: dict[str, int]) -> None:
        self.planner.set_pod(str(uid), name, wanted)
        self.plain.pods[str(uid)] = (name, wanted)

    @rule(uid=st.integers(0, 30))
    def delete_pod(self, uid: int) -> None:
        self.planner.delete_pod(str(uid))
        self.plain.pods.pop(str(uid), None)

    @rule(name=st.sampled_from(SHARDS), nodes=some_names)
    def set_current(self, name: str, nodes: set[str]) -> None:
        self.planner.set_current(name, nodes)
        self.plain.specs[name] = frozenset(nodes)

    @rule(name=st.sampled_from(["theirs", "others"]), nodes=st.sets(names, max_size=3))
    def set_foreign(self, name: str, nodes: set[str]) -> None:
        self.planner.set_foreign(name, nodes)
        self.plain.foreign[name] = frozenset(nodes)

    @rule(made=st.sampled_from(SETTINGS))
    def reconfigure(self, made: PlanSettings) -> None:
        self.planner.reconfigure(made)
        self.plain.settings = made

    @rule()
    def plan(self) -> None:
        plan = self.planner.plan()
        wanted = self.plain.plan()
        assert plan.short == self.plain.short
        specs = {name: nodes for name, nodes in self.plain.specs.items() if nodes}
        everything = {name: [] for name in sorted(specs)} | wanted
        assert {name: list(nodes) for name, nodes in plan.desired.items()} == everything
        assert dict(plan.counts) == {name: len(nodes) for name, nodes in everything.items()}
        for name, nodes in everything.items():
            spec = specs.get(name, frozenset())
            assert (name in plan.changed) == (set(nodes) != spec)
            if name in plan.changed:
                assert plan.changes[name].added == tuple(sorted(set(nodes) - spec))
                assert plan.changes[name].removed == tuple(sorted(spec - set(nodes)))
        held = {node for nodes in everything.values() for node in nodes}
        assert set(plan.unassigned) == set(self.plain.nodes) - held
        target = {node: name for name, nodes in everything.items() for node in nodes}
        moves = {move.node: (move.source, move.target) for move in plan.moves}
        known = {*self.plain.nodes, *(node for nodes in specs.values() for node in nodes)}
        assert moves == {
            node: (self.plain.owner(node), target.get(node))
            for node in known
            if self.plain.owner(node) != target.get(node)
        }
        assert len(moves) == plan.moved
        again = Planner(self.plain.settings)
        for node in self.plain.nodes.values():
            again.set_node(node)
        for uid, (name, wanted_by) in self.plain.pods.items():
            again.set_pod(uid, name, wanted_by)
        for name, spec in specs.items():
            again.set_current(name, spec)
        for name, spec in self.plain.foreign.items():
            again.set_foreign(name, spec)
        assert again.plan().moves == plan.moves, "and for the same reasons"
        assert again.plan().unassigned == plan.unassigned

    @rule()
    def carry_out(self) -> None:
        for name, nodes in self.planner.plan().desired.items():
            self.set_current(name, set(nodes))
        settled = self.planner.plan()
        assert not settled.changed
        assert not settled.moves


TestPlanner = model_test(PlannerMachine, examples=150, steps=25)
