"""Named string formats for CEL: `format.dns1123Label().validate(text)`.

Follows `Format` in k8s.io/apiserver/pkg/cel/library. A format is represented by bytes, a letter and the
format's name, because cel-expr-python has no user-defined types.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import date
from functools import lru_cache

from apimachinery.celtypes import Function

from .library import url_problem

_time = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))", re.IGNORECASE)
_uuid = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2000-01-01")


def _is_datetime(text: str) -> bool:
    day, _, time = text.lower().partition("t")
    match = _time.fullmatch(time)
    return bool(_is_date(day) and match and match[1] <= "23" and match[2] <= "59" and match[3] <= "59")


def _is_base64(text: str) -> bool:
    try:
        return bool(text) and bool(b64decode(text, validate=True) or True)
    except ValueError:
        return False


def _rule(holds: Callable[[str], object], problem: str) -> Callable[[str], Sequence[str]]:
    return lambda text: () if holds(text) else (problem,)


def _prefix(rule: Callable[[str], Sequence[str]]) -> Callable[[str], Sequence[str]]:
    """Return the rule for a `generateName` prefix, which may end in a dash."""
    return lambda text: rule(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _uri(text: str) -> Sequence[str]:
    problem = url_problem(text)
    return (problem,) if problem else ()


#: The names of the formats; `_rules` implements them.
NAMES = (
    *("dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "labelValue"),
    *("dns1123LabelPrefix", "dns1123SubdomainPrefix", "dns1035LabelPrefix"),
    *("uri", "uuid", "byte", "date", "datetime"),
)


@lru_cache(maxsize=1)
def _rules() -> dict[str, Callable[[str], Sequence[str]]]:
    # Imported here because the validation of built-in kinds imports `cel`.
    from ..builtin import names

    return {
        "dns1123Label": names.label,
        "dns1123Subdomain": names.subdomain,
        "dns1035Label": names.label_1035,
        "qualifiedName": names.qualified,
        "labelValue": names.label_value,
        "dns1123LabelPrefix": _prefix(names.label),
        "dns1123SubdomainPrefix": _prefix(names.subdomain),
        "dns1035LabelPrefix": _prefix(names.label_1035),
        "uri": _uri,
        "uuid": _rule(_uuid.fullmatch, "does not match the UUID format"),
        "byte": _rule(_is_base64, "invalid base64"),
        "date": _rule(_is_date, "invalid date"),
        "datetime": _rule(_is_datetime, "invalid datetime"),
    }


def _value(name: str) -> bytes:
    return b"f%s" % name.encode()


def _named(name: str) -> list[bytes]:
    """Return an optional value as a list of at most one item, which is the form that `macros` expects."""
    return [_value(name)] if name in NAMES else []


def _validated(value: bytes, text: str) -> list[list[str]]:
    if value[:1] != b"f":
        raise ValueError("no such overload")
    problems = _rules()[value[1:].decode()](text)
    return [list(problems)] if problems else []


def _of(name: str) -> Callable[[], bytes]:
    return lambda: _value(name)


FUNCTIONS = (
    *(Function(f"format.{name}", (), "opaque", _of(name), is_method=False) for name in NAMES),
    Function("format.named", ("string",), "list", _named, is_method=False),
    Function("validate", ("opaque", "string"), "list", _validated),
)
