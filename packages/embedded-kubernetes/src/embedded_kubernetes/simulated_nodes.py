"""The nodes of a simulated cluster, as their kubelets register them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .resource import Object

GPU = "nvidia.com/gpu"
_ZONES = ("a", "b", "c")
#: Of a node whose kubelet nobody plays, which is ready all the same.
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "no kubelet is simulated",
}


def node_name(number: int) -> str:
    """Of the simulated node with this number, from 0."""
    return f"node-{number:05d}"


def nodes(count: int, amounts: Mapping[str, str], *, kubelets: bool = True) -> Iterator[Object]:
    """`count` nodes with these quantities by resource, spread over three zones of one region.

    Without `kubelets`, which would report it, they say of themselves that they are ready.
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
