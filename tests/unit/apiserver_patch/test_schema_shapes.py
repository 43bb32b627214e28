"""Shapes: what they take is what decoding leaves as it is."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from embedded_kubernetes import schema
from embedded_kubernetes import schema_source as source
from embedded_kubernetes.schema_shapes import Shapes
from tests.examples import examples

from .kinds import PODS, RESOURCES
from .stored import values

#: Those of every struct, from the first time that they are asked for.
_ALL = Shapes(lambda model: True, warm=1)
_KINDS = [resource for resource in RESOURCES.values() if resource.kind != "CustomResourceDefinition"]
_EVENT = RESOURCES["events.k8s.io", "events"]


def _model(resource: Any) -> str:
    model = source.model_name(resource.group, resource.version, resource.kind)
    assert model is not None
    return model


def fits(model: str, field: str, value: Any) -> bool:
    return any(_ALL.fits(model, field, value) for _ in range(2))


@given(st.data())
@examples(400)
def test_what_fits_is_left_as_it_is(data: st.DataObject) -> None:
    resource = data.draw(st.sampled_from(_KINDS))
    model = _model(resource)
    obj = data.draw(values(source.Type("struct", struct=model), 5))
    decoded = deepcopy(obj)
    if fits(model, "", obj):
        assert schema.check_kind(resource.group, resource.version, resource.kind, decoded) == []
        # What is always written was not asked for of a whole object.
        assert {name: decoded[name] for name in obj} == obj
    for name, value in obj.items():
        if name != "unknown" and fits(model, name, value):
            alone = {name: deepcopy(value)}
            assert schema.check_kind(resource.group, resource.version, resource.kind, alone) == []
            assert alone[name] == value


def test_what_clients_send_fits() -> None:
    sent: list[tuple[Any, dict[str, Any]]] = [
        (PODS, {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}]}}),
        (_EVENT, {"eventTime": "2026-01-01T00:00:00.000001Z", "note": "n", "regarding": {"kind": "Pod", "name": "p"}}),
    ]  # fmt: skip
    for resource, obj in sent:
        assert fits(_model(resource), "", obj), obj


def test_what_decoding_would_change_or_refuse_does_not_fit() -> None:
    spec: list[dict[str, Any]] = [
        {"nodeName": ""},
        {"nodeName": None},
        {"nodeName": 1},
        {"hostNetwork": False},
        {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1000m"}}}]},
        {"containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]},
        {"containers": [None]},
        {"priority": 2**31},
        {"tolerations": []},
        {"nosuch": 1},
        # Resources are always written.
        {"containers": [{"name": "c"}]},
    ]
    for fields in spec:
        assert not fits("V1Pod", "", {"spec": {"containers": [], **fields}}), fields
    assert not fits("V1Pod", "", {"metadata": {"creationTimestamp": "2026-01-01T01:00:00+01:00"}})
    assert not fits("V1Pod", "", [])


def test_a_shape_is_of_what_was_met_when_its_type_had_been_asked_for_often_enough() -> None:
    met = {"V1ObjectMeta"}
    shapes = Shapes(met.__contains__, warm=3)
    plain, more = {"metadata": {"name": "a"}}, {"metadata": {"name": "a"}, "spec": {"containers": []}}
    assert [shapes.fits("V1Pod", "", plain) for _ in range(4)] == [False, False, False, True]
    met.add("V1PodSpec")
    assert not shapes.fits("V1Pod", "", more)
