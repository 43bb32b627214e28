"""A kind without logic is only data: README.md shows the entry of Ingress, and nothing else serves it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from embedded_kubernetes import schema_source as source
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.builtin.kind import Kind, declared, resource
from embedded_kubernetes.builtin.rules import check_part

from ..places import README
from ..support import TABLE, World, named

_TEXT = README.read_text(encoding="utf-8")
_PATH = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"


@pytest.fixture
def world() -> World:
    entry = re.search(r"```json\n(\{.*?)```", _TEXT, re.DOTALL)
    kind = msgspec.json.decode(entry[1], type=Kind)
    assert kind in declared(), "the entry in README.md differs from that in data/kinds.json"
    return World(resources=(*(each for each in BUILTIN if each.kind != "Ingress"), resource(kind)))


def _ingress(name: str, **spec: Any) -> dict[str, Any]:
    return named(
        name,
        apiVersion="networking.k8s.io/v1",
        kind="Ingress",
        spec={"ingressClassName": "c", "rules": [{"host": "a.example"}], **spec},
    )


def test_kubectl_prints_and_explains_it(world: World) -> None:
    world.post(_PATH, _ingress("i"))
    world.post(_PATH, _ingress("j", ingressClassName=None, rules=None))
    table = world.get(_PATH, accept=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Class",
        "Hosts",
        "Address",
        "Ports",
        "Age",
    ]
    assert [row["cells"] for row in table["rows"]] == [
        ["i", "c", "a.example", "", "80", "0s"],
        ["j", "<none>", "*", "", "80", "0s"],
    ]
    document = world.get("/openapi/v3/apis/networking.k8s.io/v1")
    explained = document["components"]["schemas"]["io.k8s.api.networking.v1.Ingress"]
    assert explained["description"].startswith("Ingress is a collection of rules")
    resources = world.get("/apis/networking.k8s.io/v1")["resources"]
    assert [one["shortNames"] for one in resources if one["name"] == "ingresses"] == [["ing"]]


def _resolve(type_: source.Type, path: str) -> source.Type:
    """Return the type at a path of rules or defaults, below a type. Raise KeyError for an unknown field."""
    for part in path.split("."):
        struct = source.struct_of(type_)
        assert struct is not None, path
        type_ = struct.fields[part.rstrip("?").removesuffix("[*]")].type
        if "[*]" in part:
            assert type_.item is not None, path
            type_ = type_.item
    return type_


def _check_paths(type_: source.Type, rules: dict[str, Any]) -> int:
    seen = 0
    for path, chain in rules.items():
        below = _resolve(type_, path)
        seen += 1 + sum(_check_paths(below, rule) for rule in chain if isinstance(rule, dict))
    return seen


def test_every_path_of_a_kinds_data_leads_to_a_field_of_its_type() -> None:
    seen = 0
    for kind in declared():
        model = source.model_name(kind.group, kind.version, kind.kind)
        assert model is not None, kind.kind
        root = source.Type("struct", struct=model)
        seen += _check_paths(root, kind.rules)
        for path in kind.defaults:
            _resolve(root, path)
            seen += 1
    assert seen > 200


def test_every_part_has_rules_that_there_are() -> None:
    for part in source.data("parts.json"):
        if part != "notice":
            check_part(part, {}, "x")
