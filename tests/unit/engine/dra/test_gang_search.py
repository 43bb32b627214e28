"""The search for a gang against ones that try everything, and how long it takes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_scheduler.engine.dra import gang_search
from agent_scheduler.engine.dra.allocator import allocate
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.dra.demand import demand
from agent_scheduler.engine.dra.gang_search import GangMember, GangSearch
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podclaims import PodClaim
from tests.decisions.devices.engine import DeviceEngine
from tests.decisions.devices.validity import problems, too_much
from tests.support.devices import PARTS, books, claim_of, divided, first_of, key, read
from tests.support.engine import node
from tests.support.examples import examples
from tests.unit.engine.dra.clusters import NODES, Drawn, clusters, everything, is_small
from tests.unit.engine.dra.test_search import demand_of

Sizes = Sequence[str]


class Somewhere:
    """Each node takes `room` members."""

    def __init__(self, nodes: Sequence[NodeInfo], room: int = 99) -> None:
        self.there, self.room, self.placed = nodes, room, list[NodeInfo]()

    def nodes(self, member: int) -> Sequence[NodeInfo]:
        return [node for node in self.there if self.placed.count(node) < self.room]

    def place(self, member: int, node: NodeInfo) -> None:
        self.placed.append(node)

    def take_back(self) -> None:
        self.placed.pop()

    def alike(self, node: NodeInfo) -> Hashable:
        return self.room


def searched(devices: Devices, places: Somewhere, *members: Sequence[str], needed: int = 0) -> GangSearch:
    """`members` by the names of their claims."""
    wanting = []
    for names in members:
        wants = demand([PodClaim(f"{place}", key(name)) for place, name in enumerate(names)], devices)
        wanting.append(GangMember(wants, wants, tuple(map(key, names))))
    search = GangSearch(wanting, needed or len(members), devices, places)
    while not search.run(50):
        assert not places.placed
    assert not places.placed and len(search.found) in (0, needed or len(members))
    return search


def for_sizes(numbers: Sequence[int], members: Sequence[Sequence[Sizes]], room: int = 99) -> GangSearch:
    """`numbers` of divided devices on each node; `members` by the sizes that each of their requests may have."""
    nodes = [node(f"n{index}") for index in range(len(numbers))]
    slices = [each for there, number in zip(nodes, numbers, strict=True) for each in divided(there.name, number)]
    claims = [
        claim_of(f"c{index}", *(first_of(*sizes, name=f"r{each}") for each, sizes in enumerate(requests)))
        for index, requests in enumerate(members)
    ]
    devices = books(*read(*slices), *claims)
    search = searched(devices, Somewhere(nodes, room), *([claim.name] for claim in claims))
    for each in search.found:
        assert devices.assume(key(f"c{each.member}"), each.allocations[0], f"{each.member}")
    first = [each.allocations[0].preference == 8 * len(members[each.member]) for each in search.found]
    assert search.fallen == first.count(False)
    return search


def least_fallen(numbers: Sequence[int], members: Sequence[Sequence[Sizes]], room: int) -> int | None:
    """How many members fall back at least; None: there is no way at all."""

    def place(index: int, left: list[list[int]], on: list[int], fallen: int) -> Iterator[int]:
        if index == len(members):
            yield fallen
            return
        for where, there in enumerate(left):
            if on[where] == room:
                continue
            on[where] += 1
            ways = [[(size, device) for size in sizes for device in range(len(there))] for sizes in members[index]]
            for way in product(*ways):
                for size, device in way:
                    there[device] -= PARTS[size][0]
                if min(there) >= 0:
                    falls = any(size != sizes[0] for (size, _), sizes in zip(way, members[index], strict=True))
                    yield from place(index + 1, left, on, fallen + falls)
                for size, device in way:
                    there[device] += PARTS[size][0]
            on[where] -= 1

    return min(place(0, [[6] * each for each in numbers], [0] * len(numbers), 0), default=None)


_sizes = st.sampled_from(
    [("full", "half"), ("full", "half", "third"), ("half", "third"), ("full",), ("third",), ("half",)]
)
_requests = st.lists(_sizes, min_size=1, max_size=2)


@pytest.mark.promise("L16")
@examples(60)
@given(st.lists(st.integers(1, 2), min_size=1, max_size=3), st.integers(1, 4), st.integers(2, 4), st.data())
def test_a_gang_has_places_wherever_it_can_and_no_more_of_it_falls_back_than_has_to(
    numbers: list[int], room: int, size: int, data: st.DataObject
) -> None:
    alike = data.draw(st.booleans())
    members = [data.draw(_requests)] * size if alike else [data.draw(_requests) for _ in range(size)]
    assume(len(numbers) * sum(numbers) * sum(map(len, members)) <= 60)
    search, least = for_sizes(numbers, members, room), least_fallen(numbers, members, room)
    fallen = search.fallen if search.found else None
    if search.steps < gang_search.STEPS_A_MEMBER * size:
        assert fallen == least
    else:
        assert fallen is None or (least is not None and fallen >= least)


@pytest.mark.promise("S17")
@examples(100)
@given(clusters())
def test_members_with_any_claims_have_places_wherever_they_can(drawn: Drawn) -> None:
    """Each has one."""
    assume(is_small(drawn))
    cluster, engine = drawn.cluster, DeviceEngine(drawn.cluster, drawn.claims)
    nodes = [each for each in engine.ledger.columns.nodes[:2] if each is not None]
    names = [claim["metadata"]["name"] for claim in drawn.claims]
    found = searched(engine.devices, Somewhere(nodes), *([name] for name in names)).found
    given = [each.allocations[0].status("some") for each in found]
    for each, way in zip(found, given, strict=True):
        assert problems(cluster, each.node.name, [drawn.claims[each.member]], [way]) == []
    assert not any(any(too_much(cluster, there, given)) for there in NODES)
    possible = (
        ways
        for where in product([node["metadata"]["name"] for node in NODES], repeat=len(names))
        for ways in product(
            *(everything(cluster, there, [claim]) for there, claim in zip(where, drawn.claims, strict=True))
        )
        if not any(any(too_much(cluster, there, [way for (way,) in ways])) for there in NODES)
    )
    if not found and next(possible, None) is not None:
        # As for one pod: an alternative that asks for all is not passed over while a pool is being updated.
        demands = [demand_of(engine, (claim,)) for claim in drawn.claims]
        alone = [allocate(each, engine.devices, there) for each in demands for there in nodes]
        assert any("asks for all devices, but resource pool" in getattr(each, "reason", "") for each in alone)


def test_members_share_claims_have_several_and_are_left_out_where_not_all_are_needed() -> None:
    n0, n1 = node("n0"), node("n1")
    claims = [claim_of(name, first_of("full", "half")) for name in ("shared", "a", "b")]
    slices = read(*divided("n0", 2), *divided("n1", 1))
    both = searched(books(*slices, *claims), Somewhere([n1, n0]), ("shared", "a"), ("b", "shared")).found
    given = [(each.node.name, *(one.results[0].request for one in each.allocations)) for each in both]
    assert given == [("n0", "r/full", "r/half"), ("n0", "r/half")]
    only = books(*slices[2:], *claims, claim_of("c", first_of("full")))
    found = searched(only, Somewhere([n1]), ("c",), ("a",), ("b",), needed=2).found
    assert [each.member for each in found] == [1, 2]


def test_a_search_ends_within_its_steps_and_is_not_begun_where_there_is_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members = [[("full", "half")]] * 64
    none = for_sizes([8] * 4, [*members, *members[:1]])
    assert not none.found and none.steps < 2_000, "what it costs to ask the selectors"
    assert for_sizes([8] * 4, members).steps < 64 * 250
    monkeypatch.setattr(gang_search, "STEPS_A_MEMBER", 20)
    given_up = for_sizes([8] * 4, members)
    assert not given_up.found and given_up.steps < 64 * 20 + 300
