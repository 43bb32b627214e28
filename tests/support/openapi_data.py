"""Rewrites the embedded server's OpenAPI data: `data/types.json` and `data/descriptions.json`.

    pip download --no-deps --no-binary :none: kubernetes-validate==1.36.0
    unzip kubernetes_validate-1.36.0-*.whl
    cd kubernetes_validate/kubernetes-json-schema/v1.36.0-local
    python -m tests.support.openapi_data _definitions.json 1.36.0

A `swagger.json` of Kubernetes works too (`api/openapi-spec` in its repository). It keeps the definitions of stable
kinds, of the alpha versions that the server can serve, and of their parts; of a definition it keeps the fields with
their types and merge strategies. Descriptions are in a separate file, which only explaining and printing need.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.places import EMBEDDED

DATA = EMBEDDED / "src" / "embedded_kubernetes" / "data"
_NOTICE = (
    "Trimmed from the OpenAPI definitions of Kubernetes (https://github.com/kubernetes/kubernetes, "
    "api/openapi-spec), Copyright The Kubernetes Authors, licensed under the Apache License, Version 2.0. "
    "Made by tests/support/openapi_data.py."
)
_STABLE = re.compile(r"v\d+")
#: Unstable groups and versions that the server can serve.
_ALPHA = {("scheduling.k8s.io", "v1alpha2")}
_KINDS = "x-kubernetes-group-version-kind"
#: The keys to keep of a field, and of a definition.
_KEPT = ("$ref", "type", "format", "items", "additionalProperties")


def main(path: str, version: str) -> None:
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    definitions: dict[str, Any] = document.get("$defs") or document["definitions"]
    names = sorted(_needed(definitions))
    _write("types.json", version, {name: _trimmed(definitions[name]) for name in names})
    _write("descriptions.json", version, {name: _described(definitions[name]) for name in names})


def _needed(definitions: dict[str, Any]) -> set[str]:
    waiting = [name for name, definition in definitions.items() if any(map(_is_stored, definition.get(_KINDS, ())))]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _references(definitions[name])
    return found


def _is_stored(kind: dict[str, str]) -> bool:
    served = _STABLE.fullmatch(kind["version"]) or (kind["group"], kind["version"]) in _ALPHA
    return bool(served) and not kind["kind"].endswith("List")


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.rpartition("/")[2]
        for inner in value.values():
            yield from _references(inner)


def _trimmed(definition: dict[str, Any]) -> dict[str, Any]:
    kept = _type(definition)
    if properties := definition.get("properties"):
        kept["properties"] = {name: _type(field) for name, field in properties.items()}
    if required := definition.get("required"):
        kept["required"] = required
    if kinds := [kind for kind in definition.get(_KINDS, ()) if _is_stored(kind)]:
        # The options of a delete belong to every group.
        kept[_KINDS] = kinds if len(kinds) == 1 else [kind for kind in kinds if not kind["group"]]
    return kept


def _type(field: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in field.items():
        if key == "$ref":
            kept[key] = value.rpartition("/")[2]
        elif key == "type":
            # The definitions for validation allow null for optional fields.
            kept[key] = value[0] if isinstance(value, list) else value
        elif key in ("items", "additionalProperties"):
            kept[key] = _type(value)
        elif key in _KEPT or (key.startswith("x-kubernetes-") and key != _KINDS):
            kept[key] = value
    return kept


def _described(definition: dict[str, Any]) -> dict[str, str]:
    """Return descriptions by field, the definition's own under the empty name."""
    fields = {"": definition, **definition.get("properties", {})}
    return {name: field["description"] for name, field in fields.items() if field.get("description")}


def _write(name: str, version: str, definitions: dict[str, Any]) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in definitions.items()]
    head = f'"notice": {json.dumps(_NOTICE)},\n"version": {json.dumps(version)},\n"definitions": {{\n'
    (DATA / name).write_text("{\n" + head + ",\n".join(lines) + "\n}\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
