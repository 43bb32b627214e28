"""Traces of pods, as a collector gets them from a real scheduler on an embedded cluster."""

from __future__ import annotations

import functools
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from agent_scheduler.fastpath.scheduler import Receivers
from tests.features.fastpath.test_runtime import ALONE, ELECT, HEAD, running
from tests.support.collector import Collector, Span, collector, tracing
from tests.support.command_line import Command, kubeconfig
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.installation import CONFIGURATION
from tests.support.installation import installed as gangs

pytestmark = pytest.mark.real_time
ALL = 1_000_000
_SPANS = 'agent_scheduler_trace_spans_total{{result="{}"}}'


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")


def section(endpoint: str, rate: int = ALL) -> str:
    return f"tracing: {{endpoint: '{endpoint}', samplingRatePerMillion: {rate}}}\n"


async def uid(cluster: EmbeddedCluster, name: str) -> str:
    return str((await cluster.pods())[name]["metadata"]["uid"])


@pytest.fixture
def into() -> Iterator[Collector]:
    """The collector that schedulers tell of their traces."""
    tracing()
    with collector() as into:
        yield into


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with embedded_cluster() as cluster:
        yield cluster


async def traced(cluster: EmbeddedCluster, into: Collector, name: str) -> tuple[Span, list[Span]]:
    """The root of a pod's trace, once that has ended, and all below it; every span is within its parent."""
    return await ended(into, await uid(cluster, name))


async def ended(into: Collector, pod_uid: str) -> tuple[Span, list[Span]]:
    root = await until(lambda: into.root(pod_uid))
    assert isinstance(root, Span)
    rest = [span for span in into.trace(pod_uid) if span is not root]
    by_id = {span.id: span for span in (root, *rest)}
    assert len(by_id) == 1 + len(rest), "no ID twice"
    assert root.began <= root.ended
    for span in rest:
        parent = by_id[span.parent]
        assert parent.began <= span.began <= span.ended <= parent.ended, (span, parent)
    return root, rest


async def test_a_pod_that_is_bound_at_once_has_its_way_in_one_trace(cluster: EmbeddedCluster, into: Collector) -> None:
    async with running(cluster, section(into.url)) as process:
        await cluster.add_node("n1")
        await until(lambda: process.metrics()['scheduler_cache_size{type="nodes"}'] == 1)
        await cluster.add_pod("a")
        root, rest = await traced(cluster, into, "a")
        assert [span.name for span in rest] == ["activeQ", "Scheduling", "Bind"]
        queue, attempt, bind = rest
        assert (queue.parent, attempt.parent, bind.parent) == (root.id, root.id, attempt.id)
        assert root.name == "pod" and root.error == ""
        created = (await cluster.pods())["a"]["metadata"]["creationTimestamp"]
        assert root.attributes == {
            "k8s.namespace.name": "default",
            "k8s.pod.name": "a",
            "k8s.pod.uid": await uid(cluster, "a"),
            "k8s.pod.created": created,
            "k8s.node.name": "n1",
            "scheduling.profile": "agent-scheduler",
            "scheduling.result": "scheduled",
            "scheduling.attempts": 1,
        }
        assert queue.attributes == {"scheduling.event": "UnscheduledPodAdd"}
        assert attempt.attributes == {"scheduling.result": "scheduled", "k8s.node.name": "n1"}
        assert bind.attributes == {"bind.outcome": "bound", "k8s.node.name": "n1"}
        assert root.resource["service.name"] == "agent-scheduler"
        assert into.paths == {"/v1/traces"}
        await until(lambda: process.metrics()[_SPANS.format("exported")] == 4)


async def test_a_pod_that_waits_shows_what_for_before_it_is_bound(cluster: EmbeddedCluster, into: Collector) -> None:
    async with running(cluster, section(into.url)):
        await cluster.add_node("small", cpu="1")
        await cluster.add_pod("large", cpu="2")
        pod_uid = await uid(cluster, "large")
        # The collector knows of the attempt while the pod waits.
        await until(lambda: [span.name for span in into.trace(pod_uid)] == ["activeQ", "Scheduling"])
        _, refused = into.trace(pod_uid)
        assert refused.attributes["scheduling.result"] == "unschedulable"
        assert refused.attributes["scheduling.plugins"] == ["NodeResourcesFit"]
        assert "Insufficient cpu" in refused.attributes["scheduling.message"]
        assert refused.error == "", "no node fits: that is an answer"
        assert into.root(pod_uid) is None
        await cluster.add_node("large", cpu="4")
        root, rest = await traced(cluster, into, "large")
        assert root.attributes["scheduling.attempts"] == 2
        names = [span.name for span in rest]
        assert names[:3] == ["activeQ", "Scheduling", "unschedulablePods"]
        assert names[-2:] == ["Scheduling", "Bind"]
        (waited,) = (span for span in rest if span.name == "unschedulablePods")
        assert waited.attributes["scheduling.plugins"] == ["NodeResourcesFit"]
        woken = rest[names.index("unschedulablePods") + 1]
        assert woken.attributes["scheduling.event"] == "NodeAdd"
        # One wait after the other: where it was is known at any time.
        of_root = [span for span in rest if span.parent == root.id]
        assert all(one.ended <= other.began for one, other in pairwise(of_root))


@pytest.mark.wide
async def test_a_pod_that_loses_a_race_shows_it_and_is_tried_again(cluster: EmbeddedCluster, into: Collector) -> None:
    two = "workerCount: 2\nconflictPolicy: strict\ncandidateNodeCount: 1\n"
    await cluster.add_node("n1")
    for name in ("a", "b"):
        await cluster.add_pod(name)
    async with running(cluster, section(into.url) + two):
        trees = [await traced(cluster, into, name) for name in ("a", "b")]
    assert {root.attributes["scheduling.result"] for root, _ in trees} == {"scheduled"}
    results = [
        [span.attributes["scheduling.result"] for span in rest if span.name == "Scheduling"] for _, rest in trees
    ]
    assert sorted(results) == [["conflict", "scheduled"], ["scheduled"]]
    (loser,) = (rest for _, rest in trees if len(rest) > 3)
    again = [span.attributes.get("scheduling.event") for span in loser if span.name == "activeQ"]
    assert again == ["UnscheduledPodAdd", "UrgentRetry"]


@pytest.mark.wide
async def test_a_gated_pod_waits_for_its_gate_and_one_that_is_deleted_ends_its_trace(
    cluster: EmbeddedCluster, into: Collector
) -> None:
    async with running(cluster, section(into.url)):
        await cluster.add_node("n1", cpu="1")
        await cluster.add_pod("gated", cpu="2", schedulingGates=[{"name": "example.com/g"}])
        gated_uid = await uid(cluster, "gated")
        path = "/api/v1/namespaces/default/pods/gated"
        pod = await cluster.ask("GET", path)
        del pod["spec"]["schedulingGates"]
        await cluster.ask("PUT", path, pod)
        await until(lambda: len(into.trace(gated_uid)) >= 3)
        first = into.trace(gated_uid)[0]
        assert (first.name, first.attributes["scheduling.plugins"]) == ("gated", ["SchedulingGates"])
        await cluster.ask("DELETE", path, {"gracePeriodSeconds": 0})
        root, _ = await ended(into, gated_uid)
        assert root.attributes["scheduling.result"] == "deleted"


async def test_what_waits_when_the_process_stops_is_sent_before_its_end(
    cluster: EmbeddedCluster, into: Collector
) -> None:
    async with running(cluster, section(into.url)) as process:
        await cluster.add_pod("a")
        pod_uid = await uid(cluster, "a")
        await until(lambda: into.trace(pod_uid))
    assert process.ending.result() == 0
    assert into.root(pod_uid) is not None
    root, _ = await ended(into, pod_uid)
    assert root.attributes["scheduling.result"] == "stopped"


async def test_a_member_of_a_gang_waits_for_a_session(into: Collector) -> None:
    async with gangs(CONFIGURATION + section(into.url)) as world:
        await world.add_node("n1", cpu="4")
        await world.gang("g", 2)
        await until(lambda: world.has_placed("g", 2))
        for name in ("g-0", "g-1"):
            root, rest = await traced(world, into, name)
            assert [span.name for span in rest] == ["session", "Scheduling", "Bind"]
            assert root.attributes["scheduling.profile"] == "volcano"


@pytest.mark.wide
async def test_a_standby_tells_nothing_of_pods_that_the_leader_binds(cluster: EmbeddedCluster, into: Collector) -> None:
    async with running(cluster, section(into.url) + ELECT) as leader:
        await until(lambda: leader.runtime._scheduling)
        async with running(cluster, section(into.url) + ELECT) as standby:
            fast_path = await until(lambda: standby.runtime.fast_path)
            await until(lambda: fast_path.is_synced)
            await cluster.add_node("n1")
            await cluster.add_pod("a")
            root, rest = await traced(cluster, into, "a")
            await until(lambda: [each for each in fast_path.cluster.pods.values() if each.node_name])
    assert len(into.spans) == 1 + len(rest) == 4
    assert root.resource["service.instance.id"] == leader.runtime._identity


async def test_nothing_is_traced_and_nobody_listens_without_the_section_and_at_a_rate_of_0(
    cluster: EmbeddedCluster, into: Collector
) -> None:
    for number, text in enumerate(("", section(into.url, 0))):
        async with running(cluster, text) as process:
            reports = process.runtime._reports
            parts = [type(each).__name__ for each in (reports, reports.observer, reports.receivers.recorder)]
            assert parts == ["ProcessReports", "MetricsObserver", "MetricsQueueRecorder"]
            assert reports.receivers == Receivers(reports.observer, reports.receivers.recorder), "no trace ends"
            await cluster.add_node(f"n{number}")
            await cluster.add_pod(f"p{number}")
            await until(functools.partial(cluster.all_placed, number + 1))
    assert into.paths == set()


@pytest.mark.parametrize("how", [pytest.param("refuses", marks=pytest.mark.wide), "down"])
async def test_pods_are_bound_without_a_collector_and_lost_spans_are_counted(
    how: str,
    cluster: EmbeddedCluster,
    into: Collector,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with socket.socket() as nobody:
        into.status = 400
        # Bound, and nobody listens.
        nobody.bind(("127.0.0.1", 0))
        url = into.url if how == "refuses" else f"http://127.0.0.1:{nobody.getsockname()[1]}"
        async with running(cluster, section(url)) as process:
            await cluster.add_node("n1")
            for number in range(20):
                await cluster.add_pod(f"p{number}", cpu="10m")
            await until(lambda: cluster.all_placed(20))
            await until(lambda: process.metrics()[_SPANS.format("failed")] > 0)
            assert process.metrics()[_SPANS.format("exported")] == 0
    said = capfd.readouterr()
    lines = [line for line in (said.out + said.err).splitlines() if "spans" in line or "export" in line]
    assert len(lines) <= 2, "once a minute, and once at the end"


async def test_a_collector_that_does_not_answer_holds_up_neither_pods_nor_the_end(
    cluster: EmbeddedCluster, into: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_scheduler.telemetry.spans.WAITING", 30)
    monkeypatch.setattr("agent_scheduler.telemetry.spans.Spans.close.__defaults__", (0.2,))
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
    # Until then all that is sent waits.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    into.answers.clear()
    async with running(cluster, section(into.url)) as process:
        await cluster.add_node("n1")
        for number in range(20):
            await cluster.add_pod(f"p{number}", cpu="10m")
        # Of 80 spans 30 may wait.
        await until(lambda: process.metrics()[_SPANS.format("dropped")] == 50)
        assert len(await cluster.placed()) == 20
    assert process.ending.result() == 0


@pytest.mark.wide
async def test_the_environment_says_where_to_if_no_section_does(
    cluster: EmbeddedCluster, into: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", into.url)
    async with running(cluster, section("")):
        await cluster.add_node("n1")
        await cluster.add_pod("a")
        root, _ = await traced(cluster, into, "a")
        assert root.resource["service.name"] == "mine"
        assert root.resource["service.version"]


async def refusal(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a scheduler with traces that is started by its command, and does not start, says in its one line."""
    file = folder / "config.yaml"
    file.write_text(f"{HEAD}{ALONE}{section('http://127.0.0.1:4318')}")
    code, _, err = await Command("run", kubeconfig(folder), capsys).beside(f"--config {file} --port 0")
    assert code == 2
    (said,) = err.splitlines()
    return said


async def test_without_the_libraries_the_start_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    said = await refusal(tmp_path, capsys)
    assert said.startswith("agent-scheduler run: tracing: needs OpenTelemetry's libraries")
    assert "install agent-scheduler[tracing]" in said


async def test_a_variable_that_the_library_refuses_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tracing()
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "100000")
    said = await refusal(tmp_path, capsys)
    assert said.startswith("agent-scheduler run: tracing: an environment variable OTEL_* is invalid: ")
