"""Resources and objects that the tests of this folder share."""

from __future__ import annotations

from typing import Any

from embedded.support import definition, named
from embedded_kubernetes import crd
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.resource import Resource

RESOURCES = {(resource.group, resource.plural): resource for resource in BUILTIN}
PODS = RESOURCES["", "pods"]
NODES = RESOURCES["", "nodes"]


def widgets(spec: dict[str, Any], **version: Any) -> Resource:
    """Return the widgets whose `spec` has this schema."""
    schema = {"type": "object", "properties": {"spec": spec}}
    return crd.resource_of(definition(schema=schema, **version), "v1")


def widget(**fields: Any) -> dict[str, Any]:
    return named("w", apiVersion="example.com/v1", kind="Widget", namespace="t", **fields)
