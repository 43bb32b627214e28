"""AdmissionReview of admission.k8s.io/v1: the requests of an API server to a webhook, and the responses."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from apimachinery.nesting import KEPT_LEVELS, TOO_DEEP, shallow

T = TypeVar("T")

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"


class UnreadableReview(ValueError):
    """A body is no AdmissionReview with a request. The message says what is wrong."""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A request. `object` and `old_object` are JSON or `null`; `namespace` is empty for cluster-scoped kinds."""

    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class DeepRequest(AdmissionRequest, frozen=True, rename="camel"):
    """A request with an object that is nested too deeply. Its objects lack their deepest levels."""


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    request: AdmissionRequest
    api_version: str = ""
    kind: str = ""


class JsonPatchOperation(msgspec.Struct, frozen=True):
    """An operation of a JSON patch."""

    op: Literal["add"]
    path: str
    value: Any


class AdmissionResponse(NamedTuple):
    """A response. `message` is the reason for a rejection, and only an approval has a `patch`.

    Clients see `warnings`.
    """

    allowed: bool
    message: str = ""
    patch: Sequence[JsonPatchOperation] = ()
    warnings: Sequence[str] = ()


ALLOWED: Final = AdmissionResponse(True)

#: The review function of a webhook's path.
Reviewer = Callable[[AdmissionRequest], AdmissionResponse]

_read = msgspec.json.Decoder(_Review).decode
_encode = msgspec.json.Encoder().encode
_TOO_DEEP: Final = f"the object is {TOO_DEEP}; allowed: {KEPT_LEVELS} levels"


def read_review(body: bytes) -> AdmissionRequest:
    """Decode a review. Raises UnreadableReview."""
    is_deep = False
    try:
        try:
            review = _read(body)
        except RecursionError:
            is_deep = True
            review = _read(shallow(body))
    except msgspec.MsgspecError as error:
        raise UnreadableReview(f"not an {KIND}: {error}") from None
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        found = f"{review.api_version or 'no apiVersion'}, {review.kind or 'no kind'}"
        raise UnreadableReview(f"found {found}; allowed: {API_VERSION}, {KIND}")
    return DeepRequest(**msgspec.structs.asdict(review.request)) if is_deep else review.request


def write_review(request: AdmissionRequest, answer: AdmissionResponse) -> bytes:
    """Encode the AdmissionReview with the response to `request`."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": answer.allowed}
    if answer.message:
        response["status"] = {"message": answer.message}
    if answer.warnings:
        response["warnings"] = answer.warnings
    if answer.patch:
        response["patch"] = b64encode(_encode(answer.patch)).decode()
        response["patchType"] = "JSONPatch"
    return _encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def refused(message: str) -> AdmissionResponse:
    return AdmissionResponse(False, message)


def allowed_with(patch: Iterable[JsonPatchOperation]) -> AdmissionResponse:
    return AdmissionResponse(True, patch=tuple(patch))


def object_of(raw: msgspec.Raw, read: Callable[[msgspec.Raw], T]) -> T:
    """Decode an object. Raises UnreadableObject."""
    try:
        return read(raw)
    except msgspec.MsgspecError as error:
        raise UnreadableObject(f"cannot read the object: {error}") from None


class UnreadableObject(ValueError):
    """A field of an object has an invalid type. The message says where."""


def review(reviewer: Reviewer, request: AdmissionRequest) -> AdmissionResponse:
    """Run `reviewer`; an unreadable object is rejected.

    An object that is nested too deeply may be updated and deleted, such as by the removal of its finalizers.
    """
    if isinstance(request, DeepRequest) and request.operation == CREATE:
        return refused(_TOO_DEEP)
    try:
        return reviewer(request)
    except UnreadableObject as error:
        return refused(str(error))
    except RecursionError:
        return refused(_TOO_DEEP)
