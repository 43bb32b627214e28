from __future__ import annotations

from typing import Any

from embedded.support import World, asking
from embedded_kubernetes.kubelet import Kubelets
from embedded_kubernetes.kubelet_play import RUN_SECONDS


def kubelets(*nodes: str, **settings: float) -> World:
    """Return a server with simulated kubelets and these nodes."""
    world = World()
    world.controllers = [Kubelets(world.store, **settings)]
    for name in nodes:
        world.node(name)
    world.settle()
    return world


def run(
    world: World, name: str, *, node: str = "n1", cpu: str = "1", life: str = "", spec: Any = None, **metadata: Any
) -> None:
    """Create a pod and bind it to `node`, if there is one. `life`: the seconds after which it ends."""
    if life:
        metadata["annotations"] = {RUN_SECONDS: life}
    world.pod(name, spec={"containers": [asking(cpu=cpu, memory="64Mi")], **(spec or {})}, **metadata)
    if node:
        assert world.bind(name, node)[0] == 201
