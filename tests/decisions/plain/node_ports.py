"""NodePorts: no two pods of a node use the same host port.

From `plugins/nodeports` and `HostPortInfo`. Two ports conflict if number and protocol are equal and the addresses are
equal or one of them is 0.0.0.0, which is also the default. Sidecars use ports like containers; other init containers do
not.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.decisions.plain.world import Obj, Refusal, World

ANY = "0.0.0.0"


class HostPort(NamedTuple):
    address: str
    protocol: str
    number: int


def host_ports(pod: Obj) -> list[HostPort]:
    spec = pod["spec"]
    sidecars = [one for one in spec.get("initContainers") or [] if one.get("restartPolicy") == "Always"]
    return [
        HostPort(port.get("hostIP") or ANY, port.get("protocol") or "TCP", port["hostPort"])
        for container in (*spec["containers"], *sidecars)
        for port in container.get("ports") or []
        if port.get("hostPort")
    ]


def conflict(one: HostPort, other: HostPort) -> bool:
    return (
        one.number == other.number
        and one.protocol == other.protocol
        and (one.address == other.address or ANY in (one.address, other.address))
    )


def refuse(pod: Obj, node: Obj, world: World) -> Refusal | None:
    held = [port for placed in world.on(node) for port in host_ports(placed)]
    if any(conflict(wanted, port) for wanted in host_ports(pod) for port in held):
        reason = "node(s) didn't have free ports for the requested pod ports"
        return Refusal((reason,), unresolvable=False)
    return None
