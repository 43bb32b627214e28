"""`agent-scheduler queues` as a shell sees it, against an embedded cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedded_kubernetes import EmbeddedCluster
from tests.support.command_line import Command
from tests.support.objects import pod as make_pod
from tests.support.objects import pod_group, queue

Capture = pytest.CaptureFixture[str]
GATE = "scheduling.volcano.sh/queue-allocation-gate"
TREE = (
    {"name": "root"},
    {"name": "default"},
    {"name": "teams", "capability": {"cpu": "10"}},
    {"name": "agents", "parent": "teams", "deserved": {"cpu": "4", "memory": "8Gi"}, "weight": 2},
    {"name": "training", "parent": "teams", "reclaimable": False, "guarantee": {"resource": {"cpu": "1"}}},
    {"name": "lost", "parent": "gone"},
    {"name": "this", "parent": "that"},
    {"name": "that", "parent": "this"},
)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        for crd in sorted(Path("config/crd").glob("scheduling.*.yaml")):
            cluster.apply(crd.read_text())
        for spec in TREE:
            cluster.apply(yaml.safe_dump(queue(**spec)))
        yield cluster


@pytest.fixture
def show(cluster: EmbeddedCluster, capsys: Capture) -> Command:
    return Command("queues", cluster.kubeconfig, capsys)


def pod(name: str, queue: str = "", **more: Any) -> dict[str, Any]:
    """A pod that takes part in the gate of its queue."""
    annotations = {GATE: "true", **({"scheduling.volcano.sh/queue-name": queue} if queue else {})}
    amounts = {"cpu": "500m", "memory": "1Gi"}
    return make_pod(name, namespace="default", annotations=annotations, **{"scheduler": "", **amounts, **more})


def held(name: str, queue: str = "", **more: Any) -> dict[str, Any]:
    return pod(name, queue, gates=[GATE], **more)


def test_held_and_reserved_pods_are_counted_in_their_queues(show: Command, cluster: EmbeddedCluster) -> None:
    objects = (
        *(held(f"held-{number}", "agents") for number in range(3)),
        pod("reserved", "agents"),
        pod("runs", "agents", node="anywhere"),
        pod("other-gate", "agents", gates=[GATE, "example.com/other"]),
        held("of-batch", scheduler="volcano"),
        held("in-no-queue"),
        pod_group("g", namespace="default", minimum=1, queue="training"),
        held("of-group", scheduler="volcano", group="g"),
    )
    for each in objects:
        cluster.apply(yaml.safe_dump(each))
    code, out, err = show("-o json")
    assert (code, err) == (0, "")
    found = {each["name"]: each["gatedPods"] for each in json.loads(out)["queues"]}
    nothing = {"pods": 0, "resources": {}}
    assert found["agents"] == {
        "held": {"pods": 3, "resources": {"cpu": "1500m", "memory": "3Gi"}},
        "reserved": {"pods": 1, "resources": {"cpu": "500m", "memory": "1Gi"}},
    }
    assert found["default"]["held"]["pods"] == found["training"]["held"]["pods"] == 1
    assert found["teams"] == {"held": nothing, "reserved": nothing}
    lines = show()[1].splitlines()
    assert lines[0].split()[-2:] == ["HELD", "RESERVED"]
    agents = next(line for line in lines if "agents" in line)
    assert agents.endswith("3 (cpu=1500m,memory=3Gi)   1 (cpu=500m,memory=1Gi)")
    teams = next(line for line in lines if "teams" in line)
    assert teams.split()[-2:] == ["-", "-"]


def test_who_may_not_read_pods_is_shown_the_queues(show: Command, cluster: EmbeddedCluster) -> None:
    refused = {"match": {"resource": "pods"}, "fault": {"error": {"status": 403}}}
    cluster.inject({"rules": [refused]})
    code, out, err = show("agents")
    assert code == 0 and "gated pods cannot be read" in err and "\n" not in err[:-1]
    assert out.splitlines()[1].split()[-2:] == ["?", "?"]
    assert json.loads(show("agents -o json")[1])["queues"][0]["gatedPods"] is None


def test_the_tree_is_shown_with_parents_before_children(show: Command) -> None:
    code, out, err = show()
    assert (code, err) == (0, "")
    names = [line.split("   ")[0].rstrip() for line in out.splitlines()[1:]]
    assert names == ["lost", "root", "├─ default", "└─ teams", "", "", "that", "this"]
    assert "└─ training" in out and "├─ agents" in out and "cpu=4,memory=8Gi" in out


def test_programs_get_json_and_yaml_alike(show: Command) -> None:
    of_json = json.loads(show("-o json")[1])
    assert of_json == yaml.safe_load(show("-o yaml")[1])
    found = {each["name"]: each for each in of_json["queues"]}
    assert found["agents"]["parent"] == "teams" and found["agents"]["weight"] == 2
    assert found["training"]["reclaimable"] is False and found["training"]["guarantee"] == {"cpu": "1"}
    assert found["root"]["parent"] is None and found["default"]["parent"] == "root"


def test_a_part_of_the_tree_can_be_asked_for(show: Command) -> None:
    code, out, _ = show("teams -o wide")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["QUEUE", "teams", "├─", "└─"]


def test_a_queue_that_there_is_not_is_told_with_those_that_there_are(show: Command) -> None:
    told = "queue team does not exist; found: agents, default, lost, root, teams, that, this, training"
    assert show("team") == (2, "", f"agent-scheduler queues: {told}\n")


def test_a_cluster_without_the_kind_is_told_what_to_install(capsys: Capture) -> None:
    told = "the API server has no Queue (scheduling.volcano.sh/v1beta1); install it: kubectl apply -k config"
    with EmbeddedCluster() as cluster:
        code, _, err = Command("queues", cluster.kubeconfig, capsys)()
    assert (code, err) == (2, f"agent-scheduler queues: {told}/crd\n")
