"""Messages about invalid fields, in the words of Kubernetes' `field.Error`.

Each function takes the field's path, and returns or yields its problems with the path as prefix.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from . import names

_MOST_PORT: Final = 65535
_MOST_MODE: Final = 0o777

_encode = msgspec.json.Encoder().encode


def _shown(value: object) -> str:
    return _encode(value).decode()


def required(at: str, detail: str = "") -> str:
    return f"{at}: Required value{': ' if detail else ''}{detail}"


def invalid(at: str, value: object, detail: str) -> str:
    return f"{at}: Invalid value: {_shown(value)}: {detail}"


def forbidden(at: str, detail: str) -> str:
    return f"{at}: Forbidden: {detail}"


def duplicate(at: str, value: object) -> str:
    return f"{at}: Duplicate value: {_shown(value)}"


def not_found(at: str, value: str) -> str:
    return f"{at}: Not found: {_shown(value)}"


def unsupported(at: str, value: str, allowed: Iterable[str]) -> str:
    listed = ", ".join(f'"{each}"' for each in allowed)
    return f"{at}: Unsupported value: {_shown(value)}: supported values: {listed}"


def formatted(at: str, text: str, rule: names.Rule) -> Iterator[str]:
    """Check a text with a rule of `names`."""
    for problem in rule(text):
        yield invalid(at, text, problem)


def named(at: str, text: str, rule: names.Rule) -> Iterator[str]:
    """Check as `formatted`, and that the text is not missing."""
    if text:
        yield from formatted(at, text, rule)
    else:
        yield required(at)


def present(at: str, text: str, detail: str = "") -> Iterator[str]:
    if not text:
        yield required(at, detail)


def one_of(at: str, value: str | None, allowed: Collection[str]) -> Iterator[str]:
    """Check for one of the allowed values; None is valid."""
    if value is not None and value not in allowed:
        yield unsupported(at, value, allowed)


def between(at: str, value: int | None, low: int, high: int) -> Iterator[str]:
    """Check the range of a number; None is valid."""
    if value is not None and not low <= value <= high:
        yield invalid(at, value, f"must be between {low} and {high}, inclusive")


def not_negative(at: str, value: int | None) -> Iterator[str]:
    if value is not None and value < 0:
        yield invalid(at, value, "must be greater than or equal to 0")


def port_number(at: str, number: int) -> Iterator[str]:
    yield from between(at, number, 1, _MOST_PORT)


def port(at: str, given: int | str) -> Iterator[str]:
    """Check a port number or the name of a container's port."""
    if isinstance(given, int):
        yield from port_number(at, given)
    else:
        yield from formatted(at, given, names.port)


def file_mode(at: str, mode: int | None) -> Iterator[str]:
    if mode is not None and not 0 <= mode <= _MOST_MODE:
        yield invalid(at, mode, "must be a number between 0 and 0777 (octal), both inclusive")


def no_backsteps(at: str, path: str) -> Iterator[str]:
    if ".." in path.split("/"):
        yield invalid(at, path, "must not contain '..'")


def descending(at: str, path: str) -> Iterator[str]:
    """Check for a relative path that stays below its start."""
    if path.startswith("/"):
        yield invalid(at, path, "must be a relative path")
    else:
        yield from no_backsteps(at, path)


def label_problems(at: str, given: Mapping[str, str] | None) -> Iterator[str]:
    for key, value in (given or {}).items():
        yield from formatted(at, key, names.qualified)
        yield from formatted(at, value, names.label_value)


def annotation_problems(at: str, given: Mapping[str, str] | None) -> Iterator[str]:
    for key in given or {}:
        for problem in names.qualified(key.lower()):
            yield invalid(at, key, problem)


def more_than_one(at: str, kinds: Iterable[str], detail: str) -> Iterator[str]:
    """Report all but the first of several fields of which only one may be set."""
    for kind in list(kinds)[1:]:
        yield forbidden(f"{at}.{kind}", detail)
