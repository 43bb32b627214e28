"""CandidateIndexes: made for a demand when somebody has it, and kept in step."""

from __future__ import annotations

from typing import NamedTuple

from agent_scheduler.engine.state.reach import Reach
from agent_scheduler.engine.volumes.candidate_index import CandidateIndexes
from tests.support.engine import World as Storage
from tests.support.engine import node
from tests.support.storage import capacity, claim, driver, storage_class, volume


class Thing(NamedTuple):
    name: str
    size: int
    reach: Reach | None = None
    class_name: str = "slow"


class Counted:
    """CandidateIndexes by size that tell how often they looked at a thing."""

    def __init__(self) -> None:
        self.looks = 0
        self.candidate_index: CandidateIndexes[int, Thing] = CandidateIndexes(
            lambda each: (each.size, each.name), self._suffices
        )

    def _suffices(self, thing: Thing, size: int) -> bool:
        self.looks += 1
        return thing.size >= size


def test_a_demand_that_was_had_before_is_met_without_a_look_at_each_thing() -> None:
    counted = Counted()
    for index in range(100):
        counted.candidate_index.put(Thing(f"t{index}", index))
    first = counted.candidate_index.index("slow", 50)
    assert counted.looks == 100
    counted.candidate_index.drop(Thing("t99", 99))
    counted.candidate_index.put(Thing("t70b", 70))
    counted.candidate_index.put(Thing("elsewhere", 70, class_name="quick"))
    assert counted.looks == 102
    assert counted.candidate_index.index("slow", 50) is first
    assert [each.size for each in first.at(node("n"))] == [*range(50, 71), 70, *range(71, 99)]
    assert counted.candidate_index.check() == []


def test_a_demand_that_many_others_came_after_is_forgotten() -> None:
    counted = Counted()
    counted.candidate_index.put(Thing("t", 1000))
    first = counted.candidate_index.index("slow", 0)
    for size in range(1, 32):
        assert counted.candidate_index.index("slow", size) is not first
    assert counted.candidate_index.index("slow", 0) is first
    for size in range(32, 64):
        counted.candidate_index.index("slow", size)
    assert counted.candidate_index.index("slow", 0) is not first


def test_the_free_volumes_and_pools_of_a_workload_are_sorted_once() -> None:
    storage = Storage(node("a")).add(storage_class("made", provisioner="csi"), driver("csi"))
    storage.add(*(volume(f"v{index}", on="a", class_name="made") for index in range(9)))
    storage.add(*(capacity(f"p{index}", "1Gi", topology={}) for index in range(9)))
    catalogue = storage.catalogue
    pools = catalogue.capacities.index("made", 1)
    storage.add(capacity("p0", "2Gi", topology={}), capacity("p1", "0", topology={}))
    catalogue.delete_capacity("kube-system", "p2")
    assert catalogue.capacities.index("made", 1) is pools
    assert [each.name for each in pools.at(storage.node("a"))] == ["p0", *(f"p{at}" for at in range(3, 9))]
    storage.add(claim("c", class_name="made"))
    assert catalogue.check() == []
