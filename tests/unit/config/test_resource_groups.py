"""The file of --admission-conf."""

from __future__ import annotations

import pytest

from agent_scheduler.config.resource_groups import read_resource_groups
from tests.support.command_line import problem

VOLCANOS = """
resourceGroups:
- resourceGroup: management
  object: {key: namespace, value: [mng-ns-1]}
  schedulerName: default-scheduler
  tolerations: [{effect: NoSchedule, key: taint, operator: Exists}]
  affinity: '{"nodeAffinity": {}}'
  labels: {volcano.sh/nodetype: management}
- resourceGroup: cpu
  object:
    key: annotation
    value: ["volcano.sh/resource-group: cpu", "tier: batch", "tier: other"]
- resourceGroup: gpu
"""


def test_volcanos_file_is_read() -> None:
    management, cpu, gpu = read_resource_groups(VOLCANOS, source="file")
    assert management.namespaces == {"mng-ns-1"}
    assert management.annotations == {}
    assert management.affinity == {"nodeAffinity": {}}
    assert management.tolerations == ({"effect": "NoSchedule", "key": "taint", "operator": "Exists"},)
    assert (management.scheduler_name, management.labels) == (
        *("default-scheduler",),
        {"volcano.sh/nodetype": "management"},
    )
    # Of two values for one key the first counts, as in Volcano.
    assert cpu.annotations == {"volcano.sh/resource-group": "cpu", "tier": "batch"}
    assert gpu.annotations == {"volcano.sh/resource-group": "gpu"}


@pytest.mark.parametrize("text", ["", "resourceGroups: []", "{}"])
def test_a_file_may_have_none(text: str) -> None:
    assert read_resource_groups(text, source="file") == ()


HEAD = "resourceGroups:\n- resourceGroup: x\n  "
#: By their line and place.
MISTAKES = {
    "resourceGroup: x": "1: resourceGroup: unknown key; did you mean resourceGroups? allowed: resourceGroups",
    "resourceGroups:\n- labels: {}": ("2: resourceGroups[0].resourceGroup: is missing; allowed: a name without spaces"),
    f"{HEAD}object: {{key: pod}}": ("3: resourceGroups[0].object.key: found 'pod'; allowed: annotation, namespace"),
    f"{HEAD}object: {{key: namespace}}": (
        "3: resourceGroups[0].object.value: is empty; allowed: at least one namespace"
    ),
    f"{HEAD}object: {{value: [tier]}}": (
        "3: resourceGroups[0].object.value[0]: found 'tier'; allowed: an annotation, such as 'key: value'"
    ),
    f"{HEAD}affinity: '[]'": ("3: resourceGroups[0].affinity: found a list; allowed: the affinity of a pod as JSON"),
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.items())
def test_what_cannot_be_used_is_named_with_its_line(text: str, expected: str) -> None:
    assert problem(read_resource_groups, text, source="file") == f"file:{expected}"
