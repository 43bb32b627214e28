"""The types of built-in kinds, read at run time from the installed kubernetes_asyncio package.

That package carries one generated model a type: attribute names, JSON types and descriptions of a recent
Kubernetes. Its files are read as text, one when a type is first asked for: importing them all would add most of
a second to start-up, and would run code for data. `schema_facts` and `merge_rules` add what the models lack.

Types are immutable and shared. `Field.type` refers to a struct by name, since JSONSchemaProps is recursive.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from . import merge_rules, schema_facts
from .merge_rules import ATOMIC, ListRule

#: Types whose JSON is free of any schema.
RAW = "raw"


@dataclass(frozen=True, slots=True)
class Type:
    """One JSON type.

    `kind`: string, boolean, integer, number, time, microtime, quantity, intorstring, bytes, raw, struct, list or
    map. `item` is what a list or map holds. A struct is named (`struct`), or given (`inline`) for custom
    resources. `go` is how Go's decoder names the type in its errors.
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

    `keep_zero`: a zero that was written stays. `fill`: the field is written, as `{}`, a zero or null, also
    where nobody set it. `replace`: a strategic patch replaces it; `retain`: it may carry $retainKeys.
    """

    name: str
    type: Type
    required: bool = False
    keep_zero: bool = False
    fill: bool = False
    replace: bool = False
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """A JSON object with known fields. `open`: unknown fields stay (custom resources only)."""

    name: str
    fields: Mapping[str, Field] = field(default_factory=dict)
    open: bool = False


@lru_cache(maxsize=1)
def _directory() -> Path:
    # find_spec of the top package imports nothing.
    spec = importlib.util.find_spec("kubernetes_asyncio")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(
            "the kubernetes_asyncio package is not installed: its models hold the built-in types"
        )
    return Path(spec.submodule_search_locations[0]) / "client" / "models"


@lru_cache(maxsize=1)
def _modules() -> dict[str, str]:
    """Model name to module name, from the models' index."""
    index = (_directory() / "__init__.py").read_text(encoding="utf-8")
    return {model: module for module, model in re.findall(r"models\.(\w+) import (\w+)", index)}


@lru_cache(maxsize=8)
def _text(model: str) -> str:
    return (_directory() / f"{_modules()[model]}.py").read_text(encoding="utf-8")


def _table(text: str, name: str) -> dict[str, str]:
    found = re.search(rf"    {name} = (\{{.*?\n    \}})", text, re.DOTALL)
    return ast.literal_eval(found[1]) if found else {}


_REQUIRED = re.compile(r"raise ValueError\(\"Invalid value for `(\w+)`, must not be `None`")


def model_name(group: str, version: str, kind: str) -> str | None:
    """The model of a kind: `V1Pod`, or `CoreV1Event` where two groups share a kind. None if there is none."""
    prefix = version[:1].upper() + version[1:]
    family = (group.split(".", 1)[0] or "core").capitalize()
    for name in (prefix + kind, family + prefix + kind):
        if name in _modules():
            return name
    return None


@cache
def struct(model: str) -> Struct:
    """The struct of a model. Raises KeyError for a name that is no model."""
    text = _text(model)
    attributes = _table(text, "attribute_map")
    required = {attributes[name] for name in _REQUIRED.findall(text)}
    fields = {
        attributes[attribute]: _field(
            model, attributes[attribute], declared, attributes[attribute] in required
        )
        for attribute, declared in _table(text, "openapi_types").items()
    }
    return Struct(model, fields)


def struct_of(type_: Type) -> Struct | None:
    """The struct of a type, or None if it is no struct."""
    if type_.inline is not None:
        return type_.inline
    return struct(type_.struct) if type_.struct else None


def _field(model: str, name: str, declared: str, required: bool) -> Field:
    key = (model, name)
    type_ = _type(model, name, declared)
    fill = (
        key in schema_facts.VALUES
        or key in schema_facts.NULL_TIMES
        or key in schema_facts.WRITTEN_ZEROS
        or (
            required
            and type_.kind in ("string", "integer", "boolean", "struct")
            and key not in schema_facts.REQUIRED_POINTERS
        )
    )
    return Field(
        name=name,
        type=type_,
        required=required,
        keep_zero=required or fill or key in schema_facts.POINTERS,
        fill=fill and name not in ("apiVersion", "kind"),
        replace=key in merge_rules.REPLACED,
        retain=key in merge_rules.RETAINED,
    )


_SCALARS = {
    "str": Type("string", "string"),
    "bool": Type("boolean", "bool"),
    "float": Type("number", "float64"),
    "datetime": Type("time", "v1.Time"),
}
_RAW = Type(RAW, "interface {}")
_QUANTITY = Type("quantity", "resource.Quantity")

#: JSONSchemaProps fields that the models call plain objects.
_SCHEMA_OR_MORE = {"additionalProperties", "additionalItems", "items"}


def _type(model: str, name: str, declared: str) -> Type:
    key = (model, name)
    if declared.startswith("list["):
        item = _type(model, name, declared[5:-1])
        return Type("list", f"[]{item.go}", item, rule=merge_rules.LISTS.get(model, {}).get(name, ATOMIC))
    if declared.startswith("dict("):
        item = _type(model, name, declared[5:-1].split(", ", 1)[1])
        return Type("map", f"map[string]{item.go}", item, atomic=key in merge_rules.ATOMIC_MAPS)
    if key in schema_facts.QUANTITIES:
        return _QUANTITY
    if key in schema_facts.BYTES:
        return Type("bytes", "[]uint8")
    if declared == "object":
        if key in schema_facts.INT_OR_STRINGS:
            return Type("intorstring", "intstr.IntOrString")
        if model == "V1CustomResourceSubresources":
            return Type("struct", "v1.CustomResourceSubresourceStatus", inline=Struct("", {}))
        if model == "V1JSONSchemaProps" and name in _SCHEMA_OR_MORE:
            return Type("schema", "v1.JSONSchemaProps", struct="V1JSONSchemaProps")
        return _RAW
    if declared == "int":
        return Type("integer", "int64" if key in schema_facts.INT64 else "int32")
    if declared == "datetime" and key in schema_facts.MICRO_TIMES:
        return Type("microtime", "v1.MicroTime")
    if declared in _SCALARS:
        return _SCALARS[declared]
    return Type(
        "struct", f"v1.{go_name(declared)}", struct=declared, atomic=declared in merge_rules.ATOMIC_STRUCTS
    )


def go_name(model: str) -> str:
    """The Go type's bare name: `V1PodSpec` is PodSpec, `CoreV1Event` is Event."""
    return re.sub(r"^[A-Z]?[a-z]*V\d+(?:(?:alpha|beta)\d+)?(?=[A-Z])", "", model)


_GETTER = re.compile(
    r'"""Gets the (\w+) of this \w+\.  # noqa: E501\n\n {8}(?!:)(.*?)  # noqa: E501\n', re.DOTALL
)


@cache
def descriptions(model: str) -> Mapping[str, str]:
    """What the API says of each field of a model, by JSON name.

    The generator turned each line break into a space, so two spaces after a full stop were a paragraph.
    """
    text = _text(model)
    attributes = _table(text, "attribute_map")
    return {
        attributes[attribute]: re.sub(
            r"(?<=\.)  (?=\S)", "\n\n", said.strip().replace("\n", " ").replace('\\"', '"')
        )
        for attribute, said in _GETTER.findall(text)
    }
