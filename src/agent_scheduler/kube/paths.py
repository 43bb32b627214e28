"""Names in the paths of requests."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote

#: Matches names that stand for themselves in a path: all that the API server lets objects have, but for a few kinds.
_stands_for_itself = re.compile(r"[A-Za-z0-9_.~-]+").fullmatch


def segment(name: str) -> str:
    """`name` as one segment of a path. Asked several times a pod, so names that need nothing are only looked at."""
    return name if _stands_for_itself(name) else quote(name, safe="")


class PodKey(NamedTuple):
    namespace: str
    name: str
    uid: str


class Named(Protocol):
    """Whatever says which pod it is."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


def pod_path(pod: Named) -> str:
    return f"/api/v1/namespaces/{segment(pod.namespace)}/pods/{segment(pod.name)}"


def collection_at(path: str) -> tuple[str, str]:
    """Of a path to a collection, an object or a subresource: the path of its version, and its kind in the plural."""
    parts = path.partition("?")[0].split("/")
    at = 3 if parts[1] == "api" else 4
    rest = _in_namespace(parts[at:])
    return "/".join(parts[:at]), rest[0]


def object_at(path: str) -> tuple[str, str]:
    """Of a path to an object, or to a subresource of it: its kind in the plural, and its name."""
    parts = path.split("/")
    rest = _in_namespace(parts[3 if parts[1] == "api" else 4 :])
    return rest[0], unquote(rest[1])


def _in_namespace(rest: list[str]) -> list[str]:
    """What follows the namespace, if the path leads into one."""
    return rest[2:] if rest[0] == "namespaces" and len(rest) > 2 else rest
