"""The search for a gang against one that tries everything."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import product

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_scheduler.engine.dra import gang_search
from agent_scheduler.engine.dra.allocator import allocate
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.demand import demand
from agent_scheduler.engine.dra.gang_search import GangSearch, Placement, Wanting
from agent_scheduler.engine.dra.records import ClaimInfo, read_slice
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podclaims import PodClaim
from tests.decisions.devices.engine import DeviceEngine
from tests.decisions.devices.validity import problems, too_much
from tests.support.devices import SIZES, books, claim_of, divided, first_of, key
from tests.support.engine import node
from tests.support.examples import examples
from tests.unit.engine.dra.clusters import NODES, Drawn, clusters, everything, is_small
from tests.unit.engine.dra.test_search import demand_of


class Somewhere:
    """Each node takes `room` members."""

    def __init__(self, nodes: Sequence[NodeInfo], room: int = 99) -> None:
        self.there, self.room, self.placed = nodes, room, list[tuple[int, NodeInfo]]()

    def nodes(self, member: int) -> Sequence[NodeInfo]:
        on = [node.name for _, node in self.placed]
        return [node for node in self.there if on.count(node.name) < self.room]

    def place(self, member: int, node: NodeInfo) -> None:
        self.placed.append((member, node))

    def take_back(self) -> None:
        self.placed.pop()

    def alike(self, node: NodeInfo) -> Hashable:
        return self.room


def found_for(
    devices: Devices,
    nodes: Sequence[NodeInfo],
    members: Sequence[Sequence[str]],
    room: int = 99,
    needed: int = 0,
) -> tuple[Sequence[Placement], GangSearch]:
    """`members` by the names of their claims."""
    wanting = []
    for names in members:
        wants = demand([PodClaim(f"{place}", key(name)) for place, name in enumerate(names)], devices)
        wanting.append(Wanting(wants, wants, tuple(map(key, names))))
    places = Somewhere(nodes, room)
    search = GangSearch(wanting, needed or len(members), devices, places)
    while not search.run(50):
        assert not places.placed
    assert not places.placed
    return search.found, search


def least_fallen(numbers: Sequence[int], room: int, members: Sequence[Sequence[Sequence[str]]]) -> int | None:
    """How many members fall back at least, with so many devices on each node; None: there is no way at all.
    `members`: the sizes that each of their requests has."""

    def place(index: int, left: list[list[list[int]]], on: list[int], fallen: int) -> Iterator[int]:
        if index == len(members):
            yield fallen
            return
        for where, there in enumerate(left):
            if on[where] == room:
                continue
            on[where] += 1
            requests = members[index]
            for choice in product(
                *[[(size, gpu) for size in sizes for gpu in range(len(there))] for sizes in requests]
            ):
                for size, gpu in choice:
                    there[gpu].append(SIZES[size])
                if all(sum(each) <= 6 for each in there):
                    falls = any(size != sizes[0] for (size, _), sizes in zip(choice, requests, strict=True))
                    yield from place(index + 1, left, on, fallen + falls)
                for _, gpu in choice:
                    there[gpu].pop()
            on[where] -= 1

    return min(place(0, [[[] for _ in range(each)] for each in numbers], [0] * len(numbers), 0), default=None)


_sizes = st.sampled_from(
    [("full", "half"), ("full", "half", "third"), ("half", "third"), ("full",), ("third",), ("half",)]
)
_requests = st.lists(_sizes, min_size=1, max_size=2)


@examples(60)
@given(st.lists(st.integers(1, 2), min_size=1, max_size=3), st.integers(1, 4), st.data())
def test_a_gang_of_parts_is_placed_wherever_it_can_be(
    numbers: list[int], room: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, 4))
    alike = data.draw(st.booleans())
    members = [data.draw(_requests)] * size if alike else [data.draw(_requests) for _ in range(size)]
    assume(len(numbers) * sum(numbers) * sum(map(len, members)) <= 60)
    claims: list[ClaimInfo] = [
        claim_of(f"c{index}", *(first_of(*sizes, name=f"r{each}") for each, sizes in enumerate(requests)))
        for index, requests in enumerate(members)
    ]
    nodes = [node(f"n{index}") for index in range(len(numbers))]
    slices = [
        read_slice(msgspec.json.encode(each))
        for there, number in zip(nodes, numbers, strict=True)
        for each in divided(there.name, number)
    ]
    devices = books(*slices, *claims)
    found, search = found_for(devices, nodes, [[claim.name] for claim in claims], room)
    least = least_fallen(numbers, room, members)
    assert len(found) == (0 if least is None else size), (least, search.steps)
    if least is not None:
        for each in found:
            assert devices.assume(key(f"c{each.member}"), each.allocations[0], f"{each.member}")
        fallen = sum(
            each.allocations[0].preference < 8 * len([1 for sizes in members[each.member]]) for each in found
        )
        assert fallen == least, (fallen, least, search.steps)


@pytest.mark.promise("S17")
@examples(100)
@given(clusters())
def test_a_gang_of_any_claims_is_placed_wherever_it_can_be(drawn: Drawn) -> None:
    """Each claim is that of one member."""
    assume(is_small(drawn))
    cluster = drawn.cluster
    engine = DeviceEngine(cluster, drawn.claims)
    nodes = [each for each in engine.ledger.columns.nodes[:2] if each is not None]
    names = [claim["metadata"]["name"] for claim in drawn.claims]
    found, _ = found_for(engine.devices, nodes, [[name] for name in names])
    given = [each.allocations[0].status("some") for each in found]
    assert len(found) in (0, len(names))
    for each, way in zip(found, given, strict=True):
        assert problems(cluster, each.node.name, [drawn.claims[each.member]], [way]) == []
    assert not any(any(too_much(cluster, there, given)) for there in NODES)
    possible = (
        ways
        for where in product(NODES, repeat=len(names))
        for ways in product(
            *(
                everything(cluster, there["metadata"]["name"], [claim])
                for there, claim in zip(where, drawn.claims, strict=True)
            )
        )
        if not any(any(too_much(cluster, there, [way for (way,) in ways])) for there in NODES)
    )
    if not found and next(possible, None) is not None:
        # As for one pod: an alternative that asks for all is not passed over while a pool is being updated.
        alone = [
            allocate(demand_of(engine, (claim,)), engine.devices, there)
            for claim in drawn.claims
            for there in nodes
        ]
        assert any("asks for all devices, but resource pool" in getattr(each, "reason", "") for each in alone)


def test_members_share_claims_have_several_and_are_left_out_where_not_all_are_needed() -> None:
    n0, n1 = node("n0"), node("n1")
    claims = [claim_of(name, first_of("full", "half")) for name in ("shared", "a", "b")]
    slices = [*divided("n0", 2), *divided("n1", 1)]
    devices = books(*(read_slice(msgspec.json.encode(each)) for each in slices), *claims)
    found, _ = found_for(devices, [n1, n0], [("shared", "a"), ("b", "shared")])
    assert [each.node.name for each in found] == ["n0", "n0"]
    assert [[one.results[0].request for one in each.allocations] for each in found] == [
        ["r/full", "r/half"],
        ["r/half"],
    ]
    devices = books(
        *map(read_slice, map(msgspec.json.encode, divided("n0", 1))), *claims, claim_of("c", first_of("full"))
    )
    found, _ = found_for(devices, [n0], [("c",), ("a",), ("b",)], needed=2)
    assert [each.member for each in found] == [1, 2]


def test_a_search_ends_within_its_steps_and_is_not_begun_where_there_is_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tried(numbers: Sequence[int], *members: Sequence[str]) -> tuple[int, int]:
        nodes = [node(f"n{index}") for index in range(len(numbers))]
        slices = [
            each for there, number in zip(nodes, numbers, strict=True) for each in divided(there.name, number)
        ]
        claims = [claim_of(f"c{index}", first_of(*sizes)) for index, sizes in enumerate(members)]
        devices = books(*(read_slice(msgspec.json.encode(each)) for each in slices), *claims)
        found, search = found_for(devices, nodes, [[claim.name] for claim in claims])
        return len(found), search.steps

    sizes = ("full", "half")
    assert tried([8] * 4, *[sizes] * 65) < (0, 2_000), "no more than what the selectors cost"
    number, steps = tried([8] * 4, *[sizes] * 64)
    assert number == 64 and steps < 64 * 250
    monkeypatch.setattr(gang_search, "STEPS_A_MEMBER", 20)
    number, steps = tried([8] * 4, *[sizes] * 64)
    assert number == 0 and steps < 64 * 20 + 300
