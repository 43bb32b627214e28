"""Permissions that a write requires beyond the request's own, by the object it creates or the fields it changes.

The status of a ResourceClaim is guarded by DRAResourceClaimGranularStatusAuthorization (enabled since 1.36).
Changes of allocation and reservations require `resourceclaims/binding` in the whole cluster. Changes of a
device's status require `resourceclaims/driver` under the driver's name, with a verb for the user's own node
or for any node. As in pkg/registry/resource, a missing permission is a cause of a 422.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from ..registry import Registry, Served
from ..requests import Request
from ..resource import Object
from ..store import Record
from .attributes import Attributes, attributes_of
from .escalation import GUARDED, check_write
from .gate import Access
from .identity import NODE_NAME, User, as_account, is_subdomain
from .quoting import quoted
from .refusals import forbidden

CLAIMS = ("resource.k8s.io", "resourceclaims")


def _status_causes(access: Access, user: User, asked: Attributes, *, new: Object, old: Object) -> Iterator[Cause]:
    """Yield why `user` may not make this change of a claim's status.

    `asked` are the request's attributes, `old` is the stored claim.
    """
    status, was = new.get("status") or {}, old.get("status") or {}
    if any((status.get(field) or None) != (was.get(field) or None) for field in ("allocation", "reservedFor")):
        wanted = asked._replace(subresource="binding", namespace="", name="")
        if not access.allows(user, wanted):
            what = (
                "changing status.allocation or status.reservedFor requires "
                f'resource="resourceclaims/binding", verb="{asked.verb}" permission'
            )
            yield _cause(what, user, wanted)
    verbs = _driver_verbs(user, asked.verb, _node(status.get("allocation")))
    for driver in sorted(_changed_drivers(status, was)):
        choices = [asked._replace(verb=verb, subresource="driver", name=driver) for verb in verbs]
        if not any(access.allows(user, choice) for choice in choices):
            shown = quoted(verbs).replace('"', "")
            what = f'changing status.devices requires resource="resourceclaims/driver", verb="{shown}" permission'
            yield _cause(what, user, choices[0])


def _cause(what: str, user: User, asked: Attributes) -> Cause:
    return Cause("FieldValueForbidden", "status", f"Forbidden: {what}: {forbidden(user, asked).message}")


def _changed_drivers(status: dict[str, Any], was: dict[str, Any]) -> set[str]:
    """Return the drivers whose entries in `devices` were added, removed or changed."""
    after, before = (
        {
            tuple(entry.get(field) for field in ("driver", "pool", "device", "shareID")): entry
            for entry in each.get("devices") or ()
        }
        for each in (status, was)
    )
    return {str(key[0] or "") for key in after.keys() | before.keys() if after.get(key) != before.get(key)}


def _driver_verbs(user: User, verb: str, node: str) -> list[str]:
    """Return the verbs one of which is required to report on devices allocated on this node."""
    own = tuple(user.extra.get(NODE_NAME, ()))
    arbitrary = f"arbitrary-node:{verb}"
    if node and own == (node,) and is_subdomain(node) and as_account(user.name) is not None:
        return [f"associated-node:{verb}", arbitrary]
    return [arbitrary]


def _node(allocation: dict[str, Any] | None) -> str:
    """Return the one node that an allocation is for; empty if its selector has another form."""
    terms = ((allocation or {}).get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or []) != 1:
        return ""
    field = terms[0]["matchFields"][0]
    values = field.get("values") or []
    if field.get("key") != "metadata.name" or field.get("operator") != "In" or len(values) != 1:
        return ""
    return str(values[0])


def creation(request: Request) -> Attributes:
    """Return the attributes of the create that an update or a patch implies."""
    return attributes_of(request.method, request.path, request.parameters)._replace(verb="create")


def check_creation(registry: Registry, served: Served, obj: Object, request: Request, asked: Attributes | None) -> None:
    """Check the creation of an object. Raises 403 if a role or binding grants permissions that its user lacks.

    `asked` is the result of `creation`; None if the request is a POST.
    """
    if served.name in GUARDED:
        namespace = obj["metadata"].get("namespace", "")
        name = "" if asked is None else asked.name
        check_write(Access.of(registry), served.name, request.user, namespace, name, new=obj, old=None)


def check_change(
    registry: Registry, served: Served, old: Record, new: Object, request: Request, *, subresource: str
) -> list[Cause]:
    """Return why the user may not make this change. Raises 403 as `check_creation` does."""
    access, user, name = Access.of(registry), request.user, served.name
    if name in GUARDED:
        before = served.stored.decode(old.data)
        check_write(access, name, user, old.namespace, old.name, new=new, old=before)
    elif name == CLAIMS and subresource == "status":
        before = served.stored.decode(old.data)
        asked = attributes_of(request.method, request.path, request.parameters)
        return list(_status_causes(access, user, asked, new=new, old=before))
    return []
