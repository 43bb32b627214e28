"""Templates of tasks are refused for what the API server would refuse of their pods, in the same words."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from agent_scheduler.admission import names
from agent_scheduler.admission.pod_templates import template_problems
from agent_scheduler.objects.job import TaskSpec
from embedded_kubernetes.builtin import BUILTIN
from tests.embedded.support import cases
from tests.support.pod_faults import CONTAINERS, PODS

#: Volcano knows the older form of environment variables' names alone.
RELAXED = "a valid environment variable name must consist only of printable ASCII characters other than '='"
(STRICT,) = names.environment("A=B")
(POD_TEMPLATE,) = [each for each in BUILTIN if each.kind == "PodTemplate"]


def told(template: Any) -> list[str]:
    task = TaskSpec(name="t", replicas=1, template=msgspec.Raw(json.dumps(template).encode()))
    return sorted(template_problems(task, 0))


def told_of_pods(template: Any) -> list[str]:
    """By the API server."""
    metadata = {"name": "t", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    made = {"metadata": metadata, "template": json.loads(json.dumps(template))}
    POD_TEMPLATE.default(made)
    POD_TEMPLATE.prepare_create(made)
    causes = POD_TEMPLATE.validate(made, None)
    told_there = (f"spec.tasks[0].{cause.field}: {cause.message}" for cause in causes)
    return sorted(each.replace(RELAXED, STRICT) for each in told_there)


@cases(CONTAINERS)
def test_what_is_wrong_with_a_container_is_told_as_the_api_server_tells_it(fields: Any, causes: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i", **fields}]}}
    assert told(template) == told_of_pods(template)


@cases(PODS)
def test_what_is_wrong_with_a_pod_is_told_as_the_api_server_tells_it(spec: Any, causes: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    assert told(template) == told_of_pods(template)


@pytest.mark.parametrize(
    "metadata", [{"labels": {"a b": "c d"}}, {"annotations": {"a b": ""}}, {"creationTimestamp": None}]
)
def test_labels_and_annotations_are_those_of_its_pods(metadata: Any) -> None:
    template = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert told(template) == told_of_pods(template)
