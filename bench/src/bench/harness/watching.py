"""Observes the benchmark's namespace by a watch: when each pod was bound, and whether any node was overcommitted.

Times are those at which an event arrived in this process, by the clock that also timed the creates' responses. A node's
free capacity is updated from event to event, in the API's own order, so that a node that was overcommitted for a moment
is detected, too. `Observer` runs until it is canceled, and resumes watches that end.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from kube_client.errors import RequestFailed
from kube_client.transport import StreamRefused, Transport, TransportError

from .manifests import amounts
from .model import Batch
from .requests import ask

#: Seconds without data after which a watch is opened again; a quiet server sends a bookmark about every minute.
_SILENCE = 150.0
_FINAL = ("Succeeded", "Failed")
#: Maximum number of sentences about overcommitted nodes.
_MOST_SENTENCES = 20


class _WatchedMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _WatchedSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""
    reason: str = ""


class _WatchedPod(msgspec.Struct):
    metadata: _WatchedMetadata
    spec: _WatchedSpec = msgspec.field(default_factory=_WatchedSpec)
    status: _Status = msgspec.field(default_factory=_Status)


class _WatchEvent(msgspec.Struct):
    type: str
    object: _WatchedPod


class _List(msgspec.Struct):
    metadata: _WatchedMetadata
    items: list[_WatchedPod] = msgspec.field(default_factory=list)


_ERROR = b'{"type":"ERROR"'
_decode_event = msgspec.json.Decoder(_WatchEvent).decode
_decode_list = msgspec.json.Decoder(_List).decode


class Track:
    """The times of a batch's pods, by number; 0 for what has not happened. Shared by load and observer."""

    __slots__ = (
        "amounts", "answered", "batch", "bound", "bound_count", "created", "due", "ended", "gone", "sent"
    )  # fmt: skip

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.due, self.sent, self.answered, self.bound = (array("d", bytes(8 * batch.count)) for _ in range(4))
        self.created = 0
        self.bound_count = 0
        #: Pods that were bound and are gone.
        self.gone = 0
        #: Pods that kubelets have ended.
        self.ended = 0
        self.amounts = [amounts(template) for template in batch.templates]

    def name(self, number: int) -> str:
        return f"{self.batch.name}-{number:06d}"


class FreeCapacity:
    """The remaining allocatable of every node. `over` has the violations."""

    def __init__(self, capacity: Mapping[str, Mapping[str, int]]) -> None:
        self._whole = capacity
        self._free = {name: dict(has) for name, has in capacity.items()}
        self.over: list[str] = []

    def take(self, pod: str, node: str, wanted: Mapping[str, int]) -> None:
        free = self._free.get(node)
        if free is None:
            self._say(f"{pod} was bound to {node}, which is none of the benchmark's nodes")
            return
        for resource, amount in wanted.items():
            left = free.get(resource, 0) - amount
            free[resource] = left
            if left < 0 < amount:
                self._say(f"{node}: {resource} was {-left} over its allocatable when {pod} was bound to it")

    def give_back(self, node: str, wanted: Mapping[str, int]) -> None:
        free = self._free.get(node)
        if free is not None:
            for resource, amount in wanted.items():
                free[resource] = free.get(resource, 0) + amount

    def fill(self, resource: str) -> list[float]:
        """Return, by node, the used share of what was left of its allocatable before."""
        return [
            1 - self._free[name].get(resource, 0) / has[resource]
            for name, has in self._whole.items()
            if has.get(resource)
        ]

    def _say(self, sentence: str) -> None:
        if len(self.over) < _MOST_SENTENCES:
            self.over.append(sentence)


class Observer:
    """Follows one namespace's pods. `ready` is set once no event can be missed any longer."""

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        tracks: Sequence[Track],
        free: FreeCapacity,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._tracks = {track.batch.name: track for track in tracks}
        self.free = free
        self._clock = clock
        #: The nodes of bound pods that have not ended.
        self._nodes: dict[str, str] = {}
        self._ended: set[str] = set()
        self._running: set[str] = set()
        #: The reasons with which pods failed.
        self.kubelet_refusals: Counter[str] = Counter()
        self.ready = asyncio.Event()
        #: When the last event arrived.
        self.last_event = clock()
        #: Pods whose node changed.
        self.rebound: list[str] = []
        self.resumed = 0
        #: Called with a pod's name, its batch and number when it is bound.
        self.on_bound: Callable[[str, Track, int], None] | None = None

    @property
    def ended(self) -> int:
        """Number of pods that kubelets have ended."""
        return sum(track.ended for track in self._tracks.values())

    @property
    def running(self) -> int:
        return len(self._running)

    async def run(self) -> None:
        """List and watch, until canceled."""
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
            except _ExpiredError:
                version = ""
            except (RequestFailed, StreamRefused, TransportError) as error:
                if isinstance(error, StreamRefused) and error.response.status == 410:
                    version = ""
                await asyncio.sleep(0.1)
            self.resumed += 1

    async def _relist(self) -> str:
        listed = _decode_list(await ask(self._transport, "GET", self._path, within=120.0))
        now = self._clock()
        there = {pod.metadata.name for pod in listed.items}
        for name in [name for name in self._nodes.keys() | self._ended if name not in there]:
            self._gone(name)
        for pod in listed.items:
            self._see(pod, now)
        return listed.metadata.resource_version

    def _take(self, lines: Sequence[bytes]) -> str:
        now = self._clock()
        version = ""
        for line in lines:
            if line.startswith(_ERROR):
                # Its object is a Status, not a pod.
                raise _ExpiredError
            event = _decode_event(line)
            pod = event.object
            version = pod.metadata.resource_version
            if event.type == "DELETED":
                self._gone(pod.metadata.name)
            elif event.type != "BOOKMARK":
                self._see(pod, now)
        if lines:
            self.last_event = now
        return version

    def _see(self, pod: _WatchedPod, now: float) -> None:
        node = pod.spec.node_name
        if not node:
            return
        name = pod.metadata.name
        known = self._nodes.get(name)
        if known is None and name not in self._ended:
            self._bind(name, node, now)
        elif known is not None and known != node:
            self.rebound.append(f"{name}: {known} -> {node}")
        phase = pod.status.phase
        if phase == "Running":
            self._running.add(name)
        elif phase in _FINAL and name not in self._ended:
            self._give_back(name)
            self._ended.add(name)
            place = self._place(name)
            if place is not None:
                place[0].ended += 1
            if phase == "Failed":
                self.kubelet_refusals[pod.status.reason or "Failed"] += 1

    def _place(self, name: str) -> tuple[Track, int] | None:
        batch, _, number = name.rpartition("-")
        track = self._tracks.get(batch)
        return None if track is None else (track, int(number))

    def _bind(self, name: str, node: str, now: float) -> None:
        self._nodes[name] = node
        place = self._place(name)
        if place is None:
            return
        track, number = place
        self.free.take(name, node, track.amounts[number % len(track.amounts)])
        if not track.bound[number]:
            track.bound[number] = now
            track.bound_count += 1
            if self.on_bound is not None:
                self.on_bound(name, track, number)

    def _give_back(self, name: str) -> None:
        node = self._nodes.pop(name, "")
        self._running.discard(name)
        place = self._place(name)
        if node and place is not None:
            track, number = place
            self.free.give_back(node, track.amounts[number % len(track.amounts)])

    def _gone(self, name: str) -> None:
        place = self._place(name)
        if place is not None and place[0].bound[place[1]]:
            place[0].gone += 1
        self._give_back(name)
        self._ended.discard(name)


class _ExpiredError(Exception):
    """The watch cannot resume at its version."""
