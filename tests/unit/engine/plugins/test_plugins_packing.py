"""Scores that pack: Fragmentation by the measure of its paper, GPUPacking by its steps, others by their formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.framework.args import FragmentationArgs
from agent_scheduler.engine.framework.plugin import Reads
from agent_scheduler.engine.framework.points import Enabled, PluginSet
from agent_scheduler.engine.plugins.best_fit import BestFit
from agent_scheduler.engine.plugins.binpack import PER_POINT, Binpack
from agent_scheduler.engine.plugins.dot_product import DotProduct
from agent_scheduler.engine.plugins.fragmentation import Fragmentation
from agent_scheduler.engine.plugins.gpu_packing import GPUPacking
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.rules import fragmentation
from agent_scheduler.engine.rules.fragmentation import score_of
from agent_scheduler.engine.state import targetworkload
from apimachinery.codec import decode
from tests.support.engine import GPU, World, node
from tests.support.examples import examples
from tests.support.terms import expression, requiring

GI = 2**30
WEIGHTS = {"cpu": 1, "memory": 1}


class Want(NamedTuple):
    """One kind of the target workload; `zone` and `name`: what its node is to be."""

    cpu: int
    memory: int
    gpu: int
    weight: float
    zone: str = ""
    name: str = ""

    @property
    def written(self) -> dict[str, Any]:
        requests: dict[str, str] = {}
        if self.cpu:
            requests["cpu"] = f"{self.cpu}m"
        if self.memory or not self.cpu:
            requests["memory"] = f"{self.memory}Gi"
        if self.gpu:
            requests[GPU] = f"{self.gpu}"
        affinity: dict[str, Any] = {}
        if self.name:
            affinity = {"nodeAffinity": requiring({"matchFields": [expression("metadata.name", self.name)]})}
        selector = {"nodeSelector": {"zone": self.zone}} if self.zone else {}
        return {"requests": requests, "weight": self.weight, **selector, **affinity}

    def goes_to(self, name: str, zone: str) -> bool:
        return self.zone in ("", zone) and self.name in ("", name)


class There(NamedTuple):
    """A node: what it offers, what is free, and on which of its devices."""

    name: str
    zone: str
    offered: tuple[int, int]
    cpu: int
    memory: int
    gpus: tuple[int, ...]

    def with_pod(self, cpu: int, memory: int, gpu: int) -> There:
        left = list(self.gpus)
        if 0 < gpu < 1000:
            at = min((each, index) for index, each in enumerate(left) if each >= gpu)[1]
            left[at] -= gpu
        for _ in range(gpu // 1000):
            left[left.index(1000)] = 0
        return self._replace(cpu=self.cpu - cpu, memory=self.memory - memory, gpus=tuple(left))


def fragment(there: There, kinds: Sequence[Want]) -> float:
    """Of GPUs, in devices: what a pod of the workload that comes next is expected to be unable to use."""
    sharing = [kind for kind in kinds if kind.gpu]
    total = sum(kind.weight for kind in sharing)
    expected = 0.0
    for kind in sharing:
        number, each = (1, kind.gpu) if kind.gpu < 1000 else (kind.gpu // 1000, 1000)
        fits = (
            kind.goes_to(there.name, there.zone)
            and kind.cpu <= there.cpu
            and kind.memory * GI <= there.memory
            and sum(left >= each for left in there.gpus) >= number
        )
        unusable = sum(left for left in there.gpus if not fits or left < each)
        expected += kind.weight / total * unusable / 1000
    return expected


def without_cpu(there: There, kinds: Sequence[Want]) -> float:
    """Of the free GPUs, in devices: those for which the node lacks CPU, if pods ask for as much as on average."""
    gpu = sum(kind.weight * kind.gpu for kind in kinds)
    beside_gpus = sum(kind.weight * kind.cpu for kind in kinds if kind.gpu)
    cpu = min(sum(kind.weight * kind.cpu for kind in kinds), 2 * beside_gpus)
    return max(sum(there.gpus) - max(there.cpu, 0) * gpu / cpu, 0) / 1000 if cpu else 0.0


def waste(there: There, kinds: Sequence[Want], weights: dict[str, int] = WEIGHTS) -> float:
    """Of CPU and memory, as a part of the node: what is left when as many pods of a kind have come as fit."""
    dividing = [kind for kind in kinds if not kind.gpu]
    most = {"cpu": max(kind.cpu for kind in dividing) or 1, "memory": max(kind.memory for kind in dividing) or 1}
    parts = {name: weight / sum(weights.values()) for name, weight in weights.items()}

    def size(kind: Want) -> float:
        return kind.weight * (parts["cpu"] * kind.cpu / most["cpu"] + parts["memory"] * kind.memory / most["memory"])

    total, expected = sum(map(size, dividing)), 0.0
    for kind in dividing:
        pods, cpu, memory = 0, max(there.cpu, 0), max(there.memory, 0)
        while kind.cpu + kind.memory and kind.goes_to(there.name, there.zone):
            if kind.cpu * (pods + 1) > cpu or kind.memory * GI * (pods + 1) > memory:
                break
            pods += 1
        of_cpu = (cpu - pods * kind.cpu) / there.offered[0]
        of_memory = (memory - pods * kind.memory * GI) / there.offered[1]
        expected += size(kind) / total * (parts["cpu"] * of_cpu + parts["memory"] * of_memory)
    return expected


def worth(less: float) -> int:
    """What is a whole number in truth may be a little less when it is added up."""
    return math.floor(100 / (1 + math.exp(-max(less, -100))) + 1e-9)


ZONES = st.sampled_from(["", "", "a", "b"])
KINDS = st.lists(
    st.builds(
        Want,
        cpu=st.sampled_from([0, 100, 1000, 3000]),
        memory=st.sampled_from([0, 1, 4]),
        gpu=st.sampled_from([0, 0, 300, 500, 999, 1000, 2000, 4000]),
        weight=st.sampled_from([0.5, 1, 3]),
        zone=ZONES,
        name=st.sampled_from(["", "", "", "n0", "n1"]),
    ),
    min_size=1,
    max_size=6,
)
#: Zone, CPU, devices, and what is taken: CPU, GiB of the 8 of memory, and shares of the devices.
NODES = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([4, 8]),
        st.integers(0, 4),
        st.sampled_from([0, 500, 3500]),
        st.sampled_from([0, 0, 3, 6, 7]),
        st.lists(st.sampled_from([0, 0, 300, 700, 1000]), min_size=4, max_size=4),
    ),
    min_size=1,
    max_size=5,
)
PODS = st.tuples(
    st.sampled_from([0, 1, 100, 2000]), st.sampled_from([0, 1, 2]), st.sampled_from([0, 0, 200, 500, 1000, 2000])
)


def made(nodes: list[Any]) -> tuple[World, list[There]]:
    world, theres = World(), []
    for index, (zone, cpu, devices, taken, memory, shares) in enumerate(nodes):
        name = f"n{index}"
        extended = {GPU: f"{devices}000"} if devices else {}
        world.ledger.set_node(node(name, cpu=str(cpu), extended=extended, labels={"zone": zone}))
        world.place(name, requests={"cpu": f"{taken}m", "memory": f"{memory}Gi"})
        used = list(enumerate(shares[:devices]))
        for device, share in used:
            if share:
                world.ledger.assume(world.pod(requests={GPU: str(share)}), world.ledger.rows[name], (device,))
        gpus = tuple(1000 - share for _, share in used)
        theres.append(There(name, zone, (cpu * 1000, 8 * GI), cpu * 1000 - taken, (8 - memory) * GI, gpus))
    return world, theres


def given_by(kinds: list[Want], **more: Any) -> FragmentationArgs:
    return decode({"targetWorkload": [kind.written for kind in kinds], **more}, FragmentationArgs)


def fits(there: There, cpu: int, memory: int, gpu: int) -> bool:
    room = sum(left >= min(gpu, 1000) for left in there.gpus) >= gpu / 1000
    return room and cpu <= there.cpu and memory * GI <= there.memory


@examples(300)
@given(nodes=NODES, kinds=KINDS, asked=PODS)
@example(
    nodes=[("a", 8, 2, 0, 0, [0, 0, 0, 0]), ("b", 8, 2, 0, 0, [0, 0, 0, 0])],
    kinds=[Want(100, 0, 1000, 1, "a")],
    asked=(100, 0, 500),
)
# The memory that the pod asks for is what the kind that comes next would lack.
@example(nodes=[("a", 8, 2, 0, 6, [0, 0, 0, 0])], kinds=[Want(100, 1, 1000, 1)], asked=(100, 2, 500))
@example(nodes=[("a", 8, 2, 3500, 0, [0, 0, 0, 0])], kinds=[Want(3000, 0, 1000, 1)], asked=(2000, 0, 500))
# Next to nothing takes the room of a whole pod.
@example(nodes=[("a", 8, 0, 0, 0, [0, 0, 0, 0])], kinds=[Want(1000, 0, 0, 1)], asked=(1, 0, 0))
def test_a_score_is_that_of_the_measure_before_and_after(
    nodes: list[Any], kinds: list[Want], asked: tuple[int, int, int]
) -> None:
    world, theres = made(nodes)
    arguments = given_by(kinds)
    plugin = Fragmentation(arguments.weights, arguments.given)
    cpu, memory, gpu = asked
    pod = world.pod(requests={"cpu": f"{cpu}m", "memory": f"{memory}Gi"} | ({GPU: str(gpu)} if gpu else {}))
    scores = world.scores(pod, plugin)
    if not any(kind.gpu or kind.cpu or kind.memory for kind in kinds):
        assert scores is None
        return
    assert scores is not None
    for there, score in zip(theres, scores, strict=True):
        if not fits(there, *asked):
            continue
        then = there.with_pod(cpu, memory * GI, gpu)
        if there.gpus:
            sharing = any(kind.gpu for kind in kinds)
            less = (
                fragment(there, kinds) + without_cpu(there, kinds) - fragment(then, kinds) - without_cpu(then, kinds)
                if sharing
                else sum(there.gpus) / 1000 - sum(then.gpus) / 1000
            )
        else:
            dividing = any((kind.cpu or kind.memory) and not kind.gpu for kind in kinds)
            size = (cpu / there.offered[0] + memory * GI / there.offered[1]) / 2
            # In the sizes of the pod, each of which counts as two devices.
            less = 2 * (waste(there, kinds) - waste(then, kinds)) / size if dividing and size else 0.0
        assert score == worth(less), (there, less)


@examples(100)
@given(nodes=NODES, kinds=KINDS, asked=PODS)
def test_many_rows_have_the_scores_that_each_has_by_itself(
    nodes: list[Any], kinds: list[Want], asked: tuple[int, int, int]
) -> None:
    world, theres = made(nodes)
    cpu, memory, gpu = asked
    pod = world.pod(requests={"cpu": f"{cpu}m", "memory": f"{memory}Gi"} | ({GPU: str(gpu)} if gpu else {}))
    rows = [row for row, there in enumerate(theres) if there.gpus and fits(there, *asked)]
    arguments = given_by(kinds)
    by_rows, by_row = (Fragmentation(arguments.weights, arguments.given) for _ in range(2))
    if not rows or (state := world.state(pod, by_rows)) is None:
        return
    columns = world.ledger.columns
    found = by_rows.score(state, columns, np.array(rows * 9, dtype=np.intp)).tolist()
    assert found == [by_row.score_row(world.state(pod, by_row), columns, row) for row in rows] * 9


@pytest.mark.parametrize(
    ("asked", "better"), [({"cpu": "2"}, "b"), ({"cpu": "6", GPU: "1000"}, "b"), ({"cpu": "1", GPU: "1000"}, "a")]
)
def test_cpu_stays_where_gpus_need_it(asked: dict[str, str], better: str) -> None:
    """Two CPUs for each GPU are left on one node, six on the other; pods ask for four on average."""
    world = World(*(node(name, cpu=cpu, extended={GPU: "4000"}) for name, cpu in (("a", "8"), ("b", "24"))))
    arguments = given_by([Want(1000, 0, 1000, 1), Want(5000, 0, 1000, 1), Want(2000, 0, 0, 1)])
    scores = world.scores(world.pod(requests=asked), Fragmentation(arguments.weights, arguments.given))
    assert scores is not None
    assert (scores[0] > scores[1]) == (better == "a") and scores[0] != scores[1]


def test_without_a_workload_nodes_are_all_the_same() -> None:
    world = World(node("a"))
    plugin = Fragmentation(WEIGHTS)
    assert world.scores(world.pod(requests={"cpu": "1"}), plugin) is None
    assert plugin.reads == {Reads.TARGET_WORKLOAD}
    arguments = given_by([Want(100, 0, 0, 1)])
    assert Fragmentation(WEIGHTS, arguments.given).reads == frozenset()


def test_a_score_is_a_whole_number_on_either_side_of_fifty() -> None:
    assert [score_of(less) for less in (-1e6, -1.0, 0.0, 1.0, 1e6)] == [0, 26, 50, 73, 100]


def test_nodes_on_which_nothing_is_lost_are_worth_the_same_however_their_sums_are_added_up() -> None:
    """A whole device is taken by one of those that could have used it."""
    kinds = [Want(100, 0, 100, 7), Want(100, 0, 100, 1), Want(100, 0, 300, 1), Want(100, 0, 1000, 4)]
    world, (there,) = made([("a", 8, 4, 0, 0, [1000, 700, 500, 0])])
    then = there.with_pod(100, 0, 1000)
    assert fragment(there, kinds) - fragment(then, kinds) == pytest.approx(0, abs=1e-9)
    arguments = given_by(kinds)
    plugin = Fragmentation(arguments.weights, arguments.given)
    assert world.scores(world.pod(requests={"cpu": "100m", GPU: "1000"}), plugin) == [50]


def test_measures_that_are_kept_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragmentation, "_KEPT", 2)
    nodes = [("a", 8, devices, taken, 0, [0, 300, 700, 1000]) for devices in range(5) for taken in (0, 500, 3500)]
    world, _ = made(nodes)
    arguments = given_by([Want(100, 1, 300, 1, "a"), Want(1000, 1, 2000, 2), Want(1000, 1, 0, 1)])
    first, second = (Fragmentation(arguments.weights, arguments.given) for _ in range(2))
    pod = world.pod(requests={GPU: "200", "cpu": "100m"})
    found = []
    for plugin in (first, first, second):
        found.append(world.scores(pod, plugin))
        kept = world.state(pod, plugin).measure.gpus._found
        assert kept and len(kept) <= 2 * len(nodes)
    monkeypatch.undo()
    assert found == [world.scores(pod, second)] * 3


# ---- as part of a profile, with all that is kept from decision to decision


def test_nodes_that_are_alike_in_room_are_told_apart_by_who_may_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a learnt workload as soon as it speaks of them, and no longer when it does not."""
    world = World(*(node(f"n{index}", extended={GPU: "2000"}, labels={"zone": "ab"[index]}) for index in range(2)))
    score = {"score": PluginSet((Enabled("Fragmentation", 100), Enabled("GPUPacking")))}
    world.profile = build_profile(ProfileSpec(scheduler_name="agent-scheduler", plugins=score))
    workload, snapshot, views = world.workload, world.snapshot, world.views
    pod = world.pod(requests={GPU: "300"})

    def totals() -> list[int]:
        ranked: list[int] = views.of(pod.cls).ranked(snapshot.columns).tolist()
        return ranked

    assert len(set(totals())) == 1
    for _ in range(3):
        workload.seen(world.pod(requests={GPU: "1000"}, nodeSelector={"zone": "a"}).cls)
    of_a, of_b = totals()
    assert of_a < of_b
    assert snapshot.columns.interns.telling_labels == ("zone",)
    monkeypatch.setattr(targetworkload, "WINDOW", 4)
    for _ in range(40):
        workload.seen(pod.cls)
    assert len(workload.kinds) == 1
    assert len(set(totals())) == 1
    assert snapshot.columns.interns.telling_labels == ()


def by_steps(free: list[int], amount: int) -> int:
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
            assert score == by_steps(free, amount)
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
FLEETS = st.lists(
    st.tuples(st.sampled_from([2, 4, 8]), st.sampled_from([4, 8]), st.integers(0, 4), st.integers(0, 10)),
    min_size=1,
    max_size=5,
)
RESOURCES = st.dictionaries(st.sampled_from([*UNIT, "example.com/none"]), st.integers(1, 5), min_size=1)


@examples(300)
@given(nodes=FLEETS, weights=RESOURCES, asked=st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2000)))
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
