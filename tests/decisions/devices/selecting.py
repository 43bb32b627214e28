"""A plain implementation of CEL for devices, with the part of the language that recordings and random cases use.

It shares nothing with the product. An unknown construct is an error of the test, never an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

Env = Mapping[str, Any]
Eval = Callable[[Env], Any]

_SUFFIXES = {
    "": Fraction(1),
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", 1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}
_token = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+!<>?:.,()\[\]]))"
)


class SelectorError(Exception):
    """An expression cannot be evaluated; the text is the API's: `no such key: k`."""


class Quantity(NamedTuple):
    value: Fraction


class Version(NamedTuple):
    parts: tuple[int, int, int]
    before: str


class Nothing(NamedTuple):
    """An optional value that is missing."""


class Something(NamedTuple):
    value: Any


def quantity(text: object) -> Quantity:
    match = re.fullmatch(r"([+-]?\d+(?:\.\d+)?)([A-Za-z]*)", str(text))
    assert match is not None, text
    return Quantity(Fraction(match[1]) * _SUFFIXES[match[2]])


def version(text: str) -> Version:
    number, _, before = text.partition("+")[0].partition("-")
    major, minor, patch = number.split(".")
    return Version((int(major), int(minor), int(patch)), before)


def matches(expression: str, driver: str, device: Mapping[str, Any]) -> bool:
    """Return whether the device matches. Raise `SelectorError`."""
    found = _compiled(expression)({"device": _variables(driver, device)})
    if not isinstance(found, bool):
        raise SelectorError(f"{expression} is no yes or no")
    return found


class _Domains(dict[str, dict[str, Any]]):
    """Attributes by domain. A domain without attributes is empty, and not among its domains."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


def _variables(driver: str, device: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"attributes": _Domains(), "capacity": _Domains()}
    for part, domains in said.items():
        for name, each in (device.get(part) or {}).items():
            domain, identifier = split(name, driver)
            ((kind, value),) = [(kind, value) for kind, value in each.items() if kind != "requestPolicy"]
            read = {"version": version, "value": quantity}.get(kind)
            domains.setdefault(domain, {})[identifier] = value if read is None else read(value)
    shared = bool(device.get("allowMultipleAllocations"))
    return {"driver": driver, **said, "allowMultipleAllocations": shared}


def split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


# ---- the language


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> Eval:
    parser = _Parser(expression)
    found = parser.ternary()
    assert not parser.left, f"{expression}: {parser.left} is not understood"
    return found


class _Parser:
    def __init__(self, expression: str) -> None:
        self.left: list[tuple[str, str]] = []
        at = 0
        while at < len(expression.rstrip()):
            match = _token.match(expression, at)
            assert match is not None, f"{expression[at:]!r} is not understood"
            self.left.append((match.lastgroup or "", match[match.lastgroup or 0]))
            at = match.end()

    def _takes(self, *signs: str) -> str:
        """Consume and return the next token if it is one of these; else return an empty text."""
        is_next = bool(self.left) and self.left[0][0] != "text" and self.left[0][1] in signs
        return self.left.pop(0)[1] if is_next else ""

    def _needs(self, sign: str) -> None:
        assert self._takes(sign), f"{sign} expected, {self.left[:1]} found"

    def ternary(self) -> Eval:
        condition = self._or()
        if not self._takes("?"):
            return condition
        yes = self.ternary()
        self._needs(":")
        no = self.ternary()
        return lambda env: yes(env) if condition(env) else no(env)

    def _or(self) -> Eval:
        found = self._and()
        while self._takes("||"):
            found = _either(found, self._and(), True)
        return found

    def _and(self) -> Eval:
        found = self._compared()
        while self._takes("&&"):
            found = _either(found, self._compared(), False)
        return found

    def _compared(self) -> Eval:
        left = self._unary()
        sign = self._takes(*_COMPARED)
        if not sign:
            return left
        right, compare = self._unary(), _COMPARED[sign]
        return lambda env: compare(left(env), right(env))

    def _unary(self) -> Eval:
        if not self._takes("!"):
            return self._postfix()
        inner = self._unary()
        return lambda env: not inner(env)

    def _postfix(self) -> Eval:
        found = self._primary()
        while sign := self._takes(".", ".?", "[", "[?"):
            if sign in ("[", "[?"):
                key = self.ternary()
                self._needs("]")
            else:
                name = self.left.pop(0)[1]
                if self._takes("("):
                    found = _called(name, found, self._listed(")"))
                    continue
                key = _always(name)
            found = _indexed(found, key, optional="?" in sign)
        return found

    def _primary(self) -> Eval:
        kind, text = self.left.pop(0)
        if kind == "number":
            return _always(float(text) if "." in text else int(text))
        if kind == "text":
            return _always(text[1:-1])
        if text == "(":
            (inner,) = self._listed(")")
            return inner
        if text == "[":
            items = self._listed("]")
            return lambda env: [item(env) for item in items]
        if text in ("true", "false"):
            return _always(text == "true")
        if not self._takes("("):
            return lambda env: env[text]
        if text == "has":
            (inner,) = self._listed(")")
            return lambda env: _has(inner, env)
        return _called(text, None, self._listed(")"))

    def _listed(self, end: str) -> list[Eval]:
        items = []
        while not self._takes(end):
            items.append(self.ternary())
            if not self._takes(","):
                self._needs(end)
                break
        return items


def _always(value: Any) -> Eval:
    return lambda env: value


def _either(left: Eval, right: Eval, decides: bool) -> Eval:
    """Evaluate `||` if True decides, `&&` if False does: an error counts only if the other side does not decide."""

    def ask(env: Env) -> bool:
        problem = None
        for side in (left, right):
            try:
                if bool(side(env)) is decides:
                    return decides
            except SelectorError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return not decides

    return ask


def _indexed(of: Eval, key: Eval, *, optional: bool) -> Eval:
    def ask(env: Env) -> Any:
        value, name = of(env), key(env)
        chained = isinstance(value, Something | Nothing)
        if isinstance(value, Nothing):
            return value
        inside = value.value if isinstance(value, Something) else value
        if name not in inside and not isinstance(inside, _Domains):
            if optional or chained:
                return Nothing()
            raise SelectorError(f"no such key: {name}")
        return Something(inside[name]) if optional or chained else inside[name]

    return ask


def _has(inner: Eval, env: Env) -> bool:
    try:
        inner(env)
    except SelectorError:
        return False
    return True


def _compare(one: Any, other: Any) -> int:
    assert type(one) is type(other), (one, other)
    if isinstance(one, Version):
        assert not one.before and not other.before, "versions before a release are not compared here"
    return int(one > other) - int(one < other)


def _same(one: Any, other: Any) -> bool:
    return bool(type(one) is type(other) and one == other)


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "==": _same,
    "!=": lambda one, other: not _same(one, other),
    "<": lambda one, other: _compare(one, other) < 0,
    "<=": lambda one, other: _compare(one, other) <= 0,
    ">": lambda one, other: _compare(one, other) > 0,
    ">=": lambda one, other: _compare(one, other) >= 0,
    "in": lambda one, many: any(_same(one, each) for each in many),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": quantity,
    "semver": version,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": lambda text, part: part in text,
    "compareTo": _compare,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "orValue": lambda value, other: other if isinstance(value, Nothing) else value.value,
    "hasValue": lambda value: isinstance(value, Something),
    "asInteger": lambda value: int(value.value),
    "size": len,
    "lowerAscii": str.lower,
}


def _called(name: str, target: Eval | None, arguments: list[Eval]) -> Eval:
    function = _FUNCTIONS[name]
    everything = arguments if target is None else [target, *arguments]
    return lambda env: function(*(each(env) for each in everything))
