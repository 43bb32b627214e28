"""Rows of what pods run in and are reached by, and of flow control: each function gives the cells after the name."""

from __future__ import annotations

from typing import Any

from .printing import AGE, NONE, Column, Printer, created, joined, label_selector, printer
from .resource import Object

_FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"
#: How many addresses or ports a cell shows.
_SHOWN = 3


def _few(values: list[str], none: str = "<unset>") -> str:
    more = f" + {len(values) - _SHOWN} more..." if len(values) > _SHOWN else ""
    return joined(values[:_SHOWN], none) + more


def _runtime_class(obj: Object, now: str) -> list[Any]:
    return [obj.get("handler", ""), created(obj, now)]


def _endpoint_slice(obj: Object, now: str) -> list[Any]:
    ports = [str(port["port"]) if port.get("port") else "*" for port in obj.get("ports") or ()]
    addresses = [
        address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()
    ]
    return [obj.get("addressType", ""), _few(ports), _few(addresses), created(obj, now)]


def _ingress_class(obj: Object, now: str) -> list[Any]:
    spec = obj.get("spec") or {}
    parameters, shown = spec.get("parameters"), NONE
    if parameters:
        group = parameters.get("apiGroup")
        kind = f"{parameters.get('kind', '')}.{group}" if group else parameters.get("kind", "")
        shown = f"{kind}/{parameters.get('name', '')}"
    return [spec.get("controller", ""), shown, created(obj, now)]


def _network_policy(obj: Object, now: str) -> list[Any]:
    return [label_selector((obj.get("spec") or {}).get("podSelector")), created(obj, now)]


def _flow_schema(obj: Object, now: str) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    method = spec.get("distinguisherMethod") or {}
    dangling = [found for found in status.get("conditions") or () if found.get("type") == "Dangling"]
    return [
        (spec.get("priorityLevelConfiguration") or {}).get("name", ""),
        spec.get("matchingPrecedence", 0),
        method.get("type") or NONE,
        created(obj, now),
        dangling[0].get("status", "?") if dangling else "?",
    ]


def _priority_level(obj: Object, now: str) -> list[Any]:
    spec = obj.get("spec") or {}
    limited = spec.get("limited") or spec.get("exempt") or {}
    queuing = (limited.get("limitResponse") or {}).get("queuing") or {}
    return [
        spec.get("type", ""),
        limited.get("nominalConcurrencyShares", NONE),
        *(queuing.get(field, NONE) for field in ("queues", "handSize", "queueLengthLimit")),
        created(obj, now),
    ]


NETWORK: dict[tuple[str, str], Printer] = {
    ("node.k8s.io", "RuntimeClass"): printer(
        (Column("Handler", "string", "@node.v1.RuntimeClass.handler"), AGE), _runtime_class
    ),
    ("discovery.k8s.io", "EndpointSlice"): printer(
        (
            Column("AddressType", "string", "@discovery.v1.EndpointSlice.addressType"),
            Column("Ports", "string", "@discovery.v1.EndpointSlice.ports"),
            Column("Endpoints", "string", "@discovery.v1.EndpointSlice.endpoints"),
            AGE,
        ),
        _endpoint_slice,
    ),
    ("networking.k8s.io", "IngressClass"): printer(
        (
            Column("Controller", "string", "Controller that is responsible for handling this class"),
            Column("Parameters", "string", "A reference to a resource with additional parameters"),
            AGE,
        ),
        _ingress_class,
    ),
    ("networking.k8s.io", "NetworkPolicy"): printer(
        (Column("Pod-Selector", "string", "@networking.v1.NetworkPolicySpec.podSelector"), AGE),
        _network_policy,
    ),
    (_FLOW_CONTROL, "FlowSchema"): printer(
        (
            Column("PriorityLevel", "string", "@flowcontrol.v1.PriorityLevelConfigurationReference.name"),
            Column("MatchingPrecedence", "integer", "@flowcontrol.v1.FlowSchemaSpec.matchingPrecedence"),
            Column("DistinguisherMethod", "string", "@flowcontrol.v1.FlowSchemaSpec.distinguisherMethod"),
            AGE,
            Column("MissingPL", "string", "references a broken or non-existent PriorityLevelConfiguration"),
        ),
        _flow_schema,
    ),
    (_FLOW_CONTROL, "PriorityLevelConfiguration"): printer(
        (
            Column("Type", "string", "@flowcontrol.v1.PriorityLevelConfigurationSpec.type"),
            Column(
                "NominalConcurrencyShares",
                "integer",
                "@flowcontrol.v1.LimitedPriorityLevelConfiguration.nominalConcurrencyShares",
            ),
            Column("Queues", "integer", "@flowcontrol.v1.QueuingConfiguration.queues"),
            Column("HandSize", "integer", "@flowcontrol.v1.QueuingConfiguration.handSize"),
            Column("QueueLengthLimit", "integer", "@flowcontrol.v1.QueuingConfiguration.queueLengthLimit"),
            AGE,
        ),
        _priority_level,
    ),
}
