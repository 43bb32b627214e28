"""What a request is about, and whether a fault's rule is about it.

Told from the request alone, without the API's registry, so that it holds for any carrier of requests and for kinds
that are not served.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import unquote

import orjson

from .fault_plan import Match
from .requests import Request

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch"}
#: Subresources of a namespace, which are not kinds inside of it.
_OF_NAMESPACES = ("status", "finalize")


class Target(NamedTuple):
    """What a request is about. `resource` is empty for what is no object of the API, such as /healthz."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def resources(self) -> tuple[str, ...]:
        """The names by which a rule may call the resource."""
        if not self.resource:
            return ()
        below = f"/{self.subresource}" if self.subresource else ""
        plain = f"{self.resource}{below}"
        return (plain, f"{self.resource}.{self.group}{below}") if self.group else (plain,)


def target_of(request: Request) -> Target:
    """As RBAC reads a request: a POST below an object creates."""
    segments = unquote(request.path).strip("/").split("/")
    group = ""
    if segments[0] == "api" and len(segments) > 2:
        rest = segments[2:]
    elif segments[0] == "apis" and len(segments) > 3:
        group, rest = segments[1], segments[3:]
    else:
        return Target(_WRITES.get(request.method, "delete" if request.method == "DELETE" else "get"))
    watching = rest[0] == "watch" and len(rest) > 1
    rest = rest[1:] if watching else rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _OF_NAMESPACES):
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource, *_ = (*rest, "", "")
    if request.method in ("GET", "HEAD"):
        verb = "watch" if watching or request.flag("watch") else "get" if name else "list"
    elif request.method == "DELETE":
        verb = "delete" if name else "deletecollection"
    else:
        verb = _WRITES.get(request.method, request.method.lower())
    return Target(verb, group, resource, subresource, namespace, name)


def matches(match: Match, request: Request, target: Target) -> bool:
    """Whether a rule with this `match` is about the request."""
    if match.verbs is not None and target.verb not in match.verbs:
        return False
    if match.methods is not None and request.method not in match.methods:
        return False
    if match.path is not None and not fnmatchcase(unquote(request.path), match.path):
        return False
    if match.query is not None and not fnmatchcase(request.query, match.query):
        return False
    if match.resource is not None and not _any_like(target.resources(), match.resource):
        return False
    if match.namespace is not None and not fnmatchcase(target.namespace, match.namespace):
        return False
    return match.name is None or fnmatchcase(target.name or _name_in(request), match.name)


def _any_like(texts: Iterable[str], pattern: str) -> bool:
    return any(fnmatchcase(text, pattern) for text in texts)


def _name_in(request: Request) -> str:
    """The name of an object that is being created."""
    if request.method != "POST":
        return ""
    try:
        return str(orjson.loads(request.body)["metadata"]["name"])
    except (ValueError, KeyError, TypeError):
        return ""
