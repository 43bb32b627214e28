"""Causes of a 422, with the wording of apimachinery's `field` errors.

There is one constructor per type of field error. Only errors call them, so valid objects cost no formatting. Paths
are texts such as `spec.containers[0].image`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from ..errors import Cause
from . import names

_PERCENT = re.compile(r"[0-9]+%")


def shown(value: object) -> str:
    """Return a value as messages quote it: strings in double quotes, everything else as JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def required(path: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", path, f"Required value: {detail}" if detail else "Required value")


def invalid(path: str, value: object, detail: str) -> Cause:
    return Cause("FieldValueInvalid", path, f"Invalid value: {shown(value)}: {detail}")


def unsupported(path: str, value: object, allowed: Iterable[str]) -> Cause:
    names = ", ".join(f'"{name}"' for name in allowed)
    return Cause("FieldValueNotSupported", path, f"Unsupported value: {shown(value)}: supported values: {names}")


def internal(path: str, detail: str) -> Cause:
    return Cause("InternalError", path, f"Internal error: {detail}")


def forbidden(path: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", path, f"Forbidden: {detail}" if detail else "Forbidden")


def duplicate(path: str, value: object) -> Cause:
    return Cause("FieldValueDuplicate", path, f"Duplicate value: {shown(value)}")


def not_found(path: str, value: object) -> Cause:
    return Cause("FieldValueNotFound", path, f"Not found: {shown(value)}")


def too_long(path: str, limit: int) -> Cause:
    return Cause("FieldValueTooLong", path, f"Too long: may not be more than {limit} bytes")


def too_many(path: str, found: int, limit: int) -> Cause:
    return Cause("FieldValueTooMany", path, f"Too many: {found}: must have at most {limit} items")


def immutable(path: str, value: object) -> Cause:
    return invalid(path, value, "field is immutable")


def check_format(path: str, text: str, rule: Callable[[str], names.Problems]) -> list[Cause]:
    """Check a text by a rule of `names`."""
    return [invalid(path, text, problem) for problem in rule(text)]


def check_name(path: str, name: str, rule: Callable[[str], names.Problems]) -> list[Cause]:
    """Check a required text by a rule of `names`."""
    return check_format(path, name, rule) if name else [required(path)]


def check_range(path: str, value: object, *, low: int, high: int) -> list[Cause]:
    """Check that a value is an integer within [low, high]."""
    if isinstance(value, int) and low <= value <= high:
        return []
    return [invalid(path, value, f"must be between {low} and {high}, inclusive")]


def check_not_negative(path: str, value: int) -> list[Cause]:
    return [invalid(path, value, "must be greater than or equal to 0")] if value < 0 else []


def check_one_of(path: str, value: str | None, allowed: tuple[str, ...]) -> list[Cause]:
    """Check a required value against `allowed`, which errors list in this order."""
    if value in allowed:
        return []
    return [unsupported(path, value, allowed) if value else required(path)]


def check_choice(path: str, value: str | None, allowed: tuple[str, ...]) -> list[Cause]:
    """Check an optional value against `allowed`, which errors list in this order."""
    return [] if value is None or value in allowed else [unsupported(path, value, allowed)]


def check_port(port: int | str, path: str) -> list[Cause]:
    """Check a port number or port name."""
    if isinstance(port, int):
        return check_range(path, port, low=1, high=65535)
    return [invalid(path, port, problem) for problem in names.port_name(port)]


def check_driver_name(driver: str, at: str) -> list[Cause]:
    """Check the name of a CSI driver."""
    if len(driver) > 63:
        return [too_long(at, 63)]
    return [invalid(at, driver, problem) for problem in names.subdomain(driver.lower())]


def check_file_mode(mode: int, at: str) -> list[Cause]:
    detail = "must be a number between 0 and 0777 (octal), both inclusive"
    return [] if 0 <= mode <= 0o777 else [invalid(at, mode, detail)]


def check_no_backsteps(path: str, at: str) -> list[Cause]:
    return [invalid(at, path, "must not contain '..'")] if ".." in path.split("/") else []


def check_descending(path: str, at: str) -> list[Cause]:
    """Check that a path is relative and does not leave its root."""
    if path.startswith("/"):
        return [invalid(at, path, "must be a relative path")]
    return check_no_backsteps(path, at)


def check_int_or_percent(value: int | str, path: str) -> list[Cause]:
    """Check a non-negative integer or a percentage."""
    if isinstance(value, int):
        return check_not_negative(path, value)
    if not _PERCENT.fullmatch(value):
        detail = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
            "regex used for validation is '[0-9]+%')"
        )
        return [invalid(path, value, detail)]
    if int(value[:-1]) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []
