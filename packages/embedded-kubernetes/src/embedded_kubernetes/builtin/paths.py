"""Paths to fields, as kinds state checks and defaults by them: `rules` has how they are written."""

from __future__ import annotations

from typing import NamedTuple

#: A field that has one of these is not set.
EMPTY = (None, "")


class Step(NamedTuple):
    name: str
    each: bool
    optional: bool


def steps_of(path: str) -> tuple[Step, ...]:
    return (
        ()
        if not path
        else tuple(
            Step(part.rstrip("?").removesuffix("[*]"), part.endswith("[*]"), part.endswith("?"))
            for part in path.split(".")
        )
    )


def where_set(path: str) -> str | None:
    """The field without which nothing lies at a path, if its first is one: most objects have few of those."""
    first, *_ = steps_of(path)
    return first.name if first.each or first.optional else None
