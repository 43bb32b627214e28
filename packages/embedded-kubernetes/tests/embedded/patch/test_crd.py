"""Custom resources: definitions, schemas and their effects on objects."""

from __future__ import annotations

from typing import Any

import pytest

from embedded_kubernetes import crd
from embedded_kubernetes.errors import Cause

from ..support import DEFINITIONS, MERGE, NOW, World, cases, definition, named
from .kinds import RESOURCES, widget, widgets

_validate = RESOURCES["apiextensions.k8s.io", "customresourcedefinitions"].validate


def _causes(spec: dict[str, Any], value: Any, old: Any = ...) -> list[Cause]:
    kind = widgets(spec)
    stored = None if old is ... else widget(spec=old)
    causes = kind.schema.validate(widget(spec=value), stored)
    assert all(isinstance(cause, Cause) for cause in causes)
    return list(causes)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@cases("""
    node | value | reason | said
    {type: array, items: {type: string}} | n1 | FieldValueTypeInvalid | 'must be of type array: "string"'
    {type: integer} | 1.5 | FieldValueTypeInvalid | 'must be of type integer: "number"'
    {type: string} | null | FieldValueTypeInvalid | 'must be of type string: "null"'
    {type: boolean} | 1 | FieldValueTypeInvalid | 'must be of type boolean: "integer"'
    {type: integer, minimum: 1} | 0 | FieldValueInvalid | should be greater than or equal to 1
    {type: number, maximum: 5, exclusiveMaximum: true} | 5 | FieldValueInvalid | should be less than 5
    {type: integer, multipleOf: 2} | 3 | FieldValueInvalid | should be a multiple of 2
    {type: string, minLength: 2} | a | FieldValueInvalid | should be at least 2 chars long
    {type: string, maxLength: 2} | abc | FieldValueTooLong | may not be more than 2 bytes
    {type: string, pattern: ^a+$} | b | FieldValueInvalid | should match '^a+$'
    {type: string, enum: [a, b]} | c | FieldValueNotSupported | 'supported values: "a", "b"'
    {type: string, format: date-time} | x | FieldValueInvalid | must be of type date-time
    {type: string, format: ipv4} | 1.2.3 | FieldValueInvalid | must be of type ipv4
    {type: array, items: {type: string}, minItems: 1} | [] | FieldValueInvalid | at least 1 items
    {type: array, items: {type: string}, maxItems: 1} | [a, b] | FieldValueTooMany | at most 1 items
    {type: array, items: {type: string}, x-kubernetes-list-type: set} | [a, a] | FieldValueDuplicate | 'Duplicate
        value: "a"'
    {type: object, additionalProperties: {type: string}} | {a: 1} | FieldValueTypeInvalid | spec.f.a
    {x-kubernetes-int-or-string: true} | true | FieldValueTypeInvalid | integer,string
    {type: string, not: {enum: [a]}} | a | FieldValueInvalid | must not validate the schema
    {type: string, oneOf: [{enum: [a]}, {enum: [a, b]}]} | a | FieldValueInvalid | must validate one and only one
        schema
    {type: string, anyOf: [{enum: [a]}]} | b | FieldValueInvalid | at least one schema (anyOf)
    {type: string, allOf: [{minLength: 2}]} | b | FieldValueInvalid | at least 2 chars
    """)
def test_a_value_that_its_schema_does_not_allow_is_told(
    node: dict[str, Any], value: Any, reason: str, said: str
) -> None:
    causes = _causes(_object(f=node), {"f": value})
    assert causes, "nothing was refused"
    assert any(cause.reason == reason and said in cause.message for cause in causes), causes
    assert all(cause.field.startswith("spec.f") for cause in causes)


@cases("""
    node | value
    {type: integer} | 5.0
    {type: number} | 5
    {type: string, nullable: true} | null
    {x-kubernetes-int-or-string: true} | 50%
    {type: string, format: duration} | 1h30m
    {type: string, format: something-else} | x
    {type: object, x-kubernetes-preserve-unknown-fields: true} | {a: [1]}
    """)
def test_a_value_that_its_schema_allows_passes(node: dict[str, Any], value: Any) -> None:
    assert _causes(_object(f=node), {"f": value}) == []


def test_what_an_update_leaves_as_it_was_is_tolerated() -> None:
    node = _object(a={"type": "string", "maxLength": 1}, b={"type": "string"})
    assert _causes(node, {"a": "long", "b": "new"}, old={"a": "long", "b": "old"}) == []
    assert _causes(node, {"a": "longer"}, old={"a": "long"})


def test_without_the_subresource_status_is_a_field_like_others() -> None:
    kind = widgets(_object())
    stored = widget(spec={}, status={"x": 1})
    stored["metadata"]["generation"] = 1
    changed = widget(spec={}, status={"x": 2})
    kind.prepare_update(changed, stored, "")
    assert (changed["status"], changed["metadata"]["generation"]) == ({"x": 2}, 2)


def test_selectable_fields_can_be_selected() -> None:
    kind = widgets(_object(color={"type": "string"}), selectableFields=[{"jsonPath": ".spec.color"}])
    assert kind.field_names == ("metadata.name", "metadata.namespace", "spec.color")
    assert kind.fields(widget(spec={"color": "red"}))["spec.color"] == "red"
    assert kind.fields(widget())["spec.color"] == ""


def test_a_definition_that_is_in_order_passes_and_is_established() -> None:
    obj = definition()
    assert list(_validate(obj, None)) == []
    obj["status"] = crd.established(obj, NOW)
    assert [condition["type"] for condition in obj["status"]["conditions"]] == ["NamesAccepted", "Established"]
    assert obj["status"]["storedVersions"] == ["v1"]
    assert crd.established(obj, "2027-01-01T00:00:00Z") == obj["status"], "a second look moved the times"


def _broken(path: str, value: Any) -> dict[str, Any]:
    obj = definition()
    node: Any = obj
    *parents, last = path.split(".")
    for step in parents:
        node = node[int(step)] if step.isdigit() else node[step]
    node[last] = value
    return obj


@cases("""
    path | value | field
    metadata.name | x | metadata.name
    spec.scope | Galaxy | spec.scope
    spec.group | '' | spec.group
    spec.names.kind | '' | spec.names.kind
    spec.names.shortNames | [UP PER] | spec.names.shortNames[0]
    spec.versions | [] | spec.versions
    spec.versions.0.storage | false | spec.versions
    spec.versions.0.name | V_1 | spec.versions[0].name
    spec.versions.0.schema | null | spec.versions[0].schema.openAPIV3Schema
    spec.versions.0.schema.openAPIV3Schema | {type: string} | spec.versions[0].schema.openAPIV3Schema.type
    spec.versions.0.schema.openAPIV3Schema.properties | {a: {description: no type}} |
        spec.versions[0].schema.openAPIV3Schema.properties[a].type
    spec.versions.0.additionalPrinterColumns | [{name: A, type: string, jsonPath: '.a[?(@.b=='}] |
        spec.versions[0].additionalPrinterColumns[0].JSONPath
    spec.conversion | {strategy: Webhook} | spec.conversion.strategy
    spec.versions.0.subresources | {scale: {specReplicasPath: .spec.n, statusReplicasPath: .spec.n}} |
        spec.versions[0].subresources.scale.statusReplicasPath
    spec.versions.0.subresources | {scale: {specReplicasPath: '.spec.n[0]', statusReplicasPath: .status.n}} |
        spec.versions[0].subresources.scale.specReplicasPath
    spec.versions.0.subresources | {scale: {statusReplicasPath: .status.n}} |
        spec.versions[0].subresources.scale.specReplicasPath
    """)
def test_a_definition_that_is_not_in_order_is_told_where(path: str, value: Any, field: str) -> None:
    assert field in [cause.field for cause in _validate(_broken(path, value), None)]


def test_a_definition_may_not_become_another_kind() -> None:
    old = definition()
    old["status"] = crd.established(old, NOW)
    assert [cause.field for cause in _validate(_broken("spec.scope", "Cluster"), old)] == ["spec.scope"]
    renamed = _broken("spec.versions.0.name", "v2")
    assert [cause.field for cause in _validate(renamed, old)] == ["status.storedVersions[0]"]


def test_a_version_that_a_definition_has_not_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        crd.resource_of(definition(), "v9")


def test_a_custom_resource_is_scaled_by_the_paths_of_its_definition() -> None:
    world = World()
    scale = {
        "specReplicasPath": ".spec.pool.size",
        "statusReplicasPath": ".status.live",
        "labelSelectorPath": ".status.selector",
    }
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    world.post(DEFINITIONS, definition(schema=schema, subresources={"status": {}, "scale": scale}))
    path = "/apis/example.com/v1/namespaces/default/widgets"
    about = {"apiVersion": "example.com/v1", "kind": "Widget"}
    world.post(path, named("w", **about, spec={"pool": {"size": 2}}))
    world.patch(f"{path}/w/status", {"status": {"live": 1, "selector": "app=x"}})
    found = world.get(f"{path}/w/scale")
    assert (found["spec"], found["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "app=x"})
    world.patch(f"{path}/w/scale", {"spec": {"replicas": 5}})
    changed = world.get(f"{path}/w")
    assert (changed["spec"], changed["metadata"]["generation"]) == ({"pool": {"size": 5}}, 2)
    assert world.wrong("PATCH", f"{path}/w/scale", {"spec": {"replicas": -1}}, kind=MERGE) == ["spec.replicas"]
    world.post(path, named("v", **about))
    status, answer = world.call("GET", f"{path}/v/scale")
    said = 'Internal error occurred: the spec replicas field ".spec.pool.size" does not exist'
    assert (status, answer["message"]) == (500, said)
    listed = {each["name"] for each in world.get("/apis/example.com/v1")["resources"]}
    assert listed == {"widgets", "widgets/status", "widgets/scale"}
