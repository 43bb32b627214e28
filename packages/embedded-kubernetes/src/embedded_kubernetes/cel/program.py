"""Compiled expressions: what they are told to be wrong, and what they answer, in cel-go's words.

The library is cel-expr-python, the CEL project's own; its parser is made of the same grammar as cel-go's, so that
errors of syntax are word for word those of a real server. It bounds loops by itself. Compiled expressions are kept, as
one is asked for each object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from .authorizer import ASK, Ask
from .environment import checking, evaluating
from .initializers import TOKEN, Maps, as_calls, as_maps, has_initializers, written
from .literals import literal_problems
from .macros import expanded
from .names import Names, mentions, missing_field, problems, told
from .numbers import compared
from .words import go_type, located, merged, said

#: Compiled expressions that are kept; they come from configurations.
_KEPT = 4096
#: The macro would take a declared name for the value that it tests.
_TESTED = re.compile(r"\b(has\(\s*)(request|namespaceObject|variables)\b")


class CelError(ValueError):
    """What is wrong with an expression, or with one evaluation of it."""


class NotInstantiated(CelError):
    """Constants of an expression that compiles cannot be evaluated: why."""


class Unheld(CelError):
    """An expression has a value that JSON has not, so that nothing else can be given it."""


class Program:
    """One expression, to be evaluated. What does not fit is an error of each evaluation; `checked` tells it before."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        """Raises `CelError` for what cannot be parsed."""
        self.text = text
        _check_syntax(text)
        maps = _rewritten(text)
        try:
            self._compiled, _ = _compiled(evaluating(), text, maps)
        except CelError:
            # Without Kubernetes' types, some of what was let pass does not seem to fit.
            self._compiled = evaluating().compile(maps[-1].text, disable_check=True)

    def evaluate(self, variables: Mapping[str, Any], ask: Ask | None = None) -> Any:
        """The answer as a JSON value, but for bytes, times and durations. Raises `CelError` with what cel-go says of
        it."""
        try:
            return _json(self._answer(variables, ask))
        except TypeError:
            # The library hands out no value that may not be there.
            raise Unheld("no such overload") from None

    def held(self, variables: Mapping[str, Any], ask: Ask | None = None) -> Any:
        """The answer as other expressions can be given it. Raises `CelError`, and `Unheld` for one that they cannot."""
        try:
            value = self._answer(variables, ask, exact=True)
            if _is_plain(value):
                return _json(value)
        except TypeError:
            # As above.
            pass
        raise Unheld("no such overload")

    def _answer(self, variables: Mapping[str, Any], ask: Ask | None, *, exact: bool = False) -> Any:
        token = ASK.set(ask)
        try:
            answer = self._compiled.eval(data=variables)
            kind = answer.type().name()
            if kind == "ERROR":
                raise CelError(self._why(str(answer.value()), variables))
            if exact and kind.partition("<")[0] not in _PLAIN:
                raise Unheld("no such overload")
            return answer.value()
        except (RuntimeError, OverflowError) as error:
            raise CelError(self._why(str(error), variables)) from None
        finally:
            ASK.reset(token)

    def _why(self, error: str, variables: Mapping[str, Any]) -> str:
        """cel-go finds no key in what is no map either; the library does not say which."""
        if "Applying SELECT to non-message type" in error:
            name, value = missing_field(self.text, variables)
            if isinstance(value, list):
                return "unsupported index type 'string' in list"
            return f"no such key: {name}" if name else "no such overload"
        return said(error)


@lru_cache(maxsize=_KEPT)
def program(text: str) -> Program:
    """Raises `CelError` for what cannot be parsed."""
    return Program(text)


def checked(text: str, names: Names) -> str:
    """The type of an expression that may name these alone, as cel-go names it: `bool`, `dyn`, `list(map(string, int))`.

    Raises `CelError` with all that is wrong, `NotInstantiated` if only constants are.
    """
    given = names.variables or {}
    used = {
        mention.path[1]
        for mention in mentions(text)
        if len(mention.path) > 1 and mention.path[0] == "variables"
    }
    types = tuple((name, given[name]) for name in sorted(used) if name in given)
    _check_syntax(text)
    unknown = problems(text, names)
    try:
        found = _typed(text, types, patches=names.patches)
    except CelError as error:
        raise CelError(merged(unknown, str(error))) from None
    if unknown:
        raise CelError(unknown)
    if found.wrong:
        raise CelError(found.wrong)
    if found.uninstantiable:
        raise NotInstantiated(found.uninstantiable)
    return found.type


class _Typed(NamedTuple):
    """The type of an expression that fits its variables, and what is wrong with its literals and constants."""

    type: str
    wrong: str
    uninstantiable: str


@lru_cache(maxsize=_KEPT)
def _typed(text: str, variables: tuple[tuple[str, str], ...], *, patches: bool) -> _Typed:
    shapes: frozenset[str] = frozenset()
    if patches and has_initializers(text):
        _, shapes = as_calls(text)
    maps = _rewritten(text, checks=True, patches=patches)
    compiled, maps = _compiled(checking(shapes, variables, patches=patches), text, maps)
    problems, uninstantiable = literal_problems(compiled.serialize(), shapes, _failure)
    wrong = [told(text, written(place, maps), problem) for place, problem in problems]
    return _Typed(go_type(compiled.return_type().name()), "\n".join(wrong), uninstantiable)


def _check_syntax(text: str) -> None:
    """Places and texts of errors of syntax are those of what was written, whatever is made of it."""
    with _telling():
        evaluating().compile(text, disable_check=True)
    escaped = [match.start() for match in TOKEN.finditer(text) if match[0].startswith("`")]
    if escaped:
        # The library reads them; a real server does not.
        raise CelError("\n".join(told(text, place, "unsupported syntax: '`'") for place in escaped))


def _failure(text: str) -> str:
    try:
        program(text).evaluate({})
    except CelError as error:
        return str(error)
    return ""


def _rewritten(text: str, *, checks: bool = False, patches: bool = True) -> tuple[Maps, ...]:
    """An expression that can be parsed as the library is to have it, by and by."""
    maps = [expanded(text, checks=checks)]
    if patches and has_initializers(text):
        maps.append(as_calls(maps[-1].text)[0] if checks else as_maps(maps[-1].text))
    if checks:
        asked = _TESTED.sub(lambda match: f"{match[1]}{'object'.ljust(len(match[2]))}", maps[-1].text)
        maps[-1] = maps[-1]._replace(text=asked)
    return tuple(maps)


def _compiled(environment: Any, text: str, maps: tuple[Maps, ...]) -> tuple[Any, tuple[Maps, ...]]:
    """The last of what was made of the expression, compiled, or what had to be made of it for that."""
    try:
        with _telling():
            return environment.compile(maps[-1].text), maps
    except CelError as error:
        if more := compared(maps[-1].text, str(error)):
            return _compiled(environment, text, (*maps, more))
        raise CelError(located(str(error), maps, text)) from None


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, RecursionError) as error:
        raise CelError(said(str(error))) from None


#: Types whose values are given to other expressions as they are.
_PLAIN = frozenset({"BOOL", "BYTES", "DOUBLE", "INT", "LIST", "MAP", "NULL", "STRING"})


def _is_plain(value: Any) -> bool:
    """Whether it is of these types, with all that is in it."""
    if hasattr(value, "value") and hasattr(value, "type"):
        if value.type().name().partition("<")[0] not in _PLAIN:
            return False
        value = value.value()
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(held) for key, held in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | bytes | bytearray)


def _json(value: Any) -> Any:
    """What the library answers as plain JSON values."""
    if hasattr(value, "value") and hasattr(value, "type"):
        value = value.value()
    if isinstance(value, dict):
        return {str(_json(key)): _json(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if value is None or isinstance(value, bool | int | float | str | bytes | datetime | timedelta):
        return value
    return str(value)
