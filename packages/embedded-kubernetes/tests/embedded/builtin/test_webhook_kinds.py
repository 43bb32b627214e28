"""Invalid configurations of webhooks and policies, beyond the recording."""

from __future__ import annotations

from typing import Any

from ..support import ADMISSION, NOW, World, cases, mutation, named, rule, webhook

_RULE = rule("pods")


def _causes(path: str, body: dict[str, Any]) -> list[str]:
    status, answer = World().call("POST", f"{ADMISSION}/{path}", {"metadata": {"name": "x"}, **body})
    if status == 201:
        return []
    return [f"{cause['field']}: {cause['message']}" for cause in answer["details"]["causes"]]


def _hook(**more: Any) -> dict[str, Any]:
    return {**webhook("a", rules=[_RULE]), **more}


@cases(r"""
    service | said
    {} | 'service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive'
    {path: xa} | "service.path: Invalid value: \"xa\": must start with a '/'"
    {path: //} | 'service.path: Invalid value: "//": segment[0] may not be empty'
    {path: /a//b} | 'service.path: Invalid value: "/a//b": segment[1] may not be empty'
    {path: /A} | 'service.path: Invalid value: "/A": segment[0]: a lowercase RFC 1123 subdomain'
    {name: ''} | 'service.name: Required value: service name is required'
    """)
def test_a_service_has_to_be_one_that_can_be_called(service: dict[str, Any], said: str) -> None:
    port = {"port": 0} if not service else {}
    client = {"service": {"name": "s", "namespace": "n", **port, **service}}
    (cause,) = _causes("mutatingwebhookconfigurations", {"webhooks": [_hook(clientConfig=client)]})
    assert cause.startswith(f"webhooks[0].clientConfig.{said}")


@cases(r"""
    url | said
    https:///x | 'host must be provided; desired format: https://host[/path]'
    https://me@x/ | user information is not permitted in the URL
    https://x/#a | fragments are not permitted in the URL
    https:x | 'host must be provided; desired format: https://host[/path]'
    ://x | 'url must be a valid URL: parse "://x": missing protocol scheme; desired format: https://host[/path]'
    https://x:a/ | 'parse "https://x:a/": invalid port ":a" after host; desired format: https://host[/path]'
    https://[::1/ | "parse \"https://[::1/\": missing ']' in host; desired format: https://host[/path]"
    https://x/%zz | 'parse "https://x/%zz": invalid URL escape "%zz"; desired format: https://host[/path]'
    https://a b/ | 'parse "https://a b/": invalid character " " in host name; desired format: https://host[/path]'
    1a:b | 'parse "1a:b": first path segment in URL cannot contain colon; desired format: https://host[/path]'
    """)
def test_an_address_is_no_more_than_host_and_path(url: str, said: str) -> None:
    (cause,) = _causes("validatingwebhookconfigurations", {"webhooks": [_hook(clientConfig={"url": url})]})
    assert cause.endswith(said)


@cases("""
    rule | said
    {operations: []} | 'operations: Required value'
    {operations: ['*', CREATE]} | if '*' is present, must not specify other operations
    {apiVersions: ['']} | 'apiVersions[0]: Required value'
    {resources: []} | 'resources: Required value'
    {resources: ['*/*', pods]} | if '*/*' is present, must not specify other resources
    {resources: ['*/status', pods/status]} | if '*/status' is present, must not specify pods/status
    {resources: ['*', pods]} | if '*' is present, must not specify other resources without subresources
    {scope: All} | 'Unsupported value: "All": supported values: "*", "Cluster", "Namespaced"'
    """)
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


@cases(r"""
    spec | said
    {matchConstraints: null} | ['spec.matchConstraints: Required value']
    {matchConstraints: {}} | ['spec.matchConstraints.resourceRules: Required value']
    {validations: []} | ['spec.validations: Required value: validations or auditAnnotations must contain at least
        one item', 'spec.auditAnnotations: Required value']
    {failurePolicy: 'No'} | ['spec.failurePolicy: Unsupported value']
    {paramKind: {apiVersion: v1}} | ['spec.paramKind.kind: Required value']
    {variables: [{name: a-b, expression: '1'}]} | ['spec.variables[0].name: Invalid value: "a-b": must be a valid
        CEL identifier']
    {variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}]} | ['spec.variables[0].expression:
        Invalid value: "variables.b": compilation failed']
    {validations: [{expression: object.x}]} | ['spec.validations[0].expression: Invalid value: "object.x": must
        evaluate to bool but got dyn']
    {validations: [{expression: 'true', message: "a\nb"}]} | ['spec.validations[0].message: Invalid value: "a\nb":
        must not contain line breaks']
    {validations: [{expression: 'true', reason: Unauthorized}]} | ['spec.validations[0].reason: Unsupported value:
        "Unauthorized": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"']
    {validations: [{expression: "true\n&& true"}]} | []
    {validations: [{expression: ' foo'}]} | ["spec.validations[0].expression: Invalid value: \" foo\": compilation
        failed: ERROR: <input>:1:2: undeclared reference to 'foo' (in container '')\n \u007c  foo\n \u007c .^"]
    {validations: [{expression: 'true', message: ' ', messageExpression: ' '}]} |
        ['spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified',
        'spec.validations[0].message: Invalid value: " ": must be non-empty if specified']
    {variables: [{name: for, expression: '1'}, {name: ' ', expression: ''}]} | ['spec.variables[0].name: Invalid
        value: "for": must be a valid CEL identifier', 'spec.variables[1].name: Required value: name is not
        specified', 'spec.variables[1].expression: Required value: expression is not specified']
    {variables: [{name: a, expression: '1'}, {name: a, expression: '2'}]} | []
    {paramKind: {apiVersion: a/b/c, kind: X y}} | ['spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected
        GroupVersion string: a/b/c', 'spec.paramKind.kind: Invalid value: "X y": may have mixed case, but should
        otherwise match: a ']
    {paramKind: {apiVersion: a/, kind: X}} | ['spec.paramKind.apiVersion: Invalid value: "a/": version must be
        specified']
    {auditAnnotations: [{key: '', valueExpression: ' '}]} | ['spec.auditAnnotations[0].key: Invalid value: "x/":
        name part must be non-empty', 'spec.auditAnnotations[0].key: Invalid value: "x/": name part must consist
        of', 'spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified']
    {auditAnnotations: [{key: k, valueExpression: ' 1'}, {key: k, valueExpression: 'null'}]} |
        ['spec.auditAnnotations[0].valueExpression: Invalid value: " 1": must evaluate to one of [string null_type]
        but got int', 'spec.auditAnnotations[1].key: Duplicate value: "k"']
    {validations: [{expression: int('x') == 1}]} | ["spec.validations[0].expression: Internal error: program
        instantiation failed: type conversion error from 'string' to 'int'"]
    {variables: [{name: names, expression: 'object.spec.containers.map(c, c.name)'}, {name: size, expression:
        variables.names.size()}, {name: mixed, expression: "[1, 'a']"}], validations: [{expression: variables.size
        > 'x'}, {expression: variables.mixed}]} | ["spec.variables[2].expression: Invalid value: \"[1, 'a']\":
        compilation failed: ERROR: <input>:1:5: expected type 'int' but found 'string'",
        "spec.validations[0].expression: Invalid value: \"variables.size > 'x'\": compilation failed: ERROR:
        <input>:1:16: found no matching overload for '_>_' applied to '(int, string)'",
        'spec.validations[1].expression: Invalid value: "variables.mixed": must evaluate to bool but got dyn']
    {auditAnnotations: [{key: k, valueExpression: '1'}]} | ['spec.auditAnnotations[0].valueExpression: Invalid
        value']
    """)
def test_a_validating_policy_is_judged_as_a_whole(spec: dict[str, Any], said: list[str]) -> None:
    whole = {"matchConstraints": _CONSTRAINTS, "validations": [{"expression": "true"}], **spec}
    causes = _causes("validatingadmissionpolicies", {"spec": whole})
    assert len(causes) == len(said), causes
    for cause, start in zip(causes, said, strict=True):
        assert cause.startswith(start)


@cases("""
    mutation | said
    {patchType: ''} | 'patchType: Required value'
    {patchType: Merge} | 'patchType: Unsupported value: "Merge"'
    {patchType: JSONPatch} | 'jsonPatch: Required value: must be specified when patchType is JSONPatch'
    {patchType: ApplyConfiguration, applyConfiguration: {expression: '1'}} | 'applyConfiguration.expression:
        Invalid value: "1": must evaluate to Object but got int'
    {patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{}]'}, applyConfiguration: {expression: 'Object{}'}}
        | 'applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when patchType is
        JSONPatch'
    """)
def test_a_mutation_is_of_one_kind(mutation: dict[str, Any], said: str) -> None:
    constraints = {"resourceRules": [{**_RULE, "operations": ["CREATE"]}]}
    spec = {"matchConstraints": constraints, "mutations": [mutation], "reinvocationPolicy": "Never"}
    causes = _causes("mutatingadmissionpolicies", {"spec": spec})
    assert len(causes) == 1 and causes[0].startswith(f"spec.mutations[0].{said}"), causes


@cases("""
    spec | said
    {policyName: ''} | 'spec.policyName: Required value'
    {validationActions: []} | 'spec.validationActions: Required value'
    {validationActions: [Deny, Warn]} | 'spec.validationActions: Invalid value'
    {validationActions: [Audit, Audit]} | 'spec.validationActions[1]: Duplicate value: "Audit"'
    {paramRef: {parameterNotFoundAction: Deny}} | 'spec.paramRef: Required value: one of name or selector must be
        specified'
    {paramRef: {name: x}} | 'spec.paramRef.parameterNotFoundAction: Required value'
    {paramRef: {name: x, parameterNotFoundAction: 'No'}} | 'spec.paramRef.parameterNotFoundAction: Unsupported
        value: "No": supported values: "Deny", "Allow"'
    """)
def test_a_binding_names_a_policy_and_what_to_do(spec: dict[str, Any], said: str) -> None:
    whole = {"policyName": "p", "validationActions": ["Deny"], **spec}
    causes = _causes("validatingadmissionpolicybindings", {"spec": whole})
    assert len(causes) == 1 and causes[0].startswith(said), causes


@cases(r"""
    expression | said
    object | must evaluate to list(JSONPatch) but got dyn
    '[]' | must evaluate to list(JSONPatch) but got list(dyn)
    JSONPatch{} | must evaluate to list(JSONPatch) but got JSONPatch
    '[Object.spec{}]' | must evaluate to list(JSONPatch) but got list(Object.spec)
    'true ? [JSONPatch{}] : object.x' | must evaluate to list(JSONPatch) but got dyn
    '[JSONPatch{path: request.name + 1}]' | "ERROR: <input>:1:31: found no matching overload for '_+_' applied to
        '(string, int)'\n \u007c [JSONPatch{path: request.name + 1}]\n \u007c ..............................^"
    '[JSONPatch{}] + (has(request.name) ? [JSONPatch{}] : [])' | ''
    "object.spec.containers.map(c, JSONPatch{op: 'add', path: c.name, value: Object.spec{a: [1]}})" | ''
    """)
def test_a_mutation_is_of_the_type_of_its_patch(expression: str, said: str) -> None:
    mutating = mutation(expression)
    constraints = {"resourceRules": [{**_RULE, "operations": ["CREATE"]}]}
    spec = {"matchConstraints": constraints, "mutations": [mutating], "reinvocationPolicy": "Never"}
    causes = _causes("mutatingadmissionpolicies", {"spec": spec})
    assert [cause.endswith(said) for cause in causes] == [True] * bool(said), causes


def test_audit_annotations_are_neither_many_nor_long() -> None:
    spec = {"matchConstraints": _CONSTRAINTS, "validations": [{"expression": "true"}]}
    many = [{"key": f"k{number}", "valueExpression": "'a'"} for number in range(21)]
    long = {"key": "k", "valueExpression": f"'{'a' * 5119}'"}
    for found, said in (
        (many, ': Invalid value: [{"Key":"k0",'),
        ([long], "[0].valueExpression: Required value: must not exceed 5120 bytes in length"),
    ):
        (cause,) = _causes("validatingadmissionpolicies", {"spec": {**spec, "auditAnnotations": found}})
        assert cause.startswith(f"spec.auditAnnotations{said}")


def test_only_what_is_not_deleted_can_be_mutated() -> None:
    rules = {"resourceRules": [{**_RULE, "operations": ["UPDATE", "DELETE"]}]}
    mutating = mutation("[JSONPatch{}]")
    spec = {"matchConstraints": rules, "mutations": [mutating], "reinvocationPolicy": "Never"}
    said = 'resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"'
    assert _causes("mutatingadmissionpolicies", {"spec": spec}) == [f"spec.matchConstraints.{said}"]
    spec = {"policyName": "p", "matchResources": rules}
    assert _causes("mutatingadmissionpolicybindings", {"spec": spec}) == [f"spec.matchResources.{said}"]
    assert _causes("validatingadmissionpolicybindings", {"spec": {**spec, "validationActions": ["Deny"]}}) == []


def test_the_status_of_a_policy_is_judged_too() -> None:
    world, place = World(), f"{ADMISSION}/validatingadmissionpolicies"
    spec = {"matchConstraints": _CONSTRAINTS, "validations": [{"expression": "true"}]}
    policy = world.post(place, named("x", spec=spec))
    condition = {"type": "a b", "status": "Maybe", "reason": "1", "observedGeneration": -1}
    unset = {"type": "A", "status": "True"}
    policy["status"] = {
        "typeChecking": {"expressionWarnings": [{"fieldRef": " ", "warning": ""}]},
        "conditions": [condition, unset, {**unset, "reason": "R", "lastTransitionTime": NOW}],
    }
    status, answer = world.call("PUT", f"{place}/x/status", policy)
    assert status == 422
    fields = [f"{cause['field']}: {cause['message'].partition(':')[0]}" for cause in answer["details"]["causes"]]
    at = "status.typeChecking.expressionWarnings[0]"
    assert fields == [
        f"{at}.warning: Required value",
        f"{at}.fieldRef: Required value",
        "status.conditions[0].type: Invalid value",
        "status.conditions[0].status: Unsupported value",
        "status.conditions[0].observedGeneration: Invalid value",
        "status.conditions[0].lastTransitionTime: Required value",
        "status.conditions[0].reason: Invalid value",
        "status.conditions[1].lastTransitionTime: Required value",
        "status.conditions[1].reason: Required value",
        "status.conditions[2].type: Duplicate value",
    ]


def test_a_version_of_reviews_is_named_once() -> None:
    causes = _causes("validatingwebhookconfigurations", {"webhooks": [_hook(admissionReviewVersions=["v1", "v1"])]})
    assert causes == ['webhooks[0].admissionReviewVersions[1]: Invalid value: "v1": duplicate version']


@cases(r"""
    expression | said
    request.dryRun | ''
    has(request.name) && request.name == 'x' | ''
    "'x' in request.userInfo.groups && request.userInfo.extra['a'][0] == 'b'" | ''
    namespaceObject.metadata.labels['a'] == 'b' | ''
    request.kind.kind | must evaluate to bool but got string
    'null' | must evaluate to bool but got null_type
    timestamp('2020-01-01T00:00:00Z') | must evaluate to bool but got google.protobuf.Timestamp
    has(request.name) && request.name == 1 | "ERROR: <input>:1:35: found no matching overload for '_==_' applied to
        '(string, int)'\n \u007c has(request.name) && request.name == 1\n \u007c
        ..................................^"
    namespaceObject.metadata.uid == 'b' | "ERROR: <input>:1:25: undefined field 'uid'\n \u007c
        namespaceObject.metadata.uid == 'b'\n \u007c ........................^"
    "true ? 'a' : null" | "ERROR: <input>:1:6: found no matching overload for '_?_:_' applied to '(bool, string,
        null)'\n \u007c true ? 'a' : null\n \u007c .....^"
    """)
def test_the_request_and_the_namespace_have_fields_of_known_types(expression: str, said: str) -> None:
    condition = {"name": "a", "expression": expression}
    causes = _causes("validatingwebhookconfigurations", {"webhooks": [_hook(matchConditions=[condition])]})
    assert [cause.endswith(said) for cause in causes] == [True] * bool(said), causes
