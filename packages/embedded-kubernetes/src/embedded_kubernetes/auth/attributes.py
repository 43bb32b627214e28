"""The attributes of a request for authorizers, derived as `RequestInfoFactory` of k8s.io/apiserver does.

They depend on the method, path and query only, never on the body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from ..errors import ApiError
from ..selectors import field_terms, label_requirements

VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
#: Verbs that a path may have before the resource.
_IN_PATH = ("proxy", "watch")
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_NAME = "metadata.name"
_NUMBER = re.compile(r"[+-]?[0-9]+")


class NoRequest(Exception):
    """The path cannot be resolved to a request."""


class Attributes(NamedTuple):
    """The input of an authorizer, without the user. If `of_resource` is false, the request is for `path`."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    of_resource: bool = True

    @property
    def combined(self) -> str:
        """The value in a rule's `resources` that matches: `pods` or `pods/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def of_path(verb: str, path: str) -> Attributes:
    """Return the attributes of a request for a non-resource path."""
    return Attributes(verb, path=path, of_resource=False)


def attributes_of(method: str, path: str, parameters: Mapping[str, str]) -> Attributes:
    """Return the attributes of a request. `path` is percent-encoded. Raises `NoRequest`."""
    found = by_path(method, path)
    if not found.of_resource or found.name or found.verb not in ("get", "delete"):
        return found
    if found.verb == "delete":
        return found._replace(verb="deletecollection")
    watches = parameters.get("watch")
    verb = "watch" if watches is not None and watches.lower() not in ("0", "false") else "list"
    return found._replace(verb=verb, name=_selected(parameters))


@lru_cache(maxsize=4096)
def by_path(method: str, path: str) -> Attributes:
    """Return the attributes that depend on method and percent-encoded path only. Raises `NoRequest`."""
    if "%" in path:
        path = unquote(path)
    trimmed = path.strip("/")
    parts = trimmed.split("/") if trimmed else []
    if len(parts) < 3 or parts[0] not in ("api", "apis") or (parts[0] == "apis" and len(parts) < 4):
        return of_path(method.lower(), path)
    group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
    version, rest = rest[0], rest[1:]
    verb = VERBS.get(method, "")
    if rest[0] in _IN_PATH:
        if len(rest) < 2:
            raise NoRequest
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    below = rest[2] if len(rest) > 2 and verb != "proxy" else ""
    name = rest[1] if len(rest) > 1 else ""
    return Attributes(verb, group, version, rest[0], below, namespace, name, path)


def _selected(parameters: Mapping[str, str]) -> str:
    """Return the name that a list's field selector selects; empty if it has none or if an option is malformed."""
    selector = parameters.get("fieldSelector", "")
    if _NAME not in selector:
        return ""
    if not all(_NUMBER.fullmatch(parameters.get(name) or "0") for name in ("limit", "timeoutSeconds")):
        return ""
    try:
        label_requirements(parameters.get("labelSelector", ""))
        terms = field_terms(selector)
    except ApiError:
        return ""
    found = next((value for field, equal, value in terms if field == _NAME and equal), "")
    return found if found not in (".", "..") and "/" not in found and "%" not in found else ""
