"""`agent-scheduler queues` as a shell sees it, against an embedded cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.cli.main import main
from embedded_kubernetes import EmbeddedCluster

Capture = pytest.CaptureFixture[str]
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


def queue(spec: dict[str, Any]) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": spec["name"]},
            "spec": {key: value for key, value in spec.items() if key != "name"},
        }
    )


@pytest.fixture
def show(tmp_path: Path, capsys: Capture) -> Any:
    """Runs the command; exit code, standard output and standard error."""
    with EmbeddedCluster() as cluster:
        for crd in sorted(Path("config/crd").glob("scheduling.*.yaml")):
            cluster.apply(crd.read_text())
        for spec in TREE:
            cluster.apply(queue(spec))

        def run(*line: str) -> tuple[int, str, str]:
            code = main(["queues", "--kubeconfig", str(cluster.kubeconfig), *line])
            shown = capsys.readouterr()
            return code, shown.out, shown.err

        yield run


def test_the_tree_is_shown_with_parents_before_children(show: Any) -> None:
    code, out, err = show()
    assert (code, err) == (0, "")
    assert [line.split("   ")[0].rstrip() for line in out.splitlines()[1:]] == [
        "lost",
        "root",
        "├─ default",
        "└─ teams",
        "",
        "",
        "that",
        "this",
    ]
    assert "└─ training" in out and "├─ agents" in out and "cpu=4,memory=8Gi" in out


def test_programs_get_json_and_yaml_alike(show: Any) -> None:
    of_json = json.loads(show("-o", "json")[1])
    assert of_json == yaml.safe_load(show("-o", "yaml")[1])
    found = {each["name"]: each for each in of_json["queues"]}
    assert found["agents"]["parent"] == "teams" and found["agents"]["weight"] == 2
    assert found["training"]["reclaimable"] is False and found["training"]["guarantee"] == {"cpu": "1"}
    assert found["root"]["parent"] is None and found["default"]["parent"] == "root"


def test_a_part_of_the_tree_can_be_asked_for(show: Any) -> None:
    code, out, _ = show("teams", "-o", "wide")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["QUEUE", "teams", "├─", "└─"]


def test_a_queue_that_there_is_not_is_told_with_those_that_there_are(show: Any) -> None:
    code, out, err = show("team")
    assert (code, out) == (2, "")
    assert err == (
        "agent-scheduler queues: there is no queue team; "
        "there are agents, default, lost, root, teams, that, this, training\n"
    )


def test_a_cluster_without_the_kind_is_told_what_to_install(capsys: Capture) -> None:
    with EmbeddedCluster() as cluster:
        code = main(["queues", "--kubeconfig", str(cluster.kubeconfig)])
    assert code == 2
    assert capsys.readouterr().err == (
        "agent-scheduler queues: the API server has no Queue (scheduling.volcano.sh/v1beta1); install it: "
        "kubectl apply -k config/crd\n"
    )
