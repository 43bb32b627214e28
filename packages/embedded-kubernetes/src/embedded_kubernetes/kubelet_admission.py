"""The kubelet's admission of a pod to its node.

The API allows binds of any pod to any node; the kubelet rejects what does not fit. Because a rejection is the
evidence of overcommitment, the sums follow the kubelet's rules (KEP-753 for sidecars, KEP-2837 for pod-level
resources) and depend only on the objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apimachinery.quantity import QuantityError, resource_value

from .builtin.pod_resources import add, peak_requests
from .resource import Object

#: The order of the checks; the first resource that is short is the reason, as in the kubelet.
_FIRST = ("pods", "cpu", "memory", "ephemeral-storage")

HostPort = tuple[str, str, int]
#: The host IP of a port that does not specify one.
_EVERY_IP = "0.0.0.0"  # noqa: S104 - a value in an object, nothing listens on it


class Demand(NamedTuple):
    """The amounts that a pod uses by resource, and its host ports: (protocol, host IP, port)."""

    amounts: dict[str, int]
    ports: tuple[HostPort, ...]


class Refusal(NamedTuple):
    """The `reason` and `message` in the status of a pod that was not admitted."""

    reason: str
    message: str


def amounts_of(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Return quantities in the scheduler's units: millicores for cpu, whole units otherwise."""
    return {name: resource_value(name, quantity) for name, quantity in (quantities or {}).items()}


def demand_of(pod: Object) -> Demand:
    """Return the pod's requests at their peak: containers and sidecars or the largest init container, and overhead."""
    spec = pod["spec"]
    total = peak_requests(spec, resource_value)
    if "resources" in spec:
        total.update(amounts_of((spec["resources"] or {}).get("requests")))
    if "overhead" in spec:
        add(total, amounts_of(spec["overhead"]))
    total["pods"] = 1
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if extended:
        # The claim's devices replace these extended resources (KEP-5004), which the node does not have.
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
    return wanted[0] == held[0] and wanted[2] == held[2] and (wanted[1] == held[1] or _EVERY_IP in (wanted[1], held[1]))


@dataclass(slots=True)
class NodeBook:
    """The allocatable amounts of a node and the use by its admitted pods. Owned by `Kubelets`.

    Invariant: `used` and `ports` are the sums over `pods`. `admit` and `change` never let a sum exceed `allocatable`;
    only a reduction of the node's amounts can.
    """

    allocatable: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    ports: dict[HostPort, int] = field(default_factory=dict)
    pods: dict[str, Demand] = field(default_factory=dict)

    def resize(self, node: Object) -> None:
        """Take the amounts from the node's status; none if a quantity is malformed."""
        status = node.get("status") or {}
        try:
            self.allocatable = amounts_of(status.get("allocatable") or status.get("capacity"))
        except QuantityError:
            self.allocatable = {}

    def admit(self, uid: str, demand: Demand) -> Refusal | None:
        """Admit the pod and count it, or return why it is not admitted."""
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
        """Return the first resource that is short, with the message. `own` are the amounts that the pod has already."""
        has = self.allocatable
        used = {name: self.used.get(name, 0) - own.get(name, 0) for name in demand.amounts}
        short = [name for name, wanted in demand.amounts.items() if wanted and used[name] + wanted > has.get(name, 0)]
        if not short:
            return None
        name = min(short, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
        return Refusal(
            name,
            f"Node didn't have enough resource: {name}, requested: {demand.amounts[name]}, used: {used[name]}, "
            f"capacity: {has.get(name, 0)}",
        )

    def change(self, uid: str, demand: Demand) -> Refusal | None:
        """Change the amounts of an admitted pod, or return why that is Infeasible or Deferred."""
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
        """Count a running pod without a check."""
        if uid in self.pods:
            return
        self.pods[uid] = demand
        add(self.used, demand.amounts)
        for port in demand.ports:
            self.ports[port] = self.ports.get(port, 0) + 1

    def release(self, uid: str) -> None:
        """Release the pod's amounts and ports; no-op for a pod that was not admitted."""
        demand = self.pods.pop(uid, None)
        if demand is None:
            return
        for name, amount in demand.amounts.items():
            self.used[name] -= amount
        for port in demand.ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]
