"""The search for devices of a gang whose members, one after the other, did not get them: each member's node, the
alternatives of its requests and its devices are gone through together.

    a member ──> its first alternatives on each of its nodes, then the others (it falls back) ──> the next member
       └─ none leads to the end: the member before it gets something else

It is depth first, as the search for one pod (`search`), and keeps to the same rules (`allocating`). It is short since:

- Devices that nothing of the gang can tell apart are tried once, partitions of a device together with those beside
  which they draw on the same counters.
- What members so far have left to the others, and was found not to do, is not tried again.
- A member is tried on as many nodes that have devices for it as there are members: of more, one is in nobody's way.
- Where there are fewer devices than the gang needs at least, however it is divided, nothing is tried at all.

What it promises: if it ends within its steps, the gang has places if there is any way, and as few members as possible
fall back; those before the others do not. For members that are not alike that is so as far as it is found out in about
as many steps again.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from ..state.nodeinfo import NodeInfo
from ..state.nodeselection import reaches
from ..state.podclaims import ClaimKey, Demand
from ..state.reach import reach_of
from .allocating import Allocating, wanted_of
from .allocation import Allocation
from .allocator import VISIT, allocation_of, selector_of
from .catalogue import PORTION, Devices
from .devices import DeviceId
from .node_devices import DeviceSlot, NodeDevices, devices_of
from .plans import ClaimPlan, Failed, Plan, RequestData, plan_of
from .search import DEVICES_AT_MOST, EVALUATION, PASSED_A_STEP

#: Steps for each member. Gangs of up to four that have up to four devices, each in halves or thirds, need half of it
#: for all ways that there are; larger ones of members that are alike, as many as it takes to place each of them twice.
STEPS_A_MEMBER: Final = 2_500

#: What it costs to ask for the nodes of a member beside those that are placed.
_ASK: Final = 50

#: What sums of parts may be off by.
_ROUNDED: Final = 1e-6
#: More than a slice has devices.
_SHIFT: Final = 16

#: As in `search`. None: as many members as are needed have a place.
_Level = Iterator[Any]
_PAUSE: Final[Any] = object()
_END: Final[Any] = object()


class Wanting(NamedTuple):
    """A member. Those of one `kind` are alike in all that matters to where they can go; a kind is equal to itself."""

    kind: Hashable
    demand: Demand | None
    #: The claims that `demand.to_allocate` is about, in its order.
    claims: tuple[ClaimKey, ...]


class Places(Protocol):
    """Where members can go, as far as it is not about devices."""

    def nodes(self, member: int) -> Sequence[NodeInfo]:
        """Those that would take a member beside those that are placed, the best first. Devices may be looked at, as if
        those placed had none."""

    def place(self, member: int, node: NodeInfo) -> None: ...

    def take_back(self) -> None:
        """Undo the last `place` that is not undone."""

    def state(self) -> Hashable:
        """Equal where all members that are not placed are answered alike."""


class Placement(NamedTuple):
    member: int
    node: NodeInfo
    #: For each claim that none of the members placed before it has, in the order of its demand, and for its extended
    #: resources.
    allocations: tuple[Allocation, ...]


class _Group:
    """Partitions of one device: slots that draw on the same counters. Without counters, one slot."""

    __slots__ = ("kind", "taken")

    def __init__(self, kind: int) -> None:
        self.kind = kind
        #: How many of each sort of them members have, each in `_SHIFT` bits.
        self.taken = 0


class _There(NamedTuple):
    """What a node has for the gang. Indices are those of `GangSearch._slots`."""

    #: Of each plan; those that cannot be made there are left out.
    claims: Mapping[Plan, Sequence[ClaimPlan]]
    candidates: Mapping[RequestData, Sequence[int]]
    #: Of requests for all devices; None where it cannot be said which these are.
    everything: Mapping[RequestData, Sequence[int] | None]


class _Member(NamedTuple):
    """One that has a node, while its claims are gone through."""

    number: int
    node: NodeInfo
    there: _There
    claims: Sequence[tuple[ClaimPlan, ClaimKey | None]]
    falls_back: bool


class _Placed(NamedTuple):
    member: _Member
    #: Of its claims, the first in `Allocating.chosen`.
    first: int


class GangSearch:
    """`members` in the order in which they are tried; as many as are `needed` are to have places."""

    def __init__(self, members: Sequence[Wanting], needed: int, devices: Devices, places: Places) -> None:
        self._members = members
        self._needed = needed
        self._devices = devices
        self._places = places
        self.steps = 0
        #: The best that was found; empty if nothing was.
        self.found: Sequence[Placement] = ()
        self._found_fallen = 0
        #: Steps after which there is a pause, and after which what is tried is given up.
        self._limit = 0
        self._budget = self._until = STEPS_A_MEMBER * len(members)
        self._passed = 0
        self._plans: list[Plan | None] = [
            plan_of(each.demand, devices) if each.demand is not None else None for each in members
        ]
        self._claims = [claim for plan in dict.fromkeys(self._plans) if plan for claim in plan.claims]
        self._flexible = [
            index
            for index, plan in enumerate(self._plans)
            if plan is not None and any(len(each) > 1 for claim in plan.claims for each in claim.requests)
        ]
        self._attributes = sorted({each.attribute for one in self._claims for each in one.spec.constraints})
        requests = [request for claim in self._claims for request in claim.subrequests]
        self._has_admin = any(request.option.admin for request in requests)
        self._takes_all = any(request.option.takes_all for request in requests)
        #: Each device that any node has, once; and by its index: its group, one of its sort
        #: in that, and which part of the group it is at least.
        self._slots: list[DeviceSlot] = []
        self._index: dict[DeviceId, int] = {}
        self._groups: dict[int, tuple[_Group, int, float]] = {}
        #: Bits of slots that are in groups.
        self._grouped = 0
        self._kinds: dict[Hashable, int] = {}
        self._there: dict[Hashable, _There] = {}
        self._programme = self._probes()
        self._stack: list[_Level] = []
        #: How many members may fall back.
        self._most = len(members)
        #: Of each member, the groups that it has to have at least, as a sum of parts; and how many groups there are;
        #: unlimited if that was not found out.
        self._least: list[float] = []
        self._there_are = inf
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.allocating = Allocating((), self._slots)
        self._stack.clear()
        self._placed: list[_Placed] = []
        self._fallen = 0
        #: Alternatives behind the first that the member has whose turn it is.
        self._later = 0
        #: Index of a member -> whether its claims could be met on the node that it was tried on last.
        self._served: dict[int, bool] = {}
        #: Shared claim -> index of it in `Allocating.chosen`, and the node for which it was allocated.
        self._shared: dict[ClaimKey, tuple[int, NodeInfo]] = {}
        self._dead: set[Hashable] = set()
        self._touched: dict[_Group, None] = {}
        #: Groups that are taken, as the sum of their parts.
        self._spent = 0.0

    # ---- what is tried

    def run(self, steps: int = PORTION) -> bool:
        """Whether it is over after so many steps more; what came of it is in `found`. Nothing of it stays placed."""
        self._limit = self.steps + steps
        return next(self._programme, True)

    def _probes(self) -> Generator[bool, None, None]:
        """False for each pause."""
        if self._is_hopeless():
            return
        yield from self._probe(self._budget)
        alike = len({each.kind for each, plan in zip(self._members, self._plans, strict=True) if plan}) < 2
        until = min(self._budget, 2 * self.steps + STEPS_A_MEMBER)
        while self.found and self._found_fallen and not alike:
            # Fewer might fall back, if others of them did.
            self._most = self._found_fallen - 1
            if not (yield from self._probe(until)):
                return

    def _probe(self, until: int) -> Generator[bool, None, bool | None]:
        """Whether there is a way; None: that is not known at that step."""
        self._begin_anew()
        self._until = until
        stack = self._stack
        stack.append(self._member(0))
        found: bool | None = False
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
            elif self.steps >= until:
                found = None
                break
            else:
                yield from self._paused()
        for _ in self._placed:
            self._places.take_back()
        for group in self._touched:
            group.taken = 0
        return found

    def _paused(self) -> Iterator[bool]:
        """Those that are placed are not, meanwhile."""
        for _ in self._placed:
            self._places.take_back()
        yield False
        for each in self._placed:
            self._places.place(each.member.number, each.member.node)

    def _keep(self) -> None:
        found = []
        for member, first in self._placed:
            chosen = self.allocating.chosen[first : first + len(member.claims)]
            allocations = tuple(
                allocation_of(claim, choices, member.node)
                for (claim, _), choices in zip(member.claims, chosen, strict=True)
            )
            found.append(Placement(member.number, member.node, allocations))
        self.found, self._found_fallen = found, self._fallen

    @property
    def _is_over(self) -> bool:
        if self._passed >= PASSED_A_STEP:
            self.steps += self._passed // PASSED_A_STEP
            self._passed %= PASSED_A_STEP
        return self.steps >= self._limit or self.steps >= self._until

    # ---- levels

    def _member(self, index: int) -> _Level:
        missing = self._needed - len(self._placed)
        if not missing:
            yield None
            return
        if len(self._members) - index < missing:
            return
        if not self._may_suffice(index, missing):
            return
        key = self._left_to(index)
        if key in self._dead:
            return
        self.steps += _ASK
        nodes = self._places.nodes(index)
        for falls_back in self._ways(index):
            served = 0
            for node in nodes:
                self.steps += VISIT
                if self._is_over:
                    yield _PAUSE
                self._served[index] = False
                member = self._on(index, node, falls_back=falls_back)
                if member is None:
                    continue
                self._places.place(index, node)
                self._placed.append(_Placed(member, len(self.allocating.chosen)))
                later, self._later = self._later, 0
                yield self._claim(member, 0)
                self._later = later
                self._placed.pop()
                self._places.take_back()
                served += self._served[index]
                if served >= len(self._members):
                    break
        if len(self._members) - index > missing:
            yield self._member(index + 1)
        self._dead.add(key)

    def _ways(self, index: int) -> Sequence[bool]:
        if index not in self._flexible:
            return (False,)
        return (False, True) if self._fallen < self._most else (False,)

    def _on(self, index: int, node: NodeInfo, *, falls_back: bool) -> _Member | None:
        """None where what claims have already keeps the member from the node, or it cannot be asked about it."""
        member, plan = self._members[index], self._plans[index]
        if plan is None or member.demand is None:
            return _Member(index, node, _NOTHING, (), False)
        if plan.problem or member.demand.left_over:
            return None
        for each in member.demand.allocated:
            if each.binding_failed or (each.reach is not None and not reaches(each.reach, node)):
                return None
        there = self._there_on(node)
        claims = there.claims.get(plan)
        if claims is None:
            return None
        keys = (*member.claims, *[None] * (len(claims) - len(member.claims)))
        mine = []
        for claim, key in zip(claims, keys, strict=True):
            shared = self._shared.get(key) if key is not None else None
            if shared is None:
                mine.append((claim, key))
                continue
            selector = selector_of(self.allocating.chosen[shared[0]], shared[1])
            if selector is not None and not reaches(reach_of(selector), node):
                return None
        return _Member(index, node, there, mine, falls_back)

    def _claim(self, member: _Member, place: int) -> _Level:
        if place == len(member.claims):
            if member.falls_back and not self._later:
                return
            self._served[member.number] = True
            self._fallen += member.falls_back
            yield self._member(member.number + 1)
            self._fallen -= member.falls_back
            return
        self.allocating.begin(member.claims[place][0])
        yield self._request(member, place, 0)
        self.allocating.drop()

    def _request(self, member: _Member, place: int, number: int) -> _Level:
        claim, shared_as = member.claims[place]
        index = len(self.allocating.chosen) - 1
        if number == len(claim.requests):
            if shared_as is not None:
                self._shared[shared_as] = index, member.node
            yield self._claim(member, place + 1)
            if shared_as is not None:
                del self._shared[shared_as]
            return
        key: Hashable = None
        if place or number:
            # What is left to the first request is left to the member.
            key = (
                member.node.name,
                place,
                member.falls_back,
                bool(self._later),
                self.allocating.rest(index, number, self._grouped),
                self._left_to(member.number),
            )
            if key in self._dead:
                return
        for request in claim.requests[number]:
            if request.subindex and not member.falls_back:
                break
            self._later += request.subindex > 0
            if request.option.takes_all:
                yield self._take_all(member, place, request)
            else:
                yield self._take_some(member, place, request, request.option.number, 0)
            self._later -= request.subindex > 0
        if key is not None:
            self._dead.add(key)

    def _take_some(self, member: _Member, place: int, request: RequestData, left: int, start: int) -> _Level:
        if not left:
            yield self._request(member, place, request.index + 1)
            return
        allocating, claim = self.allocating, len(self.allocating.chosen) - 1
        candidates = member.there.candidates[request]
        if len(allocating.chosen[claim]) + left > DEVICES_AT_MOST:
            return
        failed: set[Hashable] = set()
        for at in range(start, len(candidates) - left + 1):
            index = candidates[at]
            kind = self._kind(index)
            if kind in failed or not allocating.is_free(claim, request, index, self._slots[index]):
                self._passed += 1
                continue
            self.steps += 1
            if self._is_over:
                yield _PAUSE
            if allocating.take(claim, request, index):
                self._note(index, 1)
                yield self._take_some(member, place, request, left - 1, at + 1)
                self._note(index, -1)
                allocating.give_back(claim, index)
            if kind is not None:
                failed.add(kind)

    def _take_all(self, member: _Member, place: int, request: RequestData) -> _Level:
        allocating, claim = self.allocating, len(self.allocating.chosen) - 1
        wanted = member.there.everything[request]
        if not wanted or len(allocating.chosen[claim]) + len(wanted) > DEVICES_AT_MOST:
            return
        taken = []
        for index in wanted:
            self.steps += 1
            if not allocating.is_free(claim, request, index, self._slots[index]) or not allocating.take(
                claim, request, index
            ):
                break
            self._note(index, 1)
            taken.append(index)
        if len(taken) == len(wanted):
            yield self._request(member, place, request.index + 1)
        for index in reversed(taken):
            self._note(index, -1)
            allocating.give_back(claim, index)

    # ---- what is alike

    def _left_to(self, index: int) -> Hashable:
        """Equal where the members from this one on find the same."""
        groups = sorted((group.kind, group.taken) for group in self._touched if group.taken)
        shared = [(key, node.name, index) for key, (index, node) in self._shared.items()]
        return (
            index,
            len(self._placed),
            self._fallen if self._most < len(self._members) else 0,
            tuple(groups),
            self.allocating.taken(self._grouped),
            tuple(shared),
            self._places.state(),
        )

    def _kind(self, index: int) -> Hashable:
        """What is equal of two slots is equal to all that is still to be decided. None: it has no equal."""
        found = self._groups.get(index)
        if found is None:
            return None
        group, one, _ = found
        return group.kind, group.taken, one

    def _note(self, index: int, sign: int) -> None:
        """The slot is taken, or no longer."""
        found = self._groups.get(index)
        if found is not None:
            group, one, part = found
            group.taken += sign * one
            self._spent += sign * part
            self._touched[group] = None

    def _there_on(self, node: NodeInfo) -> _There:
        there = devices_of(self._devices, node)
        claims: dict[Plan, Sequence[ClaimPlan]] = {}
        for plan in dict.fromkeys(self._plans):
            with suppress(Failed):
                if plan is not None:
                    claims[plan] = plan.claims_on(node, self._devices)
        known = (there, tuple(claims.values()))
        found = self._there.get(known)
        if found is None:
            found = self._there[known] = self._look(there, claims)
        return found

    def _look(self, there: NodeDevices, claims: Mapping[Plan, Sequence[ClaimPlan]]) -> _There:
        first = len(self._slots)
        indices = []
        for slot in there.slots:
            index = self._index.setdefault(slot.id, len(self._slots))
            if index == len(self._slots):
                self._slots.append(slot)
            indices.append(index)
        requests = dict.fromkeys(
            request for each in claims.values() for claim in each for request in claim.subrequests
        )
        candidates = {each: self._candidates(each, indices) for each in requests if not each.option.takes_all}
        everything = {
            each: self._everything(each, indices, there) for each in requests if each.option.takes_all
        }
        if not self._has_admin:
            told: dict[int, list[Hashable]] = {index: [] for index in range(first, len(self._slots))}
            for number, some in enumerate((*candidates.values(), *everything.values())):
                for index in some or ():
                    if index in told:
                        told[index].append(number)
            self._classify({index: tuple(by) for index, by in told.items() if by})
        return _There(claims, candidates, everything)

    def _selects(self, request: RequestData, slot: DeviceSlot) -> bool:
        self._passed += 1
        if request.selectors and request.selectors not in slot.facts.answers:
            self.steps += EVALUATION * len(request.selectors)
        return request.selects(slot.facts)

    def _candidates(self, request: RequestData, indices: Sequence[int]) -> list[int]:
        """Slots that the request could have beside what others have, as far as it can be asked about them."""
        found = []
        for index in indices:
            slot = self._slots[index]
            try:
                if not (request.option.admin or slot.is_open) or not self._selects(request, slot):
                    continue
            except Failed:
                break
            if (
                slot.has_counters()
                and request.tolerates(slot.device.taints)
                and wanted_of(request, slot) is not None
            ):
                found.append(index)
        return found

    def _everything(
        self, request: RequestData, indices: Sequence[int], there: NodeDevices
    ) -> list[int] | None:
        if there.unusable:
            return None
        try:
            return [
                index
                for index in indices
                if self._selects(request, self._slots[index])
                and wanted_of(request, self._slots[index]) is not None
            ]
        except Failed:
            return None

    def _classify(self, told: Mapping[int, Hashable]) -> None:
        """Put slots into groups, but for those of which it is not so plain what else they are in the way of. `told`:
        which requests each can be had for."""
        beside: dict[Hashable, list[int]] = {}
        for index in told:
            slot = self._slots[index]
            sets = {counter_set for (counter_set, _), _ in slot.device.consumes}
            if slot.facts.shared or len(sets) > 1 or (sets and not slot.place.node_name):
                continue
            if slot.is_open and slot.has_counters():
                beside.setdefault((slot.pool.id, *(sets or (index,))), []).append(index)
        for together in beside.values():
            self._add_group(together, told)

    def _add_group(self, together: Sequence[int], told: Mapping[int, Hashable]) -> None:
        slots = [self._slots[index] for index in together]
        pool, place = slots[0].pool, slots[0].place
        left = {
            counter: pool.counters.get(counter, 0) - pool.counters_used.get(counter, 0)
            for slot in slots
            for counter, _ in slot.device.consumes
        }
        sorts = [
            (
                told[index],
                tuple(map(slot.facts.attribute, self._attributes)),
                tuple((name, size) for (_, name), size in slot.device.consumes),
            )
            for index, slot in zip(together, slots, strict=True)
        ]
        kind = (
            place.node_name or id(place),
            tuple(sorts),
            tuple((name, size) for (_, name), size in sorted(left.items())),
        )
        group = _Group(self._kinds.setdefault(kind, len(self._kinds)))
        parts = _parts(slots, left)
        for index, sort, part in zip(together, sorts, parts, strict=True):
            self._groups[index] = group, 1 << _SHIFT * sorts.index(sort), part
            self._grouped |= 1 << index

    # ---- whether it can be

    def _is_hopeless(self) -> bool:
        """Whether too many members have no node even by themselves, or there are too few devices for all."""
        nodes: dict[Hashable, Sequence[NodeInfo]] = {}
        for index, member in enumerate(self._members):
            if member.kind not in nodes:
                self.steps += _ASK
                nodes[member.kind] = self._places.nodes(index)
        if sum(bool(nodes[member.kind]) for member in self._members) < self._needed:
            return True
        self._measure({node.name: node for each in nodes.values() for node in each}.values())
        return not self._may_suffice(0, self._needed)

    def _measure(self, nodes: Collection[NodeInfo]) -> None:
        """How many groups there are, and which parts of them each member has to have at least. Not where there are so
        many nodes that it would take too long to look at them."""
        groups: dict[_Group, None] = {}
        least: dict[RequestData, float] = {}
        for node in nodes:
            self.steps += VISIT
            if self.steps > PORTION:
                return
            for request, some in self._there_on(node).candidates.items():
                parts = [self._groups[index][2] if index in self._groups else 0.0 for index in some]
                least[request] = min(least.get(request, inf), *parts, inf)
                groups.update((self._groups[index][0], None) for index in some if index in self._groups)
        shared = _named_twice(key for member in self._members for key in member.claims)
        for plan, member in zip(self._plans, self._members, strict=True):
            claims = () if plan is None else zip(plan.claims, member.claims, strict=False)
            self._least.append(
                sum(
                    min(least.get(each, 0.0) * each.option.number for each in alternatives)
                    for claim, key in claims
                    if key not in shared
                    for alternatives in claim.requests
                )
            )
        self._there_are = len(groups)

    def _may_suffice(self, index: int, missing: int) -> bool:
        """Whether so many of the members from this one on might have enough, however devices are divided."""
        least = self._least[index:]
        if len(least) > missing:
            least.sort()
        return sum(least[:missing]) <= self._there_are - self._spent + _ROUNDED


_NOTHING: Final = _There({}, {}, {})


def _named_twice(keys: Iterator[ClaimKey]) -> set[ClaimKey]:
    once: set[ClaimKey] = set()
    twice: set[ClaimKey] = set()
    for key in keys:
        (twice if key in once else once).add(key)
    return twice


def _parts(slots: Sequence[DeviceSlot], left: Mapping[tuple[str, str], int]) -> list[float]:
    """Of each slot, so that those that are had at the same time are one together at most: by the counter of which they
    draw most, or one each where there is none."""
    if not left:
        return [1.0]
    drawn = [dict(slot.device.consumes) for slot in slots]
    by_counter = [
        [each.get(counter, 0) / size if size else 0.0 for each in drawn] for counter, size in left.items()
    ]
    return max(by_counter, key=min)
