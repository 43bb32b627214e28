"""The options object that admission sees for a connection to a pod, decoded from the query.

Follows the conversions of url.Values in k8s.io/api/core/v1: absent fields are omitted.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from ..resource import Object
from .attributes import GroupVersionKind
from .configured import Below

_NAMES = {"exec": "PodExecOptions", "attach": "PodAttachOptions", "portforward": "PodPortForwardOptions"}
CONNECTS = {
    subresource: Below(subresource=subresource, kind=GroupVersionKind("", "v1", name))
    for subresource, name in _NAMES.items()
}
_FLAGS = ("stdin", "stdout", "stderr", "tty")


def connect_options(subresource: str, query: str) -> Object:
    """Return the options object of a connection."""
    given = parse_qs(query, keep_blank_values=True)
    options: Object = {"kind": _NAMES[subresource], "apiVersion": "v1"}
    if subresource == "portforward":
        ports = [int(port) for value in given.get("ports", ()) for port in value.split(",") if port.isdigit()]
        return {**options, "ports": ports} if ports else options
    for flag in _FLAGS:
        value: Any = given.get(flag, ["false"])[0].lower()
        if value not in ("0", "false"):
            options[flag] = True
    if container := given.get("container", [""])[0]:
        options["container"] = container
    if subresource == "exec" and given.get("command"):
        options["command"] = given["command"]
    return options
