"""Traces of pods from what queue, binder and watch report, without OpenTelemetry's libraries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID
from zlib import crc32

import pytest

from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.telemetry import traces
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.spans import TraceCounts, trace_id
from agent_scheduler.telemetry.traces import LINGERS, PodTraces, TracedObserver
from kube_client.bind import BindOutcome
from tests.support.engine import World

from .test_metrics import scrape

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000_000


class Recorded:
    """Spans as (name, seconds from the first, seconds that it took, attributes)."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, float, float, dict[str, Any], str]] = []
        self.roots: list[dict[str, Any]] = []

    def begin(self, name: str, uid: str, at: int, attributes: Any) -> Any:
        return {"name": name, "uid": uid, "at": at, **attributes}

    def within(self, parent: Any, name: str, began: int, ended: int, attributes: Any, problem: str = "") -> Any:
        assert began <= ended
        since = began - int(EPOCH.timestamp()) * SECOND
        self.spans.append((name, since / SECOND, (ended - began) / SECOND, dict(attributes), problem))
        return parent

    def end(self, span: Any, at: int, attributes: Any) -> None:
        self.roots.append({**span, **attributes, "seconds": (at - span["at"]) / SECOND})

    @property
    def ways(self) -> list[tuple[str, float, float]]:
        return [(name, began, seconds) for name, began, seconds, _, _ in self.spans]


class Tracing:
    def __init__(self, per_million: int = 1_000_000) -> None:
        self.seconds = 100.0
        self.recorded = Recorded()
        self.counts = TraceCounts()
        self.world = World()
        self.traces = PodTraces(
            self.recorded, per_million=per_million, counts=self.counts, clock=lambda: self.seconds, now=lambda: EPOCH
        )

    def queued(self, pod: PodInfo, queue: str = "active", event: str = "UnscheduledPodAdd") -> None:
        self.traces.queued(queue, event, QueuedPodInfo(uid=pod.uid, pod=pod, timestamp=self.seconds))


def queued() -> tuple[Tracing, PodInfo]:
    """A pod that is traced and waits."""
    it = Tracing()
    pod = it.world.pod("a")
    it.queued(pod)
    return it, pod


def test_times_follow_the_clock_from_when_the_pod_was_first_seen() -> None:
    it, pod = queued()
    it.seconds += 2
    started = it.seconds
    it.seconds += 1
    it.traces.bound(BindOutcome.BOUND, 0.25, pod, "n1")
    it.traces.scheduled(pod, "n1", started)
    assert it.recorded.ways == [("activeQ", 0, 2), ("Scheduling", 2, 1), ("Bind", 2.75, 0.25)]
    (root,) = it.recorded.roots
    assert (root["seconds"], root["scheduling.result"], root["scheduling.attempts"]) == (3, "scheduled", 1)
    assert len(it.traces) == 0


def test_a_pod_that_is_queued_anew_before_its_attempt_is_reported_waits_from_then_on() -> None:
    it, pod = queued()
    started = it.seconds = 101.0
    it.seconds = 102.0
    it.queued(pod, "backoff", "ScheduleAttemptFailure")
    it.seconds = 102.5
    it.traces.attempted(pod, "error", started, (), "no answer")
    it.seconds = 105.0
    it.queued(pod, "active", "BackoffComplete")
    it.seconds = 106.0
    it.traces.scheduled(pod, "n1", 106.0)
    assert it.recorded.ways == [
        ("activeQ", 0, 1),
        ("Scheduling", 1, 1),
        ("backoffQ", 2, 3),
        ("activeQ", 5, 1),
        ("Scheduling", 6, 0),
    ]
    assert it.recorded.spans[1][4] == "no answer"


def test_a_bind_that_failed_is_an_error_within_its_attempt() -> None:
    it, pod = queued()
    it.seconds += 1
    it.traces.bound(BindOutcome.BOUND_ELSEWHERE, 0.5, pod, "n1")
    it.traces.attempted(pod, "error", 100.5, (), "the API server says no")
    (name, _, _, attributes, problem) = it.recorded.spans[-1]
    assert (name, problem) == ("Bind", BindOutcome.BOUND_ELSEWHERE.value)
    assert attributes == {"bind.outcome": BindOutcome.BOUND_ELSEWHERE.value, "k8s.node.name": "n1"}


def test_the_watch_may_show_the_node_before_the_bind_is_answered() -> None:
    it, pod = queued()
    it.traces.left(pod.uid, "n1")
    it.traces.bound(BindOutcome.BOUND, 0.0, pod, "n1")
    it.traces.scheduled(pod, "n1", it.seconds)
    assert [root["scheduling.result"] for root in it.recorded.roots] == ["scheduled"]
    it.seconds += 2 * LINGERS
    it.queued(it.world.pod("b"))
    assert len(it.recorded.roots) == len(it.traces) == 1


def test_a_pod_that_others_bind_after_an_attempt_ends_its_trace_when_it_left() -> None:
    it, pod = queued()
    it.traces.attempted(pod, "unschedulable", it.seconds, {"NodePorts"}, "0/1 nodes are available")
    it.queued(pod, "unschedulable", "ScheduleAttemptFailure")
    it.seconds += 3
    it.traces.left(pod.uid, "n7")
    it.seconds += LINGERS
    it.queued(it.world.pod("b"))
    (root,) = it.recorded.roots
    assert (root["scheduling.result"], root["k8s.node.name"]) == ("bound elsewhere", "n7")
    assert root["seconds"] == 3
    assert it.recorded.ways[-1] == ("unschedulablePods", 0, 3)


def test_a_pod_that_comes_back_after_it_left_is_traced_on() -> None:
    it, pod = queued()
    it.traces.attempted(pod, "error", it.seconds, (), "why")
    it.traces.left(pod.uid, "n1")
    it.queued(pod)
    it.seconds += 2 * LINGERS
    it.queued(it.world.pod("b"))
    assert it.recorded.roots == []
    it.traces.scheduled(pod, "n1", it.seconds)
    assert it.recorded.roots[0]["scheduling.attempts"] == 2


@pytest.mark.parametrize("node_name", ["", "n1"])
def test_of_a_pod_that_was_never_tried_nothing_is_told(node_name: str) -> None:
    it, pod = queued()
    it.traces.left(pod.uid, node_name)
    it.traces.close()
    assert len(it.traces) == 0
    assert it.recorded.roots == it.recorded.spans == []


def test_pods_beyond_the_most_are_counted_and_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST", 2)
    it = Tracing()
    pods = [it.world.pod() for _ in range(4)]
    for pod in pods:
        it.queued(pod)
        # No second thought about the same pod.
        it.queued(pod, "backoff", "BackoffComplete")
    assert (len(it.traces), it.counts.untraced) == (2, 2)
    for pod in pods:
        it.traces.scheduled(pod, "n1", it.seconds)
    assert len(it.recorded.roots) == 2


@pytest.mark.parametrize(("rate", "below"), [(0, 0), (500_000, 1 << 31), (1_000_000, 1 << 32)])
def test_so_many_of_a_million_are_traced_as_their_uids_choose(rate: int, below: int) -> None:
    it = Tracing(rate)
    for _ in range(1000):
        pod, before = it.world.pod(), len(it.traces)
        it.queued(pod)
        assert len(it.traces) - before == (crc32(pod.uid.encode()) < below)


def test_a_trace_is_found_by_the_uid_of_its_pod() -> None:
    uid = "6d6b8f5c-6f0e-4d5a-9d3e-0c6a6d1f1f11"
    assert trace_id(uid) == UUID(uid).int
    assert 0 < trace_id("mirror") < 1 << 128
    assert trace_id("mirror") != trace_id("other")
    assert trace_id("00000000-0000-0000-0000-000000000000") == 1, "0 would be no trace"


def test_what_is_traced_is_measured_too() -> None:
    it, metrics = Tracing(), Metrics(version="1")
    observer = TracedObserver(metrics, it.traces, clock=lambda: it.seconds, policy="p")
    pod = it.world.pod("a")
    it.queued(pod)
    observer.attempted(pod, "unschedulable", it.seconds, {"NodePorts"}, "0/1 nodes are available")
    name = f'scheduler_schedule_attempts_total{{profile="{pod.scheduler_name}",result="unschedulable"}}'
    assert scrape(metrics)[name] == 1
    assert [name for name, *_ in it.recorded.ways] == ["activeQ", "Scheduling"]
