"""What a write needs permission for besides being let in: by what it makes, and by the parts that it changes."""

from __future__ import annotations

from ..errors import Cause
from ..registry import Registry, Served
from ..requests import Request
from ..resource import Object
from ..store import Record
from . import claim_status
from .attributes import Attributes, attributes_of
from .escalation import GUARDED, check_write
from .gate import Access


def creation(request: Request) -> Attributes:
    """What a request is that creates an object by its name: an update or a patch that asks for a create as well."""
    return attributes_of(request.method, request.path, request.parameters)._replace(verb="create")


def check_creation(
    registry: Registry, served: Served, obj: Object, request: Request, asked: Attributes | None
) -> None:
    """Raises 403 for a role or binding beyond its user's rights. `asked` is `creation` of a request that is no POST."""
    if served.name in GUARDED:
        namespace = obj["metadata"].get("namespace", "")
        name = "" if asked is None else asked.name
        check_write(Access.of(registry), served.name, request.user, namespace, name, new=obj, old=None)


def check_change(
    registry: Registry, served: Served, old: Record, new: Object, request: Request, *, subresource: str
) -> list[Cause]:
    """What of a change its user may not make. Raises 403 for a role or binding beyond the user's rights."""
    access, user, name = Access.of(registry), request.user, served.name
    if name in GUARDED:
        before = served.stored.decode(old.data)
        check_write(access, name, user, old.namespace, old.name, new=new, old=before)
    elif name == claim_status.CLAIMS and subresource == "status":
        before = served.stored.decode(old.data)
        asked = attributes_of(request.method, request.path, request.parameters)
        return claim_status.causes(access, user, asked, new=new, old=before)
    return []
