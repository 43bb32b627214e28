"""Facts that queue, workers and binder report, as metrics and log lines."""

from __future__ import annotations

import io

import orjson
import pytest

from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.queueing.record import QueueRecorder as Recorder
from agent_scheduler.engine.state.nodeinfo import node_info
from agent_scheduler.objects import wire
from agent_scheduler.telemetry import logs
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.observers import MetricsObserver, MetricsQueueRecorder, ReloadReports, ShardReports
from kube_client.bind import BindOutcome
from kube_client.testing.scripted import FakeTime
from kube_client.watch_events import Change, ChangeType
from tests.support.engine import World

from .test_metrics import scrape


@pytest.fixture
def out() -> io.BytesIO:
    stream = io.BytesIO()
    logs.setup(level="info", log_format="json", stream=stream)
    return stream


def lines(out: io.BytesIO) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in out.getvalue().splitlines()]


def test_what_the_queue_reports_is_measured(out: io.BytesIO) -> None:
    metrics = Metrics(version="1")
    recorder: Recorder = MetricsQueueRecorder(metrics, log=logs.get_logger("queue"))
    entry = QueuedPodInfo(uid="a", pod=World().pod("a"), timestamp=0.0)
    recorder.incoming("active", "NodeAdd", entry)
    recorder.incoming("active", "NodeAdd", entry)
    recorder.unschedulable("NodePorts", "a", 1)
    recorder.unschedulable("NodePorts", "a", -1)
    for delta in (1, 1, 1, -1):
        recorder.unschedulable("NodeAffinity", "a", delta)
    recorder.hint_evaluated("NodePorts", "NodeAdd", "Queue", 0.001)
    recorder.pre_hint_evaluated("NodePorts", "AssignedPodDelete", 0, 7)
    recorder.pre_hint_evaluated("NodePorts", "AssignedPodDelete", 3, 7)
    recorder.pre_hint_evaluated("NodePorts", "NodeAdd", None, 7)
    logs.set_level("debug")
    recorder.pre_hint_evaluated("NodeName", "AssignedPodDelete", 3, 7)
    recorder.pre_hint_evaluated("NodeName", "NodeAdd", None, 7)
    recorder.events_forgotten(2)
    recorder.scheduled(2, 0.5, True)
    recorder.urgent_retry(True)
    recorder.urgent_retry(False)
    values = scrape(metrics)
    assert values['scheduler_queue_incoming_pods_total{event="NodeAdd",queue="active"}'] == 2
    assert values['scheduler_unschedulable_pods{plugin="NodePorts",profile="a"}'] == 0
    assert values['scheduler_unschedulable_pods{plugin="NodeAffinity",profile="a"}'] == 2
    hints = "scheduler_queueing_hint_execution_duration_seconds_count"
    assert values[f'{hints}{{event="NodeAdd",hint="Queue",plugin="NodePorts"}}'] == 1
    pre_hints = "scheduler_pre_queueing_hint_evaluations_total"
    assert values[f'{pre_hints}{{plugin="NodePorts",result="narrowed"}}'] == 2
    assert values[f'{pre_hints}{{plugin="NodePorts",result="all_pods"}}'] == 1
    assert values["agent_scheduler_inflight_events_forgotten_total"] == 2
    assert values["scheduler_pod_scheduling_attempts_sum"] == 2
    assert values['agent_scheduler_urgent_retries_total{result="granted"}'] == 1
    assert values['agent_scheduler_urgent_retries_total{result="spent"}'] == 1
    (line,) = lines(out)
    assert line["event"] == "PreQueueingHint narrowed pod set"
    told = (line["plugin"], line["change"], line["pods"], line["waiting"])
    assert told == ("NodeName", "AssignedPodDelete", 3, 7), "an event for all pods writes no line"


def test_a_plugin_that_raises_is_logged_once_a_minute_with_its_traceback(out: io.BytesIO) -> None:
    time = FakeTime()
    recorder = MetricsQueueRecorder(Metrics(version="1"), log=logs.get_logger("queue"), clock=time.timing.clock)
    for _ in range(5):
        recorder.plugin_raised("NodePorts", "QueueingHint", ValueError("no such port"))
    time.now += 61
    recorder.plugin_raised("NodePorts", "QueueingHint", ValueError("no such port"))
    first, second = lines(out)
    assert first["plugin"] == "NodePorts"
    assert "ValueError: no such port" in str(first["exception"])
    assert second["held_back"] == 4


def test_what_workers_and_binder_report_is_measured(out: io.BytesIO) -> None:
    time = FakeTime()
    metrics = Metrics(version="1")
    observer = MetricsObserver(metrics, clock=time.timing.clock, policy="revalidate", log=logs.get_logger("scheduler"))
    observer.decided(1, "a", 0.25)
    observer.decided(1, "a", 0.5)
    time.now += 3
    pod = World().pod("p", schedulerName="a")
    observer.attempted(pod, "unschedulable", 1001.0, {"NodeName"}, "0/1 nodes are available")
    observer.outraced(pod, 1001.0)
    observer.judged(2, 1, 3, True)
    observer.judged(3, 0, 0, False)
    observer.set_policy("strict")
    observer.judged(1, 0, 0, False)
    observer.bound(BindOutcome.BOUND_ELSEWHERE, 0.5, pod, "n1")
    observer.malformed("Node", "n1", "cpu: 'lots' is no quantity")
    values = scrape(metrics)
    assert values['agent_scheduler_worker_cycles_total{worker="1"}'] == 2
    assert values['agent_scheduler_worker_busy_seconds_total{worker="1"}'] == 0.75
    assert values["scheduler_scheduling_algorithm_duration_seconds_count"] == 2
    attempts = "scheduler_scheduling_attempt_duration_seconds_sum"
    assert values[f'{attempts}{{profile="a",result="unschedulable"}}'] == 2
    assert values['agent_scheduler_conflicts_total{policy="revalidate"}'] == 5
    assert values['agent_scheduler_conflicts_total{policy="strict"}'] == 1
    assert values['agent_scheduler_revalidations_total{result="fits"}'] == 1
    assert values['agent_scheduler_revalidations_total{result="refused"}'] == 3
    assert values["agent_scheduler_candidate_rank_count"] == 1
    assert values["agent_scheduler_candidate_rank_sum"] == 3
    assert values['agent_scheduler_bind_outcomes_total{outcome="bound_elsewhere"}'] == 1
    assert values["agent_scheduler_bind_duration_seconds_sum"] == 0.5
    binds = "scheduler_framework_extension_point_duration_seconds_count"
    assert values[f'{binds}{{extension_point="Bind",profile="a",status="Error"}}'] == 1
    assert values['agent_scheduler_malformed_objects_total{kind="Node"}'] == 1
    (line,) = lines(out)
    assert (line["event"], line["key"], line["logger"]) == ("malformed object", "n1", "scheduler")


def test_what_watches_bring_is_measured_by_kind_and_type(out: io.BytesIO) -> None:
    time = FakeTime()
    metrics = Metrics(version="1")
    observer = MetricsObserver(metrics, clock=time.timing.clock, policy="strict")
    node = node_info(wire.Node(metadata=wire.Metadata(name="n1")))
    changes = [Change(ChangeType.ADDED, node, None)] * 3 + [Change(ChangeType.DELETED, node, node)]
    observer.received("Node", changes, time.now - 2)
    observer.received("Node", [], time.now - 2)
    modified = Change(ChangeType.MODIFIED, node, node)
    observer.received("Node", [modified, changes[0], modified], time.now)
    observer.received("Pod", [modified], time.now - 0.5)
    for step in ("list_initial", "list_expired", "watch", "malformed"):
        observer.watched("Node", step)
    observer.status_write("written")
    observer.event_write("dropped")
    values = scrape(metrics)
    assert values['agent_scheduler_watch_events_total{kind="Node",type="added"}'] == 4
    assert values['agent_scheduler_watch_events_total{kind="Node",type="modified"}'] == 2
    assert values['agent_scheduler_watch_events_total{kind="Pod",type="modified"}'] == 1
    assert values['agent_scheduler_watch_events_total{kind="Node",type="deleted"}'] == 1
    assert values['scheduler_event_handling_duration_seconds_sum{event="NodeAdd"}'] == 1.5
    assert values['scheduler_event_handling_duration_seconds_count{event="NodeDelete"}'] == 1
    assert values['scheduler_event_handling_duration_seconds_sum{event="PodUpdate"}'] == 0.5
    assert values['agent_scheduler_lists_total{kind="Node",reason="initial"}'] == 1
    assert values['agent_scheduler_lists_total{kind="Node",reason="expired"}'] == 1
    assert values['agent_scheduler_watch_steps_total{kind="Node",step="watch"}'] == 1
    assert values['agent_scheduler_malformed_objects_total{kind="Node"}'] == 1
    assert 'agent_scheduler_watch_steps_total{kind="Node",step="malformed"}' not in values
    assert values['agent_scheduler_status_writes_total{result="written"}'] == 1
    assert values['agent_scheduler_events_total{result="dropped"}'] == 1


def test_a_bound_pod_is_measured_and_a_debug_line(out: io.BytesIO) -> None:
    metrics = Metrics(version="1")
    observer = MetricsObserver(metrics, clock=lambda: 1000.0, policy="revalidate", log=logs.get_logger("scheduler"))
    pod = World().pod("a")
    observer.pod_scheduled(pod, "n1", 997.0)
    assert lines(out) == []
    logs.set_level("debug")
    observer.pod_scheduled(pod, "n2", 997.0)
    (line,) = lines(out)
    assert (line["event"], line["pod"], line["node"]) == ("pod bound", "default/a", "n2")
    attempts = "scheduler_schedule_attempts_total"
    name = f'{attempts}{{profile="{pod.scheduler_name}",result="scheduled"}}'
    assert scrape(metrics)[name] == 2


def test_a_change_of_the_configuration_is_shown_until_the_next(out: io.BytesIO) -> None:
    metrics, now = Metrics(version="1"), 1700.0
    reports = ReloadReports(metrics, now=lambda: now)

    def shown() -> tuple[float, ...]:
        values, name = scrape(metrics), "agent_scheduler_config"
        counts = (values[f'{name}_reloads_total{{result="{each}"}}'] for each in ("applied", "refused"))
        last = (values[f"{name}_last_reload_{each}"] for each in ("successful", "success_timestamp_seconds"))
        return *counts, *last

    reports.applied(object(), ["workers"])  # type: ignore[arg-type]
    assert shown() == (1, 0, 1, 1700)
    now = 1800.0
    reports.refused("no such field")
    assert shown() == (1, 1, 0, 1700), "what was loaded before is in effect"
    reports.applied(object(), ["workers"])  # type: ignore[arg-type]
    assert shown() == (2, 1, 1, 1800)
    reports.without_effect("port")
    said = [(line["event"], line["level"]) for line in lines(out)]
    applied = ("configuration applied", "info")
    assert said == [applied, ("configuration refused", "error"), applied, ("without effect", "warning")]


def test_what_becomes_of_a_shard_is_measured() -> None:
    metrics = Metrics(version="1")
    reports = ShardReports(metrics)
    reports.shard(4, 3, 2, 1)
    reports.shard_write("conflict")
    values = scrape(metrics)
    for state, number in {"desired": 4, "in_use": 3, "to_add": 2, "to_remove": 1}.items():
        assert values[f'agent_scheduler_shard_nodes{{state="{state}"}}'] == number
    for result, number in {"conflict": 1, "written": 0}.items():
        assert values[f'agent_scheduler_shard_writes_total{{result="{result}"}}'] == number
