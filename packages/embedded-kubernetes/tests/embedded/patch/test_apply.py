"""Server-side apply: owners of fields, and the effects of applying."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.support import LATER, NOW, named
from embedded_kubernetes import apply, typed
from embedded_kubernetes.errors import ApiError
from embedded_kubernetes.resource import Resource

from .kinds import PODS, RESOURCES, widgets

_CONFIG_MAPS = RESOURCES["", "configmaps"]
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _applied(
    live: dict[str, Any] | None,
    config: dict[str, Any],
    manager: str,
    *,
    force: bool = False,
    resource: Resource = PODS,
    now: str = NOW,
    subresource: str = "",
) -> dict[str, Any]:
    config = {"apiVersion": resource.api_version, "kind": resource.kind, **config}
    before = deepcopy((live, config))
    result = apply.apply(
        live, config, manager=manager, force=force, resource=resource, now=now, subresource=subresource
    )
    assert (live, config) == before, "an argument was changed"
    return result


def _pod(labels: dict[str, str], *containers: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = named("a", labels=labels)
    return config | ({"spec": {"containers": list(containers)}} if containers else {})


def _owned(obj: dict[str, Any], manager: str) -> set[str]:
    return {
        typed.show(path)
        for entry in obj["metadata"].get("managedFields", ())
        if entry["manager"] == manager
        for path in typed.decode(entry["fieldsV1"])
    }


def test_another_value_for_an_owned_field_is_a_conflict_that_names_owner_and_field() -> None:
    obj = _applied(None, _pod({"a": "1"}, {"name": "c", "image": "i"}), "m1")
    with pytest.raises(ApiError) as refused:
        _applied(obj, _pod({"a": "2"}), "m2")
    assert refused.value.message == 'Apply failed with 1 conflict: conflict with "m1": .metadata.labels.a'
    assert refused.value.details == {
        "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "m1"', "field": ".metadata.labels.a"}]
    }
    with pytest.raises(ApiError) as refused:
        _applied(obj, _pod({"a": "2"}, {"name": "c", "image": "j"}), "m2")
    assert refused.value.message.splitlines() == [
        'Apply failed with 2 conflicts: conflicts with "m1":',
        "- .metadata.labels.a",
        '- .spec.containers[name="c"].image',
    ]


def test_finalizers_of_two_appliers_make_one_set() -> None:
    obj = _applied(None, named("a", finalizers=["x/1"]), "m1")
    obj = _applied(obj, named("a", finalizers=["x/2"]), "m2")
    assert sorted(obj["metadata"]["finalizers"]) == ["x/1", "x/2"]
    obj = _applied(obj, named("a"), "m1")
    assert obj["metadata"]["finalizers"] == ["x/2"]


def test_items_keep_the_order_of_the_configuration() -> None:
    obj = _applied(None, _pod({}, {"name": "b"}, {"name": "d"}), "m1")
    obj = _applied(obj, _pod({}, {"name": "a"}, {"name": "d"}, {"name": "e"}), "m2")
    names = [container["name"] for container in obj["spec"]["containers"]]
    assert set(names) == {"a", "b", "d", "e"}
    assert names.index("a") < names.index("d") < names.index("e")
    assert names.index("b") < names.index("d")


def test_kubectl_takes_over_what_it_applied_from_the_clients_side() -> None:
    config = named("a", apiVersion="v1", kind="ConfigMap", data={"k": "1"})
    live: dict[str, Any] = deepcopy(config)
    live["metadata"]["annotations"] = {
        _LAST_APPLIED: '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1"}}'
    }
    apply.track(None, live, manager="kubectl-client-side-apply", resource=_CONFIG_MAPS, now=NOW)
    changed = {**config, "data": {"k": "2"}}
    with pytest.raises(ApiError):
        _applied(live, changed, "someone", resource=_CONFIG_MAPS)
    taken = _applied(live, changed, "kubectl", resource=_CONFIG_MAPS)
    assert taken["data"] == {"k": "2"}
    assert '"k":"2"' in taken["metadata"]["annotations"][_LAST_APPLIED]


def test_an_unknown_field_or_a_repeated_item_is_refused() -> None:
    for config, said in (
        (named("a", spec={"foo": 1}), ".spec.foo: field not declared in schema"),
        (_pod({}, {"name": "c"}, {"name": "c"}), "duplicate entries for key"),
        (_pod({}, {"image": "c"}), "omits all key fields"),
    ):
        with pytest.raises(ApiError) as refused:
            _applied(None, config, "m1")
        assert refused.value.code == 500
        assert said in refused.value.message


def test_an_update_takes_the_fields_that_it_changed() -> None:
    old = _applied(None, _pod({"a": "1", "b": "1"}, {"name": "c", "image": "i"}), "m1")
    new = deepcopy(old)
    new["metadata"]["labels"] = {"a": "2"}
    new["spec"]["nodeName"] = "n"
    apply.track(old, new, manager="editor", resource=PODS, now=LATER)
    assert ".metadata.labels.a" not in _owned(new, "m1")
    assert ".metadata.labels.b" not in _owned(new, "m1")
    assert '.spec.containers[name="c"].image' in _owned(new, "m1")
    assert _owned(new, "editor") == {".metadata.labels.a", ".spec.nodeName"}
    with pytest.raises(ApiError) as refused:
        _applied(new, _pod({"a": "1"}, {"name": "c", "image": "i"}), "m1")
    assert 'conflict with "editor" using v1' in refused.value.message


def test_many_updaters_are_folded_into_one() -> None:
    obj: dict[str, Any] = named("a", apiVersion="v1", kind="ConfigMap", data={})
    for index in range(15):
        new = deepcopy(obj)
        new["data"][f"k{index}"] = "v"
        apply.track(obj, new, manager=f"m{index}", resource=_CONFIG_MAPS, now=f"2026-01-01T00:00:{index:02}Z")
        obj = new
    managers = {entry["manager"] for entry in obj["metadata"]["managedFields"]}
    assert len(managers) <= 11
    assert ".data.k0" in _owned(obj, "ancient-changes")


def test_custom_lists_merge_by_the_definitions_keys() -> None:
    part = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}
    kind = widgets(
        {
            "type": "object",
            "properties": {
                "parts": {
                    "type": "array",
                    "items": part,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
                "tags": {"type": "array", "items": {"type": "string"}},
            },
        }
    )
    config = named("w", spec={"parts": [{"name": "a", "n": 1}], "tags": ["x"]})
    obj = _applied(None, config, "m1", resource=kind)
    config = named("w", spec={"parts": [{"name": "b", "n": 2}]})
    obj = _applied(obj, config, "m2", resource=kind)
    assert sorted(part["name"] for part in obj["spec"]["parts"]) == ["a", "b"]
    with pytest.raises(ApiError) as refused:
        _applied(obj, named("w", spec={"tags": ["y"]}), "m2", resource=kind)
    assert refused.value.details["causes"][0]["field"] == ".spec.tags"


_ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])
_SETS = st.frozensets(st.lists(_ELEMENTS, min_size=1, max_size=4).map(tuple), max_size=8)


@given(_SETS)
def test_a_field_set_survives_its_encoding(paths: typed.FieldSet) -> None:
    assert typed.decode(typed.encode(paths)) == paths


_LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)


@given(first=_LABELS, second=_LABELS, again=_LABELS)
def test_forced_appliers_leave_the_union_of_their_last_words(
    first: dict[str, str], second: dict[str, str], again: dict[str, str]
) -> None:
    obj = _applied(None, _pod(first), "m1", force=True)
    obj = _applied(obj, _pod(second), "m2", force=True)
    obj = _applied(obj, _pod(again), "m1", force=True)
    kept = {key: value for key, value in second.items() if key not in again}
    assert (obj["metadata"].get("labels") or {}) == kept | again
