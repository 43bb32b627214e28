"""Determines whether the API server serves a kind, by its discovery documents.

A 404 for a collection does not show that: a load balancer or a starting API server may return it, too. Only a
document that lists what is served, without the kind, is conclusive.
"""

from __future__ import annotations

import msgspec

from kube_client.answers import RequestInfo, Verb
from kube_client.driver import Operation, Send, ask
from kube_client.errors import UNREADABLE, Failure, FailureClass, ResponseOrigin
from kube_client.transport import collection_at


class _Version(msgspec.Struct, rename="camel"):
    group_version: str = ""


class _ApiGroup(msgspec.Struct):
    versions: list[_Version] = []


class _Groups(msgspec.Struct):
    groups: list[_ApiGroup]


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct, rename="camel"):
    group_version: str
    resources: list[_Resource]


_decode_groups = msgspec.json.Decoder(_Groups).decode
_decode_resources = msgspec.json.Decoder(_Resources).decode


def serves(path: str) -> Operation[bool | None]:
    """Return whether the kind of the collection or object at `path` is served; None if that is unknown."""
    version, resource = collection_at(path)
    try:
        if version.startswith("/apis/"):
            group_version = version.removeprefix("/apis/")
            response = (yield from ask(_get("/apis", "APIGroupList"))).response
            if response is None:
                return None
            groups = _decode_groups(response.body).groups
            if all(each.group_version != group_version for group in groups for each in group.versions):
                return False
        else:
            group_version = version.removeprefix("/api/")
        response = (yield from ask(_get(version, "APIResourceList"))).response
        if response is None:
            return None
        listed = _decode_resources(response.body)
    except UNREADABLE:
        return None
    return any(each.name == resource for each in listed.resources) if listed.group_version == group_version else None


def explained(failure: Failure, path: str) -> Operation[Failure]:
    """Return `failure`, or NOT_SERVED for a 404 that means that the kind at `path` is not served."""
    if failure.status != 404 or failure.kind is FailureClass.NOT_FOUND or (yield from serves(path)) is not False:
        return failure
    _, resource = collection_at(path)
    message = f"the API server does not serve {resource} ({path})"
    return Failure(FailureClass.NOT_SERVED, 404, "NotFound", message, source=ResponseOrigin.API_SERVER)


def _get(path: str, kind: str) -> Send:
    return Send("GET", path, RequestInfo(Verb.DISCOVER, kind, ""))
