"""The types of built-in kinds, from `data/types.json` (trimmed OpenAPI) and `data/go_types.json`.

A type is identified by the end of its OpenAPI name, such as `core.v1.PodSpec`. `go_types.json` has what OpenAPI
lacks, as names of fields of a struct: `pointers` (optional scalars that are pointers in Go, whose written zeros are
kept), `values` (structs that are written even if empty), `requiredPointers` (required, but not written if unset),
`nullTimes` (times and lists that are null if unset), `zeros` (optional, but written even if zero), `named` (strings
with their own type, by field) and `keyDefaults` (defaults of merge keys of list items).

Types are immutable and shared. `Field.type` refers to a struct by name, because JSONSchemaProps is recursive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import orjson

#: Types without schema.
RAW = "raw"
OBJECT_META = "meta.v1.ObjectMeta"
JSON_SCHEMA = "apiextensions.v1.JSONSchemaProps"


class ListRule(NamedTuple):
    """The merge rules of a list.

    `patch_key` is the strategic merge key; "" merges a list of scalars, None replaces the list. `apply` is the
    server-side apply topology: atomic, set or map. `keys` identify an item of a map, and `defaults` are the values of
    absent keys.
    """

    patch_key: str | None
    apply: str
    keys: tuple[str, ...] = ()
    defaults: tuple[tuple[str, object], ...] = ()


ATOMIC = ListRule(None, "atomic")


@dataclass(frozen=True, slots=True)
class Type:
    """One JSON type.

    `kind` is string, boolean, integer, number, time, microtime, quantity, intorstring, bytes, raw, struct, schema,
    list or map. `item` is the item type of a list or map. A struct is named (`struct`), or given (`inline`) for
    custom resources. `go` is the type's name in errors of Go's decoder.
    """

    kind: str
    go: str = ""
    item: Type | None = None
    struct: str = ""
    inline: Struct | None = None
    atomic: bool = False
    rule: ListRule = ATOMIC


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    `keep_zero`: a written zero is kept. `fill`: an unset field is written, as `{}`, zero or null. `replace`: a
    strategic patch replaces it.
    """

    name: str
    type: Type
    keep_zero: bool = False
    fill: bool = False
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """A JSON object with known fields. `open`: unknown fields are kept (custom resources only)."""

    name: str
    fields: Mapping[str, Field] = field(default_factory=dict)
    open: bool = False


@cache
def data(name: str) -> dict[str, Any]:
    """Return a decoded file of `data`. It is shared and must not be changed."""
    loaded: dict[str, Any] = orjson.loads((files(__package__) / "data" / name).read_bytes())
    return loaded


def short(name: str) -> str:
    """Return the short form of an OpenAPI name: `core.v1.PodSpec` for `io.k8s.api.core.v1.PodSpec`."""
    return ".".join(name.rsplit(".", 3)[1:])


@cache
def full_names() -> Mapping[str, str]:
    """Return the OpenAPI names by their short forms."""
    return {short(name): name for name in data("types.json")["definitions"]}


def definition(model: str) -> dict[str, Any]:
    """Return the OpenAPI definition of a type. Raises KeyError for an unknown name."""
    found: dict[str, Any] = data("types.json")["definitions"][full_names()[model]]
    return found


def descriptions(model: str) -> Mapping[str, str]:
    """Return the API's descriptions of a type's fields; the empty name has that of the type."""
    found: Mapping[str, str] = data("descriptions.json")["definitions"].get(full_names()[model], {})
    return found


def model_name(group: str, version: str, kind: str) -> str | None:
    """Return the type of a kind, such as `core.v1.Pod`; None for an unknown kind."""
    for family in (group.split(".", 1)[0] or "core", "meta"):
        if (name := f"{family}.{version}.{kind}") in full_names():
            return name
    return None


def go_name(model: str) -> str:
    """Return the Go type's name: PodSpec for `core.v1.PodSpec`."""
    return model.rpartition(".")[2]


@cache
def struct(model: str) -> Struct:
    """Return the struct of a type. Raises KeyError for an unknown name."""
    described = definition(model)
    known = _facts(model)
    facts = {key: frozenset(names.split()) for key, names in known.items() if isinstance(names, str)}
    required = described.get("required", ())
    fields = {
        name: _field(name, written, name in required, facts, known.get("named", {}).get(name, ""))
        for name, written in described.get("properties", {}).items()
    }
    return Struct(model, fields)


def struct_of(type_: Type) -> Struct | None:
    """Return the struct of a type; None for other types."""
    if type_.inline is not None:
        return type_.inline
    return struct(type_.struct) if type_.struct else None


def _facts(model: str) -> dict[str, Any]:
    facts: dict[str, Any] = data("go_types.json")["types"].get(model, {})
    return facts


def _field(
    name: str, written: dict[str, Any], required: bool, facts: Mapping[str, frozenset[str]], named: str
) -> Field:
    def among(*keys: str) -> bool:
        return any(name in facts.get(key, ()) for key in keys)

    type_ = _type(written)
    if named:
        type_ = replace(type_, go=f"v1.{named}")
    fill = among("values", "nullTimes", "zeros") or (
        required and type_.kind in ("string", "integer", "boolean", "struct") and not among("requiredPointers")
    )
    return Field(
        name,
        type_,
        keep_zero=required or fill or among("pointers"),
        fill=fill and name not in ("apiVersion", "kind"),
        replace=written.get("x-kubernetes-patch-strategy") == "replace",
    )


_SCALARS = {"string": Type("string", "string"), "boolean": Type("boolean", "bool"), "number": Type("number", "float64")}
_RAW = Type(RAW, "interface {}")
_SCHEMA = Type("schema", "v1.JSONSchemaProps", struct=JSON_SCHEMA)
#: Types that are not structs, regardless of their definitions.
_NAMED = {
    "api.resource.Quantity": Type("quantity", "resource.Quantity"),
    "util.intstr.IntOrString": Type("intorstring", "intstr.IntOrString"),
    "meta.v1.Time": Type("time", "v1.Time"),
    "meta.v1.MicroTime": Type("microtime", "v1.MicroTime"),
    "meta.v1.FieldsV1": _RAW,
    "pkg.runtime.RawExtension": _RAW,
    "apiextensions.v1.JSON": _RAW,
    "apiextensions.v1.JSONSchemaPropsOrStringArray": _RAW,
    "apiextensions.v1.JSONSchemaPropsOrArray": _SCHEMA,
    "apiextensions.v1.JSONSchemaPropsOrBool": _SCHEMA,
    "apiextensions.v1.CustomResourceSubresourceStatus": Type(
        "struct", "v1.CustomResourceSubresourceStatus", inline=Struct("")
    ),
}


def _type(written: dict[str, Any]) -> Type:
    if "$ref" in written:
        return _referred(short(written["$ref"]), written)
    kind = written.get("type")
    if kind == "array":
        item = _type(written["items"])
        return Type("list", f"[]{item.go}", item, rule=_rule(written, item))
    if kind == "object" and "additionalProperties" in written:
        item = _type(written["additionalProperties"])
        return Type("map", f"map[string]{item.go}", item, atomic=_is_atomic(written))
    if kind == "integer":
        return Type("integer", written.get("format", "int32"))
    if written.get("format") == "byte":
        return Type("bytes", "[]uint8")
    return _SCALARS.get(kind or "", _RAW)


@lru_cache(maxsize=1024)
def _struct_type(model: str, atomic: bool) -> Type:
    return Type("struct", f"v1.{go_name(model)}", struct=model, atomic=atomic)


def _referred(model: str, written: dict[str, Any]) -> Type:
    named = _NAMED.get(model)
    return named or _struct_type(model, _is_atomic(written) or _is_atomic(definition(model)))


def _is_atomic(written: dict[str, Any]) -> bool:
    return written.get("x-kubernetes-map-type") == "atomic"


def _rule(written: dict[str, Any], item: Type) -> ListRule:
    strategies = written.get("x-kubernetes-patch-strategy", "").split(",")
    keys = tuple(written.get("x-kubernetes-list-map-keys", ()))
    defaults = _facts(item.struct).get("keyDefaults", {})
    return ListRule(
        written.get("x-kubernetes-patch-merge-key", "") if "merge" in strategies else None,
        written.get("x-kubernetes-list-type", "atomic"),
        keys,
        tuple((key, defaults[key]) for key in keys if key in defaults),
    )
