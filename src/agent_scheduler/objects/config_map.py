"""ConfigMap (v1): settings as text, by key."""

from __future__ import annotations

from .wire import Metadata, Wire


class ConfigMap(Wire, frozen=True):
    metadata: Metadata
    data: dict[str, str] | None = None


def config_maps(namespace: str) -> str:
    """Where those of a namespace are. `namespace` stands for itself in a path."""
    return f"/api/v1/namespaces/{namespace}/configmaps"
