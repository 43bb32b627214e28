"""The single table of what a response to a request about one object means; see `read`.

    origin      the API server, or a middlebox: a body that is neither a `v1` Status nor the object
    subject     the requested object by kind, name and (if known) UID, or another one
    outcome     done; not done; unknown (`FailureClass`)

A load balancer's 404 does not mean a missing object, a login page's 200 is no success, and a truncated body means
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Final

import msgspec

from kube_client.errors import (
    UNREADABLE,
    Failure,
    FailureClass,
    Missing,
    classify_error,
    classify_refusal,
    from_middlebox,
    has_json,
)
from kube_client.transport import Response, TransportError, object_at


class Verb(Enum):
    """The type of a request, as far as its possible responses differ."""

    GET = "get"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"
    #: A create of `pods/binding`.
    BIND = "bind"
    #: A GET of a discovery document with kind `resource`.
    DISCOVER = "discover"

    # Enum's own `__hash__` runs in Python, and each bind is looked up by its verb.
    __hash__ = object.__hash__


class RequestInfo(msgspec.Struct, frozen=True, gc=False):
    """A request. `resource` is the plural in paths; `uid` is empty if unknown."""

    verb: Verb
    resource: str
    name: str
    uid: str = ""

    def is_about(self, missing: Missing | None) -> bool:
        """Return whether the missing object is that of this request."""
        return (
            missing is not None
            and missing.resource == self.resource
            and missing.name == self.name
            and (not missing.uid or not self.uid or missing.uid == self.uid)
        )


def asked_at(path: str, verb: Verb, uid: str = "") -> RequestInfo:
    """Return a request about the object at `path`, or about a subresource of it."""
    resource, name = object_at(path)
    return RequestInfo(verb, resource, name, uid)


class _AnswerMeta(msgspec.Struct, gc=False):
    name: str = ""
    uid: str = ""


_NOTHING: Final = msgspec.Raw()


class _AnswerBody(msgspec.Struct, rename="camel", gc=False):
    """The parts of an object or a Status that identify it."""

    kind: str = ""
    api_version: str = ""
    metadata: _AnswerMeta | None = None
    details: _AnswerMeta | None = None
    status: msgspec.Raw = _NOTHING


_said = msgspec.json.Decoder(_AnswerBody).decode
_SUCCESS: Final = b'"Success"'
#: kube-apiserver's encoding of a successful bind, compared without decoding. Other encodings are decoded.
_BOUND: Final = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'
#: Verbs that a Status may answer: always a bind, and a deletion unless the object stays for a while.
_BY_STATUS: Final = frozenset({Verb.BIND, Verb.DELETE})
# An attribute of an Enum is computed in Python, and each response is examined by its verb.
_BIND, _DISCOVER, _GET = Verb.BIND, Verb.DISCOVER, Verb.GET


def read(answer: Response | TransportError, asked: RequestInfo) -> Failure | None:
    """Return None if the API server confirms success, otherwise the failure.

    NOT_FOUND means that the API server reports this very object as missing.
    """
    if not isinstance(answer, Response):
        return classify_error(answer)
    if 200 <= answer.status < 300:
        return None if _is_success(answer, asked) else from_middlebox(answer)
    failure = classify_refusal(answer)
    if failure.kind is FailureClass.NOT_FOUND and not asked.is_about(failure.missing):
        # The missing object may be the namespace. Only a GET of the object shows that it is missing.
        return replace(failure, kind=FailureClass.PERMANENT)
    return failure


def _is_success(answer: Response, asked: RequestInfo) -> bool:
    if asked.verb is _BIND and answer.body == _BOUND:
        return True
    if not has_json(answer):
        return False
    try:
        said = _said(answer.body)
    except UNREADABLE:
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


def _names(meta: _AnswerMeta, asked: RequestInfo) -> bool:
    """Return whether the metadata, as far as present, is that of the requested object.

    A GET may return an object with the same name and another UID.
    """
    same = asked.verb is _GET or not meta.uid or not asked.uid or meta.uid == asked.uid
    return same and meta.name in ("", asked.name)
