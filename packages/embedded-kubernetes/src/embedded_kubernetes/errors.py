"""Refusals, as a Kubernetes API server words them.

Every refusal anywhere below the HTTP adapter is an `ApiError`; the adapter alone turns it into a `Status`
body. Shapes follow apimachinery's `api/errors`.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ClusterError(Exception):
    """For who starts a cluster, not for its clients: what keeps it from starting, or from doing what it is told."""


class Cause(NamedTuple):
    """One invalid field. `reason` is a field error type, such as FieldValueRequired or FieldValueInvalid."""

    reason: str
    field: str
    message: str

    def told(self) -> dict[str, str]:
        """As a Status has it among its causes."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


class ApiError(Exception):
    """A request that was refused: HTTP `code`, machine-readable `reason`, and `details` of the Status.

    An empty `reason` is left out, as a real server does where it answers 500 for an error it did not foresee.
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
        """The `Status` object that goes on the wire."""
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
    """`pods`, or `poddisruptionbudgets.policy` for a resource outside the core group."""
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
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request"
    )


def other_name(given: str, name: str) -> ApiError:
    return bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def _of_object(code: int, reason: str, resource: str, group: str, name: str, text: str) -> ApiError:
    """A refusal about an object. `text` has `{}` where it is named."""
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
    """The object's resourceVersion is not the one that the writer read."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, group, name, why)


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> ApiError:
    """422 with every cause; `kind` is the Kind, not the plural, and empty where a real server leaves it out."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details["causes"] = [cause.told() for cause in causes]
    shown = qualified(kind, group)
    return ApiError(422, "Invalid", f'{shown} "{name}" is invalid: {joined}', details)


def gone(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def timed_out() -> ApiError:
    """A request that took longer than a server lets one take."""
    return ApiError(504, "Timeout", "Timeout: request did not complete within requested timeout", {})


def not_found_path() -> ApiError:
    """A group, version or resource that is not served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
    )


def unsupported_media_type() -> ApiError:
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def unknown_format(accepted: str) -> ApiError:
    """`accepted` lists media types."""
    why = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return ApiError(415, "UnsupportedMediaType", why)


#: What is said of a patch of a custom resource.
PATCHES = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"


def json_name(value: object) -> str:
    """What Go's decoder calls a JSON value when it is not of the type that was wanted."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "null"
