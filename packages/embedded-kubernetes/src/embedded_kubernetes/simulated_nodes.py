"""The nodes of a simulated cluster, as registered by their kubelets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .resource import Object

GPU = "nvidia.com/gpu"
_ZONES = ("a", "b", "c")
#: The condition of a node without simulated kubelet.
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "no kubelet is simulated"}


def node_name(number: int) -> str:
    """Return the name of the simulated node with this number, from 0."""
    return f"node-{number:05d}"


def nodes(count: int, amounts: Mapping[str, str], *, kubelets: bool = True) -> Iterator[Object]:
    """Yield `count` nodes with these quantities by resource, in three zones of one region.

    Without `kubelets`, which would set the condition, they are Ready from the start.
    """
    status = {"capacity": amounts, "allocatable": amounts, **({} if kubelets else {"conditions": [READY]})}
    for number in range(count):
        name = node_name(number)
        yield {
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "node.kubernetes.io/instance-type": "simulated",
                    "topology.kubernetes.io/region": "local",
                    "topology.kubernetes.io/zone": f"local-{_ZONES[number % len(_ZONES)]}",
                },
            },
            "status": status,
        }
