"""Built-in kinds are decoded as by a real server's typed decoder."""

from __future__ import annotations

import json
from typing import Any

import pytest

from embedded_kubernetes import schema, schema_source
from embedded_kubernetes.errors import ApiError

from ..recordings import recorded
from ..support import asking, cases, named, pod
from .kinds import PODS, RESOURCES


def _refusal(obj: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as refused:
        schema.check(PODS, obj)
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")
    return refused.value.message


@cases("""
    spec | said
    {containers: [{name: c, ports: [{containerPort: x}]}]} | 'json: cannot unmarshal string into Go struct field
        ContainerPort.spec.containers.ports.containerPort of type int32'
    {containers: [{name: c, env: [{name: A, value: 1}]}]} | 'json: cannot unmarshal number into Go struct field
        EnvVar.spec.containers.env.value of type string'
    {containers: x} | PodSpec.spec.containers of type []v1.Container
    {containers: [x]} | PodSpec.spec.containers of type v1.Container
    {activeDeadlineSeconds: 1.5} | cannot unmarshal number 1.5
    {priority: 1099511627776} | cannot unmarshal number 1099511627776
    {hostNetwork: 'yes'} | PodSpec.spec.hostNetwork of type bool
    {hostNetwork: 1} | cannot unmarshal number
    {nodeSelector: [x]} | cannot unmarshal array
    {containers: [{name: c, resources: {requests: {cpu: ten}}}]} | quantities must match
    {containers: [{name: c, livenessProbe: {httpGet: {port: true}}}]} | of type int32
    """)
def test_json_of_the_wrong_type_is_a_bad_request(spec: dict[str, Any], said: str) -> None:
    message = _refusal(pod(spec=spec))
    assert message.startswith('Pod in version "v1" cannot be handled as a Pod: ')
    assert said in message


def test_a_time_that_is_none_is_a_bad_request() -> None:
    assert "parsing time" in _refusal({"metadata": {"creationTimestamp": "yesterday"}})
    assert "day out of range" in _refusal({"metadata": {"creationTimestamp": "2026-02-30T00:00:00+01:00"}})


def test_times_are_written_in_utc_with_whole_seconds_and_micro_times_with_six_digits() -> None:
    obj = {"metadata": {"creationTimestamp": "2026-01-01T01:00:00.75+01:00"}}
    schema.check(PODS, obj)
    assert obj["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    lease = {"spec": {"renewTime": "2026-01-01T00:00:00Z"}}
    schema.check(RESOURCES["coordination.k8s.io", "leases"], lease)
    assert lease["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"


def test_numbers_are_quantities_too() -> None:
    obj = pod(spec={"containers": [asking(cpu=2, memory=0.5)]})
    schema.check(PODS, obj)
    assert obj["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "500m"}


def test_secret_data_must_be_base64() -> None:
    with pytest.raises(ApiError) as refused:
        schema.check(RESOURCES["", "secrets"], named("s", data={"a": "***"}))
    assert "illegal base64" in refused.value.message


def test_the_schema_of_schemas_holds_itself() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "nope": 1}}}}
    crd = named(
        "x", spec={"versions": [{"name": "v1", "schema": {"openAPIV3Schema": inner}, "subresources": {"status": {}}}]}
    )
    found = schema.check(RESOURCES["apiextensions.k8s.io", "customresourcedefinitions"], crd)
    assert found == ['unknown field "spec.versions[0].schema.openAPIV3Schema.properties.a.items.nope"']
    assert crd["spec"]["versions"][0]["subresources"] == {"status": {}}  # type: ignore[index]


def test_every_fact_is_about_a_field_that_exists() -> None:
    for model, facts in schema_source.data("go_types.json")["types"].items():
        for fields in facts.values():
            for name in fields if isinstance(fields, dict) else fields.split():
                assert name in schema_source.struct(model).fields, (model, name)


def test_every_key_of_a_list_is_a_field_of_its_items() -> None:
    merged = 0
    for model in schema_source.full_names():
        for name, field in schema_source.struct(model).fields.items():
            item, rule = field.type.item, field.type.rule
            wanted = {*rule.keys, *([rule.patch_key] if rule.patch_key else [])}
            if wanted and item is not None:
                fields = schema_source.struct_of(item)
                assert wanted <= (set(fields.fields) if fields else set()), (model, name)
                merged += 1
    assert merged > 50


def test_what_a_real_server_answers_decodes_to_itself() -> None:
    seen = 0
    for line in recorded("apiserver-1.36.2.jsonl"):
        body = json.loads(line.replace('"<time>"', '"2026-01-01T00:00:00Z"')).get("response", {}).get("body")
        if not isinstance(body, dict) or "metadata" not in body or "items" in body:
            continue
        group, _, _ = body["apiVersion"].rpartition("/")
        resource = next((one for one in RESOURCES.values() if (one.group, one.kind) == (group, body["kind"])), None)
        if resource is None or group in ("coordination.k8s.io", "events.k8s.io"):
            continue  # their micro times are all "<time>" in the recording
        before = json.loads(json.dumps(body))
        assert schema.check(resource, body) == []
        assert body == before
        seen += 1
    assert seen > 40
