"""Pod templates are refused for what the API server refuses of their pods, in its words."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from apimachinery.validation import names
from apimachinery.validation.pod_templates import read_template, template_problems

CONTAINER = {"name": "c", "image": "i"}


def problems(**spec: Any) -> list[str]:
    template = {"spec": {"containers": [CONTAINER], **spec}}
    return list(template_problems(read_template(msgspec.Raw(json.dumps(template).encode())), "t"))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"image": ""}, "image: Required value"),
        ({"ports": [{"containerPort": 0}]}, "ports[0].containerPort: Required value"),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            'resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"resources": {"limits": {"example.com/card": "500m"}}},
            'resources.limits[example.com/card]: Invalid value: "500m": must be an integer',
        ),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, 'volumeMounts[0].name: Not found: "v"'),
        (
            {"livenessProbe": {"exec": {"command": ["a"]}, "periodSeconds": -1}},
            "livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {"env": [{"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "x"}}}]},
            'env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "x": supported values: "limits.cpu", '
            '"limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", '
            '"requests.memory"',
        ),
    ],
)
def test_an_invalid_container_is_refused_by_its_field(fields: dict[str, Any], problem: str) -> None:
    assert problems(containers=[{**CONTAINER, **fields}]) == [f"t.spec.containers[0].{problem}"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"containers": []}, "containers: Required value"),
        ({"containers": [CONTAINER, CONTAINER]}, 'containers[1].name: Duplicate value: "c"'),
        (
            {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
            "volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            {"tolerations": [{"operator": "Maybe", "key": "k"}]},
            'tolerations[0].operator: Unsupported value: "Maybe": supported values: "Equal", "Exists"',
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            {"restartPolicy": "Sometimes"},
            'restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        ({"hostUsers": False, "hostNetwork": True}, "hostNetwork: Forbidden: when `hostUsers` is false"),
    ],
)
def test_an_invalid_pod_is_refused_by_its_field(fields: dict[str, Any], problem: str) -> None:
    assert problems(**fields) == [f"t.spec.{problem}"]


def test_a_template_without_faults_is_accepted_and_null_fields_are_missing_ones() -> None:
    assert problems(volumes=None, tolerations=[{"operator": "Exists", "effect": None}]) == []


@pytest.mark.parametrize(
    ("rule", "valid", "invalid"),
    [
        (names.label, "a" * 63, "a" * 64),
        (names.subdomain, "a.b", "a..b"),
        (names.qualified, "example.com/a_b", "/a"),
        (names.label_value, "", "-a"),
        (names.address, "::1", "1.2.3"),
    ],
)
def test_names_have_their_formats(rule: names.Rule, valid: str, invalid: str) -> None:
    assert rule(valid) == ()
    assert rule(invalid) != ()


@pytest.mark.parametrize(
    ("resource", "extended"), [("cpu", False), ("nvidia.com/gpu", True), ("requests.nvidia.com/gpu", False)]
)
def test_extended_resources_have_a_domain(resource: str, extended: bool) -> None:
    assert names.is_extended_resource(resource) is extended
