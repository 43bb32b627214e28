"""Bodies in the protobuf envelope, encoded here by the rules of the wire format."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.in_go import sent
from embedded.recordings import FOLDER, need, recorded
from embedded.support import named, refuses
from embedded_kubernetes import protobuf, schema
from embedded_kubernetes import schema_source as source
from embedded_kubernetes.errors import ApiError

_KIND = "x-kubernetes-group-version-kind"
_KINDS = [model for model in source.full_names() if _KIND in source.definition(model) and "apireg" not in model]
#: A value of each type.
_EXAMPLES = {
    "string": "x",
    "boolean": True,
    "integer": 7,
    "number": 1.5,
    "time": "2026-01-01T00:00:00Z",
    "microtime": "2026-01-01T00:00:00.000001Z",
    "quantity": "1500m",
    "intorstring": "5%",
    "bytes": "AP8=",
    "raw": {"a": [1, None]},
    "struct": {},
}


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + _field(1, _field(1, api_version) + _field(2, kind)) + _field(2, raw)


def test_texts_numbers_lists_maps_and_messages_are_read() -> None:
    metadata = _field(1, "n") + _field(8, b"") + _field(11, _field(1, "k") + _field(2, "v"))
    spec = _field(1, -1) + _field(2, _field(1, _field(1, "a") + _field(2, "b"))) + _field(7, 1)
    assert protobuf.decode(_envelope("apps/v1", "Deployment", _field(1, metadata) + _field(2, spec))) == named(
        "n",
        apiVersion="apps/v1",
        kind="Deployment",
        creationTimestamp=None,
        labels={"k": "v"},
        spec={"replicas": -1, "selector": {"matchLabels": {"a": "b"}}, "paused": True},
    )


def test_bytes_quantities_and_int_or_strings_are_written_as_json_has_them() -> None:
    secret = _field(2, _field(1, "k") + _field(2, b"\x00\xff"))
    assert protobuf.decode(_envelope("v1", "Secret", secret))["data"] == {"k": "AP8="}
    quota = _field(2, _field(1, _field(1, "cpu") + _field(2, _field(1, "1"))))
    assert protobuf.decode(_envelope("v1", "ResourceQuota", quota))["spec"]["hard"] == {"cpu": "1"}
    for given_value, written in ((_field(1, 0) + _field(2, 5), 5), (_field(1, 1) + _field(3, "5%"), "5%")):
        budget = _field(2, _field(1, given_value))
        decoded = protobuf.decode(_envelope("policy/v1", "PodDisruptionBudget", budget))
        assert decoded["spec"]["minAvailable"] == written


def test_times_are_written_in_rfc_3339() -> None:
    metadata = _field(1, _field(8, _field(1, 1_767_225_600)))
    decoded = protobuf.decode(_envelope("v1", "Namespace", metadata))
    assert decoded["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


def test_managed_fields_hold_json() -> None:
    entry = _field(1, "kubectl") + _field(7, _field(1, '{"f:data":{}}'))
    decoded = protobuf.decode(_envelope("v1", "ConfigMap", _field(1, _field(17, entry))))
    assert decoded["metadata"]["managedFields"] == [{"manager": "kubectl", "fieldsV1": {"f:data": {}}}]
    broken = _envelope("v1", "ConfigMap", _field(1, _field(17, _field(7, _field(1, "{")))))
    with refuses(400):
        protobuf.decode(broken)


def test_a_field_of_a_later_release_is_dropped_and_a_kind_without_message_is_refused() -> None:
    """So does kube-apiserver."""
    body = _envelope("v1", "ConfigMap", _field(1, _field(1, "c") + _field(99, "x")) + _field(98, 1))
    assert protobuf.decode(body) == named("c", apiVersion="v1", kind="ConfigMap")
    for group, kind in (("example.com", "Widget"), ("apps.example.com", "Deployment"), ("example.com", "Status")):
        with refuses(415):
            protobuf.decode(_envelope(f"{group}/v1", kind, b""))
        assert protobuf.encode(named("x", apiVersion=f"{group}/v1", kind=kind)) is None
    assert protobuf.decode(_envelope("example.com/v1", "DeleteOptions", b""))["kind"] == "DeleteOptions"


@pytest.mark.parametrize("model", _KINDS)
def test_an_object_with_every_field_comes_back_as_it_was(model: str) -> None:
    """A client in Go also sends zeros, except those of pointers, which decoding drops."""
    kind = source.definition(model)[_KIND][0]
    api_version = f"{kind['group']}/{kind['version']}".lstrip("/")
    full = {**_full(model), "kind": kind["kind"], "apiVersion": api_version}
    assert _sent(full) == full
    sparse = {"kind": kind["kind"], "apiVersion": api_version, "metadata": {}}
    given, decoded = json.loads(json.dumps(sparse)), protobuf.decode(sent(sparse))
    for obj in (given, decoded):
        schema.check_kind(kind["group"], kind["version"], kind["kind"], obj)
    assert decoded == given


def test_schemas_have_any_depth_and_their_forms() -> None:
    schema: Any = {"type": "object", "additionalProperties": False, "minimum": 0.5, "x-kubernetes-map-type": "atomic"}
    for _ in range(50):
        inner = {"type": "array", "items": schema, "default": [{}], "enum": [1, "a", None]}
        schema = {"type": "object", "properties": {"a": inner}, "additionalProperties": {"type": "string"}}
    schema |= {"dependencies": {"a": ["b"], "c": {"type": "string"}}, "$ref": "r", "items": [{"type": "integer"}]}
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    assert _sent(named("x", **kind, spec={"versions": [version]})) == named("x", **kind, spec={"versions": [version]})


def _sent(obj: Any) -> Any:
    encoded = protobuf.encode(obj)
    assert encoded is not None
    return protobuf.decode(encoded)


def _full(model: str, *above: str) -> Any:
    """Return an object with all fields of a type, which are not empty. Only the envelope names a kind."""
    names = {"kind", "apiVersion"} if _KIND in source.definition(model) else set()
    return {
        name: _example(field.type, *above, model)
        for name, field in source.struct(model).fields.items()
        if name not in names
        and not {field.type.struct, field.type.item and field.type.item.struct} & {source.JSON_SCHEMA, model, *above}
    }


def _example(type_: source.Type, *above: str) -> Any:
    if type_.item is not None:
        item = _example(type_.item, *above)
        return [item] if type_.kind == "list" else {"k": item}
    return _full(type_.struct, *above) if type_.kind == "struct" and type_.struct else _EXAMPLES[type_.kind]


def test_what_a_real_server_answers_comes_back_as_it_was() -> None:
    seen = 0
    for line in recorded("apiserver-1.36.2.jsonl"):
        body = json.loads(line.replace('"<time>"', '"2026-01-01T00:00:00Z"')).get("response", {}).get("body")
        if not isinstance(body, dict) or "kind" not in body or protobuf.encode(body) is None:
            continue
        for item in body["items"] if body["kind"] == "PartialObjectMetadataList" else ():
            del item["kind"], item["apiVersion"]
        # The recording shows both types of times in the same way.
        found = json.loads(json.dumps(_sent(body)).replace(".000000Z", "Z"))
        assert found == {"apiVersion": "v1", **_without_nulls(body)}
        seen += 1
    assert seen > 100


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def test_every_message_has_the_numbers_of_kubernetes() -> None:
    path = FOLDER / "protobuf" / "fields-1.36.2.json.gz"
    need(path)
    known = {source.short(name): fields for name, fields in json.loads(gzip.decompress(path.read_bytes())).items()}
    for name, line in source.data("protobuf.json")["messages"].items():
        found = {int(number): type_ or "string" for number, type_ in re.findall(r"=(\d+)(?::(\S+))?", line)}
        assert found.keys() == {number for number, _ in known[name].values()}, name
        for number, type_ in known[name].values():
            label, _, end = re.fullmatch(r"(repeated |map<string, |)(.*[.])?(\w+)>?", type_).groups()  # type: ignore[union-attr]
            shown = {"": "", "repeated ": "[]", "map<string, ": "{}"}[label]
            assert re.fullmatch(rf"{re.escape(shown)}([\w.]+[.])?{end}", found[number]), (name, number)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_envelope_are_refused_as_the_clients_fault(noise: bytes) -> None:
    for body in (noise, b"k8s\x00" + noise, _envelope("v1", "ConfigMap", noise)):
        try:
            protobuf.decode(body)
        except ApiError as refused:
            assert refused.code in (400, 415)
