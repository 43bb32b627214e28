"""The devices of a pod's claims on a node: complete, deterministic, and in portions.

The rules are those of kube-scheduler's structured allocator, with these differences. Where an expression or a request
for all devices makes kube-scheduler reject the pod, only the node is refused here. Admin access to a device does not
exclude other claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.objects.wire import NodeSelector, NodeSelectorTerm, SelectorRequirement

from ..state.nodeinfo import NodeInfo
from ..state.nodeselection import reaches
from ..state.podclaims import ClaimDemand
from .allocating import DeviceChoice
from .allocation import Allocation, Config, RequestResult
from .catalogue import Devices, SearchBudget
from .node_devices import DeviceSlot, NodeDevices, devices_of
from .plans import ClaimPlan, NodeRefused, RequestData, plan_of
from .search import Search

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
NOT_AVAILABLE: Final = "resourceclaim not available on the node"
TIMED_OUT: Final = "timed out trying to allocate devices"
#: A claim of a failed attempt still exists.
LEFT_OVER: Final = "cannot schedule extended resource claim"
INVALID_POOLS: Final = "invalid resource pools were encountered"

#: The cost of visiting a node at all, in steps.
VISIT: Final = 15
#: `FirstAvailableDeviceRequestMaxSize`.
_ALTERNATIVES: Final = 8


class CannotAllocate(msgspec.Struct, frozen=True):
    """A refusal; `reason` is kube-scheduler's message."""

    reason: str


class Undecided(CannotAllocate, frozen=True):
    """The budget was exhausted before there was an answer. `search` can be resumed; None if it was not started."""

    search: Any = None


#: The answer for a node that no budget was left for.
NOT_ASKED: Final = Undecided(TIMED_OUT)


def allocate(
    demand: ClaimDemand,
    devices: Devices,
    node: NodeInfo,
    budget: SearchBudget | None = None,
    begun: Undecided = NOT_ASKED,
) -> tuple[Allocation, ...] | CannotAllocate:
    """Allocate each of `demand.to_allocate`, in their order, and at the end extended resources from devices.

    Pure: it takes nothing, see `Devices.assume`. `begun` is the earlier result if nothing has changed since.
    """
    budget = budget or SearchBudget()
    budget.left -= VISIT
    plan = plan_of(demand, devices)
    if plan.problem:
        return CannotAllocate(plan.problem)
    if demand.left_over:
        return CannotAllocate(LEFT_OVER)
    for each in demand.allocated:
        if each.binding_failed or (each.reach is not None and not reaches(each.reach, node)):
            return CannotAllocate(NOT_AVAILABLE)
    try:
        claims = plan.claims_on(node, devices)
        if not claims:
            return ()
        there = devices_of(devices, node)
        search = begun.search or Search(claims, there)
        before = search.steps
        try:
            found = search.run(max(budget.left, 0))
        finally:
            budget.left -= search.steps - before
    except NodeRefused as failed:
        return CannotAllocate(str(failed))
    if found is None:
        return Undecided(TIMED_OUT, search)
    if not found:
        return CannotAllocate(search.allocating.problem or _why(there))
    return tuple(
        allocation_of(claim, choices, node) for claim, choices in zip(claims, search.allocating.chosen, strict=True)
    )


def _why(there: NodeDevices) -> str:
    invalid = [trouble for _, trouble in there.unusable if trouble]
    if not invalid:
        return CANNOT_ALLOCATE
    # Inconsistent data has kube-scheduler's message only; invalid data also names its place.
    unreadable = [trouble for trouble in invalid if trouble.startswith("resource slice ")]
    return f"{INVALID_POOLS}: {unreadable[0]}" if unreadable else INVALID_POOLS


def allocation_of(claim: ClaimPlan, choices: Sequence[DeviceChoice], node: NodeInfo) -> Allocation:
    chosen = {choice.request.index: choice.request for choice in choices}
    return Allocation(
        results=tuple(
            RequestResult(
                request=choice.request.option.result_name,
                id=choice.slot.id,
                admin=choice.request.option.admin,
                tolerations=choice.request.option.written_tolerations,
                shared=choice.slot.facts.shared,
                consumed=choice.consumed,
                binding_conditions=choice.slot.device.binding_conditions,
                binding_failure_conditions=choice.slot.device.binding_failure_conditions,
            )
            for choice in choices
        ),
        configuration=_configuration(claim, [request for _, request in sorted(chosen.items())]),
        selector=selector_of(choices, node),
        preference=sum(
            _ALTERNATIVES - request.subindex
            for index, request in chosen.items()
            if claim.spec.requests[index].prioritized
        ),
    )


def _configuration(claim: ClaimPlan, chosen: Sequence[RequestData]) -> tuple[Config, ...]:
    """Return the configuration of the classes, without duplicates, then that of the claim, for the chosen requests."""
    if not claim.configured:
        return ()
    names: dict[str, list[str]] = {}
    for request in chosen:
        names.setdefault(request.device_class.name, []).append(request.option.result_name)
    found = []
    for device_class in {request.device_class.name: request.device_class for request in chosen}.values():
        found += [Config("FromClass", tuple(names[device_class.name]), opaque) for opaque in device_class.configuration]
    known = {request.name for request in claim.spec.requests} | {request.option.result_name for request in chosen}
    found += [
        Config("FromClaim", each.requests, each.opaque)
        for each in claim.spec.configuration
        if not each.requests or known.intersection(each.requests)
    ]
    every = len(claim.spec.requests)
    return tuple(each._replace(requests=()) if len(each.requests) == every else each for each in found)


def selector_of(choices: Sequence[DeviceChoice], node: NodeInfo) -> NodeSelector | None:
    """Return where the claim can be used: only on this node if one of its devices requires it, or wherever all can."""
    fields: list[SelectorRequirement] = []
    labels: list[SelectorRequirement] = []
    for choice in choices:
        if choice.slot.is_bound:
            return _only(node.name)
        for term in choice.slot.terms:
            _add(labels, term.match_expressions or ())
            _add(fields, term.match_fields or ())
    if not (fields or labels):
        return None
    return NodeSelector([NodeSelectorTerm(labels or None, fields or None)])


@lru_cache(maxsize=8192)
def _only(node_name: str) -> NodeSelector:
    """Return the selector of one node, which many allocations share."""
    only = SelectorRequirement("metadata.name", "In", [node_name])
    return NodeSelector([NodeSelectorTerm(match_fields=[only])])


def _add(known: list[SelectorRequirement], more: Sequence[SelectorRequirement]) -> None:
    known += [each for each in more if each not in known]


def lacking(refused: CannotAllocate, demand: ClaimDemand, devices: Devices, node: NodeInfo) -> str:
    """Return the reason, and for each request the numbers of matching and of free devices."""
    if refused.reason != CANNOT_ALLOCATE:
        return refused.reason
    slots = devices_of(devices, node).slots
    plan = plan_of(demand, devices)
    requests = [each for claim in plan.claims_on(node, devices) for each in claim.subrequests]
    return "; ".join((refused.reason, *(_said_of(each, slots) for each in requests)))


def _said_of(request: RequestData, slots: tuple[DeviceSlot, ...]) -> str:
    option = request.option
    wants = "all" if option.takes_all else str(option.number)
    place = f"claim {request.claim}, request {option.result_name}: wants {wants} of class {option.class_name}"
    try:
        matching = [slot for slot in slots if request.selects(slot.facts)]
    except NodeRefused as failed:
        return f"{place}, {failed}"
    free = [slot for slot in matching if slot.name not in slot.pool.exclusive]
    tainted = sum(not request.tolerates(slot.device.taints) for slot in free)
    text = f"{place}, {len(matching)} match, {len(free)} of them free"
    return f"{text}, {tainted} of these tainted" if tainted else text


Answer = tuple[Allocation, ...] | CannotAllocate


class _CachedAnswer(NamedTuple):
    stamp: tuple[int, int]
    freed: tuple[int, int]
    node: NodeInfo
    answer: Answer


def answer(demand: ClaimDemand, devices: Devices, node: NodeInfo, budget: SearchBudget | None = None) -> Answer:
    """Return `allocate`, cached by demand and node until an input of the answer changes.

    Without steps in the budget only cached answers are returned. If devices were only taken since, no search can find
    more than before: a refusal still holds, and so does an allocation whose devices are all still free. A search that a
    budget has cut short is no answer: it is kept, and resumed when the node is asked about again.
    """
    plan = plan_of(demand, devices)
    kept, key, stamp, freed = _place_of(demand, devices, node)
    found, begun = kept.get(key), NOT_ASKED
    if found is not None and (key is not node.name or found.node is node or _alike(found.node, node)):
        if found.stamp == stamp:
            if isinstance(found.answer, Undecided):
                begun = found.answer
            else:
                return found.answer
        elif found.freed == freed and not plan.takes_all and _holds(found.answer, devices):
            kept[key] = found._replace(stamp=stamp)
            return found.answer
    if budget is not None and budget.left <= 0:
        return begun
    new = allocate(demand, devices, node, budget, begun)
    kept[key] = _CachedAnswer(stamp, freed, node, new)
    return new


def _place_of(
    demand: ClaimDemand, devices: Devices, node: NodeInfo
) -> tuple[MutableMapping[Any, _CachedAnswer], str | NodeDevices, tuple[int, int], tuple[int, int]]:
    """Return the cache of the answer, its key, and the stamps of an answer given now."""
    plan = plan_of(demand, devices)
    stamp, freed = devices.pools.stamp(node.name), devices.pools.freed_stamp(node.name)
    if not (plan.problem or demand.allocated or demand.extended):
        there = devices_of(devices, node)
        if there.shared:
            # None of these nodes has pools of its own, and no answer concerns only one of them.
            return plan.shared_answers, there, (0, stamp[1]), (0, freed[1])
    return plan.answers, node.name, stamp, freed


@contextmanager
def answering(
    demand: ClaimDemand, devices: Devices, node: NodeInfo, allocations: tuple[Allocation, ...]
) -> Iterator[None]:
    """Return a context in which `answer` returns these allocations for the node, until anything changes.

    For callers that decide about more than one pod.
    """
    kept, key, stamp, freed = _place_of(demand, devices, node)
    before = kept.get(key)
    kept[key] = _CachedAnswer(stamp, freed, node, allocations)
    try:
        yield
    finally:
        # The pod by itself would get another answer.
        if before is None:
            del kept[key]
        else:
            kept[key] = before


def _holds(found: Answer, devices: Devices) -> bool:
    """Return whether an answer still holds although devices were taken since."""
    if isinstance(found, CannotAllocate):
        return found.reason == CANNOT_ALLOCATE
    return devices.pools.are_free(use for each in found for use in each.allocated.uses)


def _alike(one: NodeInfo, other: NodeInfo) -> bool:
    """Return whether two nodes are equal in all inputs of an answer."""
    labels: Mapping[str, str] = one.labels
    return labels == other.labels and one.allocatable == other.allocatable
