"""Kubernetes' protobuf form of JSON objects: `application/vnd.kubernetes.protobuf`.

Clients in Go send it for built-in kinds and prefer it in answers. An object is an envelope: four bytes, then the
message `Unknown` with the kind and the encoded message of the kind.

`data/protobuf.json` has the fields of each message as `name=number:type`, separated by spaces. Without a type, a field
is a string; `[]` begins the type of a list, `{}` that of a map with strings as keys. The fields of a message without a
name belong to the JSON object around it, because Go embeds the struct. From the table, google's protobuf makes classes,
which encode and decode; here their messages are converted from and to JSON. As in kube-apiserver, unknown fields are
dropped. Zeros that a client in Go always sends are dropped by `schema.check`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from apimachinery.times import micro_time_text, time_text

from . import nesting
from . import schema_source as source
from .errors import ApiError, bad_request, unknown_format
from .resource import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
#: The media type of a watch.
STREAM_TYPE = f"{MEDIA_TYPE};stream=watch"
_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decode(body: bytes) -> Object:
    """Return the object in an envelope. Raises 400 for malformed bytes, 415 for a kind without message."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body is not in Kubernetes' protobuf envelope: it does not begin with its magic")
    try:
        envelope = codec_of(_UNKNOWN).make.FromString(body[len(_MAGIC) :])
        names = envelope.typeMeta
        codec = _of_kind(names.apiVersion, names.kind)
        if codec is None:
            raise unknown_format("application/json, application/yaml")
        obj = codec.decoded(envelope.raw)
    except (DecodeError, OverflowError, RecursionError, ValueError) as error:
        raise bad_request(f"the body is not in Kubernetes' protobuf envelope: {error}") from None
    return {"kind": names.kind, "apiVersion": names.apiVersion, **obj}


def encode(obj: Object) -> bytes | None:
    """Return the envelope of an object; None if its kind has no message. Raises 406 like `Codec.encoded`."""
    kind, api_version = obj.get("kind", ""), obj.get("apiVersion", "v1")
    codec = _of_kind(api_version, kind)
    if codec is None:
        return None
    names = {"apiVersion": api_version, "kind": kind}
    envelope: bytes = codec_of(_UNKNOWN).make(typeMeta=names, raw=codec.encoded(obj)).SerializeToString()
    return _MAGIC + envelope


def frame(event: Object) -> bytes:
    """Return a watch event with its length. Raises 406 for a kind without message, and like `Codec.encoded`."""
    obj = encode(event["object"])
    if obj is None:
        raise _not_encodable(f"{event['object'].get('kind')} has no protobuf form")
    data: bytes = codec_of("meta.v1.WatchEvent").make(type=event["type"], object={"raw": obj}).SerializeToString()
    return len(data).to_bytes(4, "big") + data


def _not_encodable(why: str) -> ApiError:
    return ApiError(406, "NotAcceptable", f"the object cannot be encoded to a protobuf message: {why}")


class Codec:
    """Converts one message to a JSON object and back."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.make: Any = GetMessageClass(_pool().FindMessageTypeByName(_full_name(name)))
        #: Compiled at first use, because messages are recursive: what a field becomes, by number, and how it is
        #: written, by its name in JSON. A field without name is in `_embedded`.
        self._reads: dict[int, tuple[str, _Convert | None]] = {}
        self._writes: dict[str, tuple[str, _Convert | None]] = {}
        self._embedded: list[tuple[str, Codec]] = []

    def _compile(self) -> None:
        for field in _table()[self._name]:
            read, write = _conversions(field)
            self._reads[field.number] = (field.name, read)
            if field.name:
                self._writes[field.name] = (field.attribute, write)
            else:
                self._embedded.append((field.attribute, codec_of(field.type)))

    def read(self, message: Any) -> Object:
        """Return the JSON object of a message. Raises ValueError for texts and times that JSON cannot have."""
        if not self._reads:
            self._compile()
        obj: Object = {}
        for descriptor, value in message.ListFields():
            name, convert = self._reads[descriptor.number]
            if convert is not None:
                value = convert(value)
            if name:
                obj[name] = value
            else:
                obj.update(value)
        return obj

    def write(self, obj: Any) -> Object:
        """Return the arguments of the message's class for an object. Keys that the message lacks are left out."""
        if not self._writes:
            self._compile()
        found: Object = {}
        writes = self._writes
        for key, value in obj.items():
            if value is not None and key in writes:
                attribute, convert = writes[key]
                found[attribute] = value if convert is None else convert(value)
        for attribute, codec in self._embedded:
            if part := codec.write(obj):
                found[attribute] = part
        return found

    def decoded(self, data: bytes) -> Object:
        """Return the JSON object of an encoded message. Raises `DecodeError`, and the errors of `read`."""
        return self.read(self.make.FromString(data))

    def encoded(self, obj: Object) -> bytes:
        """Return the encoded message of an object. Raises 406 for values of types that the kind does not have."""
        try:
            encoded: bytes = self.make(**self.write(obj)).SerializeToString(deterministic=True)
        except (AttributeError, EncodeError, RecursionError, TypeError, ValueError) as error:
            raise _not_encodable(str(error)) from None
        return encoded


class _Field(NamedTuple):
    """A row of the table. `label` is empty, `[]` or `{}`; `attribute` is the name of the class's attribute."""

    name: str
    number: int
    label: str
    type: str
    attribute: str


_Convert = Callable[[Any], Any]
_UNKNOWN = "pkg.runtime.Unknown"
_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
}


@cache
def _table() -> Mapping[str, tuple[_Field, ...]]:
    """Return the fields of each message, such as `core.v1.PodSpec`."""
    lines = {**source.data("protobuf.json")["messages"], **source.data("gnostic.json")["messages"]}
    return {name: tuple(map(_parsed, line.split())) for name, line in lines.items()}


def _parsed(text: str) -> _Field:
    name, _, rest = text.rpartition("=")
    number, _, type_ = rest.partition(":")
    label = type_[:2] if type_[:2] in ("[]", "{}") else ""
    attribute = name if name.isidentifier() else f"_{number}"
    return _Field(name, int(number), label, type_.removeprefix(label) or "string", attribute)


@cache
def _groups() -> frozenset[str]:
    """Return the groups whose kinds have messages. Packages of messages are named after the first part of a group."""
    kinds = (source.definition(name).get("x-kubernetes-group-version-kind", ()) for name in source.full_names())
    return frozenset({"meta.k8s.io", "apidiscovery.k8s.io", *(kind["group"] for each in kinds for kind in each)})


@lru_cache(maxsize=1024)
def _of_kind(api_version: str, kind: str) -> Codec | None:
    group, _, version = api_version.rpartition("/")
    names = [f"{group.partition('.')[0] or 'core'}.{version}.{kind}"] if group in _groups() else []
    if group in ("", "meta.k8s.io") or kind == "DeleteOptions":
        # DeleteOptions is accepted in the version of every group.
        names.append(f"meta.v1.{kind}")
    return next((codec_of(name) for name in names if name in _table()), None)


@cache
def codec_of(name: str) -> Codec:
    """Return the codec of a message, such as `core.v1.PodSpec`. Raises KeyError for an unknown name."""
    return Codec(name)


def _full_name(name: str) -> str:
    return "k8s." + name.replace(".", "_")


@cache
def _pool() -> DescriptorPool:
    file = FileDescriptorProto(name="k8s.proto", package="k8s", syntax="proto2")
    for name, fields in _table().items():
        message = file.message_type.add(name=name.replace(".", "_"))
        for field in fields:
            _add(message, _full_name(name), field)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _add(message: DescriptorProto, within: str, field: _Field) -> None:
    """Add a field to a message. A map is a list of entries with key and value."""
    described = message.field.add(name=field.attribute, number=field.number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if field.label:
        described.label = FieldDescriptorProto.LABEL_REPEATED
    if field.label == "{}":
        # The name that protobuf requires of it.
        entry = message.nested_type.add(name="".join(map(_capitalized, field.attribute.split("_"))) + "Entry")
        entry.options.map_entry = True
        for at, (name, type_) in enumerate((("key", "string"), ("value", field.type)), 1):
            _type(entry.field.add(name=name, number=at, label=FieldDescriptorProto.LABEL_OPTIONAL), type_)
        described.type, described.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{within}.{entry.name}"
    else:
        _type(described, field.type)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _type(described: FieldDescriptorProto, type_: str) -> None:
    if type_ == source.JSON_SCHEMA:
        # The library encodes 100 levels. Schemas, which alone are recursive, are encoded one by one.
        described.type = FieldDescriptorProto.TYPE_BYTES
    elif (scalar := _SCALARS.get(type_)) is not None:
        described.type = scalar
    else:
        described.type, described.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_full_name(type_)}"


def _conversions(field: _Field) -> tuple[_Convert | None, _Convert | None]:
    """Return how values of a field are read and written; None if they are the same in JSON."""
    read, write = _of_type(field.type)
    if field.label == "[]":
        return (_listed(read) if read else list), write and _listed(write)
    if field.label == "{}":
        return (_mapped(read) if read else dict), write and _mapped(write)
    return read, write


def _listed(convert: _Convert) -> _Convert:
    return lambda values: [convert(value) for value in values]


def _mapped(convert: _Convert) -> _Convert:
    return lambda values: {key: convert(value) for key, value in values.items()}


def _of_type(type_: str) -> tuple[_Convert | None, _Convert | None]:
    if type_ == "bytes":
        return lambda value: base64.b64encode(value).decode(), base64.b64decode
    if type_ == "double":
        # Go writes a whole number without a point.
        return lambda value: int(value) if value.is_integer() else value, None
    if type_ in _SCALARS:
        return None, None
    if type_ in _FORMS:
        return _FORMS[type_]
    codec = codec_of(type_)
    return (codec.decoded, codec.encoded) if type_ == source.JSON_SCHEMA else (codec.read, codec.write)


# Messages whose JSON is not an object with their fields.


def _read_time(message: Any) -> str | None:
    return time_text(_EPOCH + timedelta(seconds=message.seconds)) if message.ListFields() else None


def _read_micro_time(message: Any) -> str | None:
    since = timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    return micro_time_text(_EPOCH + since) if message.ListFields() else None


@lru_cache(maxsize=4096)
def _write_time(text: str) -> Object:
    since = datetime.fromisoformat(text) - _EPOCH
    return {"seconds": since // timedelta(seconds=1), "nanos": since.microseconds * 1000}


def _read_raw(message: Any) -> Any:
    """Return the JSON in a message. In a watch event, there is an envelope instead."""
    raw = message.raw
    return decode(raw) if raw.startswith(_MAGIC) else nesting.loads(raw or b"null")


def _read_int_or_string(message: Any) -> int | str:
    value: int | str = message.strVal if message.type else message.intVal
    return value


def _write_int_or_string(value: int | str) -> Object:
    return {"type": 1, "strVal": value} if isinstance(value, str) else {"type": 0, "intVal": value}


def _schema() -> Codec:
    return codec_of(source.JSON_SCHEMA)


def _read_schema_or(others: Callable[[Any], Any]) -> _Convert:
    return lambda message: _schema().decoded(message.schema) if message.HasField("schema") else others(message)


def _write_schema_or(others: _Convert) -> _Convert:
    return lambda value: {"schema": _schema().encoded(value)} if isinstance(value, dict) else others(value)


def _write_schema_or_bool(value: Any) -> Object:
    return {"allows": value} if isinstance(value, bool) else {"allows": True, "schema": _schema().encoded(value)}


_TEXTS: tuple[_Convert, _Convert] = (lambda message: list(message.items), lambda value: {"items": value})
_FORMS: dict[str, tuple[_Convert, _Convert]] = {
    "api.resource.Quantity": (lambda message: message.string, lambda value: {"string": value}),
    "util.intstr.IntOrString": (_read_int_or_string, _write_int_or_string),
    "meta.v1.Time": (_read_time, _write_time),
    "meta.v1.MicroTime": (_read_micro_time, _write_time),
    "meta.v1.FieldsV1": (
        lambda message: nesting.loads(message.Raw or b"null"),
        lambda value: {"Raw": nesting.dumps(value)},
    ),
    "meta.v1.Verbs": _TEXTS,
    "authentication.v1.ExtraValue": _TEXTS,
    "authorization.v1.ExtraValue": _TEXTS,
    "certificates.v1.ExtraValue": _TEXTS,
    "pkg.runtime.RawExtension": (_read_raw, lambda value: {"raw": nesting.dumps(value)}),
    "apiextensions.v1.JSON": (_read_raw, lambda value: {"raw": nesting.dumps(value)}),
    "apiextensions.v1.JSONSchemaPropsOrBool": (_read_schema_or(lambda message: message.allows), _write_schema_or_bool),
    "apiextensions.v1.JSONSchemaPropsOrArray": (
        _read_schema_or(lambda message: list(map(_schema().decoded, message.jSONSchemas))),
        _write_schema_or(lambda value: {"jSONSchemas": list(map(_schema().encoded, value))}),
    ),
    "apiextensions.v1.JSONSchemaPropsOrStringArray": (
        _read_schema_or(lambda message: list(message.property)),
        _write_schema_or(lambda value: {"property": value}),
    ),
}
