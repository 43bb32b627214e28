"""What is read of a pod's annotations, labels and scheduling group."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.state.batchinfo import BatchInfo, GroupKey
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import pod_json, read_pod


def read(annotations: dict[str, Any] | None = None, **more: Any) -> PodInfo:
    return read_pod(pod_json("p", namespace="team", annotations=annotations, **more), PodClasses())


def info(annotations: dict[str, Any] | None = None, **more: Any) -> BatchInfo:
    found = read(annotations, **more).batch
    assert found is not None
    return found


@pytest.mark.parametrize("annotations", [None, {}, {"cni.example/addresses": "10.0.0.1"}])
def test_a_plain_pod_has_no_part_in_a_batch(annotations: dict[str, str] | None) -> None:
    assert read(annotations, labels={"app": "web"}).batch is None


def test_a_pod_says_its_group_role_queue_and_gate() -> None:
    found = info(
        {
            "scheduling.k8s.io/group-name": "g",
            "scheduling.volcano.sh/queue-name": "research",
            "scheduling.volcano.sh/queue-allocation-gate": "true",
            "volcano.sh/task-spec": "ps",
            "volcano.sh/task-index": "3",
            "volcano.sh/task-priority": "-5",
            "volcano.sh/preemptable": "true",
            "other.example/unknown": "x" * 1000,
        },
        phase="Running",
    )
    assert found == BatchInfo(GroupKey("team", "g"), "ps", 3, -5, "research", True, True, "Running")


def test_a_group_of_volcano_goes_before_a_native_one_and_its_first_annotation_before_the_second() -> None:
    native = {"schedulingGroup": {"podGroupName": "own"}}
    assert info(**native).group == GroupKey("team", "own", native=True)
    second = {"scheduling.volcano.sh/group-name": "second"}
    assert info(second, **native).group == GroupKey("team", "second")
    assert info(second | {"scheduling.k8s.io/group-name": "first"}).group == GroupKey("team", "first")


def test_labels_say_role_and_preemptable_where_no_annotation_does() -> None:
    labels = {"volcano.sh/task-spec": "worker", "volcano.sh/preemptable": "true"}
    assert (info(labels=labels).role, info(labels=labels).preemptable) == ("worker", True)
    said = info({"volcano.sh/preemptable": "false", "volcano.sh/task-spec": "ps"}, labels=labels)
    assert (said.role, said.preemptable) == ("ps", False)
    assert info({"volcano.sh/task-spec": "ps"}).preemptable, "as it is where nobody says anything"


@pytest.mark.parametrize("text", ["True", "1", "TRUE", "yes", "", "t"])
def test_the_gate_is_managed_for_the_exact_word_only_and_preemptable_as_go_reads_truth(text: str) -> None:
    found = info(
        {
            "scheduling.volcano.sh/queue-allocation-gate": text,
            "volcano.sh/preemptable": text,
            "volcano.sh/task-spec": "x",
        }
    )
    assert not found.gate_managed
    assert found.preemptable == (text in ("True", "1", "TRUE", "t"))


@pytest.mark.parametrize("text", ["", "x", "1.5", " 1", "1_0", "2147483648", "9" * 5000, "٣"])
def test_a_number_that_go_would_not_read_is_none(text: str) -> None:
    found = info({"volcano.sh/task-index": text, "volcano.sh/task-priority": text, "volcano.sh/task-spec": "x"})
    assert (found.index, found.priority) == (None, None)


def test_a_pod_whose_annotation_is_no_text_still_takes_its_room() -> None:
    found = read({"scheduling.k8s.io/group-name": 5, "volcano.sh/task-spec": "ps"})
    assert found.cls.error
    assert found.batch is not None
    assert (found.batch.group, found.batch.role) == (None, "ps")
