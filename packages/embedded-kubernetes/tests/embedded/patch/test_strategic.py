"""Strategic merge patches know the merge keys of lists."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.patch import strategic_merge_patch

from ..support import cases, container, named, refuses
from .kinds import PODS, widgets

_POD: dict[str, Any] = named(
    "a",
    finalizers=["x/1", "x/2"],
    labels={"a": "1", "b": "2"},
    spec={
        "containers": [
            container("a", ports=[{"containerPort": 80}, {"containerPort": 81}]),
            {"name": "b", "env": [{"name": "E", "value": "1"}]},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "a"}],
        "schedulingGates": [{"name": "g/1"}, {"name": "g/2"}],
    },
    status={"conditions": [{"type": "Ready", "status": "False", "reason": "X"}]},
)


def _patched(patch: dict[str, Any]) -> dict[str, Any]:
    return strategic_merge_patch(deepcopy(_POD), deepcopy(patch), PODS)


def _spec(patch: dict[str, Any]) -> dict[str, Any]:
    return _patched({"spec": patch})["spec"]


def _names(items: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in items]


def test_items_merge_by_their_key() -> None:
    changed = container("b", image="j", env=[{"name": "E", "value": "2"}])
    containers = _spec({"containers": [changed]})["containers"]
    assert containers[1] == changed
    assert containers[0] == _POD["spec"]["containers"][0]


def test_set_element_order_orders_what_it_names() -> None:
    spec = _spec(
        {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c"}, {"name": "a", "image": "j"}],
        }
    )
    assert _names(spec["containers"]) == ["b", "c", "a"]
    assert spec["containers"][2]["image"] == "j"
    assert not [key for key in spec if key.startswith("$")]


def test_set_element_order_alone_reorders() -> None:
    spec = _spec({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]})
    assert _names(spec["containers"]) == ["b", "a"]


def test_replace_takes_the_place_of_a_list_or_an_object() -> None:
    assert _spec({"containers": [{"$patch": "replace"}, {"name": "z"}]})["containers"] == [{"name": "z"}]
    assert _spec({"$patch": "replace", "nodeName": "n"}) == {"nodeName": "n"}


def test_retain_keys_clears_the_other_keys() -> None:
    volume = {"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "m"}}
    assert _spec({"volumes": [volume]})["volumes"] == [{"name": "v", "configMap": {"name": "m"}}]


def test_finalizers_are_a_set() -> None:
    merged = _patched({"metadata": {"finalizers": ["x/3", "x/1"]}})
    assert merged["metadata"]["finalizers"] == ["x/3", "x/1", "x/2"]
    deleted = _patched({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/1"]}})
    assert deleted["metadata"]["finalizers"] == ["x/2"]


def test_conditions_merge_by_type_and_null_removes() -> None:
    patch = {"status": {"conditions": [{"type": "Ready", "reason": None, "status": "True"}, {"type": "New"}]}}
    assert _patched(patch)["status"]["conditions"] == [{"type": "Ready", "status": "True"}, {"type": "New"}]
    labelled = _patched({"metadata": {"labels": {"a": None, "c": "3"}}})
    assert labelled["metadata"]["labels"] == {"b": "2", "c": "3"}


def test_an_item_without_its_key_is_the_servers_500() -> None:
    with pytest.raises(ApiError) as refused:
        _spec({"containers": [{"image": "z"}]})
    assert refused.value.code == 500
    assert refused.value.message == "map: map[image:z] does not contain declared merge key: name"


@cases("""
    patch | code
    {$patch: explode} | 500
    {spec: {containers: [{name: a, $patch: explode}]}} | 500
    {spec: {containers: [a]}} | 500
    {metadata: {finalizers: [{}]}} | 400
    {metadata: {$deleteFromPrimitiveList/finalizers: x}} | 400
    {spec: {$setElementOrder/containers: x}} | 400
    {spec: {$setElementOrder/containers: [{name: a}], containers: [{name: z}]}} | 400
    {spec: {volumes: [{name: v, $retainKeys: [name], configMap: {name: m}}]}} | 400
    """)
def test_a_misused_directive_is_refused(patch: dict[str, Any], code: int) -> None:
    with refuses(code):
        _patched(patch)


def test_custom_resources_take_no_strategic_patch() -> None:
    with refuses(415):
        strategic_merge_patch({}, {}, widgets({"type": "object"}))
