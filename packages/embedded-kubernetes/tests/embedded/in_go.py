"""Objects as clients in Go send and read them in protobuf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from embedded_kubernetes import protobuf
from embedded_kubernetes import schema_source as source

PROTOBUF = protobuf.MEDIA_TYPE
#: The Accept headers of kube-controller-manager and kube-scheduler, and of clients of metadata.
ACCEPT = f"{PROTOBUF},application/json"
METADATA, METADATA_LIST = (
    ",".join(f"{media};as={form};g=meta.k8s.io;v=v1" for media in (PROTOBUF, "application/json")) + ",application/json"
    for form in ("PartialObjectMetadata", "PartialObjectMetadataList")
)
_ZEROS = {"string": "", "integer": 0, "boolean": False}


def sent(obj: Any) -> bytes:
    """Return the body of an object, with the zeros of all fields that are no pointers in Go."""
    group, _, version = obj["apiVersion"].rpartition("/")
    model = source.model_name(group, version, obj["kind"])
    encoded = protobuf.encode(_filled(obj, source.struct(model)) if model else obj)
    assert encoded is not None, f"{obj['kind']} has no message"
    return encoded


def _filled(obj: Any, struct: source.Struct) -> Any:
    found = dict(obj)
    for name, field in struct.fields.items():
        item, inner = field.type.item, source.struct_of(field.type)
        of_item = source.struct_of(item) if item else None
        if found.get(name) is None:
            zero = _ZEROS.get(field.type.kind)
            if zero is not None and not field.keep_zero and name not in ("kind", "apiVersion"):
                found[name] = zero
        elif inner is not None and field.type.kind == "struct":
            found[name] = _filled(found[name], inner)
        elif of_item is not None and item is not None and item.kind == "struct":
            values = found[name]
            if isinstance(values, list):
                found[name] = [_filled(value, of_item) for value in values]
            else:
                found[name] = {key: _filled(value, of_item) for key, value in values.items()}
    return found


def events(frames: Sequence[bytes]) -> list[tuple[str, Any]]:
    """Return type and object of the watch events in a stream. Each element of `frames` is one."""
    found = []
    for frame in frames:
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        event = protobuf.codec_of("meta.v1.WatchEvent").decoded(frame[4:])
        found.append((event["type"], event["object"]))
    return found
