"""Metrics as a scrape sees them."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent_scheduler.engine.queueing.places import PendingCounts
from agent_scheduler.engine.queues.book import QuotaBook
from agent_scheduler.telemetry.families import Families, HistogramFamily
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.series import exponential

#: The buckets of kube-scheduler's histograms that we have (pkg/scheduler/metrics/metrics.go, 1.37).
KUBE_SCHEDULER = {
    "scheduler_scheduling_attempt_duration_seconds": exponential(0.001, 2, 15),
    "scheduler_scheduling_algorithm_duration_seconds": exponential(0.001, 2, 15),
    "scheduler_framework_extension_point_duration_seconds": exponential(0.0001, 2, 12),
    "scheduler_pod_scheduling_attempts": exponential(1, 2, 5),
    "scheduler_pod_scheduling_sli_duration_seconds": exponential(0.01, 2, 20),
    "scheduler_event_handling_duration_seconds": exponential(0.0001, 2, 12),
    "scheduler_queueing_hint_execution_duration_seconds": exponential(0.00001, 1.5, 20),
    "scheduler_preemption_victims": exponential(1, 2, 7),
    "scheduler_dra_bindingconditions_wait_duration_seconds": exponential(0.1, 2, 14),
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="1.2.3")


def scrape(metrics: Metrics) -> dict[str, float]:
    """`name{label="value",...}`, labels sorted, to value."""
    text = metrics.exposition()[0].decode()
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return values


def test_buckets_are_kube_schedulers(metrics: Metrics) -> None:
    """Names and labels are those of docs/metrics.md, which another test compares."""
    theirs = {name: each for name, each in metrics.families.made.items() if name.startswith("scheduler_")}
    histograms = {name: each.bounds for name, each in theirs.items() if isinstance(each, HistogramFamily)}
    assert histograms == KUBE_SCHEDULER


def test_every_name_is_exposed_exactly_as_it_is_called(metrics: Metrics) -> None:
    text = metrics.exposition()[0].decode()
    declared = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert set(metrics.families.made) <= declared
    assert "_created" not in text


def test_fifteen_attempts_and_more_share_a_label(metrics: Metrics) -> None:
    for attempts in (1, 15, 200):
        metrics.scheduled(attempts, 0.5, after_flush=attempts == 200)
    values = scrape(metrics)
    assert values['scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"}'] == 1
    assert values['scheduler_pod_scheduling_sli_duration_seconds_count{attempts="15+"}'] == 2
    assert values["scheduler_pod_scheduled_after_flush_total"] == 1


def test_gauges_are_what_the_queue_and_the_cache_say_when_scraped(metrics: Metrics) -> None:
    counts = PendingCounts(active=1, backoff=2, unschedulable=3, gated=4, in_flight=5)
    kept = {"NodeAdd": 2}
    queue = SimpleNamespace(pending=lambda: counts, kept_in_flight=lambda: kept)
    pods: list[str] = []
    usage = SimpleNamespace(book=QuotaBook(), gated=SimpleNamespace(held={}, reserved={}))
    ledger = SimpleNamespace(rows={}, placements=pods, assumed=0, usage=usage)
    binder = SimpleNamespace(in_flight=0, concurrency=0)
    metrics.families.read_from(SimpleNamespace(queue=queue, ledger=ledger, binder=binder))
    pods.append("a")
    assert scrape(metrics)['scheduler_cache_size{type="pods"}'] == 1
    assert scrape(metrics)['scheduler_inflight_events{event="NodeAdd"}'] == 2
    assert scrape(metrics)['scheduler_pending_pods{queue="gated"}'] == 4
    counts = counts._replace(gated=0, in_flight=7)
    values = scrape(metrics)
    assert values['scheduler_pending_pods{queue="gated"}'] == 0
    assert values["agent_scheduler_pods_in_flight"] == 7
    queues = {key.split('"')[1] for key in values if key.startswith("scheduler_pending_pods{queue=")}
    assert queues == {"active", "backoff", "unschedulable", "gated"}


def test_requests_without_an_answer_are_counted_as_errors(metrics: Metrics) -> None:
    metrics.api_request("POST", 201)
    metrics.api_request("POST", 0)
    values = scrape(metrics)
    assert values['agent_scheduler_api_requests_total{code="201",method="POST"}'] == 1
    assert values['agent_scheduler_api_requests_total{code="<error>",method="POST"}'] == 1


def test_the_build_is_told(metrics: Metrics) -> None:
    (shown,) = (key for key in scrape(metrics) if key.startswith("agent_scheduler_build_info{"))
    assert 'version="1.2.3"' in shown


def test_the_text_is_what_prometheus_client_would_write() -> None:
    """Its exposition is the oracle for ours: same samples, in the same format."""
    make, registry = Families(), CollectorRegistry()
    counter = prometheus_client.Counter("a_total", "Counts.", ["x", "y"], registry=registry)
    gauge = prometheus_client.Gauge("b", "Goes.", registry=registry)
    bounds = (1e-05, 0.5, 2.0)
    histogram = prometheus_client.Histogram("c", "Lasts.", ["x"], buckets=bounds, registry=registry)
    counted = make.counter("a_total", "Counts.", "x", "y")
    for x, y, amount in (("1", 'q"uo\\te\n', 2.0), ("2", "", 0.5)):
        counted.labels(x, y).inc(amount)
        counter.labels(x, y).inc(amount)
    make.gauge("b", "Goes.").set(-3)
    gauge.set(-3)
    ours = make.histogram("c", "Lasts.", "x", bounds=bounds)
    for value in (0.0, 1e-05, 0.3, 2.0, 2.5):
        ours.labels("1").observe(value)
        histogram.labels("1").observe(value)
    assert samples(make.text()) == samples(generate_latest(registry).decode())


def samples(text: str) -> list[tuple[str, str, dict[str, str], float]]:
    """Family, name, labels and value of each sample. Bounds are compared as Go prints them (2, not 2.0), and when a
    series was created is left out, since kube-scheduler does not say it."""
    found = ((family, each) for family in text_string_to_metric_families(text) for each in family.samples)
    return [
        (family.name, each.name, {name: value.removesuffix(".0") for name, value in each.labels.items()}, each.value)
        for family, each in found
        if not each.name.endswith("_created")
    ]  # fmt: skip


def test_what_a_tally_gathers_reads_as_if_each_value_had_been_recorded_at_once() -> None:
    gathered, recorded = (_Tallied() for _ in range(2))
    tally = gathered.families.tally(
        counters=[gathered.counter.labels()],
        histograms=[gathered.short.labels(), gathered.long.labels()],
        sums=[gathered.busy.labels()],
    )
    chance = random.Random(7)
    # A bound, what is above them all, and more than is gathered at a time.
    values = [0.5, 2, 1e9, *(chance.expovariate(1) for _ in range(1500))]
    for number, value in enumerate(values):
        tally.add(value)
        recorded.counter.inc()
        recorded.short.observe(value)
        recorded.long.observe(value)
        recorded.busy.inc(value)
        if number % 400 < 3:
            assert gathered.families.text() == recorded.families.text()
    assert gathered.families.text() == recorded.families.text()


class _Tallied:
    def __init__(self) -> None:
        make = self.families = Families()
        self.counter = make.counter("a_total", "Counts.")
        self.busy = make.counter("b_total", "Sums.")
        self.short = make.histogram("c", "Lasts.", bounds=(0.5, 1.0, 2.0))
        self.long = make.histogram("d", "Lasts.", bounds=(2.0, 4.0))


def test_a_tally_does_not_grow_while_nobody_reads() -> None:
    make = Families()
    counter = make.counter("a_total", "Counts.").labels()
    tally = make.tally(counters=[counter])
    for _ in range(10_000):
        tally.add(1.0)
    assert counter.value > 9000


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda make: make.counter("x_total", "x", "a").labels("a", "b"), "has the labels"),
        (lambda make: make.counter("x_total", "x", "a").inc(), "has the labels"),
        (lambda make: [make.counter("x_total", "x") for _ in range(2)], "exists already"),
        (lambda make: make.counter("x", "x"), "must end in _total"),
        (lambda make: make.histogram("y", "y", bounds=(1.0, 1.0)), "bounds must rise"),
    ],
)
def test_what_would_be_exposed_wrongly_is_refused(wrong: Callable[[Families], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wrong(Families())
    # But for names of Volcano's that end otherwise.
    assert Families().counter("volcano_total_preemption_attempts", "x").type == "counter"


def test_what_an_owner_counts_is_read_of_it_at_each_scrape() -> None:
    make, owner = Families(), SimpleNamespace(lost=3, waiting={"a": 1})
    make.counter("lost_total", "x", read=lambda of: of.lost)
    make.gauge("waiting", "x", "where", read=lambda of: of.waiting)
    assert "\nlost_total 0" in make.text(), "nobody is there to be read yet"
    make.read_from(owner)
    owner.lost = 4
    assert "\nlost_total 4\n" in make.text()
    assert '\nwaiting{where="a"} 1\n' in make.text()


def test_series_that_are_read_may_have_several_labels_and_go_with_what_they_are_about() -> None:
    make, owner = Families(), SimpleNamespace(shares={("ns", "a"): 0.5, ("ns", "b"): 1})
    make.gauge("share", "x", "namespace", "name", read=lambda of: of.shares)
    make.read_from(owner)
    assert '\nshare{namespace="ns",name="b"} 1\n' in make.text()
    del owner.shares["ns", "b"]
    assert 'name="b"' not in make.text()
    assert '\nshare{namespace="ns",name="a"} 0.5\n' in make.text()


def test_feature_gates_are_shown_as_they_are(metrics: Metrics) -> None:
    gates = {"SchedulerPreQueueingHints": False, "SchedulerPopFromBackoffQ": True, "GangScheduling": True}
    metrics.features(gates)
    values = scrape(metrics)
    assert values['kubernetes_feature_enabled{name="GangScheduling",stage="ALPHA"}'] == 1
    assert values['kubernetes_feature_enabled{name="SchedulerPreQueueingHints",stage="BETA"}'] == 0
    assert values['kubernetes_feature_enabled{name="SchedulerPopFromBackoffQ",stage="BETA"}'] == 1
