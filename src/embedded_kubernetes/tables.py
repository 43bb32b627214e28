"""Tables: the rows and columns that `kubectl get` prints, made by the server (meta.k8s.io Table).

Built-in kinds have the columns of kube-apiserver's internal printers (`table_pods`, `table_kinds`), custom kinds
those of their definition. Descriptions come from the API's own field descriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import orjson

from .jsonpath import compile_path
from .printing import Column, Printer, age, documented
from .resource import Object, Resource
from .table_kinds import PRINTERS
from .times import TimeFormatError, parse

_NAME = Column("Name", "string", "@meta.v1.ObjectMeta.name", format="name")
_CREATED = Column("Created At", "date", "@meta.v1.ObjectMeta.creationTimestamp")
_AGE = Column("Age", "date", "@meta.v1.ObjectMeta.creationTimestamp")

Row = Callable[[Object, str], tuple[list[Any], list[Object]]]


def table(resource: Resource, objs: Iterable[Object], *, meta: Object, include: str, now: str) -> Object:
    """A Table of `objs`, in order. `meta` is the list's metadata, `now` the present in RFC 3339.

    `include` says what each row carries of its object: None, Metadata or Object.
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
        "columnDefinitions": columns,
        "rows": rows,
    }


def _carried(obj: Object, include: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _layout(resource: Resource) -> tuple[list[Object], Row]:
    if resource.custom:
        return _custom_layout(resource)
    printer = PRINTERS.get((resource.group, resource.kind), _DEFAULT)
    return _definitions(printer), printer.row


@lru_cache(maxsize=256)
def _definitions_of(columns: tuple[Column, ...]) -> bytes:
    return orjson.dumps(
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


def _definitions(printer: Printer) -> list[Object]:
    # Decoded anew: the caller may change what it gets.
    definitions: list[Object] = orjson.loads(_definitions_of(printer.columns))
    return definitions


def _default_row(obj: Object, now: str) -> tuple[list[Any], list[Object]]:
    metadata = obj["metadata"]
    return [metadata["name"], metadata.get("creationTimestamp", "")], []


_DEFAULT = Printer((_NAME, _CREATED), _default_row)


def _custom_layout(resource: Resource) -> tuple[list[Object], Row]:
    columns: list[Column] = [_NAME]
    cells: list[Callable[[Object, str], Any]] = [lambda obj, now: obj["metadata"]["name"]]
    for column in resource.columns:
        described = column.description or (
            f"Custom resource definition column (in JSONPath format): {column.path}"
        )
        columns.append(
            Column(column.name, column.type, described, priority=column.priority, format=column.format)
        )
        cells.append(_custom_cell(column.path, column.type))
    if not resource.columns:
        columns.append(_AGE)
        cells.append(_custom_cell(".metadata.creationTimestamp", "date"))

    def row(obj: Object, now: str) -> tuple[list[Any], list[Object]]:
        return [cell(obj, now) for cell in cells], []

    return _definitions(Printer(tuple(columns), row)), row


def _custom_cell(path: str, kind: str) -> Callable[[Object, str], Any]:
    find = compile_path(path)

    def cell(obj: Object, now: str) -> Any:
        found = find(obj)
        return _custom_value(found[0], kind, now) if found else None

    return cell


def _custom_value(value: Any, kind: str, now: str) -> Any:
    """What a column of a type shows of a JSON value; None where the value is of another type."""
    if kind == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else orjson.dumps(value).decode()
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
