"""Checks and defaults that a kind states as data (`data/kinds.json`): by path, a value or a list of rules.

A path names fields, `spec.drivers[*].name`; `[*]` is each item of a list, and a name that ends in `?` ends the path
where the field is not set. Causes come in the order of the paths, and below `[*]` item by item. A rule is a name, a
name with arguments (`["range", 1, 65535]`), an object of rules for the fields below, or `#` and the name of a part
One with `@create` after its name holds for new objects only. Where a required value is missing, the rules after that
are not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cache, partial
from typing import Any, NamedTuple

from agent_scheduler.objects.quantity import milli_value

from ..errors import Cause
from ..resource import Object
from ..schema_source import data
from . import causes, names
from .metadata import check_annotations, check_labels
from .selectors import check_label_selector

#: What stands for the stored value where there is none: of a new object, and of what lies in a list.
NEW: Any = object()
#: The causes of a value at a path, which was stored as the last argument.
Rule = Callable[[str, Any, Any], Iterable[Cause]]
Check = Callable[[Object, Object | None], Iterable[Cause]]
_EMPTY = (None, "")


class _Step(NamedTuple):
    name: str
    each: bool
    optional: bool


def _steps(path: str) -> tuple[_Step, ...]:
    return tuple(
        _Step(part.rstrip("?").removesuffix("[*]"), part.endswith("[*]"), part.endswith("?"))
        for part in path.split(".")
    )


def compile_defaults(defaults: Mapping[str, Any]) -> Callable[[Object], None]:
    """A function that fills in what an object leaves out, in place; what lies on the way is made."""
    entries = [(_steps(path), value) for path, value in defaults.items()]

    def fill(obj: Object) -> None:
        for steps, value in entries:
            _fill(obj, steps, value)

    return fill


def _fill(node: Any, steps: tuple[_Step, ...], value: Any) -> None:
    step, rest = steps[0], steps[1:]
    if not rest:
        if node.get(step.name) in _EMPTY:
            node[step.name] = deepcopy(value)
    elif step.each:
        for item in node.get(step.name) or ():
            _fill(item, rest, value)
    elif not step.optional:
        _fill(node.setdefault(step.name, {}), rest, value)
    elif node.get(step.name) is not None:
        _fill(node[step.name], rest, value)


def compile_rules(rules: Mapping[str, Any]) -> Check:
    """The check of an object, against the stored one if there is one."""
    below = _below(rules)
    return lambda obj, old: below("", obj, NEW if old is None else old)


def check_part(name: str, value: Any, at: str) -> Iterable[Cause]:
    """The causes of a part that several kinds hold, by its rules in `data/parts.json`."""
    return _part(name)(at, value, NEW)


def has_rules(part: str) -> bool:
    return part in data("parts.json")


@cache
def _part(name: str) -> Rule:
    return _below(data("parts.json")[name])


def _below(rules: Mapping[str, Any]) -> Rule:
    entries = [(_steps(path), [_rule(one) for one in chain]) for path, chain in rules.items()]

    def check(at: str, value: Any, was: Any) -> list[Cause]:
        found: list[Cause] = []
        for steps, chain in entries:
            for path, inner, before in _values(at, value, was, steps):
                for rule in chain:
                    problems = list(rule(path, inner, before))
                    found += problems
                    if problems and problems[-1].reason == "FieldValueRequired":
                        break
        return found

    return check


def _values(at: str, value: Any, was: Any, steps: tuple[_Step, ...]) -> Iterator[tuple[str, Any, Any]]:
    if not steps:
        yield at, value, was
        return
    step, rest = steps[0], steps[1:]
    inner = value.get(step.name) if value else None
    at = f"{at}.{step.name}" if at else step.name
    if step.each:
        for index, item in enumerate(inner or ()):
            yield from _values(f"{at}[{index}]", item, NEW, rest)
    elif not step.optional or inner not in _EMPTY:
        before = NEW if was is NEW else was.get(step.name) if was else None
        yield from _values(at, inner, before, rest)


def _rule(written: Any) -> Rule:
    if isinstance(written, dict):
        return _below(written)
    name, *arguments = [written] if isinstance(written, str) else written
    if name.startswith("#"):
        return _part(name[1:])
    name, _, when = name.partition("@")
    rule: Rule = partial(_RULES[name], *arguments)
    return (lambda at, value, was: rule(at, value, was) if was is NEW else []) if when else rule


def _required(*given: Any) -> list[Cause]:
    *detail, at, value, _ = given
    return [] if value else [causes.required(at, *detail)]


def _present(*given: Any) -> list[Cause]:
    *detail, at, value, _ = given
    return [causes.required(at, *detail)] if value is None else []


def _one_of(*given: Any) -> list[Cause]:
    *allowed, at, value, _ = given
    return causes.check_one_of(at, value, tuple(allowed))


def _range(low: int, high: int, at: str, value: Any, was: Any) -> list[Cause]:
    return causes.check_range(at, value or 0, low=low, high=high)


def _not_negative(at: str, value: Any, was: Any) -> list[Cause]:
    number = milli_value(value) if isinstance(value, str) else value or 0
    return [causes.invalid(at, value, "must be greater than or equal to 0")] if number < 0 else []


def _amount(detail: str, at: str, value: Any, was: Any) -> list[Cause]:
    return [causes.forbidden(at, detail)] if milli_value(value) < 0 else []


def _at_least(low: int, detail: str, at: str, value: Any, was: Any) -> list[Cause]:
    return [causes.invalid(at, value or 0, detail)] if (value or 0) < low else []


def _too_many(most: int, at: str, value: Any, was: Any) -> list[Cause]:
    return [causes.too_many(at, len(value), most)] if len(value or ()) > most else []


def _supported(*given: Any) -> list[Cause]:
    *allowed, at, value, _ = given
    return [] if value in allowed else [causes.unsupported(at, value, allowed)]


def _pool_name(at: str, value: Any, was: Any) -> list[Cause]:
    """One or more DNS subdomains, with slashes between them (KEP-4381)."""
    parts = (value or "").split("/")
    return [causes.invalid(at, value, problem) for part in parts for problem in names.subdomain(part)]


def _at_most(most: int, detail: str, at: str, value: Any, was: Any) -> list[Cause]:
    """How many items a list has."""
    return [causes.invalid(at, value, detail)] if len(value or ()) > most else []


def _absolute(at: str, value: Any, was: Any) -> list[Cause]:
    return [] if value.startswith("/") else [causes.invalid(at, value, "must be an absolute path")]


def _single_source(at: str, value: Any, was: Any) -> list[Cause]:
    return [causes.forbidden(at, "may not specify more than 1 volume type")] if len(value) > 1 else []


def _fixed(*given: Any) -> list[Cause]:
    """What an update may not change. With a text, that is what is said."""
    *detail, at, value, was = given
    if was is NEW or (value or None) == (was or None):
        return []
    return [causes.forbidden(at, *detail) if detail else causes.immutable(at, value)]


def _any_of(*given: Any) -> list[Cause]:
    detail, *fields, at, value, _ = given
    return [] if any(value.get(field) for field in fields) else [causes.required(at, detail)]


def _exactly_one_of(*given: Any) -> list[Cause]:
    detail, *fields, at, value, _ = given
    count = sum(bool((value or {}).get(field)) for field in fields)
    return [] if count == 1 else [(causes.forbidden if count else causes.required)(at, detail)]


def _needs(field: str, wanted: str, other: str, detail: str, at: str, value: Any, was: Any) -> list[Cause]:
    """With this value in one field, another has to be set."""
    missing = value.get(field) == wanted and value.get(other) is None
    return [causes.required(f"{at}.{other}", detail)] if missing else []


def _unique(field: str, at: str, value: Any, was: Any) -> list[Cause]:
    """Of the items of a list no two have the same value in a field."""
    held = [item.get(field) for item in value or ()]
    return [
        causes.duplicate(f"{at}[{index}].{field}", one)
        for index, one in enumerate(held)
        if one in held[:index]
    ]


def _named(rule: Callable[[str], names.Problems]) -> Rule:
    return lambda at, value, was: [causes.invalid(at, value or "", problem) for problem in rule(value or "")]


def _each_one_of(*given: Any) -> list[Cause]:
    *allowed, at, value, was = given
    return [cause for one in value or () for cause in _one_of(*allowed, at, one, was)]


def _no_empty_name(at: str, value: Any, was: Any) -> list[Cause]:
    return [causes.invalid(at, "", "field can not be empty.")] if "" in (value or {}) else []


_RULES: dict[str, Callable[..., Iterable[Cause]]] = {
    "required": _required,
    "present": _present,
    "one of": _one_of,
    "each one of": _each_one_of,
    "no empty name": _no_empty_name,
    "range": _range,
    "not negative": _not_negative,
    "amount": _amount,
    "at least": _at_least,
    "at most": _at_most,
    "too many": _too_many,
    "supported": _supported,
    "pool name": _pool_name,
    "int or percent": lambda at, value, was: causes.check_int_or_percent(value, at),
    "absolute": _absolute,
    "single source": _single_source,
    "file mode": lambda at, value, was: causes.check_file_mode(value, at),
    "no backsteps": lambda at, value, was: causes.check_no_backsteps(value, at),
    "descending": lambda at, value, was: causes.check_descending(value, at),
    "labels": lambda at, value, was: check_labels(value or {}, at),
    "annotations": lambda at, value, was: check_annotations(value or {}, at),
    "environment variable": _named(names.env_name),
    "fixed": _fixed,
    "any of": _any_of,
    "exactly one of": _exactly_one_of,
    "needs": _needs,
    "unique": _unique,
    "port": lambda at, value, was: causes.check_port(value, at),
    "label selector": lambda at, value, was: check_label_selector(value, at),
    "driver name": lambda at, value, was: causes.check_driver_name(value or "", at),
    "subdomain": _named(names.subdomain),
    "label": _named(names.label),
    "qualified": _named(names.qualified),
    "qualified in any case": _named(lambda text: names.qualified(text.lower())),
    "ip": _named(names.ip),
    "label 1035": _named(names.label_1035),
    "label 1035 in any case": _named(lambda text: names.label_1035(text.lower())),
}
