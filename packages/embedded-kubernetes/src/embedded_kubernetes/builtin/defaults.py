"""Defaults of a kind that are data (`data/kinds.json`): values by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from ..resource import Object
from ..schema_source import data
from .paths import EMPTY, Step, steps_of, where_set


def compile_defaults(defaults: Mapping[str, Any]) -> Callable[[Object], None]:
    """Return a function that sets absent fields in place, and creates the objects on their paths."""
    entries = [(where_set(path), steps_of(path), value) for path, value in defaults.items()]

    def fill(obj: Object) -> None:
        for field, steps, value in entries:
            if field is None or field in obj:
                _fill(obj, steps, value)

    return fill


def default_part(name: str, value: Any) -> None:
    """Set absent fields of a part by its defaults in `data/defaults.json`."""
    _part_defaults(name)(value)


@cache
def _part_defaults(name: str) -> Callable[[Object], None]:
    return compile_defaults(data("defaults.json")[name])


def _fill(node: Any, steps: tuple[Step, ...], value: Any) -> None:
    step, rest = steps[0], steps[1:]
    if not rest:
        if node.get(step.name) in EMPTY:
            node[step.name] = deepcopy(value)
    elif step.each:
        for item in node.get(step.name) or ():
            _fill(item, rest, value)
    elif not step.optional:
        _fill(node.setdefault(step.name, {}), rest, value)
    elif node.get(step.name) is not None:
        _fill(node[step.name], rest, value)
