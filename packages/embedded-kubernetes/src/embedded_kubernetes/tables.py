"""Tables: the rows and columns of `kubectl get`, computed by the server (meta.k8s.io Table).

Built-in kinds have the columns of kube-apiserver's internal printers, as data (`data/kinds.json`); custom kinds those
of their definition. Descriptions come from the API's field descriptions.

A built-in kind's cell is a JSONPath, optionally with a filter after `|`, or the name of a function; both may have an
argument after a space: `.spec.clusterIP | or <none>`, `subjects User` (`cells`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from . import nesting, schema_source
from .cells import CELLS, FILTERS, event_row, pod_row
from .jsonpath import compile_path
from .printing import age
from .resource import Column, Object, Resource
from .times import TimeFormatError, parse

_CREATED = "@meta.v1.ObjectMeta.creationTimestamp"
#: Columns that many kinds have.
_COMMON = {
    "name": Column("Name", "string", "@meta.v1.ObjectMeta.name", ".metadata.name", format="name"),
    "age": Column("Age", "string", _CREATED, ".metadata.creationTimestamp | age"),
    "created": Column("Created At", "string", _CREATED, ".metadata.creationTimestamp"),
}
_DATE = Column("Created At", "date", _CREATED, ".metadata.creationTimestamp")
_CUSTOM_AGE = Column("Age", "date", _CREATED, ".metadata.creationTimestamp")

Row = Callable[[Object, str], tuple[list[Any], list[Object]]]
Cell = Callable[[Object, str], Any]

_ROWS: dict[str, Row] = {"pod": pod_row, "event": event_row}
#: The values of cells for unset fields, by type of the column.
_UNSET = {"string": "", "integer": 0, "boolean": False}


def table(resource: Resource, objs: Iterable[Object], *, meta: Object, include: str, now: str) -> Object:
    """Return a Table of `objs` in order. `meta` is the list's metadata, `now` the current time in RFC 3339.

    `include` selects what each row has of its object: None, Metadata or Object.
    """
    columns, row_of = _layout(resource)
    rows = []
    for obj in objs:
        cells, conditions = row_of(obj, now)
        row: Object = {"cells": cells}
        if conditions:
            row["conditions"] = conditions
        row["object"] = _carried(obj, include)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        # Decoded on each call, because the caller may change it.
        "columnDefinitions": nesting.loads(_definitions(columns)),
        "rows": rows,
    }


def _carried(obj: Object, include: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def columns_of(resource: Resource) -> tuple[Column, ...]:
    """Return the columns of a kind."""
    if resource.custom:
        return (_COMMON["name"], *(one for one in resource.columns or (_CUSTOM_AGE,) if isinstance(one, Column)))
    if resource.columns is None:
        return (_COMMON["name"], _DATE)
    return tuple(_COMMON[one] if isinstance(one, str) else one for one in resource.columns)


def documented(description: str) -> str:
    """Return the text of a description, which may refer to an API field's; empty if that has none."""
    if not description.startswith("@"):
        return description
    model, field = description[1:].rsplit(".", 1)
    return schema_source.descriptions(model).get(field, "")


@lru_cache(maxsize=256)
def _definitions(columns: tuple[Column, ...]) -> bytes:
    return nesting.dumps(
        [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": documented(column.description),
                "priority": column.priority,
            }
            for column in columns
        ]
    )


def _layout(resource: Resource) -> tuple[tuple[Column, ...], Row]:
    columns = columns_of(resource)
    if resource.custom:
        return columns, _row(tuple(_custom_cell(column.cell, column.type) for column in columns))
    return columns, _ROWS[resource.row] if resource.row else _row(_cells(columns))


def _row(cells: tuple[Cell, ...]) -> Row:
    return lambda obj, now: ([cell(obj, now) for cell in cells], [])


@lru_cache(maxsize=256)
def _cells(columns: tuple[Column, ...]) -> tuple[Cell, ...]:
    return tuple(_cell(column) for column in columns)


def _cell(column: Column) -> Cell:
    if not column.cell.startswith("."):
        name, _, argument = column.cell.partition(" ")
        function = CELLS[name]
        return (lambda obj, now: function(obj, argument)) if argument else function
    path, _, written = column.cell.partition(" | ")
    find, several, unset = compile_path(path), "*" in path, _UNSET.get(column.type, "")
    name, _, argument = written.partition(" ")
    shown = FILTERS[name] if name else None

    def cell(obj: Object, now: str) -> Any:
        found = find(obj)
        value = found if several else found[0] if found else None
        if shown is not None:
            return shown(value, argument, now)
        return unset if value is None else value

    return cell


def _custom_cell(path: str, kind: str) -> Cell:
    find = compile_path(path)

    def cell(obj: Object, now: str) -> Any:
        found = find(obj)
        return _custom_value(found[0], kind, now) if found else None

    return cell


def _custom_value(value: Any, kind: str, now: str) -> Any:
    """Return a JSON value in the form of a column's type; None for a value of another type."""
    if kind == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else nesting.dumps(value).decode()
    if kind == "date":
        if not isinstance(value, str):
            return None
        try:
            parse(value)
        except TimeFormatError:
            return "<invalid>"
        return age(value, now)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if kind == "integer" else value
