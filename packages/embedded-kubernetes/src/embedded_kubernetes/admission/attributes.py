"""The attributes of a write in admission, and the versions in which webhooks and policies see its object.

Mirrors `admission.Attributes` of k8s.io/apiserver. The object is kept in its kind's stored version; webhooks
and policies receive it in the version that their rules name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..auth.attributes import Attributes as Asked
from ..auth.attributes import of_path
from ..auth.gate import Access
from ..auth.identity import User, account_groups, account_name
from ..builtin import names
from ..builtin.webhooks import GROUP
from ..cel.authorizer import PARTS, ROOT, about
from ..cel.environment import AUTHORIZER, REQUEST_RESOURCE
from ..errors import ApiError, forbidden
from ..registry import NAMESPACES, Registry, Served
from ..requests import Request
from ..resource import Object
from ..schema import check, decode
from ..schema_source import model_name
from .warnings import Warnings

#: The location of kube-apiserver's scheme, as its errors name it.
_SCHEME = "pkg/api/legacyscheme/scheme.go:30"

#: Kinds that policies never see, so that a policy cannot prevent its own change.
_POLICIES = frozenset(
    (GROUP, f"{kind}admissionpolic{plural}") for kind in ("mutating", "validating") for plural in ("ies", "ybindings")
)
#: Policies do not see reviews either, because components of the cluster depend on them.
_REVIEWS = frozenset(
    {
        *(("authentication.k8s.io", plural) for plural in ("selfsubjectreviews", "tokenreviews")),
        *(
            ("authorization.k8s.io", plural)
            for plural in (
                *("localsubjectaccessreviews", "selfsubjectaccessreviews"),
                *("selfsubjectrulesreviews", "subjectaccessreviews"),
            )
        ),
    }
)
_NOT_FOR_POLICIES = _POLICIES | _REVIEWS
_NOT_FOR_WEBHOOKS = _POLICIES | {(GROUP, f"{kind}webhookconfigurations") for kind in ("mutating", "validating")}


class GroupVersionKind(NamedTuple):
    """A group, a version, and a kind or plural."""

    group: str
    version: str
    name: str

    def as_object(self, name: str = "kind") -> Object:
        return {"group": self.group, "version": self.version, name: self.name}

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.name}"


class ResourceForm(NamedTuple):
    """A resource through which the object can be written, and its kind there.

    `served` is None for a kind that is not stored, such as Binding or Scale.
    """

    resource: GroupVersionKind
    kind: GroupVersionKind
    served: Served | None

    def shown(self, obj: Object | None) -> Object | None:
        """Return the object in this version. The result may share parts with `obj`."""
        if obj is None or self.served is None:
            return obj
        resource = self.served.resource
        if resource.shape is not None:
            return resource.shape.from_stored(obj)
        return {**obj, "kind": resource.kind, "apiVersion": resource.api_version}

    def _check_kind(self, obj: Object) -> None:
        """Complete kind and version in place. Raises 500 for those of another kind."""
        own = f"{self.kind.group}/{self.kind.version}" if self.kind.group else self.kind.version
        kind = obj["kind"] = obj.get("kind") or self.kind.name
        version = obj["apiVersion"] = obj.get("apiVersion") or own
        if (kind, version) == (self.kind.name, own):
            return
        group, _, last = str(version).rpartition("/")
        if model_name(group, last, str(kind)) is None:
            raise internal(f'no kind "{kind}" is registered for version "{version}" in scheme "{_SCHEME}"')
        why = f"converting ({last}.{kind}) to ({self.kind.group or 'core'}.{self.kind.name}): unknown conversion"
        raise ApiError(500, "", why)

    def read(self, obj: Object) -> Object:
        """Decode an object that was changed in this version; return it in the stored version, with defaults.

        Changes `obj` in place. Raises `schema.Refused` if it cannot be decoded, and 500 if it is of another
        kind.
        """
        if self.served is None or not self.served.resource.custom:
            self._check_kind(obj)
            decode(self.kind.group, self.kind.version, self.kind.name, obj)
        if self.served is None:
            return obj
        resource = self.served.resource
        if resource.custom:
            check(resource, obj)
        if not isinstance(obj.get("metadata"), dict):
            obj["metadata"] = {}
        if resource.shape is not None:
            obj = resource.shape.to_stored(obj)
        resource.default(obj)
        return obj


@dataclass(slots=True, eq=False, kw_only=True)
class Admission:
    """One write. `forms` begin with that of the request.

    `obj` is the new object, None for a delete; `old` is the stored object, None for a create. Both are in the
    stored version.
    """

    registry: Registry
    request: Request
    operation: str
    forms: tuple[ResourceForm, ...]
    subresource: str
    namespace: str
    name: str
    dry: bool
    options: Object | None
    obj: Object | None
    old: Object | None
    warnings: Warnings = field(default_factory=Warnings)
    #: Audit annotations of webhooks and policies, by key.
    _annotations: dict[str, str] = field(default_factory=dict)

    @property
    def user(self) -> User:
        return self.request.user

    @property
    def resource(self) -> GroupVersionKind:
        return self.forms[0].resource

    @property
    def is_namespace(self) -> bool:
        return self.resource.name == NAMESPACES[1] and not self.resource.group

    @property
    def for_policies(self) -> bool:
        return (self.resource.group, self.resource.name) not in _NOT_FOR_POLICIES

    @property
    def for_webhooks(self) -> bool:
        return (self.resource.group, self.resource.name) not in _NOT_FOR_WEBHOOKS

    def labels_of_namespace(self) -> Mapping[str, str] | None:
        """Return the labels of the object if it is a namespace, otherwise of its namespace; None if that is missing."""
        if self.is_namespace and not self.subresource and self.obj is not None:
            return self.obj["metadata"].get("labels") or {}
        record = self.registry.namespace(self.namespace)
        return record.labels if record is not None else None

    def asked(self, form: ResourceForm) -> Object:
        """Return the request as reviews and expressions see it in this form, without its objects."""
        own = self.forms[0]
        found: Object = {"kind": form.kind.as_object(), "resource": form.resource.as_object("resource")}
        if self.subresource:
            found["subResource"] = self.subresource
        found["requestKind"] = own.kind.as_object()
        found["requestResource"] = own.resource.as_object("resource")
        if self.subresource:
            found["requestSubResource"] = self.subresource
        if self.name:
            found["name"] = self.name
        if self.namespace:
            found["namespace"] = self.namespace
        found["operation"] = self.operation
        found["userInfo"] = self.user.info()
        found["dryRun"] = self.dry
        found["options"] = self.options
        return found

    def variables(self, form: ResourceForm) -> dict[str, Any]:
        """Return the variables of an expression about this write."""
        parts = {
            "group": self.resource.group,
            "resource": self.resource.name,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {
            "object": form.shown(self.obj),
            "oldObject": form.shown(self.old),
            "request": self.asked(form),
            # Match conditions do not have it.
            "namespaceObject": None,
            AUTHORIZER: ROOT,
            REQUEST_RESOURCE: about(parts),
        }

    def allowed(self, question: Mapping[str, Any], verb: str) -> tuple[bool, str]:
        """Return the authorizer's decision on a check of an expression."""
        user = self.user
        if account := question.get("account"):
            user = User(account_name(*account), groups=account_groups(account[0]))
        if "path" in question:
            asked = of_path(verb, question["path"])
        else:
            asked = Asked(verb, version="*", **{part: question.get(part, "") for part in PARTS})
        allowed, reason = Access.of(self.registry).authorizer.authorize(user, asked)
        return allowed, reason

    def forbidden(self, why: str) -> ApiError:
        """Return 403 with the object's name in the request."""
        return forbidden(self.resource.name, self.resource.group, self.name, why)

    def forbidden_object(self, why: str) -> ApiError:
        """Return 403 with the name that the object has or will have."""
        metadata = (self.obj or {}).get("metadata") or {}
        name = self.name or metadata.get("name") or metadata.get("generateName") or "Unknown!"
        return forbidden(self.resource.name, self.resource.group, name, why)

    def annotate(self, key: str, value: str) -> None:
        """Add an audit annotation, unless the key is invalid or taken."""
        if "/" in key and not names.qualified(key):
            self._annotations.setdefault(key, value)
            self.request.annotations = self._annotations

    def named(self) -> None:
        """Take the object's name after name generation."""
        if not self.name and self.obj is not None:
            self.name = self.obj["metadata"].get("name", "")


def internal(why: str) -> ApiError:
    """Return kube-apiserver's 500 for an unexpected error."""
    return ApiError(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})
