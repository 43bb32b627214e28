"""OpenAPI documents have the parts that kubectl reads."""

from __future__ import annotations

import json
from typing import Any

from embedded.support import refuses
from embedded_kubernetes import gnostic, openapi, protobuf
from embedded_kubernetes.builtin import BUILTIN

from .kinds import widgets

#: What kubectl asks for.
_OLD_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def _get(path: str, *extra: Any, accept: str = "application/json") -> dict[str, Any]:
    found = openapi.respond(path, accept, (*BUILTIN, *extra))
    return json.loads(found[0])


def _refs(node: Any, key: str = "$ref") -> set[str]:
    if not isinstance(node, list | dict):
        return set()
    inner = node.values() if isinstance(node, dict) else node
    # A schema of schemas has a property called $ref, too.
    own = {node[key]} if isinstance(node, dict) and isinstance(node.get(key), str) else set()
    return own.union(*(_refs(each, key) for each in inner))


def test_the_index_leads_to_a_document_for_every_group_and_version() -> None:
    paths = _get("/openapi/v3")["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/resource.k8s.io/v1"} <= paths.keys()
    for path, entry in paths.items():
        url = entry["serverRelativeURL"]
        assert url.startswith(f"/openapi/v3/{path}?hash=")
        document = _get(url.partition("?")[0])
        schemas = document["components"]["schemas"]
        assert {ref.removeprefix("#/components/schemas/") for ref in _refs(document)} <= schemas.keys()


def test_a_kind_is_found_by_its_group_version_kind_and_says_how_lists_merge() -> None:
    schemas = _get("/openapi/v3/api/v1")["components"]["schemas"]
    pods = [
        schema
        for schema in schemas.values()
        if {"group": "", "version": "v1", "kind": "Pod"} in schema.get("x-kubernetes-group-version-kind", ())
    ]
    assert len(pods) == 1
    spec = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert spec["containers"]["x-kubernetes-patch-strategy"] == "merge"
    assert spec["volumes"]["x-kubernetes-patch-strategy"] == "merge,retainKeys"
    assert spec["containers"]["description"]
    assert "x-kubernetes-patch-strategy" not in spec["tolerations"]


def test_every_patch_says_that_fields_are_validated() -> None:
    for operations in _get("/openapi/v3/api/v1")["paths"].values():
        for method in operations.keys() & {"post", "put", "patch"}:
            names = {parameter["name"] for parameter in operations[method]["parameters"]}
            assert {"fieldValidation", "dryRun"} <= names


def test_a_custom_kind_is_described_by_its_definition_and_changes_the_index() -> None:
    one = widgets({"type": "object", "properties": {"color": {"type": "string", "description": "Its colour."}}})
    other = widgets({"type": "object", "properties": {"size": {"type": "integer"}}})
    document = _get("/openapi/v3/apis/example.com/v1", one)
    described = document["components"]["schemas"]["com.example.v1.Widget"]["properties"]
    assert described["spec"]["properties"]["color"]["description"] == "Its colour."
    assert "metadata" in described
    assert "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}" in document["paths"]
    first, second = (_get("/openapi/v3", kind)["paths"]["apis/example.com/v1"] for kind in (one, other))
    assert first != second


def test_version_two_is_one_document_with_its_own_references() -> None:
    document = _get("/openapi/v2")
    assert document["swagger"] == "2.0"
    assert {ref.removeprefix("#/definitions/") for ref in _refs(document)} <= document["definitions"].keys()


def test_version_two_in_protobuf_is_what_kubectl_validates_with() -> None:
    schema = {"type": "object", "properties": {"sizes": {"type": "array", "items": {"type": "integer"}}, "any": {}}}
    found = openapi.respond("/openapi/v2", f"{_OLD_V2},*/*;q=0.1", (*BUILTIN, widgets(schema)))
    assert found is not None and found[1] == gnostic.MEDIA_TYPE
    document = protobuf.codec_of("openapi.v2.Document").decoded(found[0])
    paths, definitions = (
        {entry["name"]: entry["value"] for entry in document[part][entries]}
        for part, entries in (("paths", "path"), ("definitions", "additional_properties"))
    )
    patch = paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert {each["name"]: json.loads(each["value"]["yaml"]) for each in patch["vendor_extension"]} == {
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
    }
    parameters = [
        each["parameter"]["non_body_parameter"]["query_parameter_sub_schema"]["name"] for each in patch["parameters"]
    ]
    assert "fieldValidation" in parameters
    referred = {ref.removeprefix("#/definitions/") for ref in _refs(document, "_ref")}
    assert referred and referred <= definitions.keys()
    types = {name: each.get("type") for name, each in definitions.items()}
    assert types["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] == {"value": ["string"]}
    widget = definitions["com.example.v1.Widget"]["properties"]["additional_properties"]
    assert [each["name"] for each in widget] == ["spec", "apiVersion", "kind", "metadata"]


def test_protobuf_of_version_three_is_not_acceptable_and_an_unknown_group_is_not_found() -> None:
    with refuses(406):
        _get("/openapi/v3", accept=_OLD_V2)
    assert openapi.respond("/openapi/v3/apis/nope/v1", "", BUILTIN) is None
    assert openapi.respond("/elsewhere", "", BUILTIN) is None
