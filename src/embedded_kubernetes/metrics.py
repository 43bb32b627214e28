"""`/metrics` of the server: how many objects of each kind are stored, in the Prometheus text format."""

from __future__ import annotations

from .registry import Registry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
_NAME = "apiserver_resource_objects"


def text(registry: Registry) -> str:
    """The page."""
    lines = [
        f"# HELP {_NAME} Number of stored objects, by group and resource.",
        f"# TYPE {_NAME} gauge",
    ]
    for served in sorted(registry.tables(), key=lambda served: served.name):
        if not served.resource.asks:
            group, resource = served.name
            lines.append(f'{_NAME}{{group="{group}",resource="{resource}"}} {len(served.table.records)}')
    return "\n".join(lines) + "\n"
