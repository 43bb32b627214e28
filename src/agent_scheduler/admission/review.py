"""AdmissionReview of admission.k8s.io/v1: what the API server asks of a webhook, and what it is told."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"


class UnreadableReview(ValueError):
    """A body that is no AdmissionReview with a request. The message says what is wrong."""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """`object` and `old_object` are JSON, `null` where there is none; `namespace` is empty for cluster-wide kinds."""

    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    request: Request
    api_version: str = ""
    kind: str = ""


class Change(msgspec.Struct, frozen=True):
    """An operation of a JSON patch."""

    op: Literal["add"]
    path: str
    value: Any


class Answer(NamedTuple):
    """`message` says why it is not allowed; only what is allowed has a `patch`. `warnings` are shown to who asked."""

    allowed: bool
    message: str = ""
    patch: Sequence[Change] = ()
    warnings: Sequence[str] = ()


ALLOWED: Final = Answer(True)

#: One path of a webhook.
Reviewer = Callable[[Request], Answer]

_read = msgspec.json.Decoder(_Review).decode
_encode = msgspec.json.Encoder().encode


def read_review(body: bytes) -> Request:
    """Raises UnreadableReview."""
    try:
        review = _read(body)
    except msgspec.MsgspecError as error:
        raise UnreadableReview(f"not an {KIND}: {error}") from None
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        found = f"{review.api_version or 'no apiVersion'}, {review.kind or 'no kind'}"
        raise UnreadableReview(f"found {found}; allowed: {API_VERSION}, {KIND}")
    return review.request


def write_review(request: Request, answer: Answer) -> bytes:
    """The AdmissionReview that answers `request`."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": answer.allowed}
    if answer.message:
        response["status"] = {"message": answer.message}
    if answer.warnings:
        response["warnings"] = answer.warnings
    if answer.patch:
        response["patch"] = b64encode(_encode(answer.patch)).decode()
        response["patchType"] = "JSONPatch"
    return _encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def refused(message: str) -> Answer:
    return Answer(False, message)


def allowed_with(patch: Iterable[Change]) -> Answer:
    return Answer(True, patch=tuple(patch))


def object_of(raw: msgspec.Raw, read: Callable[[msgspec.Raw], T]) -> T:
    """Raises UnreadableObject."""
    try:
        return read(raw)
    except msgspec.MsgspecError as error:
        raise UnreadableObject(f"cannot read the object: {error}") from None


class UnreadableObject(ValueError):
    """An object with a field of another type than its kind has. The message says where."""


def review(reviewer: Reviewer, request: Request) -> Answer:
    """What `reviewer` says; an object that cannot be read is refused."""
    try:
        return reviewer(request)
    except UnreadableObject as error:
        return refused(str(error))
