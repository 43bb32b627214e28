"""Errors in the wording of kube-apiserver.

Errors below the HTTP layer are `ApiError`, which only that layer turns into a `Status` body. They follow
apimachinery's `api/errors`.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ClusterError(Exception):
    """An error for the owner of a cluster, not for its clients: it cannot start, or cannot do what was requested."""


class Cause(NamedTuple):
    """One invalid field. `reason` is a field error type, such as FieldValueRequired or FieldValueInvalid."""

    reason: str
    field: str
    message: str

    def as_object(self) -> dict[str, str]:
        """Return the form of a cause in a Status."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


class ApiError(Exception):
    """A failed request: HTTP `code`, machine-readable `reason`, and `details` of the Status.

    An empty `reason` is omitted, as in kube-apiserver's 500 for unexpected errors.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def status(self) -> dict[str, Any]:
        """Return the `Status` object of the response."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def qualified(resource: str, group: str) -> str:
    """Return `pods`, or `poddisruptionbudgets.policy` for a resource outside the core group."""
    return f"{resource}.{group}" if group else resource


def details_of(resource: str, group: str, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = resource
    return details


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def other_namespace() -> ApiError:
    return bad_request("the namespace of the provided object does not match the namespace sent on the request")


def other_name(given: str, name: str) -> ApiError:
    return bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def _of_object(code: int, reason: str, resource: str, group: str, name: str, text: str) -> ApiError:
    """Return an error about an object. `{}` in `text` is replaced by its name."""
    shown = f'{qualified(resource, group)} "{name}"'
    return ApiError(code, reason, text.replace("{}", shown, 1), details_of(resource, group, name))


def not_found(resource: str, group: str, name: str) -> ApiError:
    return _of_object(404, "NotFound", resource, group, name, "{} not found")


def already_exists(resource: str, group: str, name: str) -> ApiError:
    return _of_object(409, "AlreadyExists", resource, group, name, "{} already exists")


def conflict(resource: str, group: str, name: str, why: str) -> ApiError:
    text = f"Operation cannot be fulfilled on {{}}: {why}"
    return _of_object(409, "Conflict", resource, group, name, text)


def forbidden(resource: str, group: str, name: str, why: str) -> ApiError:
    return _of_object(403, "Forbidden", resource, group, name, f"{{}} is forbidden: {why}")


def stale(resource: str, group: str, name: str) -> ApiError:
    """Return 409 for an outdated resourceVersion."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, group, name, why)


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> ApiError:
    """Return 422 with all causes. `kind` is the Kind, not the plural; empty where kube-apiserver omits it."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details["causes"] = [cause.as_object() for cause in causes]
    shown = qualified(kind, group)
    return ApiError(422, "Invalid", f'{shown} "{name}" is invalid: {joined}', details)


def gone(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def timed_out() -> ApiError:
    """Return 504 for a request that exceeded its time limit."""
    return ApiError(504, "Timeout", "Timeout: request did not complete within requested timeout", {})


def not_found_path() -> ApiError:
    """Return 404 for a group, version or resource that is not served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type() -> ApiError:
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def unknown_format(accepted: str) -> ApiError:
    """Return 415; `accepted` lists media types."""
    why = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return ApiError(415, "UnsupportedMediaType", why)


#: The accepted patches of a custom resource.
PATCHES = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"


def json_name(value: object) -> str:
    """Return the name of a JSON value's type in errors of Go's decoder."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "null"
