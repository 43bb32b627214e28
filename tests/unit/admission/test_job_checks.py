"""Templates of tasks are refused for what the API server would refuse of their pods, in the same words."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from agent_scheduler.admission.job_checks import template_problems
from agent_scheduler.objects.job import TaskSpec
from apimachinery.validation import names
from embedded_kubernetes.builtin import BUILTIN
from tests.support.pod_faults import of_containers, of_pods

#: Volcano knows the older form of environment variables' names alone.
RELAXED = "a valid environment variable name must consist only of printable ASCII characters other than '='"
(STRICT,) = names.environment("A=B")
(POD_TEMPLATE,) = [each for each in BUILTIN if each.kind == "PodTemplate"]


def is_told_alike(**template: Any) -> bool:
    """Of a task, and by the API server of a PodTemplate; there is something to tell."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}, **template}
    task = TaskSpec(name="t", replicas=1, template=msgspec.Raw(json.dumps(template).encode()))
    about = {"name": "t", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    made = {"metadata": about, "template": template}
    POD_TEMPLATE.default(made)
    POD_TEMPLATE.prepare_create(made)
    causes = [f"spec.tasks[0].{each.field}: {each.message}" for each in POD_TEMPLATE.validate(made, None)]
    told = sorted(each.replace(RELAXED, STRICT) for each in causes)
    assert sorted(template_problems(task, 0)) == told
    return bool(told)


@of_containers
def test_what_is_wrong_with_a_container_is_told_as_the_api_server_tells_it(fields: Any, causes: str) -> None:
    assert is_told_alike(spec={"containers": [{"name": "c", "image": "i", **fields}]})


@of_pods
def test_what_is_wrong_with_a_pod_is_told_as_the_api_server_tells_it(spec: Any, causes: str) -> None:
    is_told_alike(spec={"containers": [{"name": "c", "image": "i"}], **spec})


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_labels_and_annotations_are_those_of_its_pods(kind: str) -> None:
    assert is_told_alike(metadata={kind: {"a b": "c d"}, "creationTimestamp": None})
