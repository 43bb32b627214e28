"""What sessions report, by Volcano's names and by ours."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from structlog.testing import capture_logs

from agent_scheduler.engine.queues.book import QuotaBook
from agent_scheduler.engine.quotas.queues import QueueInfo
from agent_scheduler.engine.session.conf import SessionConf
from agent_scheduler.engine.session.session import Stage
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.telemetry.batch import BatchMetrics, BatchReports
from agent_scheduler.telemetry.families import Families
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.observers import MetricsObserver
from tests.support.engine import World, node
from tests.unit.engine.session.scene import Scene, conf

from .test_controllers import samples
from .test_metrics import scrape

QUEUES = conf("priority", "gang", "drf", "capacity", "predicates", "nodeorder")
GPU = "nvidia.com/gpu"


class Recording:
    """A process's metrics, and what a batch scheduler reports to them."""

    def __init__(self) -> None:
        self.families = Families()
        self.metrics = Metrics(version="1")
        observer = MetricsObserver(self.metrics, clock=lambda: 0.0, policy="p")
        self.reports = BatchReports(
            BatchMetrics(self.families), observer, now=lambda: datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
        )
        # As the process does; what sessions said is read of no other object.
        self.families.read_from(object())

    def session(self, scene: Scene, how: SessionConf = QUEUES, *, spent: Mapping[Stage, float] | None = None) -> None:
        book = QuotaBook()
        for each in scene.queues:
            book.set_queue(each)
        session, result = scene.run(how, book=book)
        self.reports.session_ended(session, result, seconds=0.25, spent=spent or {})

    def values(self, prefix: str) -> dict[str, float]:
        """Samples whose names begin so, without the prefix."""
        return samples(self.families, prefix)


def two_queues() -> Scene:
    scene = Scene(node("a", cpu="4"))
    scene.queues.append(
        QueueInfo(name="q", parent="root", weight=3, capability={"cpu": 3000, GPU: 2000}, deserved={"cpu": 2000})
    )
    return scene


def test_before_the_first_session_nothing_is_said_of_queues_and_jobs() -> None:
    assert Recording().values("volcano_queue_") == {}
    assert Recording().values("volcano_unschedule") == {"_job_count": 0}


def test_queues_are_shown_as_the_last_session_left_them() -> None:
    scene, recording = two_queues(), Recording()
    scene.gang("runs", 1, queue="q")
    recording.session(scene)
    values = recording.values("volcano_queue_")
    cpu = {"allocated": 1000, "deserved": 2000, "request": 1000, "capacity": 3000, "real_capacity": 3000}
    expected = {f"{name}_milli_cpu": amount for name, amount in cpu.items()}
    expected |= {"weight": 3, "share": 0.5, "allocated_memory_bytes": 0}
    assert {name: values[f'{name}{{queue_name="q"}}'] for name in expected} == expected
    assert f'capacity_scalar_resources{{queue_name="q",resource="{GPU}"}}' in values
    assert 'capacity_milli_cpu{queue_name="default"}' not in values


def test_series_of_a_queue_or_group_that_is_gone_go_with_it() -> None:
    scene, recording = two_queues(), Recording()
    scene.gang("g", 9, queue="q")
    scene.gang("runs", 1)
    recording.session(scene)
    assert any('"q"' in name for name in recording.values("volcano_queue_"))
    assert recording.values("volcano_unschedule_task") == {'_count{job_id="g"}': 9}
    assert len(recording.values("volcano_job_share")) == 1
    assert len(recording.values("volcano_e2e_job_scheduling_duration")) == 1
    scene.queues.pop()
    scene.groups.clear()
    recording.session(scene)
    for prefix in ("volcano_unschedule_task", "volcano_job_share", "volcano_e2e_job_scheduling_duration"):
        assert recording.values(prefix) == {}
    assert not any('"q"' in name for name in recording.values("volcano_queue_"))


def test_what_was_bound_is_counted_and_how_long_it_took_since_it_was_made() -> None:
    scene, recording = Scene(node("a", cpu="4")), Recording()
    scene.gang("g", 2, created="2026-01-01T00:00:30Z")
    scene.gang("large", 9)
    recording.session(scene, conf())
    assert recording.values("agent_scheduler_batch_groups_bound") == {"_total": 1}
    assert recording.values("agent_scheduler_batch_pods_bound") == {"_total": 2}
    attempts = {'{result="scheduled"}': 2, '{result="unschedulable"}': 1, '{result="error"}': 0}
    assert recording.values("volcano_schedule_attempts_total") == attempts
    tasks = recording.values("volcano_task_scheduling_latency_milliseconds_")
    # Members are made at 0:00:00 and 0:00:01.
    assert (tasks["count"], tasks["sum"]) == (2, 60_000 + 59_000)
    whose = '{job_name="g",queue="default",job_namespace="default"}'
    assert recording.values("volcano_e2e_job_scheduling_duration") == {whose: 30_000}


def test_a_pod_without_a_group_has_no_series_of_its_own() -> None:
    scene, recording = Scene(node("a", cpu="1")), Recording()
    group = scene.group("g")
    bare = msgspec.structs.replace(group, key=GroupKey("default", "some-uid"), uid="some-uid")
    scene.groups[0] = bare
    scene.members[bare.key] = scene.members.pop(group.key)
    recording.session(scene)
    assert recording.values("volcano_unschedule_task") == recording.values("volcano_job_share") == {}


def test_evictions_are_counted_by_action() -> None:
    scene, recording = Scene(node("a", cpu="2")), Recording()
    scene.more["priorities"] = {"high": 9}
    scene.group("old")
    for _ in range(2):
        scene.member("old", node="a", annotations={"volcano.sh/preemptable": "true"})
    scene.gang("g", 1, phase="Inqueue", priorityClassName="high")
    scene.members[GroupKey("default", "g")][0] = msgspec.structs.replace(
        scene.members[GroupKey("default", "g")][0], priority=9
    )
    recording.session(scene, conf("priority", "gang", "predicates", actions="allocate preempt"))
    counted = recording.values("agent_scheduler_batch_evictions_total")
    assert counted == {'{action="preempt"}': 1, '{action="reclaim"}': 0}
    assert recording.values("volcano_pod_preemption_victims") == {"": 1}
    assert recording.values("volcano_total_preemption") == {"_attempts": 1}


def test_members_that_the_binder_refuses_are_counted() -> None:
    scene, recording = Scene(node("a", cpu="4")), Recording()
    scene.gang("g", 2)
    scene.cluster.refused = {"g-0", "g-1"}
    recording.session(scene)
    assert recording.values("agent_scheduler_batch_commits_refused") == {"_total": 2}


def test_stages_are_measured_by_volcanos_names() -> None:
    recording = Recording()
    spent = {Stage("plugin", "gang"): 0.001, Stage("action", "allocate"): 0.02, Stage("close", ""): 1.0}
    recording.session(Scene(node("a")), conf("gang", actions="allocate backfill"), spent=spent)
    for what, expected in {
        "plugin": {'{plugin="gang",OnSession="OnSessionOpen"}': 1.0},
        "action": {'{action="allocate"}': 20.0, '{action="backfill"}': 0.0},
        "e2e": {"": 250.0},
    }.items():
        assert recording.values(f"volcano_{what}_scheduling_latency_milliseconds_sum") == expected


def test_slices_and_broken_sessions_and_failed_binds_are_counted() -> None:
    recording = Recording()
    reports = recording.reports
    reports.sliced(0.002)
    reports.sliced(0.001)
    reports.session_broken("failed")
    pod = World().pod("p", schedulerName="volcano")
    reports.attempted(pod, "error", 0.0, (), "no answer")
    assert recording.values("agent_scheduler_batch_session_busy") == {"_seconds_total": 0.003}
    sessions = {'{result="completed"}': 0, '{result="given_up"}': 0, '{result="failed"}': 1}
    assert recording.values("agent_scheduler_batch_sessions_total") == sessions
    assert recording.values("volcano_schedule_attempts_total")['{result="error"}'] == 1
    name = 'scheduler_schedule_attempts_total{profile="volcano",result="error"}'
    assert scrape(recording.metrics)[name] == 1


def test_what_both_schedulers_report_alike_goes_where_the_fast_paths_goes() -> None:
    recording = Recording()
    reports = recording.reports
    with capture_logs() as lines:
        for problem in ("no answer", "no answer"):
            reports.bind_failed(World().pod("p"), "n1", problem)
            reports.eviction_failed("default/v", problem)
    assert [each["event"] for each in lines] == ["bind failed", "eviction failed"], "of many alike one line"
    reports.malformed("Node", "n1", "cpu: 'lots' is no quantity")
    reports.status_write("written")
    reports.event_write("dropped")
    values = scrape(recording.metrics)
    assert values["agent_scheduler_evictions_failed_total"] == 2
    assert values['agent_scheduler_malformed_objects_total{kind="Node"}'] == 1
    assert values['agent_scheduler_status_writes_total{result="written"}'] == 1
    assert values['agent_scheduler_events_total{result="dropped"}'] == 1
