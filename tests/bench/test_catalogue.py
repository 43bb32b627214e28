"""Scenarios say what they mean, at every size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apimachinery.quantity import resource_value
from bench.harness.manifests import MARK, MARKED, amounts, pod_maker
from bench.harness.model import Batch, Case, Fate, Template
from bench.scenarios.catalogue import SCENARIOS, cases, find, names
from bench.scenarios.existing import NotHereError
from bench.scenarios.options import AS_THE_CASE_WANTS, Options

EVERY_CASE = [(scenario.name, case) for scenario in SCENARIOS for case in scenario.cases]
QUICK = Options(quick=True, runs=1)


def test_no_two_batches_of_a_case_make_pods_of_one_name_and_no_two_scenarios_have_one() -> None:
    assert len(set(names())) == len(names())
    for name, case in EVERY_CASE:
        batches = [batch.name for batch in case.batches]
        assert len(set(batches)) == len(batches), (name, case.name)


def _room(case: Case, batch: Batch) -> int:
    """Return the number of pods of a batch that the empty nodes hold."""
    wanted = amounts(batch.templates[0])
    has = {"cpu": case.nodes.cpu, "memory": case.nodes.memory, "pods": str(case.nodes.pods)}
    return case.nodes.count * min(
        resource_value(name, has[name]) // amount for name, amount in wanted.items() if amount
    )


@pytest.mark.parametrize("factor", [1.0, 0.3, 0.02])
def test_the_nodes_hold_what_has_to_be_bound_and_never_what_has_to_wait(factor: float) -> None:
    for name, full in EVERY_CASE:
        case = full.scaled(factor)
        for batch in (*case.before, case.load):
            if batch.fate is Fate.WAITS:
                assert _room(case, batch) == 0, (name, case.name)
            elif batch.fate is Fate.BOUND and batch.lives is None:
                assert batch.count <= _room(case, batch), (name, case.name)
            devices = case.nodes.devices * case.nodes.count
            if "resourceClaims" in batch.templates[0].spec:
                assert batch.count <= devices, (name, case.name)


@pytest.mark.parametrize("factor", [1.0, 0.3, 0.02])
def test_pods_that_share_no_node_are_never_more_than_the_nodes(factor: float) -> None:
    for full in find("pod-anti-affinity", Options()).cases:
        case = full.scaled(factor)
        assert sum(batch.count for batch in case.batches) <= case.nodes.count


def test_tight_workers_exactly_fill_their_nodes() -> None:
    tight = [case for case in find("workers", Options()).cases if "tight" in case.name]
    assert len(tight) == 10
    assert all(case.load.count == _room(case, case.load) for case in tight)


def test_a_quick_run_is_small_and_says_so() -> None:
    for scenario in SCENARIOS:
        quick = cases(scenario, QUICK)
        assert len(quick) == 1
        assert all("x 0.02" in case.name for case in quick)
        assert all(case.nodes.count <= 2_000 and case.load.count <= 4_000 for case in quick)


def test_events_double_the_cases_and_are_named() -> None:
    options = Options(events=(True, False))
    chosen = cases(find("node-affinity", options), options)
    assert [case.name for case in chosen] == [
        "500 nodes, events on", "500 nodes, events off", "5,000 nodes, events on", "5,000 nodes, events off",
    ]  # fmt: skip
    assert [case.tuning.events for case in chosen] == [True, False, True, False]
    # Cases that already set it are not doubled again.
    assert len(cases(find("basic", options), options)) == 4


def test_on_nodes_that_are_there_cases_differ_by_their_pods_alone() -> None:
    options = Options(kubeconfig=Path("file"))
    assert [case.name for case in cases(find("nodes", options), options)] == ["10,000 pods"]
    assert [case.name for case in cases(find("basic", options), options)] == ["1,000 pods", "10,000 pods"]


@pytest.mark.parametrize(
    ("name", "made", "why"),
    [
        # A scheduler that runs already has its own settings, and no backlog.
        ("workers", 5, "started here"),
        ("backlog", 5, "runs already"),
        # Zones and devices are not expected of nodes that are there.
        *((each, None, "--make-nodes") for each in ("node-affinity", "pod-affinity", "claim-templates")),
    ],
)
def test_what_a_cluster_that_is_there_cannot_show_is_refused(name: str, made: int | None, why: str) -> None:
    options = Options(kubeconfig=Path("file"), make_nodes=made)
    with pytest.raises(NotHereError, match=why):
        cases(find(name, options), options)


def test_made_nodes_are_as_many_as_asked_for_or_as_the_case_wants() -> None:
    options = Options(kubeconfig=Path("file"), make_nodes=300)
    assert [(case.name, case.nodes.count) for case in cases(find("nodes", options), options)] == [
        ("10,000 pods on 300 nodes", 300)
    ]
    options = Options(kubeconfig=Path("file"), make_nodes=AS_THE_CASE_WANTS)
    assert [case.nodes.count for case in cases(find("nodes", options), options)][-1] == 100_000


def test_a_trace_keeps_its_nodes_arrivals_and_lives(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,4000,1024,2,V100\n")
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
        "p1,500,64,1,500,V100,100,160\np2,500,64,0,0,,130,\n"
    )
    options = Options(traces=(f"openb:{nodes},{pods}@10",))
    (case,) = cases(find("trace", options), options)
    assert case.name == "openb pods.csv, 10 times as fast"
    assert [spec.name for spec in case.nodes.given] == ["a"]
    assert case.load.schedule is not None
    assert case.load.schedule.due(2) == [0.0, 3.0]
    assert case.load.lives is not None
    assert list(case.load.lives.seconds(2)) == [6.0, None]
    first = case.load.templates[0]
    assert first.requests["cpu"] == "500m"
    assert "V100" in str(first.spec["affinity"])


def test_a_pod_is_kept_on_marked_nodes_only_where_others_use_the_cluster() -> None:
    template = Template(spec={"nodeSelector": {"disk": "fast"}})
    alone = json.loads(pod_maker(template, scheduler_name="mine")("p-000001"))
    assert alone["metadata"]["name"] == "p-000001"
    assert alone["spec"]["schedulerName"] == "mine"
    assert alone["spec"]["nodeSelector"] == {"disk": "fast"}
    assert "tolerations" not in alone["spec"]
    kept = json.loads(pod_maker(template, scheduler_name="mine", selector=MARKED)("p-000001"))
    assert kept["spec"]["nodeSelector"] == {"disk": "fast", MARK: "true"}
    assert {"key": MARK, "operator": "Exists"} in kept["spec"]["tolerations"]
    assert kept["metadata"]["labels"][MARK] == "true"
