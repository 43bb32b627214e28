"""Builds the resource of a built-in kind from its data, its logic and the rules that all kinds share.

`Kind` is data, an entry of `data/kinds.json`, and is enough for many kinds. `Logic` has what data cannot express.
This module handles metadata, immutable parts and the generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, fields
from importlib.resources import files
from itertools import chain
from typing import Any

import msgspec

from ..errors import Cause
from ..resource import ALL_VERBS, Column, Object, Resource, Shape, Subresource
from . import metadata, names
from .defaults import compile_defaults
from .rules import compile_rules

Check = Callable[[Object, Object | None], Iterable[Cause]]
StatusCheck = Callable[[Object, Object], Iterable[Cause]]
Default = Callable[[Object], None]
Prepare = Callable[[Object, Object], None]


class Kind(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A built-in kind as data.

    `name_rule` is a function of `names`. `rechecks` selects the metadata checks that the kind's own rules repeat on
    an update. With `generation`, it starts at 1 and increases when one of the `counted` top-level fields changes.
    `first_status` replaces the status of a new object. A status write keeps everything but status and metadata; with
    `status_keeps_labels` also labels, annotations and the like. `fields` are the field selectors, each with the value
    of an object that lacks the field. `defaults` and `rules` have the form of `rules`, `columns` that of `tables`;
    `row` is the function that builds whole rows, if cells cannot be built separately. The other fields are those of
    `Resource`.
    """

    group: str = ""
    version: str = "v1"
    kind: str
    plural: str
    singular: str = ""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    name_rule: str = "subdomain"
    rechecks: metadata.Rechecks = "both"
    generation: bool = False
    counted: tuple[str, ...] = ("spec",)
    status: bool = False
    first_status: dict[str, Any] | None = None
    status_keeps_labels: bool = False
    fields: dict[str, str] = {}
    bookmark: dict[str, Any] = {}
    subresources: tuple[Subresource, ...] = ()
    returns_deleted: bool = False
    asks: bool = False
    conditional_update: bool = False
    create_on_update: bool = False
    defaults: dict[str, Any] = {}
    rules: dict[str, Any] = {}
    columns: tuple[str | Column, ...] | None = None
    row: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic:
    """The code of a kind; each function runs after the corresponding data.

    `fields` returns an object's values of the field selectors `field_names`. `direct` replaces the composed resource.
    """

    default: Default | None = None
    check: Check | None = None
    on_create: Default | None = None
    on_update: Prepare | None = None
    on_status: Prepare | None = None
    check_status: StatusCheck | None = None
    field_names: tuple[str, ...] = ()
    fields: Callable[[Object], dict[str, str]] | None = None
    shape: Shape | None = None
    grace: Callable[[Object], int] | None = None
    direct: Callable[[Resource], Resource] | None = None


def declared() -> list[Kind]:
    """Return the kinds that this server has from the start."""
    text = (files(__package__) / ".." / "data" / "kinds.json").read_bytes()
    return msgspec.json.decode(text, type=list[Kind])


#: Fields that `Resource` takes from the kind unchanged.
_SAME = frozenset(field.name for field in fields(Resource)) - {"singular", "fields"}


def resource(kind: Kind, logic: Logic | None = None) -> Resource:
    """Return the resource of a kind."""
    logic = logic or Logic()
    rules = _ResourceStrategy(kind, logic)
    # Kinds without field selectors of their own accept both names; others only those that apply.
    own = (*kind.fields, *logic.field_names)
    same = {name: getattr(kind, name) for name in kind.__struct_fields__ if name in _SAME}
    made = Resource(
        **same,
        singular=kind.singular or kind.kind.lower(),
        list_kind="" if kind.asks else f"{kind.kind}List",
        default=rules.default if kind.defaults else logic.default or rules.default,
        prepare_create=rules.prepare_create,
        prepare_update=rules.prepare_update,
        validate=rules.check if kind.asks else rules.validate,
        validate_below={"status": rules.validate_status} if kind.status else {},
        field_names=(*_names(kind, own), *own),
        fields=rules.fields,
        shape=logic.shape,
        grace=logic.grace,
    )
    return logic.direct(made) if logic.direct is not None else made


def _names(kind: Kind, own: tuple[str, ...]) -> tuple[str, ...]:
    return ("metadata.name", "metadata.namespace") if kind.namespaced or not own else ("metadata.name",)


class _ResourceStrategy:
    """The functions of a resource."""

    def __init__(self, kind: Kind, logic: Logic) -> None:
        self._kind, self._logic = kind, logic
        self._defaults = compile_defaults(kind.defaults)
        self.check = _composed(kind, logic)
        self._name_rule: Callable[[str], names.Problems] = getattr(names, kind.name_rule)
        self._names = tuple(name.removeprefix("metadata.") for name in _names(kind, (*kind.fields, *logic.field_names)))
        self._fields = [(name, name.split("."), unset) for name, unset in kind.fields.items()]

    def default(self, obj: Object) -> None:
        self._defaults(obj)
        if self._logic.default is not None:
            self._logic.default(obj)

    def prepare_create(self, obj: Object) -> None:
        if self._kind.generation:
            obj["metadata"]["generation"] = 1
        else:
            obj["metadata"].pop("generation", None)
        if self._kind.first_status is not None:
            obj["status"] = deepcopy(self._kind.first_status)
        if self._logic.on_create is not None:
            self._logic.on_create(obj)

    def prepare_update(self, obj: Object, old: Object, subresource: str) -> None:
        kind, logic = self._kind, self._logic
        metadata.carry_over(obj, old)
        if subresource == "status":
            _keep_all_but_status(obj, old, labels=kind.status_keeps_labels)
            if logic.on_status is not None:
                logic.on_status(obj, old)
            return
        if kind.status:
            metadata.restore(obj, old, ("status",))
        if logic.on_update is not None:
            logic.on_update(obj, old)
        if kind.generation and any(obj.get(field) != old.get(field) for field in kind.counted):
            metadata.raise_generation(obj)

    def validate(self, obj: Object, old: Object | None) -> Iterable[Cause]:
        kind = self._kind
        if old is not None:
            changes = metadata.check_update(obj["metadata"], old["metadata"], rechecks=kind.rechecks)
            return chain(changes, self.check(obj, old))
        if kind.rechecks == "neither":
            # For these kinds only the generic layer checks metadata, after their own rules have passed.
            return list(self.check(obj, None)) or metadata.check(
                obj["metadata"], namespaced=kind.namespaced, name_rule=names.path_segment, custom=True
            )
        causes = metadata.check(obj["metadata"], namespaced=kind.namespaced, name_rule=self._name_rule)
        return chain(causes, self.check(obj, None))

    def validate_status(self, obj: Object, old: Object) -> Iterator[Cause]:
        own: metadata.Rechecks = "neither" if self._kind.rechecks == "neither" else "change"
        yield from metadata.check_update(obj["metadata"], old["metadata"], rechecks=own)
        if self._logic.check_status is not None:
            yield from self._logic.check_status(obj, old)

    def fields(self, obj: Object) -> dict[str, str]:
        found = {f"metadata.{name}": obj["metadata"].get(name, "") for name in self._names}
        for name, steps, unset in self._fields:
            value: Any = obj
            for step in steps:
                value = (value or {}).get(step)
            found[name] = unset if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return found | self._logic.fields(obj) if self._logic.fields is not None else found


def _composed(kind: Kind, logic: Logic) -> Check:
    """Return a kind's validation: the rules in its data, then those of its logic."""
    own, more = compile_rules(kind.rules) if kind.rules else None, logic.check
    if own is None:
        return more or (lambda obj, old: ())
    return own if more is None else lambda obj, old: chain(own(obj, old), more(obj, old))


#: Fields that a write to the status subresource sets.
_WRITTEN = frozenset({"metadata", "status", "apiVersion", "kind"})


def _keep_all_but_status(obj: Object, old: Object, *, labels: bool) -> None:
    for key in obj.keys() - old.keys() - _WRITTEN:
        del obj[key]
    obj.update({key: value for key, value in old.items() if key not in _WRITTEN})
    if labels:
        metadata.restore(obj["metadata"], old["metadata"], metadata.USERS)
