"""What happens to the GPUs of nodes and pods beside the scheduler. Its requests never fail."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import orjson

from tests.decisions.plain.gpu_share import ANNOTATION, RESOURCE, WHOLE, devices, left, said

from .gpu_load import ask
from .gpu_safety import GpuSafety
from .scenarios import pod as made_pod

if TYPE_CHECKING:
    from .world import World

Json = dict[str, Any]

PODS, NODES = ("", "pods"), ("", "nodes")
_PODS_PATH = "/api/v1/namespaces/default/pods"
_MERGE = "application/merge-patch+json"
#: What somebody writes in the place of devices.
_NONSENSE = ("", "x", "-1", "0,0", "99", "1000", "GPU-3f2a", "0, 1")


class GpuNemesis:
    """Device plugins, other schedulers and users."""

    def __init__(self, world: World, safety: GpuSafety) -> None:
        self._world = world
        self._safety = safety
        self._rng = random.Random(f"{world.seed} gpu nemesis")
        self._others = 0

    def strike(self) -> None:
        """Throw the dice once for each kind."""
        for act in (self.gpus_changed, self.gpu_taken, self.gpu_index_edited):
            if self._world.plan.strikes(act.__name__, now=self._world.loop.time(), share=1.5):
                act()

    def gpus_changed(self) -> None:
        """A device plugin finds fewer devices, or more; often it is put right again."""
        nodes = self._nodes()
        if not nodes:
            return
        node = self._rng.choice(nodes)
        there = devices(node)
        now = max(0, there + self._rng.choice((-1, -1, -2, -4, 1, 2)))
        placed = [each for each in self._pods() if each["spec"].get("nodeName") == node["metadata"]["name"]]
        if any(each < WHOLE for each in left(node, placed)[now:]):
            self._world.states.reached("GPU lost that is in use")
        self._offer(node["metadata"]["name"], now)
        if self._rng.random() < 0.6:
            seconds = self._rng.choice((0.01, 0.5, 4.0))
            self._world.plan.lasts(self._world.loop.time() + seconds)
            self._world.loop.call_later(seconds, self._offer, node["metadata"]["name"], there)

    def _offer(self, name: str, number: int) -> None:
        amounts = {RESOURCE: str(number * WHOLE)}
        status = {"allocatable": amounts, "capacity": amounts}
        self._world.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, _MERGE)

    def gpu_taken(self) -> None:
        """Another scheduler's pod with GPUs lands on a node, whether it fits or not, and says on which devices or not;
        some of them end."""
        nodes = self._nodes()
        if not nodes:
            return
        node, rng = self._rng.choice(nodes), self._rng
        self._others += 1
        name = f"other-gpu-{self._others}"
        body = made_pod(name, cpu=10, lives=rng.choice((None, 1.0, 6.0)), schedulerName="other")
        amount = rng.choice((300, 500, 1000, 1000, 2000))
        ask(body, amount)
        self._world.call("POST", _PODS_PATH, body)
        indices = sorted(rng.sample(range(5), rng.choice((1, max(1, amount // WHOLE)))))
        says = rng.choice(
            (",".join(map(str, indices)), ",".join(map(str, indices)), "", rng.choice(_NONSENSE))
        )
        metadata: Json = {"name": name}
        if says:
            metadata["annotations"] = {ANNOTATION: says}
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": node["metadata"]["name"]}}
        self._world.call("POST", f"{_PODS_PATH}/{name}/binding", binding)

    def gpu_index_edited(self) -> None:
        """A user, or a controller that knows no better, takes the annotation of a pod away, or writes another; of one
        that waits, too."""
        pods = self._pods()
        with_devices = [pod for pod in pods if said(pod)] or pods
        if not with_devices:
            return
        pod, rng = self._rng.choice(with_devices), self._rng
        if pod["spec"].get("nodeName"):
            self._safety.edited(pod)
            self._world.states.reached("annotation of GPUs edited")
        value = rng.choice((None, None, None, str(rng.randrange(4)), rng.choice(_NONSENSE)))
        path = f"{_PODS_PATH}/{pod['metadata']['name']}"
        self._world.call("PATCH", path, {"metadata": {"annotations": {ANNOTATION: value}}}, _MERGE)

    def _nodes(self) -> list[Json]:
        return [orjson.loads(record.data) for record in self._world.store.tables[NODES].scan("")]

    def _pods(self) -> list[Json]:
        return [orjson.loads(record.data) for record in self._world.store.tables[PODS].scan("default")]
