"""Sees what really happens, through a watch of its own: when each pod is bound, where, and what becomes of it.

The observer knows the scheduler only by its effects on the API's objects, and by what it publishes on /metrics.
Binding times are those at which the watch delivered the change, so they include the API server's own delay.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from agent_scheduler.kube.errors import RequestFailed
from agent_scheduler.kube.transport import StreamRefused, Transport, TransportError

from .asking import ask
from .load import LoadResult
from .specs import NodeSpec, PodSpec

#: Seconds without a word after which a watch is opened anew; a quiet server sends a bookmark about every minute.
_SILENCE = 150.0


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    reason: str = ""


class _Pod(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct, rename="camel"):
    metadata: _ListMetadata
    items: list[_Pod] = msgspec.field(default_factory=list)


#: How the last event of a watch begins that cannot go on; its object is a Status, not a pod.
_ERROR = b'{"type":"ERROR"'
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_list = msgspec.json.Decoder(_List).decode


@dataclass(slots=True)
class _Seen:
    name: str
    node: str = ""
    phase: str = ""


@dataclass(slots=True)
class Observation:
    """What was seen so far. Owned by `Observer`; everybody else reads.

    `created_to_bound` are seconds from the create being sent to the bind being seen, in the order of binds.
    """

    bound: int = 0
    running: int = 0
    ended: int = 0
    deleted: int = 0
    #: Times at which binds were seen, one each, rising.
    bound_at: list[float] = field(default_factory=list)
    created_to_bound: list[float] = field(default_factory=list)
    answered_to_bound: list[float] = field(default_factory=list)
    #: A pod whose node changed once it had one: must stay empty.
    rebound: list[str] = field(default_factory=list)
    #: Reasons with which kubelets refused pods: must stay empty.
    kubelet_refusals: Counter[str] = field(default_factory=Counter)
    #: CPU requested by pods that are bound and have not ended, in millicores by node.
    node_cpu: dict[str, int] = field(default_factory=dict)
    reconnects: int = 0


class Observer:
    """Follows the pods of one namespace until cancelled."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        load: LoadResult,
        pods: Iterable[PodSpec],
        clock: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._load = load
        self._cpu = {pod.name: pod.requests.get("cpu", 0) for pod in pods}
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self.observation = Observation()
        #: Set once the first watch is open: from then on nothing is missed.
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Lists and watches; a watch that ends is taken up where it ended, or after a new list on 410."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._relist()
                path = f"{self._path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
                async with self._transport.stream(path, read_timeout=_SILENCE) as batches:
                    self.ready.set()
                    async for lines in batches:
                        version = self._take(lines) or version
            except _Expired:
                version = ""
            except (RequestFailed, StreamRefused, TransportError) as error:
                if isinstance(error, StreamRefused) and error.response.status == 410:
                    version = ""
                # The server may be short of breath, or gone: the run as a whole decides, not the observer.
                await asyncio.sleep(0.2)
            self.observation.reconnects += 1

    async def _relist(self) -> str:
        listed = _decode_list(await ask(self._transport, "GET", self._path))
        now = self._clock()
        for pod in listed.items:
            self._observe(pod, now)
        for uid in self._seen.keys() - {pod.metadata.uid for pod in listed.items}:
            self._gone(uid)
        return listed.metadata.resource_version

    def _take(self, lines: list[bytes]) -> str:
        now = self._clock()
        version = ""
        for line in lines:
            if line.startswith(_ERROR):
                raise _Expired
            event = _decode_event(line)
            version = event.object.metadata.resource_version
            if event.type == "DELETED":
                self._gone(event.object.metadata.uid)
            elif event.type != "BOOKMARK":
                self._observe(event.object, now)
        return version

    def _observe(self, pod: _Pod, now: float) -> None:
        result = self.observation
        metadata, node, phase = pod.metadata, pod.spec.node_name, pod.status.phase
        seen = self._seen.get(metadata.uid)
        if seen is None:
            seen = self._seen[metadata.uid] = _Seen(metadata.name)
        if node and not seen.node:
            seen.node = node
            result.bound += 1
            result.bound_at.append(now)
            result.node_cpu[node] = result.node_cpu.get(node, 0) + self._cpu.get(seen.name, 0)
            times = self._load.times.get(seen.name)
            if times is not None and not times.bound:
                times.bound = now
                result.created_to_bound.append(now - times.sent)
                # The bind may be seen before the create's own answer.
                result.answered_to_bound.append(max(0.0, now - (times.answered or now)))
        elif node != seen.node:
            result.rebound.append(f"{seen.name} ({metadata.uid}): {seen.node} -> {node or 'none'}")
        if phase != seen.phase:
            self._phase(seen, phase, pod.status.reason)

    def _phase(self, seen: _Seen, phase: str, reason: str) -> None:
        result = self.observation
        if seen.phase == "Running":
            result.running -= 1
        if phase == "Running":
            result.running += 1
        if phase in ("Succeeded", "Failed"):
            result.ended += 1
            self._give_back(seen)
        if phase == "Failed":
            result.kubelet_refusals[reason or "Failed"] += 1
        seen.phase = phase

    def _gone(self, uid: str) -> None:
        seen = self._seen.pop(uid, None)
        if seen is None:
            return
        self.observation.deleted += 1
        if seen.phase == "Running":
            self.observation.running -= 1
        if seen.phase not in ("Succeeded", "Failed"):
            self._give_back(seen)

    def _give_back(self, seen: _Seen) -> None:
        if seen.node:
            self.observation.node_cpu[seen.node] -= self._cpu.get(seen.name, 0)


class _Expired(Exception):
    """The watch cannot go on from where it was."""


def percentiles(seconds: Iterable[float], ranks: tuple[float, ...] = (50, 90, 99)) -> tuple[float, ...]:
    """The given percentiles, in the unit of the values; zeros if there are none."""
    values = np.fromiter(seconds, dtype=np.float64)
    return tuple(float(v) for v in np.percentile(values, ranks)) if values.size else (0.0,) * len(ranks)


def node_fill(observation: Observation, nodes: Iterable[NodeSpec]) -> list[float]:
    """The share of CPU requested on every node, by node order, as seen by the watch."""
    return [observation.node_cpu.get(node.name, 0) / node.cpu_milli for node in nodes]
