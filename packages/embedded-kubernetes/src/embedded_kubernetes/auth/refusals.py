"""Errors of authentication and authorization."""

from __future__ import annotations

from ..errors import ApiError, details_of, qualified
from .attributes import Attributes
from .identity import User
from .quoting import quote


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(user: User, asked: Attributes, reason: str = "") -> ApiError:
    """Return 403 for these attributes. `reason` is the authorizer's; it may be empty."""
    why = _why(user, asked)
    if reason:
        why = f"{why}: {reason}"
    if not asked.of_resource or not asked.resource:
        return ApiError(403, "Forbidden", f"forbidden: {why}", {})
    return refused(asked.resource, asked.group, asked.name, why)


def refused(resource: str, group: str, name: str, why: str) -> ApiError:
    """Return 403 about a resource, or about the object with this name."""
    shown = qualified(resource, group)
    if name:
        shown = f"{shown} {quote(name)}"
    return ApiError(403, "Forbidden", f"{shown} is forbidden: {why}", details_of(resource, group, name))


def _why(user: User, asked: Attributes) -> str:
    name = quote(user.name)
    if not asked.of_resource:
        return f"User {name} cannot {asked.verb} path {quote(asked.path)}"
    scope = f"in the namespace {quote(asked.namespace)}" if asked.namespace else "at the cluster scope"
    return f"User {name} cannot {asked.verb} resource {quote(asked.combined)} in API group {quote(asked.group)} {scope}"
