"""Field paths in the checks and defaults of kinds. The module `rules` describes their syntax."""

from __future__ import annotations

from typing import NamedTuple

#: Values that count as unset.
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
    """Return the path's first field if nothing can exist at the path without it, so that most objects skip the path."""
    first, *_ = steps_of(path)
    return first.name if first.each or first.optional else None
