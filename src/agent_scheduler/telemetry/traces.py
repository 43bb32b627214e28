"""Traces pods through the scheduler: their waits, attempts and binds.

    pod                     from its first observation by this process to its bind
    ├─ activeQ, backoffQ, unschedulablePods, gated, session     each wait
    └─ Scheduling           each attempt, created at its end
       └─ Bind              each bind of the attempt

A trace covers one pod, and its ID is the pod's UID. The choice of traced pods depends only on their UIDs, so that
processes agree and a restart changes nothing. Spans are created when an attempt ends; a pod that this process never
tried, for example as a standby, has none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from enum import Enum
from math import inf
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

from msgspec import Struct

from agent_scheduler.engine.events.events import UNSCHEDULED_POD_ADD
from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.observers import MetricsObserver, MetricsQueueRecorder
from agent_scheduler.telemetry.spans import Attributes, TraceCounts

#: The limit of traced pods; each waiting one takes some hundred bytes.
MOST: Final = 50_000
#: How long the result of a pod that the watch shows on a node may stay open, in seconds: the response to its bind may
#: be on its way.
LINGERS: Final = 60.0

_NEW: Final = UNSCHEDULED_POD_ADD.label
#: kube-scheduler's names of the places.
_QUEUES: Final = {"active": "activeQ", "backoff": "backoffQ", "unschedulable": "unschedulablePods"}
_MILLION: Final = 1_000_000
_ABSENT: Final = object()


class SpanMaker(Protocol):
    """The interface of `spans.Spans`."""

    def begin(self, name: str, uid: str, at: int, attributes: Attributes) -> Any: ...

    def within(
        self, parent: Any, name: str, began: int, ended: int, attributes: Attributes, problem: str = ""
    ) -> Any: ...

    def end(self, span: Any, at: int, attributes: Attributes) -> None: ...


class _Wait(NamedTuple):
    name: str
    since: float
    attributes: Attributes


class _TracedBind(NamedTuple):
    outcome: str
    began: float
    ended: float
    node_name: str


class _Trace(Struct):
    pod: PodInfo
    #: The clock when it was first seen, and the Unix time in nanoseconds.
    first: float
    unix: int
    #: Since the end of the last attempt.
    waits: list[_Wait] = []
    binds: list[_TracedBind] = []
    attempts: int = 0
    #: Created with the first attempt.
    root: Any = None
    #: When the watch showed it on a node, and that node.
    left: float = inf
    node_name: str = ""

    def at(self, clock: float) -> int:
        return self.unix + max(0, round((clock - self.first) * 1e9))


class PodTraces:
    """Owns the unfinished traces by UID."""

    def __init__(
        self,
        spans: SpanMaker,
        *,
        per_million: int,
        counts: TraceCounts,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        """`per_million` is the number of traced pods per million."""
        self._spans = spans
        self._below = (per_million << 32) // _MILLION
        self._counts = counts
        self._clock = clock
        self._now = now
        self._traces: dict[str, _Trace] = {}
        #: UIDs of pods that have left the queue, in this order.
        self._left: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._traces)

    # ---- waits

    def queued(self, queue: str, event: str, entry: QueuedPodInfo) -> None:
        """Record a wait, as `MetricsQueueRecorder.incoming`."""
        trace = self._traces.get(entry.uid)
        if trace is None:
            # A pod is considered for tracing only once.
            if event != _NEW or (trace := self._new(entry.pod)) is None:
                return
        elif self._left.pop(entry.uid, _ABSENT) is None:
            # The bind failed after all.
            trace.left, trace.node_name = inf, ""
        name = "gated" if entry.gating_plugin else _QUEUES[queue]
        attributes: dict[str, Any] = {"scheduling.event": event}
        if entry.rejectors:
            attributes["scheduling.plugins"] = entry.rejectors
        trace.waits.append(_Wait(name, self._clock(), attributes))

    def waits_for_session(self, pod: PodInfo) -> None:
        """Record that a pod of the batch scheduler waits or still waits."""
        if pod.uid not in self._traces and (trace := self._new(pod)) is not None:
            trace.waits.append(_Wait("session", trace.first, {}))

    def _new(self, pod: PodInfo) -> _Trace | None:
        if crc32(pod.uid.encode()) >= self._below:
            return None
        now = self._clock()
        self._expire(now - LINGERS)
        if len(self._traces) >= MOST:
            self._counts.untraced += 1
            return None
        trace = self._traces[pod.uid] = _Trace(pod, now, round(self._now().timestamp() * 1e9))
        return trace

    # ---- attempts

    def bound(self, outcome: Enum, seconds: float, pod: PodInfo, node_name: str) -> None:
        """Record a bind, as `BinderObserver.bound`. It belongs to the attempt that ends next."""
        trace = self._traces.get(pod.uid)
        if trace is not None:
            now = self._clock()
            trace.binds.append(_TracedBind(str(outcome.value), now - seconds, now, node_name))

    def attempted(self, pod: PodInfo, result: str, started: float, plugins: Collection[str], message: str) -> None:
        """Record that an attempt ended without a bind."""
        trace = self._traces.get(pod.uid)
        if trace is not None:
            attributes: dict[str, Any] = {"scheduling.result": result, "scheduling.message": message}
            if plugins:
                attributes["scheduling.plugins"] = sorted(plugins)
            self._attempt(trace, started, attributes, message if result == "error" else "")

    def scheduled(self, pod: PodInfo, node_name: str, started: float) -> None:
        trace = self._traces.get(pod.uid)
        if trace is not None:
            attributes = {"scheduling.result": "scheduled", "k8s.node.name": node_name}
            self._attempt(trace, started, attributes)
            self._end(trace, "scheduled", self._clock(), node_name)

    def _attempt(self, trace: _Trace, started: float, attributes: Attributes, problem: str = "") -> None:
        # The pod may be queued again before its attempt is reported.
        waits = [each for each in trace.waits if each.since <= started]
        trace.waits = trace.waits[len(waits) :]
        ended = max(started, trace.waits[0].since if trace.waits else self._clock())
        trace.attempts += 1
        self._waited(trace, waits, started)
        root, spans = self._root(trace), self._spans
        began = trace.at(started)
        attempt = spans.within(root, "Scheduling", began, trace.at(ended), attributes, problem)
        self._binds(trace, attempt, started)

    def _waited(self, trace: _Trace, waits: list[_Wait], until: float) -> None:
        root = self._root(trace)
        for index, wait in enumerate(waits):
            end = waits[index + 1].since if index + 1 < len(waits) else until
            began, ended = trace.at(wait.since), trace.at(max(wait.since, end))
            self._spans.within(root, wait.name, began, ended, wait.attributes)

    def _binds(self, trace: _Trace, parent: Any, started: float) -> None:
        for bind in trace.binds:
            attributes = {"bind.outcome": bind.outcome, "k8s.node.name": bind.node_name}
            problem = "" if bind.outcome == "bound" else bind.outcome
            began, ended = trace.at(max(bind.began, started)), trace.at(bind.ended)
            self._spans.within(parent, "Bind", began, ended, attributes, problem)
        trace.binds = []

    def _root(self, trace: _Trace) -> Any:
        if trace.root is None:
            pod = trace.pod
            attributes = {
                "k8s.namespace.name": pod.namespace,
                "k8s.pod.name": pod.name,
                "k8s.pod.uid": pod.uid,
                "k8s.pod.created": pod.created,
                "scheduling.profile": pod.scheduler_name,
            }
            trace.root = self._spans.begin("pod", pod.uid, trace.unix, attributes)
        return trace.root

    # ---- ends

    def left(self, uid: str, node_name: str) -> None:
        """Record that the pod no longer waits: the watch shows it on a node, or deleted or terminating."""
        trace = self._traces.get(uid)
        if trace is None:
            return
        trace.left, trace.node_name = self._clock(), node_name
        if node_name:
            self._left[uid] = None
        else:
            self._end(trace, "deleted", trace.left)

    def _expire(self, before: float) -> None:
        """End the traces of pods that left earlier without any news since.

        Such pods were bound by others, or by a bind of ours without response.
        """
        while self._left:
            trace = self._traces[next(iter(self._left))]
            if trace.left > before:
                break
            self._end(trace, "bound elsewhere", trace.left, trace.node_name)

    def _end(self, trace: _Trace, result: str, at: float, node_name: str = "") -> None:
        uid = trace.pod.uid
        del self._traces[uid]
        self._left.pop(uid, None)
        if not trace.attempts and not trace.binds:
            return
        self._waited(trace, trace.waits, at)
        self._binds(trace, self._root(trace), trace.first)
        attributes: dict[str, Any] = {"scheduling.result": result, "scheduling.attempts": trace.attempts}
        if node_name:
            attributes["k8s.node.name"] = node_name
        self._spans.end(self._root(trace), trace.at(at), attributes)

    def close(self) -> None:
        """End all traces with the process; other processes continue with the waiting pods."""
        self._expire(inf)
        now = self._clock()
        for trace in list(self._traces.values()):
            self._end(trace, "stopped", now)


class TracedQueueRecorder(MetricsQueueRecorder):
    """A recorder that also traces pods."""

    def __init__(self, metrics: Metrics, traces: PodTraces, *, clock: Callable[[], float]) -> None:
        super().__init__(metrics, clock=clock)
        self._queued = traces.queued

    def incoming(self, queue: str, event: str, entry: QueuedPodInfo) -> None:
        super().incoming(queue, event, entry)
        self._queued(queue, event, entry)


class TracedObserver(MetricsObserver):
    """An observer that also traces pods."""

    def __init__(self, metrics: Metrics, traces: PodTraces, *, clock: Callable[[], float], policy: str) -> None:
        super().__init__(metrics, clock=clock, policy=policy)
        self._traces = traces

    def attempted(self, pod: PodInfo, result: str, started: float, plugins: Collection[str], message: str) -> None:
        super().attempted(pod, result, started, plugins, message)
        self._traces.attempted(pod, result, started, plugins, message)

    def outraced(self, pod: PodInfo, started: float) -> None:
        super().outraced(pod, started)
        self._traces.attempted(pod, "conflict", started, (), "other pods took its candidate nodes")

    def bound(self, outcome: Enum, seconds: float, pod: PodInfo, node_name: str) -> None:
        super().bound(outcome, seconds, pod, node_name)
        self._traces.bound(outcome, seconds, pod, node_name)

    def pod_scheduled(self, pod: PodInfo, node_name: str, started: float) -> None:
        super().pod_scheduled(pod, node_name, started)
        self._traces.scheduled(pod, node_name, started)
