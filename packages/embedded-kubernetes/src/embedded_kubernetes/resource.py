"""The definition of a served kind: its names, and the rules that run when it is written.

A `Resource` consists of data and pure functions on plain JSON objects. The verbs (`handlers`) call them in
kube-apiserver's order: decoding and pruning, `default`, admission, `prepare_create` or `prepare_update`, `validate`,
commit. Built-in kinds are listed in `builtin`; a CustomResourceDefinition adds a `Resource` at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .errors import Cause

Object = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def _no_change(obj: Object) -> None:
    """Set no defaults."""


def _nothing(obj: Object, old: Object | None) -> Iterable[Cause]:
    return ()


def _prepare_create(obj: Object) -> None:
    """Reset nothing before a create."""


def _prepare_update(obj: Object, old: Object, subresource: str) -> None:
    """Copy nothing from the stored object."""


def _metadata_fields(obj: Object) -> dict[str, str]:
    metadata = obj["metadata"]
    return {"metadata.name": metadata["name"], "metadata.namespace": metadata.get("namespace", "")}


def is_true(status: Object, condition: str) -> bool:
    """Return whether a status has this condition with status True."""
    return any(
        found.get("type") == condition and found.get("status") == "True" for found in status.get("conditions") or ()
    )


class Subresource(NamedTuple):
    """A subresource other than `status`, for discovery. `kind` is that of the request body."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """A second version of objects that another resource stores, such as events.k8s.io/v1 for core v1 events.

    `stored` is the (group, plural) that owns the table, `version` its stored version. Both functions convert whole
    objects, may reuse parts of their argument, and set `apiVersion` and `kind`. The rules of a shaped resource run on
    the stored version.
    """

    stored: tuple[str, str]
    to_stored: Callable[[Object], Object]
    from_stored: Callable[[Object], Object]
    version: str = "v1"


class Column(NamedTuple):
    """A column of `kubectl get`.

    `cell` defines its value (`tables`); for a custom resource, it is a JSONPath. A `description` that begins with @
    names an API field whose description is used. Columns with `priority` 0 are always printed, others only with `-o
    wide`.
    """

    name: str
    type: str
    description: str
    cell: str = ""
    priority: int = 0
    format: str = ""


class ScalePaths(NamedTuple):
    """The fields of a Scale in an object, each as the names on the way; `selector` is that of a text, if any."""

    replicas: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One served kind.

    `default(obj)` sets defaults in place. `prepare_create(obj)` resets fields that a client may not set, such as the
    status; the metadata of a create is complete by then (name, uid, creationTimestamp). `prepare_update(obj, old,
    subresource)` restores fields that this write may not change: the status for subresource "", everything but status
    and some metadata for "status"; it also increments `metadata.generation`. `validate(obj, old)` returns the causes
    of a 422; `old` is None on create. `validate_below` has its replacements for subresources, by name. `fields(obj)`
    returns the values of all field selectors; `field_names` lists them, so that an invalid selector is rejected even
    without objects.

    `subresources` are the implemented ones besides status. `shape` is set if another resource stores the objects.
    `asks`: the kind is a review, which a create answers and does not store (`auth.reviews`). `returns_deleted`: a
    completed delete returns the object instead of a Status. `conditional_update`: a PUT must have a resourceVersion;
    `create_on_update`: a PUT may create. `grace(obj)` returns the grace period of a delete without
    gracePeriodSeconds; None for kinds without grace.
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
    validate_below: Mapping[str, Callable[[Object, Object], Iterable[Cause]]] = field(default_factory=dict, hash=False)
    field_names: tuple[str, ...] = ("metadata.name", "metadata.namespace")
    fields: Callable[[Object], dict[str, str]] = _metadata_fields
    subresources: tuple[Subresource, ...] = ()
    shape: Shape | None = None
    asks: bool = False
    returns_deleted: bool = False
    conditional_update: bool = False
    create_on_update: bool = False
    grace: Callable[[Object], int] | None = None
    #: Fields of a bookmark besides metadata; kube-apiserver sends an empty object of the Go type.
    bookmark: Mapping[str, Any] = field(default_factory=dict, hash=False)
    #: The structural schema of a custom resource (`crd_schema.Structural`); None for built-in kinds.
    schema: Any = None
    #: The fields of the subresource `scale` of a custom resource.
    scale: ScalePaths | None = None
    #: Printer columns; common ones are given by name. None if a built-in kind declares no columns.
    columns: tuple[str | Column, ...] | None = None
    #: The name of the function that builds whole rows, if any (`tables`).
    row: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """The path of the group version: `/api/v1` or `/apis/GROUP/VERSION`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
