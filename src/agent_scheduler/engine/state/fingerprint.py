"""The fingerprint of a pod's spec: all bytes that its class depends on, as the API server wrote them.

Pods of equal fingerprints are of one class. Fields that most pods do not have are left out where they are empty, and
stand behind a mark of their own where they are not: specs that differ in meaning have different fingerprints.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from msgspec import Raw

from agent_scheduler.objects import wire

from .labelselector import Labels


class Given(NamedTuple):
    """What the kubelet has given containers and init containers; the pod as a whole, where the spec asks for that; and
    whether it can never give what is asked for."""

    statuses: list[wire.ContainerStatus] | None
    init_statuses: list[wire.ContainerStatus] | None
    whole: tuple[Raw, Raw] | None
    infeasible: bool


#: Among volumes that are claims made for the pod.
_EPHEMERAL = b'"ephemeral"'
#: What stands in a fingerprint before what most pods do not have.
_INIT, _GIVEN, _WHOLE, _VOLUMES, _OTHERS = "init containers", "given", "whole", "volumes", "other pods"
_HOST, _RULES = "host", "restart rules"


class Owner(NamedTuple):
    """Of what pod a spec is."""

    namespace: str
    name: str
    uid: str
    labels: Labels


NOBODY = Owner("", "", "", {})


def is_infeasible(status: wire.PodStatus) -> bool:
    """Whether the node has said that it can never grant the resize that is asked for."""
    for each in status.conditions or ():  # noqa: SIM110 - asked for every report of a kubelet, and a generator is slow
        if each.type == "PodResizePending" and each.reason == "Infeasible":
            return True
    return False


def given_by(spec: wire.PodSpec, status: wire.PodStatus) -> Given | None:
    """None for a pod that no kubelet has given anything yet."""
    whole = (status.resources, status.allocated_resources) if spec.resources and status.resources else None
    if not (status.container_statuses or status.init_container_statuses or whole):
        return None
    return Given(status.container_statuses, status.init_container_statuses, whole, is_infeasible(status))


def speaks_of_pods(spec: wire.PodSpec) -> bool:
    """Whether the spec may have terms about other pods, or constraints about its like."""
    if spec.topology_spread_constraints:
        return True
    if not spec.affinity:
        return False
    affinity = bytes(spec.affinity)
    return b'"podAffinity"' in affinity or b'"podAntiAffinity"' in affinity


def spec_fingerprint(
    spec: wire.PodSpec,
    given: Given | None,
    volumes: bytes,
    owner: Owner,
    node_name: str,
    images: Hashable,
) -> tuple[Hashable, ...]:
    """`volumes`: those that matter, as written; `images`: where some scheduler asks for them, else None."""
    written: list[Any] = [
        node_name,
        spec.overhead,
        spec.resources,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
    ]
    containers, inits = spec.containers or (), spec.init_containers or ()
    for container in containers:
        written += (container.resources, container.ports)
    if inits:
        written.append(_INIT)
        for container in inits:
            written += (container.restart_policy, container.resources, container.ports)
    if given is not None:
        written += (_GIVEN, given.infeasible, *(container.name for container in (*containers, *inits)))
        if given.whole is not None:
            written += (_WHOLE, *given.whole)
        for status in (*(given.statuses or ()), *(given.init_statuses or ())):
            written += (status.name, status.resources, status.allocated_resources)
    if spec.host_network or spec.host_users is not None:
        written += (_HOST, spec.host_network, spec.host_users)
    rules = [each.restart_policy_rules for each in (*containers, *inits) if each.restart_policy_rules]
    if rules:
        written += (_RULES, *rules)
    if images is not None:
        written.append(images)
    if volumes:
        written += (_VOLUMES, owner.namespace, volumes)
        if _EPHEMERAL in volumes:
            written += (owner.name, owner.uid)
    if speaks_of_pods(spec):
        written += (_OTHERS, spec.topology_spread_constraints, owner.namespace, owner.labels)
    return tuple(map(_kept, written))


def _kept(part: Any) -> Hashable:
    """A part of what is written, as it can be looked up, and without the whole of which it is a view."""
    if type(part) is Raw:
        return bytes(part)
    return frozenset(part.items()) if type(part) is dict else part
