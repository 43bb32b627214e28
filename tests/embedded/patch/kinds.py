"""Resources and objects that the tests of this room share."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from embedded_kubernetes import crd
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.resource import Resource

from ..support import container, named

RESOURCES = {(resource.group, resource.plural): resource for resource in BUILTIN}
PODS = RESOURCES["", "pods"]
NODES = RESOURCES["", "nodes"]

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-02T00:00:00Z"


def pod(**spec: Any) -> dict[str, Any]:
    return named("a", apiVersion="v1", kind="Pod", namespace="t", spec={"containers": [container()], **spec})


def definition(schema: dict[str, Any] | None = None, **version: Any) -> dict[str, Any]:
    """A CustomResourceDefinition of widgets.example.com, as it is after defaulting."""
    return named(
        "widgets.example.com",
        apiVersion="apiextensions.k8s.io/v1",
        kind="CustomResourceDefinition",
        spec={
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "conversion": {"strategy": "None"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": deepcopy(schema or {"type": "object"})},
                    **version,
                }
            ],
        },
    )


def widgets(spec: dict[str, Any], **version: Any) -> Resource:
    """The widgets whose `spec` has this schema."""
    schema = {"type": "object", "properties": {"spec": spec}}
    return crd.resource_of(definition(schema, **version), "v1")


def widget(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "t"},
        **fields,
    }
