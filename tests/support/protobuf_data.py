"""Rewrites the embedded server's table of protobuf fields: `data/protobuf.json`.

    python -m tests.support.protobuf_data ../shared/conformance/protobuf/fields-1.36.2.json.gz

The argument maps each message of the `generated.proto` files of Kubernetes to its fields: `{name: [number, type]}`. The
table has the messages of the kinds in `data/types.json`, of their lists and subresources, and those that every server
sends, with the names that the fields have in JSON (`embedded_kubernetes.protobuf` describes its form).
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from embedded_kubernetes import schema_source
from embedded_kubernetes.builtin import BUILTIN
from tests.support.places import EMBEDDED

TABLE = EMBEDDED / "src" / "embedded_kubernetes" / "data" / "protobuf.json"
_NOTICE = (
    "Field numbers of the generated.proto files of Kubernetes (https://github.com/kubernetes/kubernetes), Copyright "
    "The Kubernetes Authors, licensed under the Apache License, Version 2.0. Made by tests/support/protobuf_data.py."
)
#: The messages that are needed besides those of the kinds.
_COMMON = (
    "apidiscovery.v2.APIGroupDiscoveryList",
    *(f"meta.v1.API{kind}" for kind in ("Group", "GroupList", "ResourceList", "Versions")),
    *(f"meta.v1.{kind}" for kind in ("DeleteOptions", "PartialObjectMetadata", "PartialObjectMetadataList", "Status")),
    *("meta.v1.WatchEvent", "pkg.runtime.Unknown"),
)
_MAP = re.compile(r"map<string, (.+)>")

#: The fields of each message: number and type by name.
Fields = Mapping[str, Mapping[str, tuple[int, str]]]


def read(path: Path) -> Fields:
    """Return all messages by the end of their names, such as `core.v1.PodSpec`, with types named in the same way."""
    messages = json.loads(gzip.decompress(path.read_bytes()))
    return {
        schema_source.short(name): {
            field: (number, _type(type_, name.rpartition(".")[0])) for field, (number, type_) in fields.items()
        }
        for name, fields in messages.items()
    }


def _type(text: str, package: str) -> str:
    """Return a type as the table writes it: `[]` before that of a list's items, `{}` before that of a map's values."""
    if inner := _MAP.fullmatch(text):
        return "{}" + _type(inner[1], package)
    if text.startswith("repeated "):
        return "[]" + _type(text.removeprefix("repeated "), package)
    if text[0].islower() and "." not in text:
        return text
    return schema_source.short(text.lstrip(".") if "." in text else f"{package}.{text}")


def render(messages: Fields, version: str) -> str:
    """Return the text of the table."""
    lines = [f"{json.dumps(name)}: {json.dumps(_line(name, messages))}" for name in sorted(_needed(messages))]
    head = f'"notice": {json.dumps(_NOTICE)},\n"version": {json.dumps(version)},\n"messages": {{\n'
    return "{\n" + head + ",\n".join(lines) + "\n}\n}\n"


def _needed(messages: Fields) -> set[str]:
    waiting = [*_COMMON]
    for name in schema_source.full_names():
        if "x-kubernetes-group-version-kind" in schema_source.definition(name):
            waiting += [each for each in (name, f"{name}List") if each in messages]
    for resource in BUILTIN:
        for below in resource.subresources:
            group, version = (below.group, below.version) if below.version else (resource.group, resource.version)
            waiting.append(f"{group.partition('.')[0] or 'core'}.{version}.{below.kind}")
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found and name in messages:
            found.add(name)
            waiting += [type_.removeprefix("[]").removeprefix("{}") for _, type_ in messages[name].values()]
    return found


def _line(name: str, messages: Fields) -> str:
    """Return the fields of a message. One that JSON has not, because Go embeds its struct, has no name."""
    known: Mapping[str, object] = {}
    if name in schema_source.full_names():
        known = schema_source.definition(name).get("properties", {})
    in_json = {_plain(field): field for field in known}
    written = []
    for field, (number, type_) in sorted(messages[name].items(), key=lambda item: item[1]):
        embedded = bool(known) and _plain(field) not in in_json and type_ in messages
        shown = "" if embedded else in_json.get(_plain(field), field)
        written.append(f"{shown}={number}" + ("" if type_ == "string" else f":{type_}"))
    return " ".join(written)


def _plain(field: str) -> str:
    """Return a name without what protobuf's names lack: `$ref` is `ref` there, and `webhooks` is `Webhooks`."""
    return re.sub(r"[^a-z0-9]", "", field.lower())


def main(path: str) -> None:
    version = Path(path).name.removeprefix("fields-").removesuffix(".json.gz")
    TABLE.write_text(render(read(Path(path)), version), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
