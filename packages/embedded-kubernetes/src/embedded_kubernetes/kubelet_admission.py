"""Whether a node can take a pod that was bound to it: the kubelet's own last check.

The API lets any scheduler bind any pod to any node; the kubelet is where too much is noticed. A refusal here is
the evidence of an overcommit, so the sums follow the kubelet's rules (KEP-753 for sidecars, KEP-2837 for
resources of the whole pod) and read nothing but the objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apimachinery.quantity import QuantityError, resource_value

from .builtin.pod_resources import add, peak_requests
from .resource import Object

#: Checked in this order; the first that is short gives the reason, as in the kubelet.
_FIRST = ("pods", "cpu", "memory", "ephemeral-storage")

HostPort = tuple[str, str, int]
#: What a port without a host IP is bound to.
_EVERY_IP = "0.0.0.0"  # noqa: S104 - a value in an object, nothing listens on it


class Demand(NamedTuple):
    """What a pod takes of its node: amounts by resource, and (protocol, host IP, port)."""

    amounts: dict[str, int]
    ports: tuple[HostPort, ...]


class Refusal(NamedTuple):
    """`reason` and `message` of the status of a pod that was not admitted."""

    reason: str
    message: str


def amounts_of(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Quantities in the scheduler's units: millicores for cpu, whole units for all else."""
    return {name: resource_value(name, quantity) for name, quantity in (quantities or {}).items()}


def demand_of(pod: Object) -> Demand:
    """What the pod takes at its peak: containers and sidecars, or the largest init step, plus overhead."""
    spec = pod["spec"]
    total = peak_requests(spec, resource_value)
    if "resources" in spec:
        total.update(amounts_of((spec["resources"] or {}).get("requests")))
    if "overhead" in spec:
        add(total, amounts_of(spec["overhead"]))
    total["pods"] = 1
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if extended:
        # Devices of a claim stand in for these (KEP-5004); the node has none of them to give.
        for mapping in extended.get("requestMappings") or ():
            total.pop(mapping.get("resourceName", ""), None)
    return Demand(total, tuple(_host_ports(spec)))


def _host_ports(spec: Object) -> Iterable[HostPort]:
    sidecars = (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
    for container in (*spec["containers"], *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort")
            if number:
                yield port.get("protocol") or "TCP", port.get("hostIP") or _EVERY_IP, number


def _clash(wanted: HostPort, held: HostPort) -> bool:
    return (
        wanted[0] == held[0]
        and wanted[2] == held[2]
        and (wanted[1] == held[1] or _EVERY_IP in (wanted[1], held[1]))
    )


@dataclass(slots=True)
class NodeBook:
    """What one node has and what its admitted pods take.

    Owned by `Kubelets`. Invariant: `used` and `ports` are the sums over `pods`, and neither `admit` nor
    `change` lets a sum exceed what the node has; it may exceed it only where the node shrank under its pods.
    """

    allocatable: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    ports: dict[HostPort, int] = field(default_factory=dict)
    pods: dict[str, Demand] = field(default_factory=dict)

    def resize(self, node: Object) -> None:
        """Takes the amounts from the node's status; a quantity that cannot be read counts as none."""
        status = node.get("status") or {}
        try:
            self.allocatable = amounts_of(status.get("allocatable") or status.get("capacity"))
        except QuantityError:
            self.allocatable = {}

    def admit(self, uid: str, demand: Demand) -> Refusal | None:
        """Takes the pod in, or says why not."""
        short = self._short(demand, {})
        if short is not None:
            return Refusal(f"OutOf{short.reason}", f"Pod was rejected: {short.message}")
        for port in demand.ports:
            if any(_clash(port, held) for held in self.ports):
                return Refusal(
                    "NodePorts",
                    "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the "
                    "requested pod ports",
                )
        self.hold(uid, demand)
        return None

    def _short(self, demand: Demand, own: Mapping[str, int]) -> Refusal | None:
        """The resource that there is too little of, and in words. `own`: what the pod has already."""
        has = self.allocatable
        used = {name: self.used.get(name, 0) - own.get(name, 0) for name in demand.amounts}
        short = [
            name
            for name, wanted in demand.amounts.items()
            if wanted and used[name] + wanted > has.get(name, 0)
        ]
        if not short:
            return None
        name = min(short, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
        return Refusal(
            name,
            f"Node didn't have enough resource: {name}, requested: {demand.amounts[name]}, used: {used[name]}, "
            f"capacity: {has.get(name, 0)}",
        )

    def change(self, uid: str, demand: Demand) -> Refusal | None:
        """Has a pod that was admitted take this instead, or says why not: Infeasible, or Deferred."""
        for name in ("memory", "cpu"):
            wanted, has = demand.amounts.get(name, 0), self.allocatable.get(name, 0)
            if wanted > has:
                text = f"Node didn't have enough capacity: {name}, requested: {wanted}, capacity: {has}"
                return Refusal("Infeasible", text)
        own = self.pods[uid].amounts
        short = self._short(demand, own)
        if short is not None:
            return Refusal("Deferred", short.message)
        self.release(uid)
        self.hold(uid, demand)
        return None

    def hold(self, uid: str, demand: Demand) -> None:
        """Counts a pod without a check: one that already runs."""
        if uid in self.pods:
            return
        self.pods[uid] = demand
        add(self.used, demand.amounts)
        for port in demand.ports:
            self.ports[port] = self.ports.get(port, 0) + 1

    def release(self, uid: str) -> None:
        """Gives back what the pod took; nothing for a pod that was not admitted."""
        demand = self.pods.pop(uid, None)
        if demand is None:
            return
        for name, amount in demand.amounts.items():
            self.used[name] -= amount
        for port in demand.ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]
