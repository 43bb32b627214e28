"""Fragmentation against the measure as the paper states it, pod by pod, kind by kind and device by device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_scheduler.config.codec import decode
from agent_scheduler.engine.framework.args import FragmentationArgs
from agent_scheduler.engine.framework.plugin import Reads
from agent_scheduler.engine.framework.points import Enabled, PluginSet
from agent_scheduler.engine.plugins.fragmentation import Fragmentation
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.rules import fragmentation
from agent_scheduler.engine.rules.fragmentation import score_of
from agent_scheduler.engine.state import targetworkload
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


def waste(there: There, kinds: Sequence[Want], weights: dict[str, int] = WEIGHTS) -> float:
    """Of CPU and memory, as a part of the node: what is left when as many pods of a kind have come as fit."""
    dividing = [kind for kind in kinds if not kind.gpu]
    most = {
        "cpu": max(kind.cpu for kind in dividing) or 1,
        "memory": max(kind.memory for kind in dividing) or 1,
    }
    parts = {name: weight / sum(weights.values()) for name, weight in weights.items()}

    def size(kind: Want) -> float:
        return kind.weight * (
            parts["cpu"] * kind.cpu / most["cpu"] + parts["memory"] * kind.memory / most["memory"]
        )

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
    st.sampled_from([0, 1, 100, 2000]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([0, 0, 200, 500, 1000, 2000]),
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
                fragment(there, kinds) - fragment(then, kinds)
                if sharing
                else sum(there.gpus) / 1000 - sum(then.gpus) / 1000
            )
        else:
            dividing = any((kind.cpu or kind.memory) and not kind.gpu for kind in kinds)
            size = (cpu / there.offered[0] + memory * GI / there.offered[1]) / 2
            # In the sizes of the pod, each of which counts as two devices.
            less = 2 * (waste(there, kinds) - waste(then, kinds)) / size if dividing and size else 0.0
        assert score == worth(less), (there, less)


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


def test_measures_that_are_kept_are_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fragmentation, "_KEPT", 2)
    nodes = [
        ("a", 8, devices, taken, 0, [0, 300, 700, 1000]) for devices in range(5) for taken in (0, 500, 3500)
    ]
    world, _ = made(nodes)
    arguments = given_by([Want(100, 1, 300, 1, "a"), Want(1000, 1, 2000, 2), Want(1000, 1, 0, 1)])
    first, second = (Fragmentation(arguments.weights, arguments.given) for _ in range(2))
    pod = world.pod(requests={GPU: "200", "cpu": "100m"})
    found = []
    for plugin in (first, first, second):
        found.append(world.scores(pod, plugin))
        kept = world.state(pod, plugin).measure.gpus._found
        assert kept and len(kept) <= 2
    monkeypatch.undo()
    assert found == [world.scores(pod, second)] * 3


# ---- as part of a profile, with all that is kept from decision to decision


def test_nodes_that_are_alike_in_room_are_told_apart_by_who_may_use_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a learnt workload as soon as it speaks of them, and no longer when it does not."""
    world = World(
        *(node(f"n{index}", extended={GPU: "2000"}, labels={"zone": "ab"[index]}) for index in range(2))
    )
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
