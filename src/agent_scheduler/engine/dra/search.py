"""The search for devices: depth first, one request after the other, each free device in turn.

It is complete: it finds an allocation whenever one exists. Four rules keep it short. Devices that a request can never
get, because others have them or their counters are exhausted, are excluded once. Devices of one kind are tried once at
each place. The devices of one request are used in the order of the slots, because their order is irrelevant. And a
remainder is known to fail if the same devices were taken before for the earlier requests.

The search is a stack of generators, not a recursion: a pod may have more devices than Python has frames. When its steps
are exhausted, it stops, and can be resumed as long as nothing has changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .allocating import Allocating, DeviceChoice, wanted_of
from .node_devices import DeviceSlot, NodeDevices
from .plans import ClaimPlan, NodeRefused, RequestData

#: `AllocationResultsMaxSize`.
DEVICES_AT_MOST: Final = 32
#: Before this number of steps it does not pay to check whether a search can succeed, or to record where it failed.
_SHORT: Final = 50

#: Skipping a device takes a fraction of the time of trying it.
PASSED_A_STEP: Final = 16

#: Levels of the search; each yields the next one to try, or one of these. None: everything has been found.
Level = Iterator[Any]
_PAUSE: Final = object()
_HOPELESS: Final = object()


class _OutOfSteps(Exception):
    """The steps did not suffice to begin."""


@dataclass(slots=True, eq=False)
class _Scan:
    """The slots that a request may use, as far as they were scanned."""

    #: The slots that remain to be scanned; None once all were.
    left: Iterator[int] | None
    #: (index, error of its check).
    found: list[tuple[int, NodeRefused | None]] = field(default_factory=list)


class Search:
    """One search for all claims on one node."""

    def __init__(self, claims: Sequence[ClaimPlan], node_devices: NodeDevices) -> None:
        self._claims = claims
        self._node_devices = node_devices
        self._slots = node_devices.slots
        self._limit = 0
        self.steps = 0
        #: Skipped devices, which cost a part of a step.
        self._passed = 0
        #: Empty before the search has begun.
        self._stack: list[Level] = []
        self._scans: dict[RequestData, _Scan] = {}
        self.allocating = Allocating(claims, self._slots)
        self._all: dict[RequestData, list[int]] = {}
        self._dead: set[Hashable] = set()
        #: Whether it was already checked that the search can succeed.
        self._weighed = False

    def run(self, steps: int) -> bool | None:
        """Return whether all requests could be met; the devices are then in `allocating.chosen`. Raises `NodeRefused`.

        Return None if that is undecided after `steps` steps. Another call resumes.
        """
        self._limit = self.steps + steps
        stack = self._stack
        if not stack:
            if (found := self._first()) is not None:
                self.allocating.chosen[0].append(found)
                return True
            try:
                for claim in self._claims:
                    self._prepare(claim)
            except _OutOfSteps:
                return None
            stack.append(self._request(0, 0))
        while stack:
            try:
                level = next(stack[-1])
            except StopIteration:
                stack.pop()
                continue
            if level is None:
                return True
            if level is _PAUSE:
                return None
            if level is _HOPELESS:
                return False
            stack.append(level)
            if not self._weighed and self.steps > _SHORT:
                self._weighed = True
                stack.append(self._weigh())
        return False

    def _is_over(self) -> bool:
        """Return whether the steps are exhausted."""
        if self._passed >= PASSED_A_STEP:
            self.steps += self._passed // PASSED_A_STEP
            self._passed %= PASSED_A_STEP
        return self.steps > self._limit

    def _selects(self, request: RequestData, slot: DeviceSlot) -> bool:
        if request.selectors and request.selectors not in slot.facts.answers:
            self.steps += request.evaluation
        return request.selects(slot.facts)

    def _first(self) -> DeviceChoice | None:
        """Return the first free and selected device for a plain request of one device, the usual case.

        That is the result of a search. None: the request is not plain, or there is no such device.
        """
        if len(self._claims) != 1:
            return None
        claim = self._claims[0]
        if len(claim.requests) != 1 or len(claim.requests[0]) != 1:
            return None
        (request,) = claim.requests[0]
        option = request.option
        if option.takes_all or option.number != 1 or option.admin or request.applying:
            return None
        for index in self._node_devices.open():
            slot = self._slots[index]
            self._passed += 1
            if slot.facts.shared or self._is_over():
                return None
            if not self._selects(request, slot):
                continue
            device = slot.device
            if device.taints or device.consumes or wanted_of(request, slot) is None:
                return None
            self.steps += 1
            return DeviceChoice(request, slot, ())
        return None

    def _prepare(self, claim: ClaimPlan) -> None:
        """Find the devices of requests for all, and check the claim's number of devices against the limit."""
        least = 0
        for subrequests in claim.requests:
            numbers = []
            for request in subrequests:
                if request.option.takes_all:
                    self._all[request] = self._everything(claim, request)
                    numbers.append(len(self._all[request]))
                else:
                    numbers.append(request.option.number)
            least += min(numbers, default=0)
        if least > DEVICES_AT_MOST:
            raise NodeRefused(
                f"claim {claim.name}: number of requested devices {least} exceeds the claim limit of {DEVICES_AT_MOST}"
            )

    def _everything(self, claim: ClaimPlan, request: RequestData) -> list[int]:
        if self._node_devices.unusable:
            pool, trouble = self._node_devices.unusable[0]
            state = "invalid" if trouble else "being updated"
            raise NodeRefused(
                f"claim {claim.name}, request {request.option.name}: asks for all devices, "
                f"but resource pool {pool} is currently {state}"
            )
        found = []
        for index, slot in enumerate(self._slots):
            if self._is_over():
                raise _OutOfSteps
            self._passed += 1
            if self._selects(request, slot) and wanted_of(request, slot) is not None:
                found.append(index)
        return found

    def _scan_of(self, request: RequestData) -> _Scan:
        scan = self._scans.get(request)
        if scan is None:
            # Admin access does not conflict with other uses.
            slots = iter(range(len(self._slots))) if request.option.admin else self._node_devices.open()
            scan = self._scans[request] = _Scan(slots)
        return scan

    def _look_at_one(self, request: RequestData, scan: _Scan) -> None:
        """Scan one more slot that a request may use."""
        assert scan.left is not None, "there are more"
        index = next(scan.left, None)
        if index is None:
            scan.left = None
            return
        self._passed += 1
        slot = self._slots[index]
        try:
            if not self._selects(request, slot):
                return
        except NodeRefused as failed:
            scan.found.append((index, failed))
            return
        if not slot.has_counters() or not request.tolerates(slot.device.taints) or wanted_of(request, slot) is None:
            return
        scan.found.append((index, None))

    def _weigh(self) -> Level:
        """Check whether a long search can succeed at all, because most of these cannot."""
        together = 0
        for claim in self._claims:
            for subrequests in claim.requests:
                possible = False
                for request in subrequests:
                    if request.option.takes_all:
                        possible = True
                        continue
                    scan = self._scan_of(request)
                    while scan.left is not None:
                        if self._is_over():
                            yield _PAUSE
                        self._look_at_one(request, scan)
                    # Errors are left to the search.
                    possible = possible or (
                        len(scan.found) >= request.option.number or any(error for _, error in scan.found)
                    )
                if not possible:
                    yield _HOPELESS
                if not any(request.option.admin or request.option.takes_all for request in subrequests):
                    together += min(request.option.number for request in subrequests)
        slots = [self._slots[index] for index in self._node_devices.open()]
        if together > len(slots) and not any(slot.facts.shared for slot in slots):
            yield _HOPELESS

    # ---- levels

    def _request(self, claim_index: int, request_index: int) -> Level:
        while claim_index < len(self._claims) and request_index >= len(self._claims[claim_index].requests):
            claim_index, request_index = claim_index + 1, 0
        if claim_index == len(self._claims):
            yield None
            return
        key = self.allocating.rest(claim_index, request_index) if self.steps > _SHORT else None
        if key in self._dead:
            return
        for request in self._claims[claim_index].requests[request_index]:
            if request.option.takes_all:
                yield self._take_all(claim_index, request)
            else:
                yield self._take_some(claim_index, request, request.option.number, 0)
        if key is not None:
            self._dead.add(key)

    def _take_some(self, claim_index: int, request: RequestData, left: int, start: int) -> Level:
        if not left:
            yield self._request(claim_index, request.index + 1)
            return
        if len(self.allocating.chosen[claim_index]) + left > DEVICES_AT_MOST:
            return
        scan, slots = self._scan_of(request), self._slots
        failed: set[int] = set()
        place = start
        while True:
            while place >= len(scan.found) and scan.left is not None:
                if self._is_over():
                    yield _PAUSE
                self._look_at_one(request, scan)
            if place >= len(scan.found):
                return
            index, error = scan.found[place]
            place += 1
            slot = slots[index]
            if slot.kind in failed or not self.allocating.is_free(claim_index, request, index, slot):
                self._passed += 1
                continue
            if error is not None:
                raise error
            # Too few remain from here on; the others are checked nevertheless, because of their possible errors.
            if scan.left is None and len(scan.found) - place < left - 1:
                self._passed += 1
                continue
            self.steps += 1
            if self._is_over():
                yield _PAUSE
            if self.allocating.take(claim_index, request, index):
                yield self._take_some(claim_index, request, left - 1, place)
                self.allocating.give_back(claim_index, index)
            if slot.kind >= 0:
                failed.add(slot.kind)

    def _take_all(self, claim_index: int, request: RequestData) -> Level:
        wanted = self._all[request]
        if not wanted or len(self.allocating.chosen[claim_index]) + len(wanted) > DEVICES_AT_MOST:
            return
        taken = []
        for index in wanted:
            self.steps += 1
            slot = self._slots[index]
            if not self.allocating.is_free(claim_index, request, index, slot) or not self.allocating.take(
                claim_index, request, index, must=True
            ):
                break
            taken.append(index)
        if len(taken) == len(wanted):
            yield self._request(claim_index, request.index + 1)
        for index in reversed(taken):
            self.allocating.give_back(claim_index, index)
