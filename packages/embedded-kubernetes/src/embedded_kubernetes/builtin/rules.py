"""Validation rules that are data (`data/kinds.json`): a list of rules by path.

A path names fields, `spec.drivers[*].name`. `[*]` stands for each item of a list. A name that ends in `?` ends the
path if the field is unset. Causes are in the order of paths, and below `[*]` in the order of items.

A rule is one of: a name; a name with arguments, `["range", 1, 65535]`; an object of rules for the fields below; a
list of rules; `#` and the name of a part (`data/parts.json`). The suffix `@create` limits a rule to new objects.
After a missing required value, the remaining rules of a list are skipped; in `["first", RULES...]`, they are skipped
after the first rule with a cause.

`["when", CONDITION, RULES, OTHERS]` applies the rules if the condition holds, otherwise the optional others. A
condition has fields, with `|` between alternatives, each with its allowed values or whether it is set: `{"kind":
["User", "Group"], "name": true}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from apimachinery.quantity import milli_value

from ..errors import Cause
from ..resource import Object
from ..schema_source import data
from . import causes, names
from .metadata import check_annotations, check_labels
from .paths import EMPTY, Step, steps_of, where_set
from .selectors import check_label_selector


class _New:
    """The stored value of something new: of a new object, or of an item in a list.

    `steps` lead to the value from the item at `place`. `held` caches the values of all items by steps; the values of
    one list share it.
    """

    __slots__ = ("held", "items", "place", "steps")

    def __init__(
        self,
        items: Sequence[Any] = (),
        place: int = 0,
        steps: tuple[str, ...] = (),
        held: dict[tuple[str, ...], list[Any]] | None = None,
    ) -> None:
        self.items, self.place, self.steps, self.held = items, place, steps, {} if held is None else held

    def below(self, name: str) -> _New:
        return _New(self.items, self.place, (*self.steps, name), self.held) if self.items else self

    def earlier(self) -> list[Any]:
        """Return the values of the preceding items in the same place."""
        found = self.held.get(self.steps)
        if found is None:
            found = list(self.items)
            for step in self.steps:
                found = [(each or {}).get(step) for each in found]
            self.held[self.steps] = found
        return found[: self.place]


NEW: Any = _New()
#: Returns the causes of a value at a path; the last argument is the stored value.
Rule = Callable[[str, Any, Any], Iterable[Cause]]
Check = Callable[[Object, Object | None], Iterable[Cause]]


def compile_rules(rules: Mapping[str, Any]) -> Check:
    """Return the check of an object against the stored one, if any."""
    below = _below(rules)
    return lambda obj, old: below("", obj, NEW if old is None else old)


def check_part(name: str, value: Any, at: str) -> Iterable[Cause]:
    """Return the causes of a part of several kinds, by its rules in `data/parts.json`."""
    return _part(name)(at, value, NEW)


def has_rules(part: str) -> bool:
    return part in data("parts.json")


@cache
def _part(name: str) -> Rule:
    return _rule(data("parts.json")[name])


def _below(rules: Mapping[str, Any]) -> Rule:
    entries = [(where_set(path), _reached(steps_of(path), _chain(chain))) for path, chain in rules.items()]

    def check(at: str, value: Any, was: Any) -> list[Cause]:
        found: list[Cause] = []
        for field, rule in entries:
            if field is None or (value and field in value):
                found += rule(at, value, was)
        return found

    return check


def _chain(written: Sequence[Any], *, first: bool = False) -> Rule:
    rules = [_rule(one) for one in written]
    if len(rules) == 1:
        return rules[0]

    def check(at: str, value: Any, was: Any) -> list[Cause]:
        found: list[Cause] = []
        for rule in rules:
            found += rule(at, value, was)
            if found and (first or (found[-1].reason == "FieldValueRequired" and found[-1].field == at)):
                break
        return found

    return check


def _reached(steps: tuple[Step, ...], rule: Rule) -> Rule:
    """Return the rule applied to the values that the steps lead to."""
    if not steps:
        return rule
    name, each, optional = steps[0]
    inner = _reached(steps[1:], rule)

    def check_items(at: str, value: Any, was: Any) -> list[Cause]:
        found: list[Cause] = []
        items: Sequence[Any] = (value.get(name) if value else None) or ()
        held: dict[tuple[str, ...], list[Any]] = {}
        for index, item in enumerate(items):
            found += inner(f"{at}.{name}[{index}]" if at else f"{name}[{index}]", item, _New(items, index, (), held))
        return found

    def check_field(at: str, value: Any, was: Any) -> Iterable[Cause]:
        held = value.get(name) if value else None
        if optional and held in EMPTY:
            return ()
        before = was.below(name) if type(was) is _New else was.get(name) if was else None
        return inner(f"{at}.{name}" if at else name, held, before)

    return check_items if each else check_field


def _rule(written: Any) -> Rule:
    if isinstance(written, dict):
        return _below(written)
    if isinstance(written, str):
        return _part(written[1:]) if written.startswith("#") else _named_rule(written)
    if not written or not isinstance(written[0], str) or written[0].startswith("#"):
        return _chain(written)
    if written[0] == "first":
        return _chain(written[1:], first=True)
    if written[0] == "one kind":
        return _one_kind(*written[1:])
    return _when(*written[1:]) if written[0] == "when" else _named_rule(*written)


def _named_rule(name: str, *arguments: Any) -> Rule:
    name, _, when = name.partition("@")
    rule = RULES[name]
    if not when:
        return (lambda at, value, was: rule(at, value, was, *arguments)) if arguments else rule
    return lambda at, value, was: rule(at, value, was, *arguments) if type(was) is _New else ()


def _when(condition: Mapping[str, Any], then: Sequence[Any], otherwise: Sequence[Any] = ()) -> Rule:
    wanted = [(fields.split("|"), values) for fields, values in condition.items()]
    rules, others = _chain(then), _chain(otherwise)

    def holds(value: Any) -> bool:
        for fields, values in wanted:
            held = [value.get(field) for field in fields]
            if not (any(one in values for one in held) if type(values) is list else any(held) is values):
                return False
        return True

    return lambda at, value, was: (rules if holds(value or {}) else others)(at, value, was)


def _not_negative(at: str, value: Any) -> list[Cause]:
    number = milli_value(value) if isinstance(value, str) else value or 0
    return [causes.invalid(at, value, "must be greater than or equal to 0")] if number < 0 else []


def _fixed(at: str, value: Any, was: Any, detail: str = "") -> list[Cause]:
    """Check an immutable field. `detail` replaces the standard message."""
    if isinstance(was, _New) or (value or None) == (was or None):
        return []
    return [causes.forbidden(at, detail) if detail else causes.immutable(at, value)]


def _exactly_one_of(at: str, value: Any, detail: str, *fields: str) -> list[Cause]:
    count = sum(bool((value or {}).get(field)) for field in fields)
    return [] if count == 1 else [(causes.forbidden if count else causes.required)(at, detail)]


def _needs(at: str, value: Any, field: str, wanted: str, other: str, detail: str) -> list[Cause]:
    """Check that if one field has this value, another is set."""
    missing = value.get(field) == wanted and value.get(other) is None
    return [causes.required(f"{at}.{other}", detail)] if missing else []


def _one_kind(none: str, more: str, kinds: Mapping[str, Sequence[Any]]) -> Rule:
    """Return the rule that exactly one of these fields is set; the first one set is checked by its rules."""
    known = {kind: _chain(rules) for kind, rules in kinds.items()}

    def check(at: str, value: Any, was: Any) -> list[Cause]:
        given = [kind for kind in known if value.get(kind) is not None]
        if not given:
            return [causes.required(at, none)]
        first = given[0]
        found = list(known[first](f"{at}.{first}", value[first], NEW))
        return found + [causes.forbidden(f"{at}.{kind}", more) for kind in given[1:]]

    return check


def _once_as(at: str, value: Any, was: Any, fields: tuple[str, ...]) -> list[Cause]:
    """Check for duplicates in these fields, and quote only them."""
    held = {field: value.get(field) for field in fields}
    again = any(held == {field: one.get(field) for field in fields} for one in was.earlier())
    return [causes.duplicate(at, held)] if again else []


def _named(rule: Callable[[str], names.Problems]) -> Callable[..., list[Cause]]:
    return lambda at, value, was: causes.check_format(at, value or "", rule)


#: The rules by name. A rule takes the path, the value, the stored value and its arguments. Other modules add theirs.
RULES: dict[str, Callable[..., Iterable[Cause]]] = {
    "required": lambda at, value, was, detail="": [] if value else [causes.required(at, detail)],
    "present": lambda at, value, was, detail="": [] if value is not None else [causes.required(at, detail)],
    "one of": lambda at, value, was, *allowed: causes.check_one_of(at, value, allowed),
    "each one of": lambda at, value, was, *allowed: [
        cause for one in value or () for cause in causes.check_one_of(at, one, allowed)
    ],
    "supported": lambda at, value, was, *allowed: (
        [] if value in allowed else [causes.unsupported(at, "" if value is None else value, allowed)]
    ),
    "no empty name": lambda at, value, was: (
        [] if "" not in (value or {}) else [causes.invalid(at, "", "field can not be empty.")]
    ),
    "range": lambda at, value, was, low, high: causes.check_range(at, value or 0, low=low, high=high),
    "not negative": lambda at, value, was: _not_negative(at, value),
    "amount": lambda at, value, was, detail: [] if milli_value(value) >= 0 else [causes.forbidden(at, detail)],
    "at least": lambda at, value, was, low, detail: (
        [] if (value or 0) >= low else [causes.invalid(at, value or 0, detail)]
    ),
    # The number of items in a list.
    "at most": lambda at, value, was, most, detail: (
        [] if len(value or ()) <= most else [causes.invalid(at, value, detail)]
    ),
    "together at most": lambda at, value, was, most, detail: (
        [] if len(" ".join(value or ())) <= most else [causes.invalid(at, value, detail)]
    ),
    "too many": lambda at, value, was, most: (
        [] if len(value or ()) <= most else [causes.too_many(at, len(value or ()), most)]
    ),
    # One or more DNS subdomains, separated by slashes (KEP-4381).
    "pool name": lambda at, value, was: [
        causes.invalid(at, value, problem) for part in (value or "").split("/") for problem in names.subdomain(part)
    ],
    "int or percent": lambda at, value, was: causes.check_int_or_percent(value, at),
    "absolute": lambda at, value, was: (
        [] if value.startswith("/") else [causes.invalid(at, value, "must be an absolute path")]
    ),
    "single source": lambda at, value, was: (
        [] if len(value) <= 1 else [causes.forbidden(at, "may not specify more than 1 volume type")]
    ),
    "file mode": lambda at, value, was: causes.check_file_mode(value, at),
    "no backsteps": lambda at, value, was: causes.check_no_backsteps(value, at),
    "descending": lambda at, value, was: causes.check_descending(value, at),
    "labels": lambda at, value, was: check_labels(value or {}, at),
    "annotations": lambda at, value, was: check_annotations(value or {}, at),
    "environment variable": _named(names.env_name),
    "fixed": _fixed,
    "any of": lambda at, value, was, detail, *fields: (
        [] if any(value.get(field) for field in fields) else [causes.required(at, detail)]
    ),
    "exactly one of": lambda at, value, was, *given: _exactly_one_of(at, value, *given),
    "needs": lambda at, value, was, *given: _needs(at, value, *given),
    # Uniqueness among the items of a list.
    "once": lambda at, value, was: [causes.duplicate(at, value)] if value in was.earlier() else [],
    # A container's security context.
    "no administrator": lambda at, value, was, detail: [
        causes.invalid(at, value, detail)
        for capability in (value.get("capabilities") or {}).get("add") or ()
        if capability == "CAP_SYS_ADMIN"
    ],
    "is": lambda at, value, was, wanted, detail: [] if value == wanted else [causes.invalid(at, value, detail)],
    # A field of each item of a list; the path has no index.
    "each": lambda at, value, was, field, pattern, detail: [
        causes.invalid(at, item.get(field, ""), detail)
        for item in value or ()
        if not re.fullmatch(pattern, item.get(field, ""))
    ],
    "port": lambda at, value, was: causes.check_port(value or 0, at),
    "label selector": lambda at, value, was: check_label_selector(value, at),
    "required of several": lambda at, value, was: [causes.required(at)] if not value and len(was.items) > 1 else [],
    "external name": lambda at, value, was: causes.check_format(at, (value or "").rstrip("."), names.subdomain),
    # Uniqueness of several fields together.
    "once by": lambda at, value, was, *fields: (
        [causes.duplicate(at, value)]
        if any(all((one.get(key) or "") == (value.get(key) or "") for key in fields) for one in was.earlier())
        else []
    ),
    "once as": lambda at, value, was, *fields: _once_as(at, value, was, fields),
    "driver name": lambda at, value, was: causes.check_driver_name(value or "", at),
    "choice": lambda at, value, was, *allowed: causes.check_choice(at, value, allowed),
    "invalid": lambda at, value, was, detail, unset=None: [
        causes.invalid(at, unset if value is None else value, detail)
    ],
    "invalid as": lambda at, value, was, shown, detail: [causes.invalid(at, shown, detail)],
    "forbidden": lambda at, value, was, detail: [causes.forbidden(at, detail)],
    "missing": lambda at, value, was, detail: [causes.required(at, detail)],
    "too long": lambda at, value, was, most: [causes.too_long(at, most)] if len(value) > most else [],
    "json object": lambda at, value, was: (
        [] if isinstance(value, dict) else [causes.invalid(at, "<value omitted>", "must be a valid JSON object")]
    ),
    "matches": lambda at, value, was, pattern, most, detail: (
        [] if len(value) <= most and re.fullmatch(pattern, value) else [causes.invalid(at, value, detail)]
    ),
    "unset": lambda at, value, was, detail: [] if value is None else [causes.invalid(at, value, detail)],
    "empty": lambda at, value, was, detail: [causes.invalid(at, value, detail)] if value else [],
    "not allowed": lambda at, value, was, detail: [causes.forbidden(at, detail)] if value else [],
    "qualified in any case": _named(lambda text: names.qualified(text.lower())),
    "label 1035 in any case": _named(lambda text: names.label_1035(text.lower())),
    **{
        name.replace("_", " "): _named(getattr(names, name))
        for name in (
            *("subdomain", "label", "label_1035", "label_value", "qualified", "path_segment", "config_key"),
            *("port_name", "c_identifier", "ip", "cidr"),
        )
    },
}
