"""The search for devices of a gang whose members did not all get devices one after the other.

Each member's node, the alternatives of its requests and its devices are searched together.

    a member ──> its first alternatives on each of its nodes, then the others (it falls back) ──> the next member
       └─ none leads to the end: the member before it gets something else

The search is depth first, like the search for one pod (`search`), with the same rules (`allocating`). It is short
because:

- Of interchangeable devices and nodes (`gang_devices`) only one is tried at each place.
- A remainder that earlier members left to the others and that did not suffice is not tried again.
- The remainder has to cover the least needs of the others, as parts of devices, however these are divided.
- A member is tried on at most as many suitable nodes as there are members: more of them cannot all be blocked.

If it ends within its steps, the gang has places if any solution exists, and as few members as possible fall back; among
equals the last ones. If half of the steps do not suffice, members that fall back take the alternative with the least
part of a device instead of the first in their lists: this finds a solution sooner.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from ..state.nodeinfo import NodeInfo
from ..state.nodeselection import reaches
from ..state.podclaims import ClaimDemand, ClaimKey
from ..state.reach import reach_of
from .allocating import Allocating
from .allocation import Allocation
from .allocator import VISIT, allocation_of, selector_of
from .catalogue import PORTION, Devices
from .gang_devices import GangDevices, NodeGangDevices, Steps
from .plans import ClaimPlan, DemandPlan, RequestData, plan_of
from .search import DEVICES_AT_MOST

#: Steps for each member. Gangs of up to four members with up to four devices, each in halves or thirds, need half of
#: this for a full search; larger ones of equal members as many as placing each of them twice takes.
STEPS_A_MEMBER: Final = 2_500

#: Steps after the first solution to search one in which fewer members fall back.
_FEWER: Final = 2 * PORTION

#: The cost of asking for the nodes of a member beside placed ones; the nodes that are sorted per step, and those that
#: are visited.
_ASK: Final = 50
_ROWS_A_STEP: Final = 32
_NODES_A_STEP: Final = 4
#: The tolerance of sums of parts.
_ROUNDED: Final = 1e-6

#: Levels of the search; each yields the next one to try, or one of these. None: all needed members have a place.
_Level = Iterator[Any]
_PAUSE: Final[Any] = object()
_END: Final[Any] = object()


class GangMember(NamedTuple):
    """A member. Members of one `kind` are interchangeable."""

    kind: Hashable
    demand: ClaimDemand | None
    #: The claims of `demand.to_allocate`, in its order.
    claims: tuple[ClaimKey, ...]


class MemberNodes(Protocol):
    """The nodes for members, apart from devices."""

    def nodes(self, member: int) -> Collection[NodeInfo]:
        """Return the nodes that accept a member beside the placed ones, best first.

        Devices may be checked as if placed members had none.
        """

    def place(self, member: int, node: NodeInfo) -> None: ...

    def take_back(self) -> None:
        """Undo the last `place` that is not undone."""

    def alike(self, node: NodeInfo) -> Hashable:
        """Return a value that is equal for nodes that are interchangeable to each member that both accept."""


class MemberPlacement(NamedTuple):
    member: int
    node: NodeInfo
    #: The allocations of claims that no member placed before it has, in the order of its demand, and of its extended
    #: resources.
    allocations: tuple[Allocation, ...]


class _Member(NamedTuple):
    """A member that has a node, while its claims are searched."""

    #: The index in the order in which members are tried.
    place: int
    node: NodeInfo
    there: NodeGangDevices
    claims: Sequence[tuple[ClaimPlan, ClaimKey | None]]
    falls_back: bool


class _Placed(NamedTuple):
    member: _Member
    #: The index of its first claim in `Allocating.chosen`.
    first: int


class GangSearch:
    """A search for places of `needed` of the `members`."""

    def __init__(self, members: Sequence[GangMember], needed: int, devices: Devices, places: MemberNodes) -> None:
        """Prepare the search; earlier `members` are preferred if not all are needed."""
        self._members = members
        self._needed = needed
        self._places = places
        self._steps = Steps()
        #: The best solution so far, in the order of placing; empty without one.
        self.found: Sequence[MemberPlacement] = ()
        #: The number of members that fall back in it.
        self.fallen = 0
        self._plans: list[DemandPlan | None] = [
            plan_of(each.demand, devices) if each.demand is not None else None for each in members
        ]
        self._flexible = [
            plan is not None and any(len(each) > 1 for claim in plan.claims for each in claim.requests)
            for plan in self._plans
        ]
        self._devices = GangDevices([plan for plan in self._plans if plan is not None], devices, self._steps)
        #: The number of each member's kind; and for each kind the nodes that accept one with no member placed.
        kinds: dict[Hashable, int] = {}
        self._kinds = [kinds.setdefault(each.kind, len(kinds)) for each in members]
        self._alone: list[frozenset[str]] = []
        #: Members in the order in which they are tried; and by index in it the least parts of devices that each needs.
        self._order = list(range(len(members)))
        self._least = [0.0] * len(members)
        self._there_are = inf
        self._parts: Mapping[RequestData, float] = {}
        #: Whether a member that falls back takes the smallest alternatives first.
        self._smallest_first = False
        self._alike: dict[str, int] = {}
        self._sorts_of_nodes: dict[Hashable, int] = {}
        #: Steps after which there is a pause, and after which the try is given up.
        self._limit = self._until = 0
        #: The most members that may fall back.
        self._most = len(members)
        self._programme = self._tries()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._devices.forget()
        self._allocating = Allocating((), self._devices.slots)
        self._stack: list[_Level] = []
        self._placed: list[_Placed] = []
        #: Node -> its sort, its devices, and the kinds of the members that are placed there.
        self._on_nodes: dict[str, tuple[int, NodeGangDevices, list[int]]] = {}
        self._fallen = 0
        #: The current member's alternatives behind the first.
        self._later = 0
        #: [index] whether the member's claims could be met on the node that it was tried on last.
        self._served = [False] * len(self._members)
        #: Shared claim -> its index in `Allocating.chosen`, and the node for which it was allocated.
        self._shared: dict[ClaimKey, tuple[int, NodeInfo]] = {}
        self._dead: set[Hashable] = set()

    # ---- tries

    @property
    def steps(self) -> int:
        """The number of steps taken."""
        return self._steps.taken

    def run(self, steps: int = PORTION) -> bool:
        """Search for `steps` more steps. Return whether it has ended, with the result in `found`.

        Nothing stays placed.
        """
        self._limit = self.steps + steps
        return next(self._programme, True)

    def _tries(self) -> Generator[bool, None, None]:
        """Run the tries. Yields false for each pause."""
        budget = STEPS_A_MEMBER * len(self._members)
        if (yield from self._is_hopeless()):
            return
        half = self.steps + (budget - self.steps) // 2
        yield from self._try(half)
        if not self.found and self.steps >= half:
            # The smallest alternatives leave most to the others.
            self._smallest_first = True
            yield from self._try(budget)
        kinds = {kind for kind, plan in zip(self._kinds, self._plans, strict=True) if plan is not None}
        until = min(budget, self.steps + _FEWER)
        while self.found and self.fallen and len(kinds) > 1:
            # Fewer members may fall back if they are other ones.
            self._most = self.fallen - 1
            if not (yield from self._try(until)):
                return

    def _try(self, until: int) -> Generator[bool, None, bool]:
        """Search until this step. Return whether a solution was found."""
        self._begin_anew()
        self._until = until
        found, stack = False, self._stack
        stack.append(self._member(0))
        while stack:
            level = next(stack[-1], _END)
            if level is _END:
                stack.pop()
            elif level is None:
                found = True
                self._keep()
                break
            elif level is not _PAUSE:
                stack.append(level)
            elif self.steps < until:
                yield from self._pause()
            else:
                break
        for _ in self._placed:
            self._places.take_back()
        # Unfinished levels refer to the search.
        stack.clear()
        self._dead.clear()
        return found

    def _pause(self) -> Iterator[bool]:
        for _ in self._placed:
            self._places.take_back()
        yield False
        for each in self._placed:
            self._places.place(self._order[each.member.place], each.member.node)

    def _keep(self) -> None:
        found = []
        for member, first in self._placed:
            chosen = self._allocating.chosen[first : first + len(member.claims)]
            allocations = tuple(
                allocation_of(claim, choices, member.node)
                for (claim, _), choices in zip(member.claims, chosen, strict=True)
            )
            found.append(MemberPlacement(self._order[member.place], member.node, allocations))
        self.found, self.fallen = found, self._fallen

    @property
    def _is_over(self) -> bool:
        return self.steps >= self._limit or self.steps >= self._until

    # ---- levels

    def _member(self, place: int) -> _Level:
        missing = self._needed - len(self._placed)
        if not missing:
            yield None
            return
        if not self._may_suffice(place, missing):
            return
        key = self._left_to(place)
        if key in self._dead:
            return
        nodes = self._nodes_of(self._order[place])
        for falls_back in self._ways(place):
            #: Interchangeable nodes -> whether they have devices for the member.
            tried: dict[Hashable, bool] = {}
            served = 0
            for node in nodes:
                self._steps.taken += 1
                member = self._on(place, node, falls_back=falls_back)
                if member is None:
                    continue
                alike = self._node_as_it_is(member)
                if alike not in tried:
                    self._steps.taken += VISIT
                    if self._is_over:
                        yield _PAUSE
                    self._served[place] = False
                    yield self._claims_of(member)
                    tried[alike] = self._served[place]
                served += tried[alike]
                if served >= len(self._members):
                    break
        if len(self._members) - place > missing:
            yield self._member(place + 1)
        self._dead.add(key)

    def _ways(self, place: int) -> Sequence[bool]:
        """Return the modes to try: false, then true if the member may fall back."""
        can = self._flexible[self._order[place]] and self._fallen < self._most
        return (False, True) if can else (False,)

    def _on(self, place: int, node: NodeInfo, *, falls_back: bool) -> _Member | None:
        """Return the member on the node; None if its allocated claims exclude the node, or if it cannot be checked."""
        index = self._order[place]
        member, plan = self._members[index], self._plans[index]
        there = self._devices.on(node)
        if plan is None or member.demand is None:
            return _Member(place, node, there, (), False)
        if plan.problem or member.demand.left_over or plan not in there.claims:
            return None
        for each in member.demand.allocated:
            if each.binding_failed or (each.reach is not None and not reaches(each.reach, node)):
                return None
        claims = there.claims[plan]
        keys = (*member.claims, *[None] * (len(claims) - len(member.claims)))
        mine = []
        for claim, key in zip(claims, keys, strict=True):
            shared = self._shared.get(key) if key is not None else None
            if shared is None:
                mine.append((claim, key))
                continue
            selector = selector_of(self._allocating.chosen[shared[0]], shared[1])
            if selector is not None and not reaches(reach_of(selector), node):
                return None
        return _Member(place, node, there, mine, falls_back)

    def _claims_of(self, member: _Member) -> _Level:
        self._places.place(self._order[member.place], member.node)
        self._placed.append(_Placed(member, len(self._allocating.chosen)))
        here = self._on_nodes.setdefault(member.node.name, (self._sort_of(member), member.there, []))[2]
        here.append(self._kinds[self._order[member.place]])
        later, self._later = self._later, 0
        yield self._claim(member, 0)
        self._later = later
        here.pop()
        self._placed.pop()
        self._places.take_back()

    def _claim(self, member: _Member, number: int) -> _Level:
        if number == len(member.claims):
            if member.falls_back and not self._later:
                return
            self._served[member.place] = True
            self._fallen += member.falls_back
            yield self._member(member.place + 1)
            self._fallen -= member.falls_back
            return
        self._allocating.begin(member.claims[number][0])
        yield self._request(member, number, 0)
        self._allocating.drop()

    def _request(self, member: _Member, claim_number: int, number: int) -> _Level:
        claim, shared_as = member.claims[claim_number]
        index = len(self._allocating.chosen) - 1
        if number == len(claim.requests):
            if shared_as is not None:
                self._shared[shared_as] = index, member.node
            yield self._claim(member, claim_number + 1)
            if shared_as is not None:
                del self._shared[shared_as]
            return
        key: Hashable = None
        if claim_number or number:
            # The state left to the first request is that left to the member.
            key = (
                self._node_as_it_is(member),
                claim_number,
                member.falls_back,
                self._later > 0,
                self._allocating.rest(index, number, self._devices.grouped),
                self._left_to(member.place),
            )
            if key in self._dead:
                return
        alternatives: Sequence[RequestData] = claim.requests[number]
        if not member.falls_back:
            alternatives = alternatives[:1]
        elif self._smallest_first:
            alternatives = sorted(alternatives, key=lambda each: self._parts.get(each, 0.0))
        for request in alternatives:
            self._later += request.subindex > 0
            if request.option.takes_all:
                yield self._take_all(member, claim_number, request)
            else:
                yield self._take_some(member, claim_number, request, request.option.number, 0)
            self._later -= request.subindex > 0
        if key is not None:
            self._dead.add(key)

    def _take_some(self, member: _Member, claim_number: int, request: RequestData, left: int, start: int) -> _Level:
        if not left:
            yield self._request(member, claim_number, request.index + 1)
            return
        allocating, devices = self._allocating, self._devices
        claim, candidates = len(allocating.chosen) - 1, member.there.candidates[request]
        if len(allocating.chosen[claim]) + left > DEVICES_AT_MOST:
            return
        failed: set[Hashable] = set()
        for at in range(start, len(candidates) - left + 1):
            index = candidates[at]
            kind = devices.kind(index)
            if kind in failed or not allocating.is_free(claim, request, index, devices.slots[index]):
                self._steps.passed()
                continue
            self._steps.taken += 1
            if self._is_over:
                yield _PAUSE
            if allocating.take(claim, request, index):
                devices.note(index, 1)
                yield self._take_some(member, claim_number, request, left - 1, at + 1)
                devices.note(index, -1)
                allocating.give_back(claim, index)
            if kind is not None:
                failed.add(kind)

    def _take_all(self, member: _Member, claim_number: int, request: RequestData) -> _Level:
        allocating, devices = self._allocating, self._devices
        claim, wanted = len(allocating.chosen) - 1, member.there.everything[request]
        if not wanted or len(allocating.chosen[claim]) + len(wanted) > DEVICES_AT_MOST:
            return
        taken = []
        for index in wanted:
            self._steps.taken += 1
            free = allocating.is_free(claim, request, index, devices.slots[index])
            if not free or not allocating.take(claim, request, index):
                break
            devices.note(index, 1)
            taken.append(index)
        if len(taken) == len(wanted):
            yield self._request(member, claim_number, request.index + 1)
        for index in reversed(taken):
            devices.note(index, -1)
            allocating.give_back(claim, index)

    # ---- equality

    def _left_to(self, place: int) -> Hashable:
        """Return a value that is equal if the members from this one on find the same state."""
        nodes = [(sort, tuple(sorted(kinds)), there.taken()) for sort, there, kinds in self._on_nodes.values() if kinds]
        return (
            place,
            len(self._placed),
            self._fallen if self._most < len(self._members) else 0,
            tuple(sorted(nodes)),
            self._devices.taken_of_common(),
            self._allocating.taken(self._devices.grouped),
            tuple((key, node.name, index) for key, (index, node) in self._shared.items()),
        )

    def _node_as_it_is(self, member: _Member) -> Hashable:
        """Return a value that is equal for nodes that are interchangeable to a member and all placed after it."""
        name = member.node.name
        if self._shared:
            return name
        found = self._on_nodes.get(name)
        kinds = tuple(sorted(found[2])) if found is not None else ()
        return self._sort_of(member), kinds, member.there.taken()

    def _sort_of(self, member: _Member) -> int:
        """Return the number shared by nodes that were interchangeable before any member was placed."""
        node = member.node
        found = self._alike.get(node.name)
        if found is None:
            takes = tuple(node.name in names for names in self._alone)
            alike = (takes, self._places.alike(node), member.there.alike)
            found = self._sorts_of_nodes.setdefault(alike, len(self._sorts_of_nodes))
            self._alike[node.name] = found
        return found

    # ---- feasibility

    def _is_hopeless(self) -> Generator[bool, None, bool]:
        """Return whether too many members have no node even alone, or there are too few devices for all.

        Yields false for each pause.
        """
        alone: dict[int, frozenset[str]] = {}
        nodes: dict[str, NodeInfo] = {}
        for index, kind in enumerate(self._kinds):
            if kind not in alone:
                if self.steps >= self._limit:
                    yield False
                there = self._nodes_of(index)
                # Each of them is visited.
                self._steps.taken += len(there) // _NODES_A_STEP
                here = {node.name: node for node in there}
                alone[kind] = frozenset(here)
                nodes |= here
        if sum(bool(alone[kind]) for kind in self._kinds) < self._needed:
            return True
        self._alone = list(alone.values())
        self._measure(nodes)
        return not self._may_suffice(0, self._needed)

    def _nodes_of(self, member: int) -> Collection[NodeInfo]:
        there = self._places.nodes(member)
        self._steps.taken += _ASK + len(there) // _ROWS_A_STEP
        return there

    def _measure(self, nodes: dict[str, NodeInfo]) -> None:
        wanted = sum(plan.most for plan in self._plans if plan is not None)
        self._parts, self._there_are = self._devices.least_parts(nodes.values(), wanted)
        shared = _named_twice(key for member in self._members for key in member.claims)
        least = [
            0.0
            if plan is None
            else sum(
                min(self._parts.get(each, 0.0) for each in alternatives)
                for claim, key in zip(plan.claims, member.claims, strict=False)
                if key not in shared
                for alternatives in claim.requests
            )
            for plan, member in zip(self._plans, self._members, strict=True)
        ]
        if self._needed == len(self._members):
            # Members with the fewest nodes come first.
            ways = [len(self._alone[kind]) for kind in self._kinds]
            self._order.sort(key=lambda index: (-least[index], ways[index]))
        self._least = [least[index] for index in self._order]

    def _may_suffice(self, place: int, missing: int) -> bool:
        """Return whether `missing` of the members from this one on may have enough, however devices are divided."""
        least = self._least[place:]
        if len(least) > missing:
            least.sort()
        left = self._there_are - self._devices.spent + _ROUNDED
        return len(least) >= missing and sum(least[:missing]) <= left


def _named_twice(keys: Iterable[ClaimKey]) -> set[ClaimKey]:
    once: set[ClaimKey] = set()
    twice: set[ClaimKey] = set()
    for key in keys:
        (twice if key in once else once).add(key)
    return twice
