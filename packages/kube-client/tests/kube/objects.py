"""Objects of the API as a user of the client declares them: only the fields that are read."""

from __future__ import annotations

from typing import Any

import msgspec


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Item(msgspec.Struct, frozen=True):
    """An object of any kind."""

    metadata: Metadata
    spec: dict[str, Any] | None = None


def pod(*, uid: str = "u", node: str = "", gates: list[str] | None = None, deleted: str = "") -> dict[str, Any]:
    """Return the pod `t/p` as the API server has it."""
    metadata = {"name": "p", "namespace": "t", "uid": uid, "resourceVersion": "5"}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if deleted:
        metadata["deletionTimestamp"] = deleted
    if node:
        spec["nodeName"] = node
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}
