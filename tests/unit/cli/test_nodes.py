"""`agent-scheduler nodes` as a shell sees it, against an embedded cluster."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from agent_scheduler.cli.main import main
from embedded_kubernetes import EmbeddedCluster
from tests.support.objects import container, node
from tests.support.objects import pod as make_pod

Capture = pytest.CaptureFixture[str]


def pod(name: str, on: str, **requests: str) -> str:
    first = container("i", requests={"cpu": "1500m"})
    return json.dumps(make_pod(name, namespace="default", node=on, requests=requests, initContainers=[first]))


def end(cluster: EmbeddedCluster, name: str) -> None:
    """As its kubelet says it."""
    request = urllib.request.Request(
        f"{cluster.url}/api/v1/namespaces/default/pods/{name}/status",
        json.dumps({"status": {"phase": "Succeeded"}}).encode(),
        {"Content-Type": "application/merge-patch+json"},
        method="PATCH",
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


@pytest.fixture
def show(capsys: Capture) -> Iterator[Any]:
    """Runs the command; exit code, standard output and standard error."""
    with EmbeddedCluster(kubelets=False) as cluster:
        cluster.apply(json.dumps(node("a", pods="10", ready=True)))
        gpus = {"nvidia.com/gpu": "8"}
        other = node("b", cpu="2", pods="10", extended=gpus, unschedulable=True, ready=True)
        cluster.apply(json.dumps(other))
        cluster.apply(pod("one", "a", cpu="1", memory="1Gi"))
        cluster.apply(pod("two", "b", cpu="500m", memory="2Gi"))
        cluster.apply(pod("ended", "b", cpu="2"))
        end(cluster, "ended")

        def run(*line: str) -> tuple[int, str, str]:
            code = main(["nodes", "--kubeconfig", str(cluster.kubeconfig), *line])
            shown = capsys.readouterr()
            return code, shown.out, shown.err

        yield run


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_pods_take_what_the_scheduler_counts_them_as(show: Any) -> None:
    code, out, err = show()
    assert (code, err) == (0, "")
    assert cells(out) == [
        ["NAME", "STATUS", "PODS", "CPU", "CPU%", "MEMORY", "MEMORY%"],
        # The init container needs more than those that run after it.
        ["a", "Ready", "1/10", "1.5/4", "38%", "1Gi/8Gi", "12%"],
        ["b", "Ready,SchedulingDisabled", "1/10", "1.5/2", "75%", "2Gi/8Gi", "25%"],
    ]


def test_a_wider_table_has_all_resources_and_the_fullest_may_come_first(show: Any) -> None:
    _, out, _ = show("-o", "wide", "--sort-by", "cpu")
    head, first, second = cells(out)
    assert head[-1] == "NVIDIA.COM/GPU"
    assert (first[0], first[-1]) == ("b", "0/8")
    assert (second[0], second[-1]) == ("a", "-")


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_exact_amounts(show: Any, output: str, read: Any) -> None:
    _, out, _ = show("a", "-o", output)
    assert read(out) == {
        "nodes": [
            {
                "name": "a",
                "ready": True,
                "unschedulable": False,
                "pods": 1,
                "allocatable": {"cpu": 4000, "memory": 8 << 30, "pods": 10},
                "requested": {"cpu": 1500, "memory": 1 << 30, "pods": 1},
            }
        ]
    }


def test_a_name_of_no_node_is_told(show: Any) -> None:
    assert show("a", "nope") == (2, "", "agent-scheduler nodes: there is no node nope; there are 2\n")
