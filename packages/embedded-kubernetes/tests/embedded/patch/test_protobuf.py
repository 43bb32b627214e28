"""Bodies in the protobuf envelope, encoded here by the rules of the wire format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.support import named, refuses
from embedded_kubernetes import protobuf
from embedded_kubernetes.errors import ApiError


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


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("ConfigMap", _field(99, "x")),
        ("ConfigMap", _field(1, _field(99, "x"))),
        ("Namespace", _field(2, _field(19, "x"))),
        ("Node", b""),
    ],
    ids=["top", "meta", "status", "kind"],
)
def test_what_the_tables_lack_is_refused_not_dropped(kind: str, raw: bytes) -> None:
    with refuses(415):
        protobuf.decode(_envelope("v1", kind, raw))


@given(st.binary(max_size=60))
def test_bytes_that_are_no_envelope_are_refused_as_the_clients_fault(noise: bytes) -> None:
    for body in (noise, b"k8s\x00" + noise, _envelope("v1", "ConfigMap", noise)):
        try:
            protobuf.decode(body)
        except ApiError as refused:
            assert refused.code in (400, 415)
