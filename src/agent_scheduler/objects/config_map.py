"""ConfigMap (v1): texts by key."""

from __future__ import annotations

from apimachinery.wire import Wire

from .wire import Metadata


class ConfigMap(Wire, frozen=True):
    metadata: Metadata
    data: dict[str, str] | None = None


def config_maps(namespace: str) -> str:
    """Return the path of a namespace's ConfigMaps. `namespace` must not need quoting."""
    return f"/api/v1/namespaces/{namespace}/configmaps"
