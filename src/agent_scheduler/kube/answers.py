"""The one table of what an answer to a request about one object means, whatever the request: see `read`.

    who gave it       the API server, or something on the way to it: a body that is no `v1` Status, nor the object
    about what        the very object that was asked for, by kind, name and, where known, UID; or another one
    was it done       yes; no; not known (`FailureClass`)

A load balancer's 404 is no absent object, a login page's 200 is no success, and a body that was cut short is neither.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Final

import msgspec

from agent_scheduler.kube.errors import (
    Failure,
    FailureClass,
    Missing,
    classify_error,
    classify_refusal,
    from_middlebox,
    has_json,
)
from agent_scheduler.kube.transport import Response, TransportError, object_at


class Verb(Enum):
    """What was asked for. Told apart as far as answers differ."""

    GET = "get"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"
    #: A create of `pods/binding`.
    BIND = "bind"
    #: A GET of a discovery document, whose kind is `resource`.
    DISCOVER = "discover"

    # Enum's own is computed in Python, and each bind is looked up by its verb.
    __hash__ = object.__hash__


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A request. `resource` is the kind in the plural, as in paths; `uid` is empty where it is not known."""

    verb: Verb
    resource: str
    name: str
    uid: str = ""

    def is_about(self, missing: Missing | None) -> bool:
        """Whether what is not there is the object of this request."""
        return (
            missing is not None
            and missing.resource == self.resource
            and missing.name == self.name
            and (not missing.uid or not self.uid or missing.uid == self.uid)
        )


def asked_at(path: str, verb: Verb, uid: str = "") -> Asked:
    """A request about the object at `path`, or about a subresource of it."""
    resource, name = object_at(path)
    return Asked(verb, resource, name, uid)


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    uid: str = ""


_NOTHING: Final = msgspec.Raw()


class _Said(msgspec.Struct, rename="camel", gc=False):
    """The parts of an object, or of a Status, that tell which one it is."""

    kind: str = ""
    api_version: str = ""
    metadata: _Meta | None = None
    details: _Meta | None = None
    status: msgspec.Raw = _NOTHING


_said = msgspec.json.Decoder(_Said).decode
_SUCCESS: Final = b'"Success"'
#: The success of a bind as kube-apiserver words it, which need not be decoded a pod. Any other wording is.
_BOUND: Final = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'
#: Verbs that may be answered by a Status: a bind always is, a deletion unless its object stays for a while.
_BY_STATUS: Final = frozenset({Verb.BIND, Verb.DELETE})
# An attribute of an Enum is computed in Python, and each answer is looked at by its verb.
_BIND, _DISCOVER, _GET = Verb.BIND, Verb.DISCOVER, Verb.GET


def read(answer: Response | TransportError, asked: Asked) -> Failure | None:
    """None: the API server says that it was done. NOT_FOUND: it says that this very object is not there."""
    if not isinstance(answer, Response):
        return classify_error(answer)
    if 200 <= answer.status < 300:
        return None if _is_success(answer, asked) else from_middlebox(answer)
    failure = classify_refusal(answer)
    if failure.kind is FailureClass.NOT_FOUND and not asked.is_about(failure.missing):
        # Its namespace, say. That the object itself is not there is for a GET of it to tell.
        return replace(failure, kind=FailureClass.PERMANENT)
    return failure


def _is_success(answer: Response, asked: Asked) -> bool:
    if asked.verb is _BIND and answer.body == _BOUND:
        return True
    if not has_json(answer):
        return False
    try:
        said = _said(answer.body)
    except msgspec.MsgspecError:
        return False
    if asked.verb is _DISCOVER:
        return said.kind == asked.resource
    if said.kind == "Status":
        return (
            asked.verb in _BY_STATUS
            and said.api_version == "v1"
            and bytes(said.status) == _SUCCESS
            and (said.details is None or _names(said.details, asked))
        )
    return (
        asked.verb is not _BIND
        and bool(said.kind)
        and bool(said.api_version)
        and said.metadata is not None
        and bool(said.metadata.name)
        and _names(said.metadata, asked)
    )


def _names(meta: _Meta, asked: Asked) -> bool:
    """Whether what is said of an object is said of the one that was asked for, as far as it is said. A GET may find
    another one of the name."""
    same = asked.verb is _GET or not meta.uid or not asked.uid or meta.uid == asked.uid
    return same and meta.name in ("", asked.name)
