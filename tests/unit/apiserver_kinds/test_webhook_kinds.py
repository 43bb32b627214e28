"""What makes configurations of webhooks and policies invalid, beyond what was recorded."""

from __future__ import annotations

from typing import Any

import pytest

from ..apiserver.world import World

_GROUP = "/apis/admissionregistration.k8s.io/v1"
_RULE = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def _causes(path: str, body: dict[str, Any]) -> list[str]:
    status, answer = World().call("POST", f"{_GROUP}/{path}", {"metadata": {"name": "x"}, **body})
    if status == 201:
        return []
    return [f"{cause['field']}: {cause['message']}" for cause in answer["details"]["causes"]]


def _hook(**more: Any) -> dict[str, Any]:
    return {
        "name": "a.b.c",
        "clientConfig": {"url": "https://hook/"},
        "rules": [_RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


@pytest.mark.parametrize(
    ("service", "said"),
    [
        ({}, "service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"),
        ({"path": "xa"}, "service.path: Invalid value: \"xa\": must start with a '/'"),
        ({"path": "//"}, 'service.path: Invalid value: "//": segment[0] may not be empty'),
        ({"path": "/a//b"}, 'service.path: Invalid value: "/a//b": segment[1] may not be empty'),
        ({"path": "/A"}, 'service.path: Invalid value: "/A": segment[0]: a lowercase RFC 1123 subdomain'),
        ({"name": ""}, "service.name: Required value: service name is required"),
    ],
)
def test_a_service_has_to_be_one_that_can_be_called(service: dict[str, Any], said: str) -> None:
    port = {"port": 0} if not service else {}
    client = {"service": {"name": "s", "namespace": "n", **port, **service}}
    (cause,) = _causes("mutatingwebhookconfigurations", {"webhooks": [_hook(clientConfig=client)]})
    assert cause.startswith(f"webhooks[0].clientConfig.{said}")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https:///x", "host must be specified; desired format: https://host[/path]"),
        ("https://me@x/", "user information is not permitted in the URL"),
        ("https://x/#a", "fragments are not permitted in the URL"),
    ],
)
def test_an_address_is_no_more_than_host_and_path(url: str, said: str) -> None:
    (cause,) = _causes("validatingwebhookconfigurations", {"webhooks": [_hook(clientConfig={"url": url})]})
    assert cause.endswith(said)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"operations": []}, "operations: Required value"),
        ({"operations": ["*", "CREATE"]}, "if '*' is present, must not specify other operations"),
        ({"apiVersions": [""]}, "apiVersions[0]: Required value"),
        ({"resources": []}, "resources: Required value"),
        ({"resources": ["*/*", "pods"]}, "if '*/*' is present, must not specify other resources"),
        (
            {"resources": ["*/status", "pods/status"]},
            "if '*/status' is present, must not specify pods/status",
        ),
        (
            {"resources": ["*", "pods"]},
            "if '*' is present, must not specify other resources without subresources",
        ),
        ({"scope": "All"}, 'Unsupported value: "All": supported values: "*", "Cluster", "Namespaced"'),
    ],
)
def test_a_rule_says_what_it_is_about(rule: dict[str, Any], said: str) -> None:
    causes = _causes("validatingwebhookconfigurations", {"webhooks": [_hook(rules=[{**_RULE, **rule}])]})
    assert len(causes) == 1 and causes[0].endswith(said), causes


def test_match_conditions_have_names_of_their_own_and_are_not_too_many() -> None:
    condition = {"name": "a", "expression": "true"}
    causes = _causes(
        "validatingwebhookconfigurations",
        {"webhooks": [_hook(matchConditions=[condition, {"name": "b", "expression": "  "}])]},
    )
    assert causes == ["webhooks[0].matchConditions[1].expression: Required value"]
    many = [{"name": f"c{number}", "expression": "true"} for number in range(65)]
    causes = _causes("validatingwebhookconfigurations", {"webhooks": [_hook(matchConditions=many)]})
    assert causes == ["webhooks[0].matchConditions: Too many: 65: must have at most 64 items"]


_CONSTRAINTS = {"resourceRules": [_RULE]}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"matchConstraints": None}, ["spec.matchConstraints: Required value"]),
        ({"matchConstraints": {}}, ["spec.matchConstraints.resourceRules: Required value"]),
        (
            {"validations": []},
            [
                f"spec.{field}: Required value: validations or auditAnnotations must contain at least one item"
                for field in ("validations", "auditAnnotations")
            ],
        ),
        ({"failurePolicy": "No"}, ["spec.failurePolicy: Unsupported value"]),
        ({"paramKind": {"apiVersion": "v1"}}, ["spec.paramKind.kind: Required value"]),
        (
            {"variables": [{"name": "a-b", "expression": "1"}]},
            ['spec.variables[0].name: Invalid value: "a-b": name is not a valid CEL identifier'],
        ),
        (
            {"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]},
            ['spec.variables[0].expression: Invalid value: "variables.b": compilation failed'],
        ),
        (
            {"validations": [{"expression": "object.x"}]},
            ['spec.validations[0].expression: Invalid value: "object.x": must evaluate to bool but got dyn'],
        ),
        (
            {"validations": [{"expression": "true", "message": "a\nb"}]},
            ['spec.validations[0].message: Invalid value: "a\\nb": message must not contain line breaks'],
        ),
        (
            {"validations": [{"expression": "true", "reason": "NotFound"}]},
            ["spec.validations[0].reason: Unsupported value"],
        ),
        (
            {"auditAnnotations": [{"key": "k", "valueExpression": "1"}]},
            ["spec.auditAnnotations[0].valueExpression: Invalid value"],
        ),
    ],
)
def test_a_validating_policy_is_judged_as_a_whole(spec: dict[str, Any], said: list[str]) -> None:
    whole = {"matchConstraints": _CONSTRAINTS, "validations": [{"expression": "true"}], **spec}
    causes = _causes("validatingadmissionpolicies", {"spec": whole})
    assert len(causes) == len(said), causes
    for cause, start in zip(causes, said, strict=True):
        assert cause.startswith(start)


@pytest.mark.parametrize(
    ("mutation", "said"),
    [
        ({"patchType": ""}, "patchType: Required value"),
        ({"patchType": "Merge"}, 'patchType: Unsupported value: "Merge"'),
        (
            {"patchType": "JSONPatch"},
            "jsonPatch: Required value: must be specified when patchType is JSONPatch",
        ),
        (
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "1"}},
            'applyConfiguration.expression: Invalid value: "1": must evaluate to Object but got int',
        ),
        (
            {
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": "[]"},
                "applyConfiguration": {"expression": "Object{}"},
            },
            "applyConfiguration: Forbidden: may not be specified when patchType is not ApplyConfiguration",
        ),
    ],
)
def test_a_mutation_is_of_one_kind(mutation: dict[str, Any], said: str) -> None:
    spec = {"matchConstraints": _CONSTRAINTS, "mutations": [mutation], "reinvocationPolicy": "Never"}
    causes = _causes("mutatingadmissionpolicies", {"spec": spec})
    assert len(causes) == 1 and causes[0].startswith(f"spec.mutations[0].{said}"), causes


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"policyName": ""}, "spec.policyName: Required value"),
        ({"validationActions": []}, "spec.validationActions: Required value"),
        ({"validationActions": ["Deny", "Warn"]}, "spec.validationActions: Invalid value"),
        ({"validationActions": ["Audit", "Audit"]}, 'spec.validationActions[1]: Duplicate value: "Audit"'),
        (
            {"paramRef": {"parameterNotFoundAction": "Deny"}},
            "spec.paramRef: Required value: one of name or selector must be specified",
        ),
        ({"paramRef": {"name": "x"}}, "spec.paramRef.parameterNotFoundAction: Required value"),
    ],
)
def test_a_binding_names_a_policy_and_what_to_do(spec: dict[str, Any], said: str) -> None:
    whole = {"policyName": "p", "validationActions": ["Deny"], **spec}
    causes = _causes("validatingadmissionpolicybindings", {"spec": whole})
    assert len(causes) == 1 and causes[0].startswith(said), causes
