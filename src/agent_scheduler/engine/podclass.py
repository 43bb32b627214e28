"""Pods that want the same are one class, compiled once and decided together.

A `PodClass` holds everything that the filters and scores of a node read from a pod, in compiled form. Two pods
of one class get the same answer on the same snapshot, which is what lets a worker keep masks and scores from
one pod to the next. The key is made of the bytes that the API server sent, so a class is recognised without
parsing; pods that spell the same thing differently are merely two classes.

A pod that cannot be read is a class too: its `error` names the field, and no worker ever places it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from agent_scheduler.objects import wire

from .requests import (
    Amounts,
    amounts,
    container_amounts,
    counts_by_default,
    pod_requests,
    with_defaults,
)

#: The counter of pods on a node, treated as one more resource.
PODS = "pods"

#: (host IP, protocol, port); the IP is "0.0.0.0" where the pod names none.
HostPort = tuple[str, str, int]

_ANY_IP = "0.0.0.0"  # noqa: S104 - a value to compare, nothing listens on it

_selector = msgspec.json.Decoder(dict[str, str] | None)
_affinity = msgspec.json.Decoder(wire.Affinity | None)
_tolerations = msgspec.json.Decoder(list[wire.Toleration] | None)
_resources = msgspec.json.Decoder(wire.Resources | None)
_pod_level = msgspec.json.Decoder(wire.ResourceRequirements | None)

_TOLERATION_OPERATORS = ("Exists", "Equal", "Lt", "Gt")
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


_NO_STATUS = wire.PodStatus()


class SpecError(ValueError):
    """A pod spec that cannot be decided on; the text names the field and what is allowed."""


class PodClass:
    """What the rules of a node read from a pod. Immutable once built; equal only to itself."""

    __slots__ = (
        "__weakref__",
        "affinity",
        "error",
        "host_ports",
        "node_name",
        "node_selector",
        "nonzero",
        "requests",
        "tolerations",
    )

    def __init__(
        self,
        *,
        requests: Amounts,
        nonzero: tuple[int, int],
        host_ports: tuple[HostPort, ...],
        node_selector: dict[str, str],
        affinity: wire.NodeAffinity | None,
        tolerations: tuple[wire.Toleration, ...],
        node_name: str = "",
        error: str = "",
    ) -> None:
        #: Amounts in the ledger's units, zeros left out, `PODS` always 1.
        self.requests = requests
        #: (millicores, bytes) that the pod counts as in scores.
        self.nonzero = nonzero
        self.host_ports = host_ports
        self.node_selector = node_selector
        self.affinity = affinity
        self.tolerations = tolerations
        #: The one node that it may go to; empty for any.
        self.node_name = node_name
        #: Why no node may be chosen for it; empty for a sound spec.
        self.error = error


class PodClasses:
    """Compiles specs and shares the result. Owner of the only table from key to class.

    The table is weak: a class lives as long as a pod or a worker's view holds it.
    """

    def __init__(self) -> None:
        self._by_key: WeakValueDictionary[Hashable, PodClass] = WeakValueDictionary()
        #: Spelling of a plain spec -> its class. Invariant: what `_class` makes of such a spec is that very class.
        self._by_spelling: WeakValueDictionary[Hashable, PodClass] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._by_key)

    def of(
        self,
        spec: wire.PodSpec,
        *,
        node_name: str = "",
        status: wire.PodStatus | None = None,
        problem: str = "",
    ) -> PodClass:
        """The class of a spec. Never raises: what is wrong is in `PodClass.error`, and the rest is in the class.

        `spec.nodeName` is left out unless given as `node_name`: for a pod that is bound it says where the pod
        is, not what it wants, and one class a node would share nothing. `status` tells of resizes. `problem` is
        what was wrong with the spec before it came here.
        """
        status = status or _NO_STATUS
        spelling = None if problem else _spelling(spec, status, node_name)
        if spelling is None:
            return self._class(spec, status, node_name, problem)
        found = self._by_spelling.get(spelling)
        if found is None:
            found = self._by_spelling[spelling] = self._class(spec, status, node_name, problem)
        return found

    def _class(self, spec: wire.PodSpec, status: wire.PodStatus, node_name: str, problem: str) -> PodClass:
        ports: list[HostPort] = []
        problems = [problem] if problem else []
        infeasible = _is_infeasible(status)
        containers = container_amounts(
            spec.containers,
            "spec.containers",
            problems,
            statuses=status.container_statuses,
            infeasible=infeasible,
        )
        inits = container_amounts(
            spec.init_containers,
            "spec.initContainers",
            problems,
            statuses=status.init_container_statuses,
            infeasible=infeasible,
        )
        pod_level, overhead = _pod_level_amounts(spec, problems), _overhead(spec, problems)
        error = problems[0] if problems else ""
        for container in spec.containers or ():
            _host_ports(container, ports)
        for container in spec.init_containers or ():
            if container.restart_policy == "Always":
                _host_ports(container, ports)
        requests = pod_requests(
            (requests for requests, _ in containers), inits, pod_level=pod_level, overhead=overhead
        )
        counted = requests
        if any(counts_by_default(each) for each, _ in (*containers, *inits)):
            counted = pod_requests(
                (with_defaults(requests) for requests, _ in containers),
                ((with_defaults(requests), sidecar) for requests, sidecar in inits),
                pod_level=pod_level,
                overhead=overhead,
            )
        nonzero = (counted.get("cpu", 0), counted.get("memory", 0))
        requests = {resource: amount for resource, amount in requests.items() if amount}
        requests[PODS] = 1
        key = (
            tuple(sorted(requests.items())),
            nonzero,
            tuple(sorted(set(ports))),
            bytes(spec.node_selector),
            bytes(spec.affinity),
            bytes(spec.tolerations),
            node_name,
            error,
        )
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = _compile(
                spec, requests, nonzero, host_ports=key[2], node_name=node_name, error=error
            )
        return found


def _spelling(spec: wire.PodSpec, status: wire.PodStatus, node_name: str) -> Hashable | None:
    """All that a class depends on, as it is written, for most pods that wait; None for those with more to them."""
    if spec.init_containers or status.container_statuses or status.init_container_statuses:
        return None
    requests = []
    for container in spec.containers or ():
        if container.ports:
            return None
        resources = container.resources
        requests.append(tuple(resources.requests.items()) if resources and resources.requests else ())
    return (
        node_name,
        tuple(requests),
        bytes(spec.overhead),
        bytes(spec.resources),
        bytes(spec.node_selector),
        bytes(spec.affinity),
        bytes(spec.tolerations),
    )


def _host_ports(container: wire.Container, ports: list[HostPort]) -> None:
    if container.ports:
        ports.extend(
            (port.host_ip or _ANY_IP, port.protocol or "TCP", port.host_port)
            for port in container.ports
            if port.host_port
        )


def _is_infeasible(status: wire.PodStatus) -> bool:
    """Whether the node has said that it can never grant the resize that is asked for."""
    return any(
        each.type == "PodResizePending" and each.reason == "Infeasible" for each in status.conditions or ()
    )


def _pod_level_amounts(spec: wire.PodSpec, problems: list[str]) -> Amounts:
    try:
        requirements = _decode(_pod_level, spec.resources, "spec.resources")
    except SpecError as error:
        problems.append(str(error))
        return {}
    return amounts(requirements.requests, "spec.resources.requests", problems) if requirements else {}


def _overhead(spec: wire.PodSpec, problems: list[str]) -> Amounts:
    try:
        return amounts(_decode(_resources, spec.overhead, "spec.overhead"), "spec.overhead", problems)
    except SpecError as error:
        problems.append(str(error))
        return {}


def _compile(
    spec: wire.PodSpec,
    requests: Amounts,
    nonzero: tuple[int, int],
    *,
    host_ports: tuple[HostPort, ...],
    node_name: str,
    error: str,
) -> PodClass:
    selector: dict[str, str] = {}
    affinity: wire.NodeAffinity | None = None
    tolerations: tuple[wire.Toleration, ...] = ()
    try:
        selector = _decode(_selector, spec.node_selector, "spec.nodeSelector") or {}
        whole = _decode(_affinity, spec.affinity, "spec.affinity")
        affinity = whole.node_affinity if whole else None
        tolerations = tuple(_decode(_tolerations, spec.tolerations, "spec.tolerations") or ())
        check_tolerations(tolerations)
        check_node_affinity(affinity, "spec.affinity.nodeAffinity")
    except SpecError as problem:
        error = error or str(problem)
    return PodClass(
        requests=requests,
        nonzero=nonzero,
        host_ports=host_ports,
        node_selector=selector,
        affinity=affinity,
        tolerations=tolerations,
        node_name=node_name,
        error=error,
    )


def _decode(decoder: msgspec.json.Decoder[Any], raw: Raw, place: str) -> Any:
    data = bytes(raw)
    if not data:
        return None
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise SpecError(f"{place}: {error}") from None


def check_tolerations(tolerations: tuple[wire.Toleration, ...]) -> None:
    for index, toleration in enumerate(tolerations):
        place = f"spec.tolerations[{index}]"
        if toleration.operator and toleration.operator not in _TOLERATION_OPERATORS:
            raise SpecError(
                f"{place}.operator: {toleration.operator!r} is unknown; allowed: {', '.join(_TOLERATION_OPERATORS)}"
            )
        if toleration.effect and toleration.effect not in _EFFECTS:
            raise SpecError(
                f"{place}.effect: {toleration.effect!r} is unknown; allowed: {', '.join(_EFFECTS)}"
            )


def check_node_affinity(affinity: wire.NodeAffinity | None, place: str) -> None:
    """Raises `SpecError` at the first requirement that has no meaning."""
    if affinity is None:
        return
    terms = [
        (term, f"{place}.required.nodeSelectorTerms[{index}]")
        for index, term in enumerate(
            (affinity.required.node_selector_terms or ()) if affinity.required else ()
        )
    ] + [
        (preferred.preference, f"{place}.preferred[{index}].preference")
        for index, preferred in enumerate(affinity.preferred or ())
    ]
    for term, where in terms:
        for name, requirements, operators in (
            ("matchExpressions", term.match_expressions, _NODE_OPERATORS),
            ("matchFields", term.match_fields, _FIELD_OPERATORS),
        ):
            for index, requirement in enumerate(requirements or ()):
                _check_requirement(requirement, f"{where}.{name}[{index}]", operators)
                if name == "matchFields" and requirement.key != "metadata.name":
                    raise SpecError(
                        f"{where}.{name}[{index}].key: {requirement.key!r} is not selectable; "
                        "allowed: metadata.name"
                    )


def _check_requirement(requirement: wire.Requirement, place: str, operators: tuple[str, ...]) -> None:
    operator, values = requirement.operator, requirement.values or []
    if operator not in operators:
        raise SpecError(f"{place}.operator: {operator!r} is unknown; allowed: {', '.join(operators)}")
    if operator in ("Exists", "DoesNotExist") and values:
        raise SpecError(f"{place}.values: must be empty with operator {operator}")
    if operator in ("In", "NotIn") and not values:
        raise SpecError(f"{place}.values: at least one value is needed with operator {operator}")
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            raise SpecError(f"{place}.values: exactly one value is needed with operator {operator}")
        if parse_int(values[0]) is None:
            raise SpecError(f"{place}.values[0]: {values[0]!r} is not an integer, which {operator} needs")


def parse_int(text: str) -> int | None:
    """A signed decimal as Go's `ParseInt(text, 10, 64)` reads it, or None."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0")
    # Python refuses to read a text of thousands of digits, and says so with a ValueError.
    number = int(digits or "0") if len(digits) < 20 else 2**64
    number = -number if text[0] == "-" else number
    return number if -(2**63) <= number < 2**63 else None
