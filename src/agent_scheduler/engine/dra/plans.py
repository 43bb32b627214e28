"""A demand in the allocator's form: requests with the selectors of their classes, and cached results."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final
from weakref import WeakKeyDictionary

from ..state.claimspec import ClaimSpec, Constraint, DeviceRequestInfo, DeviceTolerationInfo, Option
from ..state.nodeinfo import NodeInfo
from ..state.podclaims import ClaimDemand
from .catalogue import Devices
from .cel import CelError, selector
from .devices import DeviceTaintInfo, Facts
from .extended import CLAIM, met_by_devices, requests_for
from .records import DeviceClassInfo

#: The steps of a search that the evaluation of an expression takes at least, and the characters without extra cost.
EVALUATION: Final = 5
_SHORT_EXPRESSION: Final = 200


class NodeRefused(Exception):
    """A refusal of a node; the text is the reason in kube-scheduler's words."""


class RequestData:
    """A request, or an alternative of one, with its class: kube-scheduler's `requestData`."""

    def __init__(
        self,
        claim: str,
        request: DeviceRequestInfo,
        index: int,
        subindex: int,
        found: DeviceClassInfo,
        constraints: tuple[Constraint, ...],
    ) -> None:
        self.claim = claim
        #: The index of the request in the claim, and that of the alternative in the request; earlier ones are better.
        self.index = index
        self.subindex = subindex
        self.option = option = request.options[subindex]
        self.device_class = found
        #: The selectors of the class, then of the request. Also the key of cached answers.
        self.selectors = found.selectors + option.selectors
        #: The steps of the search that an evaluation for one kind of device takes.
        self.evaluation = sum(EVALUATION + max(0, len(each) - _SHORT_EXPRESSION) // 4 for each in self.selectors)
        self.capacity_key: Hashable = ("capacity", option.capacity)
        #: The claim's constraints that apply to it.
        self.applying = tuple(
            index
            for index, constraint in enumerate(constraints)
            if not constraint.requests
            or request.name in constraint.requests
            or option.result_name in constraint.requests
        )

    def selects(self, facts: Facts) -> bool:
        """Return whether all selectors match. Raises `NodeRefused` if one cannot be evaluated."""
        found = facts.answers.get(self.selectors) if self.selectors else True
        if found is None:
            found = asked(self.selectors, facts)
        if isinstance(found, bool):
            return found
        index, text = found
        own = index - len(self.device_class.selectors)
        if own < 0:
            raise NodeRefused(f"class {self.device_class.name}: selector #{index}: {text}")
        raise NodeRefused(f"claim {self.claim}: selector #{own}: {text}")

    def tolerates(self, taints: tuple[DeviceTaintInfo, ...]) -> bool:
        return not taints or all(any(_tolerates(each, taint) for each in self.option.tolerations) for taint in taints)


class ClaimPlan:
    """A claim to allocate, with its requests in the allocator's form. Raises `NodeRefused`."""

    def __init__(self, name: str, spec: ClaimSpec, devices: Devices) -> None:
        self.name = name
        self.spec = spec
        #: For each request its alternatives (`firstAvailable`), or itself alone; and all of them.
        self.requests = requests = tuple(
            tuple(
                RequestData(name, request, index, subindex, _class_of(option, devices), spec.constraints)
                for subindex, option in enumerate(request.options)
            )
            for index, request in enumerate(spec.requests)
        )
        self.subrequests = tuple(each for alternatives in requests for each in alternatives)
        #: Whether it, or any class of its devices, has configuration for drivers.
        self.configured = bool(spec.configuration) or any(
            request.device_class.configuration for request in self.subrequests
        )


class DemandPlan:
    """The plan of one demand, until a class changes. `problem` is the reason why no node is feasible, or empty."""

    def __init__(self, demand: ClaimDemand, devices: Devices) -> None:
        self.version = devices.version
        self.problem = demand.problem
        self.claims: tuple[ClaimPlan, ...] = ()
        #: Cached answers for each node, and for `NodeDevices` that several share. Owned by `answers`.
        self.answers: dict[str, Any] = {}
        self.shared_answers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._needs = demand.extended
        self._extended: dict[frozenset[str], ClaimPlan] = {}
        if not self.problem:
            try:
                self.claims = tuple(ClaimPlan(each.name, each.spec, devices) for each in demand.to_allocate)
            except NodeRefused as failed:
                self.problem = str(failed)

    @property
    def takes_all(self) -> bool:
        """Whether a request has the allocation mode `All`: its refusal may end although no device is freed."""
        return any(request.option.takes_all for claim in self.claims for request in claim.subrequests)

    @property
    def most(self) -> int:
        """The most devices that its requests take, except those for all devices."""
        return sum(
            max(request.option.number for request in alternatives)
            for claim in self.claims
            for alternatives in claim.requests
        )

    def claims_on(self, node: NodeInfo, devices: Devices) -> tuple[ClaimPlan, ...]:
        """Return `claims`, and at the end one for the extended resources that devices provide on this node."""
        if self._needs is None:
            return self.claims
        resources = met_by_devices(self._needs.resources, devices, node)
        if not resources:
            return self.claims
        found = self._extended.get(resources)
        if found is None:
            spec, _ = requests_for(self._needs, resources, devices)
            found = self._extended[resources] = ClaimPlan(CLAIM, spec, devices)
        return (*self.claims, found)


def plan_of(demand: ClaimDemand, devices: Devices) -> DemandPlan:
    found: DemandPlan | None = devices.plans.get(demand)
    if found is None or found.version != devices.version:
        found = devices.plans[demand] = DemandPlan(demand, devices)
    return found


def _class_of(option: Option, devices: Devices) -> DeviceClassInfo:
    found = devices.classes.get(option.class_name)
    if found is None:
        raise NodeRefused(f"request {option.result_name}: device class {option.class_name} does not exist")
    if found.error:
        raise NodeRefused(f"device class {found.name}: {found.error}")
    return found


def asked(expressions: tuple[str, ...], facts: Facts) -> bool | tuple[int, str]:
    """Return whether all expressions match, or the index and error of an invalid one.

    Cached with the device's facts.
    """
    if not expressions:
        return True
    found: bool | tuple[int, str] | None = facts.answers.get(expressions)
    if found is None:
        found = _matches(expressions, facts)
        facts.keep(expressions, found)
    return found


def _matches(expressions: tuple[str, ...], facts: Facts) -> bool | tuple[int, str]:
    for index, expression in enumerate(expressions):
        try:
            if not selector(expression).matches(facts):
                return False
        except CelError as error:
            return index, str(error)
    return True


def _tolerates(toleration: DeviceTolerationInfo, taint: DeviceTaintInfo) -> bool:
    """Implement `ToleratesTaint` of k8s.io/dynamic-resource-allocation."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator == "Equal" and toleration.value == taint.value
