"""Admission policies beyond the recording: variables, parameters, actions."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from embedded.support import ADMISSION, MAPS, PODS, World, cases, config_map, container, mutation, named, rule
from embedded_kubernetes.auth.audit import event


def _refusal(world: World, name: str = "c", **metadata: Any) -> str:
    """Return the refusal of a create; empty if it is allowed."""
    status, answer = world.call("POST", f"{MAPS}?dryRun=All", config_map(name, **metadata))
    return "" if status == 201 else answer["message"].rpartition("denied request: ")[2]


def test_a_variable_in_error_counts_only_where_it_is_used(world: World) -> None:
    variables = [{"name": "broken", "expression": "object.metadata.annotations.x"}]
    used = "object.metadata.name == 'c' || variables.broken == ''"
    world.policy("Validating", {"variables": variables, "validations": [{"expression": used}]})
    assert _refusal(world) == ""
    why = 'composited variable "broken" fails to evaluate: no such key: annotations'
    assert _refusal(world, "d") == f"expression '{used}' resulted in error: {why}"


@cases("""
    expression | used
    object.metadata.?labels['a'] | variables.v.orValue('d') == 'd' && has(variables.v)
    object.?data['k'] | variables.v.value() == 'v'
    "[timestamp('2020-01-01T00:00:00Z')]" | variables.v[0] < timestamp('2021-01-01T00:00:00Z')
    "{1: 'a'}" | variables.v[1] == 'a'
    "['a'].transformMap(i, x, x)" | variables.v.all(k, x, k == 0 && x == 'a')
    2u | variables.v + 1u == 3u
    type(1) | variables.v == int
    format.date() | "!variables.v.validate('2021-01-01').hasValue()"
    authorizer.path('/').check('get') | variables.v.allowed()
    """)
def test_a_variable_keeps_what_is_no_json(world: World, expression: str, used: str) -> None:
    variables = [{"name": "v", "expression": expression}, {"name": "w", "expression": "variables.v"}]
    both = f"{used} && {used.replace('variables.v', 'variables.w')}"
    world.policy("Validating", {"variables": variables, "validations": [{"expression": both}]})
    assert _refusal(world) == ""


def test_a_value_of_a_patch_that_is_no_json_is_a_text() -> None:
    values = {"b": "b'a'", "t": "timestamp('2020-01-01T00:00:00Z')", "d": "duration('90s')"}
    operations = ", ".join(
        f"JSONPatch{{op: 'add', path: '/data/{name}', value: {value}}}" for name, value in values.items()
    )
    world = World()
    world.policy("Mutating", {"mutations": [mutation(f"[{operations}]")]})
    made = world.post(MAPS, config_map())["data"]
    assert made == {"k": "v", "b": "YQ==", "t": "2020-01-01T00:00:00Z", "d": "90s"}


def test_parameters_may_be_several_selected_by_labels_and_each_is_asked(world: World) -> None:
    world.policy(
        "Validating",
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "object.metadata.name != params.data.not"}],
        },
        paramRef={"selector": {"matchLabels": {"limits": "1"}}, "parameterNotFoundAction": "Allow"},
    )
    assert _refusal(world, "a") == ""
    for name in "ab":
        body = named(f"no-{name}", labels={"limits": "1"}, data={"not": name})
        world.post(MAPS, body)
    assert [bool(_refusal(world, name)) for name in "abc"] == [True, True, False]


@cases("""
    kind | reference | said
    {apiVersion: v1, kind: Node} | {name: x, namespace: default} | paramRef.namespace must not be provided for a
        cluster-scoped `paramKind`
    """)
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_parameters_that_cannot_be_had_are_a_failure(world: World, kind, reference, said, policy) -> None:
    spec = {"paramKind": kind, "failurePolicy": policy, "validations": [{"expression": "true"}]}
    world.policy("Validating", spec, paramRef={**reference, "parameterNotFoundAction": "Deny"})
    wanted = f"failed to configure binding: {said}" if policy == "Fail" else ""
    assert _refusal(world) == wanted


def test_rules_may_leave_out_what_others_cover_and_go_by_names(world: World) -> None:
    one = rule("*")
    constraints = {
        "resourceRules": [one],
        "excludeResourceRules": [{**one, "resources": ["configmaps"], "resourceNames": ["free"]}],
    }
    world.policy("Validating", {"matchConstraints": constraints, "validations": [{"expression": "false"}]})
    assert (_refusal(world, "free"), bool(_refusal(world, "held"))) == ("", True)


def test_the_namespace_and_the_authorizer_can_be_asked(world: World) -> None:
    expression = (
        "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'default' && "
        "authorizer.requestResource.check('create').allowed() && "
        "authorizer.serviceAccount('default', 'x').path('/metrics').check('get').reason() == ''"
    )
    world.policy("Validating", {"validations": [{"expression": expression}]})
    assert _refusal(world) == ""


@cases("""
    question | said
    path(' ') | path must not be empty
    group('').resource('') | resource must not be empty
    serviceAccount('default', 'A').path('/') | Invalid service account name
    serviceAccount('a.b', 'a').path('/') | Invalid service account namespace
    """)
def test_what_the_authorizer_cannot_be_asked_is_an_error(world: World, question: str, said: str) -> None:
    expression = f"authorizer.{question}.check('get').allowed()"
    world.policy("Validating", {"validations": [{"expression": expression}]})
    assert _refusal(world) == f"expression '{expression}' resulted in error: {said}"


def test_the_audit_log_has_failures_and_what_a_policy_publishes() -> None:
    told: list[Any] = []
    world = World(observer=told.append)
    spec = {
        "validations": [{"expression": "false", "message": "never"}],
        "auditAnnotations": [{"key": "name", "valueExpression": "string(object.metadata.name)"}],
    }
    world.policy("Validating", spec, validationActions=["Audit"])
    assert _refusal(world) == ""
    annotations = event(told[-1], "u")["annotations"]
    assert annotations["p/name"] == "c"
    (failure,) = orjson.loads(annotations["validation.policy.admission.k8s.io/validation_failure"])
    assert failure == {
        "message": "never",
        "policy": "p",
        "binding": "b",
        "expressionIndex": 0,
        "validationActions": ["Audit"],
    }


def _mutated(*mutations: dict[str, Any], **spec: Any) -> tuple[int, Any]:
    world = World()
    world.policy("Mutating", {"mutations": list(mutations), **spec})
    return world.call("POST", f"{MAPS}?dryRun=All", config_map())


def test_a_patch_whose_test_fails_is_not_applied() -> None:
    patch = '[JSONPatch{op: "remove", path: "/data"}, JSONPatch{op: "test", path: "/kind", value: "Pod"}]'
    status, made = _mutated(mutation(patch))
    assert (status, made["data"]) == (201, {"k": "v"})


def test_names_in_a_pointer_can_be_escaped() -> None:
    patch = (
        '[JSONPatch{op: "add", path: "/metadata/annotations", value: {}}, '
        'JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("a/b"), value: "~"}]'
    )
    _, made = _mutated(mutation(patch))
    assert made["metadata"]["annotations"] == {"a/b": "~"}


@cases(r"""
    kind | expression | code | said
    ApplyConfiguration | "Object{data: Object.date{a: '1'}}" | 403 | unexpected type name "Object.date"
    ApplyConfiguration | 'Object{nosuch: 1}' | 403 | field not declared in schema
    ApplyConfiguration | 'Object{data: 1}' | 403 | 'typed object: .data: expected map, got &{1}'
    ApplyConfiguration | "Object{data: Object.data{a: {'b': [1]}}}" | 403 | 'typed object: .data.a: expected
        string, got &value.valueUnstructured{Value:map[string]interface {}{"b":[]interface {}{1}}}'
    ApplyConfiguration | "Object{metadata: Object.metadata{generation: 'x', finalizers: 'y'}}" | 403 | "typed
        object: errors:\n  .metadata.finalizers: expected list, got &{y}\n  .metadata.generation: expected numeric
        (int or float), got string"
    ApplyConfiguration | "Object{immutable: 'x'}" | 403 | 'typed object: .immutable: expected boolean, got
        &value.valueUnstructured{Value:"x"}'
    ApplyConfiguration | 'Object{metadata: Object.metadata{ownerReferences: [{"name": "x"}]}}' | 403 |
        ".metadata.ownerReferences: element 0: associative list with keys has an element that omits all key fields
        [\"uid\"] (and doesn't have default values for any key fields)"
    ApplyConfiguration | 'Object{metadata: Object.metadata{ownerReferences: [{"uid": "x"}]}}' | 403 | 'structs:
        .metadata.ownerReferences[0]'
    JSONPatch | '[JSONPatch{op: "add", path: "/nosuch", value: 7}]' | 500 | 'Internal error occurred: strict
        decoding error: unknown field "nosuch"'
    JSONPatch | '[JSONPatch{op: "remove", path: "/data/x"}]' | 403 | 'Unable to remove nonexistent key: x'
    JSONPatch | '[JSONPatch{op: "add", path: "/data", value: [Object.data{}]}]' | 500 | cannot be converted to a value
    JSONPatch | '[JSONPatch{op: "add", path: "/metadata", value: Object.metadata{labels: Object.label{a: "b"}}}]'
        | 403 | 'type mismatch: unexpected type name "Object.label", expected "Object.metadata.labels"'
    JSONPatch | '[JSONPatch{op: "add", path: "/data", value: 7}]' | 500 | cannot unmarshal number
    """)
def test_a_mutation_that_cannot_be_carried_out_refuses_the_write(kind, expression, code, said) -> None:
    status, answer = _mutated(mutation(expression, kind))
    assert (status, said in answer["message"]) == (code, True), answer["message"]
    if code == 403:
        assert _mutated(mutation(expression, kind), failurePolicy="Ignore")[0] == 201


def test_what_is_replaced_as_a_whole_may_not_be_applied(world: World) -> None:
    one = rule("pods", operations="CREATE")
    tolerations = "Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'x'}]}}"
    world.policy(
        "Mutating",
        {"matchConstraints": {"resourceRules": [one]}, "mutations": [mutation(tolerations, "ApplyConfiguration")]},
    )
    pod = named("p", spec={"containers": [container()]})
    _, answer = world.call("POST", PODS, pod)
    assert answer["message"].endswith("may not mutate atomic arrays, maps or structs: .spec.tolerations")


def test_a_policy_with_parameters_of_an_unknown_kind_fails_without_a_binding(world: World) -> None:
    kind = {"apiVersion": "example.com/v1", "kind": "Nosuch"}
    reference = {"name": "x", "parameterNotFoundAction": "Allow"}
    world.policy("Validating", {"paramKind": kind, "validations": [{"expression": "true"}]}, paramRef=reference)
    why = "failed to find resource referenced by paramKind: 'example.com/v1, Kind=Nosuch'"
    status, answer = world.call("POST", MAPS, config_map())
    assert (status, answer["reason"]) == (422, "Invalid")
    assert answer["message"] == (
        "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: "
        + why
    )

    world = World()
    mutating = mutation("[JSONPatch{}]")
    world.policy("Mutating", {"paramKind": kind, "mutations": [mutating]}, paramRef=reference)
    status, answer = world.call("POST", MAPS, config_map())
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == f'policy "p" denied request: failed to configure policy: {why}'


def test_each_mutation_that_fails_is_told_and_those_after_it_are_carried_out() -> None:
    broken = mutation("[JSONPatch{op: 'add', path: object.nosuch}]")
    good = "[JSONPatch{op: 'add', path: '/data/k', value: 'changed'}]"
    mutations = [broken, mutation(good), broken]
    world = World()
    world.policy("Mutating", {"mutations": mutations})
    status, answer = world.call("POST", MAPS, config_map())
    assert status == 403 and len(answer["details"]["causes"]) == 2
    assert answer["details"]["causes"][0]["message"] == answer["message"]
    world = World()
    world.policy("Mutating", {"failurePolicy": "Ignore", "mutations": mutations})
    assert world.post(MAPS, config_map())["data"] == {"k": "changed"}


def test_an_annotation_in_error_refuses_and_parameters_that_are_missing_are_no_warning(world: World) -> None:
    annotation = {"key": "k", "valueExpression": "object.data.nosuch + ''"}
    world.policy("Validating", {"auditAnnotations": [annotation]}, validationActions=["Warn"])
    answer = world.send("POST", MAPS, config_map())
    assert answer.status == 422 and b"resulted in error: no such key: nosuch" in answer.body
    assert "Warning" not in dict(answer.headers)


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
def test_a_policy_is_for_configurations_of_webhooks_and_not_for_policies_and_reviews(world: World, kind: str) -> None:
    one = rule("*", group="*", operations="CREATE")
    broken = mutation("[JSONPatch{path: object.nosuch}]")
    what = {"validations": [{"expression": "false"}]} if kind == "Validating" else {"mutations": [broken]}
    world.policy(kind, {"matchConstraints": {"resourceRules": [one]}, **what})
    group = ADMISSION
    status, answer = world.call("POST", f"{group}/validatingwebhookconfigurations", named("x"))
    assert status in (403, 422) and "denied request" in answer["message"]
    binding = named("x", spec={"policyName": "x", "validationActions": ["Deny"]})
    world.post(f"{group}/validatingadmissionpolicybindings", binding)
    asked = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    world.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
