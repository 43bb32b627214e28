"""What a request asks for, as authorizers see it: the rules of `RequestInfoFactory` of k8s.io/apiserver.

All of it is told by method, path and query; the body is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from ..errors import ApiError
from ..selectors import field_terms, label_requirements

VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
#: Verbs that may stand in the path, before the kind.
_IN_PATH = ("proxy", "watch")
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_NAME = "metadata.name"
_NUMBER = re.compile(r"[+-]?[0-9]+")


class NoRequest(Exception):
    """A path by which nothing is asked for."""


class Attributes(NamedTuple):
    """A question to an authorizer, without the user. With an empty `resource` and `of_resource` unset, it is about a
    path.
    """

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
        """`pods`, or `pods/status`: what stands in a rule's `resources`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def of_path(verb: str, path: str) -> Attributes:
    """A question about a path that is no resource's."""
    return Attributes(verb, path=path, of_resource=False)


def attributes_of(method: str, path: str, parameters: Mapping[str, str]) -> Attributes:
    """What a request with this method, encoded path and query asks for. Raises `NoRequest`."""
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
    """As far as method and encoded path alone tell. Raises `NoRequest`."""
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
    """The one name that a list's field selector lets through; none if it names none, or if any option is malformed."""
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
