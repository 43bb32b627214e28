"""What the server knows about one kind: its names, and the rules that run when it is written.

A `Resource` is data plus pure functions over plain JSON objects. The verbs (`handlers`) call them in a fixed
order, a real server's: decode and prune by schema, `default`, admission that needs other objects, then
`prepare_create` or `prepare_update`, `validate`, commit.
Built-in kinds are listed in `builtin`; a CustomResourceDefinition adds one more `Resource` at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .errors import Cause

Object = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def _no_change(obj: Object) -> None:
    """Nothing to default."""


def _nothing(obj: Object, old: Object | None) -> Iterable[Cause]:
    return ()


def _prepare_create(obj: Object) -> None:
    """Nothing to reset before a create."""


def _prepare_update(obj: Object, old: Object, subresource: str) -> None:
    """Nothing to carry over from the stored object."""


def _metadata_fields(obj: Object) -> dict[str, str]:
    metadata = obj["metadata"]
    return {"metadata.name": metadata["name"], "metadata.namespace": metadata.get("namespace", "")}


def is_true(status: Object, condition: str) -> bool:
    """Whether a status has this condition, and it is True."""
    return any(
        found.get("type") == condition and found.get("status") == "True"
        for found in status.get("conditions") or ()
    )


class Subresource(NamedTuple):
    """A path below an object, other than `status`: what discovery says of it. `kind` is of what is sent."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """A second form of objects that another resource stores, as events.k8s.io/v1 is of core v1 events.

    `stored` is the (group, plural) that owns the storage, `version` the one in which it does. Both functions take and
    return whole objects, may reuse parts of their argument, and set `apiVersion` and `kind`. Rules of a shaped resource
    run on the stored form.
    """

    stored: tuple[str, str]
    to_stored: Callable[[Object], Object]
    from_stored: Callable[[Object], Object]
    version: str = "v1"


class Column(NamedTuple):
    """A column of what `kubectl get` prints.

    `cell` says what stands in it (`tables`); of a custom resource it is a JSONPath. A `description` that starts with @
    names the API field whose description it is. `priority` 0 is always shown, 1 only with `-o wide`.
    """

    name: str
    type: str
    description: str
    cell: str = ""
    priority: int = 0
    format: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One served kind.

    `default(obj)` fills defaults in place. `prepare_create(obj)` drops what a client may not set (status,
    say). `prepare_update(obj, old, subresource)` carries over what this kind of write may not touch: with
    subresource "" the status, with "status" everything but status and some metadata; it also raises
    `metadata.generation` where the kind keeps one. By then the metadata of a create is complete (name, uid,
    creationTimestamp). `validate(obj, old)` returns the causes of a 422; `old` is None on create.
    `validate_below` has what takes its place for a write to a subresource, by its name. `fields(obj)` gives every field
    that a field selector may name, as strings; `field_names` is the full list, so that a bad selector is refused also
    where no object exists.

    `subresources` are those that the server implements beside status. `shape`, if set, says that objects live
    in another resource's storage. `asks`: the kind is a question, of which a create stores nothing and
    returns the answer (`auth.reviews`). `returns_deleted`: a delete that finished answers the object, not a Status.
    `conditional_update`: a PUT must say which version it changes; `create_on_update`: it may create.
    `grace(obj)`: seconds that a delete without gracePeriodSeconds waits; None: the kind knows no grace.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    status: bool = False
    custom: bool = False
    default: Callable[[Object], None] = _no_change
    prepare_create: Callable[[Object], None] = _prepare_create
    prepare_update: Callable[[Object, Object, str], None] = _prepare_update
    validate: Callable[[Object, Object | None], Iterable[Cause]] = _nothing
    validate_below: Mapping[str, Callable[[Object, Object], Iterable[Cause]]] = field(
        default_factory=dict, hash=False
    )
    field_names: tuple[str, ...] = ("metadata.name", "metadata.namespace")
    fields: Callable[[Object], dict[str, str]] = _metadata_fields
    subresources: tuple[Subresource, ...] = ()
    shape: Shape | None = None
    asks: bool = False
    returns_deleted: bool = False
    conditional_update: bool = False
    create_on_update: bool = False
    grace: Callable[[Object], int] | None = None
    #: What a bookmark has besides metadata: a real server sends an empty object of the Go type.
    bookmark: Mapping[str, Any] = field(default_factory=dict, hash=False)
    #: A custom resource's structural schema (`crd_schema.Structural`); built-in kinds have none.
    schema: Any = None
    #: Printer columns; by name those that many kinds have. None of a built-in kind that declares none.
    columns: tuple[str | Column, ...] | None = None
    #: The function that makes whole rows of them, if there is one (`tables`).
    row: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """`/api/v1` or `/apis/GROUP/VERSION`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
