"""Other recordings of the same form are read, and what nobody would know how to replay is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.decisions import background, recording
from tests.decisions.clusters import cluster
from tests.decisions.comparing import nonzero
from tests.decisions.engine import Engine
from tests.decisions.form import Unknown
from tests.decisions.plain import Obj, World, decide
from tests.decisions.preempting import message
from tests.decisions.recording import Case
from tests.decisions.scene import scenes

Write = Callable[[list[dict[str, Any]]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(lines: list[dict[str, Any]]) -> Path:
        path = tmp_path / "recording.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)))
        return path

    return written


def random_lines(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """A recording of random clusters, as the plain reading decides them: all pods of one namespace and priority."""
    chance = random.Random(seed)
    for number in range(count):
        drawn = cluster(chance.randbytes)
        pods = [_as_recorded(pod) for pod in drawn.world.pods if pod["spec"]["nodeName"] != "gone"]
        pending = _as_recorded(drawn.pending)
        pending["spec"].pop("nodeName", None)
        decision = decide(pending, World(drawn.world.nodes, tuple(pods)))
        refused = {"message": decision.message, "reason": "Unschedulable"}
        yield {
            "id": number,
            "features": [],
            "nodes": drawn.world.nodes,
            "pods": pods,
            "pending": pending,
            "result": {"node": min(decision.best)} if decision.best else refused,
            "scores": decision.scores,
            "final": decision.final,
        }


def _as_recorded(pod: Obj) -> dict[str, Any]:
    metadata = {key: value for key, value in pod["metadata"].items() if key != "namespace"}
    spec = {key: value for key, value in pod["spec"].items() if key not in ("priority", "preemptionPolicy")}
    return {"metadata": metadata, "spec": spec}


def test_a_recording_of_fields_that_the_first_one_lacks_is_replayed(write: Write) -> None:
    """Overhead, sidecars, resources of the whole pod, label keys, policies, amounts in odd forms and more."""
    cases = recording.decisions(write(list(random_lines(1, 150))))
    assert len(cases) == 150
    assert background.infer(cases) == {}
    for case, world in scenes(cases):
        plain, engine = decide(case.pending, world), Engine(world)
        decision = engine.decide(case.pending)
        assert (case.id, plain.message, plain.scores) == (case.id, case.message, case.scores)
        assert (case.id, message(engine, case.pending)) == (case.id, case.message)
        if case.scores:
            assert (case.id, nonzero(decision.scores)) == (case.id, nonzero(case.scores))
        assert (case.id, case.node in decision.best) == (case.id, case.node is not None)


def test_what_a_pod_limits_and_does_not_request_it_requests(write: Write) -> None:
    (line,) = random_lines(2, 1)
    line["pending"]["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1"},
        "limits": {"cpu": "2", "memory": "1Gi"},
    }
    (case,) = recording.decisions(write([line]))
    asked = case.pending["spec"]["containers"][0]["resources"]["requests"]
    assert asked == {"cpu": "1", "memory": "1Gi"}


def _spoiled(place: str, value: object) -> dict[str, Any]:
    (line,) = random_lines(3, 1)
    line = dict(json.loads(json.dumps(line)))
    at: Any = line
    *path, last = place.split(".")
    for key in path:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
    at[last] = value
    return line


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("namespaces", {}, "case.namespaces: unknown"),
        ("pending.spec.volumes", [], "case.pending.spec.volumes: unknown"),
        ("pending.spec.schedulerName", "other", "case.pending.spec.schedulerName: 'other' is unknown"),
        ("pending.spec.tolerations", [{"operator": "Near"}], "tolerations[0].operator: 'Near' is unknown"),
        ("pending.spec.containers", {}, "case.pending.spec.containers: a list is expected"),
        ("nodes.0.spec.taints", [{"key": "k", "effect": "No"}], "taints[0].effect: 'No' is unknown"),
        ("nodes.0.status.allocatable", [], "case.nodes[0].status.allocatable: an object is expected"),
        ("scores.n0", {"Sympathy": 3}, "case.scores.n0.Sympathy: unknown"),
        (
            "pending.spec.topologySpreadConstraints",
            [{"whenUnsatisfiable": "Wait"}],
            "topologySpreadConstraints[0].whenUnsatisfiable: 'Wait' is unknown",
        ),
    ],
)
def test_a_line_that_names_something_unknown_is_an_error_that_says_where(
    place: str, value: object, named: str, write: Write
) -> None:
    (sound,) = random_lines(3, 1)
    with pytest.raises(Unknown) as error:
        recording.decisions(write([sound, _spoiled(place, value)]))
    assert "recording.jsonl:2: " in str(error.value)
    assert named in str(error.value)


def test_a_case_without_a_result_or_a_file_without_a_case_is_an_error(write: Write, tmp_path: Path) -> None:
    (line,) = random_lines(4, 1)
    del line["result"]
    with pytest.raises(Unknown, match="1: case: result missing"):
        recording.decisions(write([line]))
    with pytest.raises(Unknown, match="no case"):
        recording.decisions(write([]))
    cut = tmp_path / "cut.jsonl"
    cut.write_text('{"id": 3, "nodes": [')
    with pytest.raises(Unknown, match=r"cut\.jsonl:1: "):
        recording.decisions(cut)


@pytest.mark.parametrize(
    ("variable", "read"),
    [
        ("AGENT_SCHEDULER_DECISIONS", recording.decisions),
        ("AGENT_SCHEDULER_PREEMPTION_DECISIONS", recording.preemptions),
    ],
)
def test_a_file_that_is_named_and_missing_is_an_error_and_no_reason_to_skip(
    variable: str, read: Callable[[], list[object]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "none.jsonl"))
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        read()


def test_an_unknown_priority_class_is_an_error(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = random_lines(5, 1)
    line = {key: line[key] for key in ("id", "nodes", "pods", "pending", "result")}
    line["pending"]["spec"]["priorityClassName"] = "system-node-critical"
    monkeypatch.setenv("AGENT_SCHEDULER_PREEMPTION_DECISIONS", str(write([line])))
    with pytest.raises(Unknown, match="'system-node-critical' is unknown"):
        recording.preemptions()


def test_a_node_that_only_a_message_shows_to_be_full_is_found(original: list[Case]) -> None:
    """A case by itself, of a cluster that carries more than it lists."""
    case = next(each for each in original if each.message and _mentions_room(each))
    ((alone, world),) = scenes([case])
    assert decide(alone.pending, world).message == case.message


def _mentions_room(case: Case) -> bool:
    return decide(case.pending, case.world()).message != case.message
