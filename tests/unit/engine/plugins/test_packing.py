"""Scores that pack: GPUPacking by the steps of the simulator; Binpack, BestFit and DotProduct by their formulas."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.framework.points import Enabled, PluginSet
from agent_scheduler.engine.plugins.best_fit import BestFit
from agent_scheduler.engine.plugins.binpack import PER_POINT, Binpack
from agent_scheduler.engine.plugins.dot_product import DotProduct
from agent_scheduler.engine.plugins.gpu_packing import GPUPacking
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from tests.support.engine import GPU, World, node
from tests.support.examples import examples


def plain(free: list[int], amount: int) -> int:
    """Devices are begun in the order of what they have left, the least first."""
    if all(left == 1000 for left in free):
        return max(33 - len(free), 0)
    number, each = (1, amount) if amount < 1000 else (amount // 1000, 1000)
    used = [left for left in sorted(free) if left >= each][:number]
    begun = sum(left == 1000 for left in used)
    if begun:
        return max(50 - begun, 33)
    return 100 - sum(left * 100 // 1000 for left in used) // 10


@examples(300)
@given(
    nodes=st.lists(
        st.lists(st.sampled_from([0, 0, 1, 333, 700, 1000]), min_size=1, max_size=6), min_size=1, max_size=4
    ),
    amount=st.sampled_from([1, 300, 667, 999, 1000, 2000, 3000]),
)
def test_scores_are_what_the_steps_say(nodes: list[list[int]], amount: int) -> None:
    world = World()
    for row, used in enumerate(nodes):
        world.ledger.set_node(node(f"n{row}", cpu="64", extended={GPU: f"{1000 * len(used)}"}))
        for device, share in enumerate(used):
            if share:
                world.ledger.assume(world.pod(requests={GPU: f"{share}"}), row, (device,))
    scores = world.scores(world.pod(requests={GPU: f"{amount}"}), GPUPacking())
    assert scores is not None
    for used, score in zip(nodes, scores, strict=True):
        free = [1000 - share for share in used]
        if sum(left >= min(amount, 1000) for left in free) >= amount / 1000:
            assert score == plain(free, amount)
        assert 0 <= score <= 100


@pytest.mark.parametrize(("devices", "score"), [(1, 32), (8, 25), (33, 0), (256, 0)])
def test_of_nodes_that_nobody_uses_the_smaller_is_preferred(devices: int, score: int) -> None:
    world = World(node("a", extended={GPU: f"{devices}000"}))
    assert GPUPacking().score_row(300, world.ledger.columns, 0) == score


def test_it_has_nothing_to_say_about_pods_without_gpus() -> None:
    world = World(node("a", extended={GPU: "2000"}))
    assert world.scores(world.pod(requests={"cpu": "1"}), GPUPacking()) is None


NVIDIA = "nvidia.com/gpu"


def points(world: World, plugin: Binpack, requests: dict[str, str]) -> list[float] | None:
    """In points."""
    found = world.scores(world.pod(requests=requests), plugin)
    return None if found is None else [score / PER_POINT for score in found]


def test_a_score_is_the_part_of_the_node_that_is_taken_with_the_pod() -> None:
    world = World(node("a", cpu="4", memory="8Gi"), node("b", cpu="4", memory="8Gi"))
    world.place("a", requests={"cpu": "2"})
    found = points(world, Binpack({"cpu": 1, "memory": 1}), {"cpu": "1", "memory": "4Gi"})
    assert found == pytest.approx([100 * (3 / 4 + 1 / 2) / 2, 100 * (1 / 4 + 1 / 2) / 2])


def test_resources_count_by_their_weight() -> None:
    world = World(node("a", cpu="4", memory="8Gi"))
    found = points(world, Binpack({"cpu": 3, "memory": 1}), {"cpu": "2", "memory": "8Gi"})
    assert found == pytest.approx([100 * (3 * 0.5 + 1) / 4])


def test_a_resource_without_a_weight_does_not_count() -> None:
    world = World(node("a", cpu="4"))
    assert points(world, Binpack({"cpu": 1, "memory": 0}), {"cpu": "1", "memory": "1Gi"}) == [25.0]
    assert points(world, Binpack({"cpu": 1}), {"memory": "1Gi"}) is None


def test_a_node_that_cannot_hold_the_pod_has_no_score() -> None:
    world = World(node("a", cpu="1"), node("b", cpu="4"))
    assert points(world, Binpack({"cpu": 1}), {"cpu": "2"}) == [0.0, 50.0]


def test_a_resource_that_a_node_does_not_offer_counts_as_nothing_taken() -> None:
    world = World(node("a", cpu="4"), node("b", cpu="4", extended={NVIDIA: "2"}))
    assert points(world, Binpack({"cpu": 1, NVIDIA: 1}), {"cpu": "4", NVIDIA: "1"}) == [50.0, 75.0]


GI = 2**30
UNIT = {"cpu": 1000, "memory": GI, GPU: 1}


def by_formula(
    kind: str, weights: dict[str, int], free: dict[str, int], asked: dict[str, int], most: dict[str, int]
) -> int:
    """In the words of the simulator: vectors are divided by the largest node."""
    there = [name for name in weights if most.get(name)]
    total = sum(weights[name] for name in there)
    found = Fraction(0)
    for name in there:
        left, wanted = Fraction(free[name], most[name]), Fraction(asked[name], most[name])
        term = left - wanted if kind == "BestFit" else left * wanted
        found += term * Fraction(weights[name], total)
    return math.floor(100 * min(max(1 - found, Fraction(0)), Fraction(1)) + Fraction(1, 10**9))


#: CPU, memory and GPUs of a node, and of each how many tenths are taken.
NODES = st.lists(
    st.tuples(st.sampled_from([2, 4, 8]), st.sampled_from([4, 8]), st.integers(0, 4), st.integers(0, 10)),
    min_size=1,
    max_size=5,
)
WEIGHTS = st.dictionaries(st.sampled_from([*UNIT, "example.com/none"]), st.integers(1, 5), min_size=1)


@examples(300)
@given(
    nodes=NODES, weights=WEIGHTS, asked=st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2000))
)
def test_scores_are_what_the_formulas_say(
    nodes: list[tuple[int, int, int, int]], weights: dict[str, int], asked: tuple[int, int, int]
) -> None:
    world, free = World(), []
    for index, (cpu, memory, devices, tenths) in enumerate(nodes):
        extended = {GPU: f"{1000 * devices}"} if devices else {}
        world.ledger.set_node(node(f"n{index}", cpu=f"{cpu}", memory=f"{memory}Gi", extended=extended))
        milli, bytes_, gpu = cpu * 100 * tenths, memory * GI // 10 * tenths, 100 * devices * tenths
        requests = {"cpu": f"{milli}m", "memory": f"{bytes_}", GPU: f"{gpu}"}
        world.place(f"n{index}", requests=requests)
        free.append({"cpu": 1000 * cpu - milli, "memory": memory * GI - bytes_, GPU: 1000 * devices - gpu})
    most = {
        "cpu": max(each[0] for each in nodes) * 1000,
        "memory": max(each[1] for each in nodes) * GI,
        GPU: max(each[2] for each in nodes) * 1000,
    }
    wanted = {"cpu": asked[0] * 1000, "memory": asked[1] * GI, GPU: asked[2]}
    requests = {"cpu": f"{asked[0]}", "memory": f"{asked[1]}Gi", GPU: f"{asked[2]}"}
    pod = world.pod(requests=requests)
    for plugin in (BestFit(weights), DotProduct(weights)):
        scores = world.scores(pod, plugin)
        if not any(most.get(name) for name in weights):
            assert scores is None
        else:
            assert scores == [by_formula(plugin.name, weights, each, wanted, most) for each in free]


@pytest.mark.parametrize("plugin", [BestFit({"cpu": 1}), DotProduct({"cpu": 1})])
def test_a_whole_number_is_not_cut_to_the_one_below(plugin: Any) -> None:
    world = World(node("a", cpu="10"))
    for tenths in range(11):
        placed = world.place("a", requests={"cpu": f"{tenths}"})
        for asked in range(10 - tenths + 1):
            expected = 10 * (tenths + asked) if plugin.name == "BestFit" else 100 - (10 - tenths) * asked
            assert world.scores(world.pod(requests={"cpu": f"{asked}"}), plugin) == [expected]
        world.ledger.remove_pod(placed.uid)


def profile(*names: str) -> Any:
    scores = PluginSet(tuple(Enabled(name) for name in names), ("*",))
    return build_profile(ProfileSpec(scheduler_name="agent-scheduler", plugins={"score": scores}))


def test_a_larger_node_makes_all_others_smaller_and_they_are_asked_anew() -> None:
    world = World(node("a", cpu="4"), node("b", cpu="2"))
    snapshot = world.snapshot
    views = ClassViews(profile("BestFit", "DotProduct"), snapshot)
    pod = world.pod(requests={"cpu": "1", "memory": "1Gi"})

    def same() -> list[int]:
        kept: list[int] = views.of(pod.cls).ranked(snapshot.columns).tolist()
        anew = ClassViews(views.profile, snapshot).of(pod.cls).ranked(snapshot.columns).tolist()
        assert [each - kept[0] for each in kept] == [each - anew[0] for each in anew]
        return [each - kept[0] for each in kept[:2]]

    before = same()
    world.ledger.set_node(node("huge", cpu="64"))
    snapshot.refresh()
    assert same() != before
    # What goes changes nothing for those that stay.
    after = same()
    world.ledger.remove_node("huge")
    world.ledger.set_node(node("c", cpu="4"))
    snapshot.refresh()
    assert same() == after


def test_a_resource_that_a_node_brings_is_not_looked_at_on_nodes_as_they_were_before() -> None:
    """A trial, as others, goes on with a picture that is older than the ledger."""
    world = World(node("a", cpu="4"), node("b", cpu="2"))
    snapshot = world.snapshot
    views = ClassViews(profile("BestFit", "DotProduct", "Fragmentation"), snapshot)
    pod = world.pod(requests={"cpu": "1"})
    before = views.of(pod.cls).ranked(snapshot.columns).tolist()
    world.ledger.set_node(node("gpus", extended={GPU: "8000"}))
    for cls in (pod.cls, world.pod(requests={"cpu": "2"}).cls, world.pod(requests={GPU: "500"}).cls):
        views.of(cls).ranked(snapshot.columns)
        for row in range(2):
            for weighted in views.profile.scores:
                plugin: Any = weighted.plugin
                state = plugin.prepare(cls, snapshot.handle)
                if state is not None:
                    together = plugin.score(state, snapshot.columns, snapshot.columns.all_rows())
                    assert plugin.score_row(state, snapshot.columns, row) == together[row]
    assert len(before) == snapshot.columns.size == 2
