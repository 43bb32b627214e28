"""Compiled CEL expressions; results and errors are translated to cel-go's wording.

The library is cel-expr-python of the CEL project. Its parser comes from cel-go's grammar, so syntax errors
are identical to kube-apiserver's. The library bounds loops itself. Compiled expressions are cached, because
each object that matches a policy evaluates the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from ..nesting import Deep
from .authorizer import ASK, Ask
from .environment import checking, evaluating
from .initializers import TOKEN, Maps, as_calls, as_maps, has_initializers, written
from .literals import literal_problems
from .macros import expanded
from .names import Names, mentions, missing_field, problem_text, problems
from .numbers import compared
from .words import go_type, located, merged, said

#: The capacity of the cache. Expressions come from configuration objects, so their number is small.
_KEPT = 4096
#: The checker would resolve a declared name instead of the value that `has()` tests.
_TESTED = re.compile(r"\b(has\(\s*)(request|namespaceObject|variables)\b")


class CelError(ValueError):
    """An expression that does not compile, or an evaluation that failed."""


class NotInstantiated(CelError):
    """An expression that compiles, but whose constants cannot be evaluated. The message is the reason."""


class Unheld(CelError):
    """The expression's value has no JSON form, so no other expression can use it."""


class Converted(dict[str, Any]):
    """Variables that the library converts once for all expressions that get this object. No value may change."""

    activation: Any = None


class Program:
    """One expression that can be evaluated. Type errors fail each evaluation; `checked` finds them beforehand."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        """Parse and compile the expression. Raises `CelError` for a syntax error."""
        self.text = text
        _check_syntax(text)
        maps = _rewritten(text)
        try:
            self._compiled, _ = _compiled(evaluating(), text, maps)
        except CelError:
            # Without Kubernetes' types the checker may reject an expression that was accepted; compile it
            # unchecked.
            self._compiled = evaluating().compile(maps[-1].text, disable_check=True)

    def evaluate(self, variables: Mapping[str, Any], ask: Ask | None = None) -> Any:
        """Return the value as JSON, except that bytes, times and durations stay Python values.

        Raises `CelError` with cel-go's error if the evaluation fails.
        """
        try:
            return _json(self._answer(variables, ask))
        except TypeError:
            # The library raises TypeError instead of returning an optional value.
            raise Unheld("no such overload") from None

    def held(self, variables: Mapping[str, Any], ask: Ask | None = None) -> Any:
        """Return the value in the form that other expressions accept.

        Raises `CelError` if the evaluation fails, and `Unheld` if the value has no such form.
        """
        try:
            value = self._answer(variables, ask, exact=True)
            if _is_plain(value):
                return _json(value)
        except TypeError:
            # See `evaluate`.
            pass
        raise Unheld("no such overload")

    def _answer(self, variables: Mapping[str, Any], ask: Ask | None, *, exact: bool = False) -> Any:
        token = ASK.set(ask)
        try:
            answer = self._evaluated(variables)
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

    def _evaluated(self, variables: Mapping[str, Any]) -> Any:
        if isinstance(variables, Converted):
            variables.activation = variables.activation or evaluating().Activation(data=variables)
            answer = self._compiled.eval(variables.activation)
        else:
            answer = self._compiled.eval(data=variables)
        if answer.type().name() == "ERROR" and "Non-CEL value type" in str(answer.value()):
            # A `Deep` is used. It is rare, so values are not searched for it before.
            return self._compiled.eval(data=_opaque(variables))
        return answer

    def _why(self, error: str, variables: Mapping[str, Any]) -> str:
        """Return the error in cel-go's wording, which names the missing key; the library names only the operation."""
        if "Applying SELECT to non-message type" in error:
            name, value = missing_field(self.text, variables)
            if isinstance(value, list):
                return "unsupported index type 'string' in list"
            return f"no such key: {name}" if name else "no such overload"
        return said(error)


@lru_cache(maxsize=_KEPT)
def program(text: str) -> Program:
    """Return the cached program of an expression. Raises `CelError` for a syntax error."""
    return Program(text)


def checked(text: str, names: Names) -> str:
    """Check an expression against the allowed names; return its type in cel-go's wording, such as `list(string)`.

    Raises `CelError` with all problems, or `NotInstantiated` if only constants cannot be evaluated.
    """
    given = names.variables or {}
    used = {mention.path[1] for mention in mentions(text) if len(mention.path) > 1 and mention.path[0] == "variables"}
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
    """The type of an expression, and the problems of its literals and constants."""

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
    wrong = [problem_text(text, written(place, maps), problem) for place, problem in problems]
    return _Typed(go_type(compiled.return_type().name()), "\n".join(wrong), uninstantiable)


def _check_syntax(text: str) -> None:
    """Raise `CelError` if the original text has a syntax error, so that positions refer to it and not to a rewrite."""
    with _telling():
        evaluating().compile(text, disable_check=True)
    escaped = [match.start() for match in TOKEN.finditer(text) if match[0].startswith("`")]
    if escaped:
        # The library accepts backticks; kube-apiserver does not.
        raise CelError("\n".join(problem_text(text, place, "unsupported syntax: '`'") for place in escaped))


def _failure(text: str) -> str:
    try:
        program(text).evaluate({})
    except CelError as error:
        return str(error)
    return ""


def _rewritten(text: str, *, checks: bool = False, patches: bool = True) -> tuple[Maps, ...]:
    """Return the successive rewrites of an expression that has been parsed."""
    maps = [expanded(text, checks=checks)]
    if patches and has_initializers(text):
        maps.append(as_calls(maps[-1].text)[0] if checks else as_maps(maps[-1].text))
    if checks:
        asked = _TESTED.sub(lambda match: f"{match[1]}{'object'.ljust(len(match[2]))}", maps[-1].text)
        maps[-1] = maps[-1]._replace(text=asked)
    return tuple(maps)


def _compiled(environment: Any, text: str, maps: tuple[Maps, ...]) -> tuple[Any, tuple[Maps, ...]]:
    """Compile the last rewrite; return the result with all rewrites, including one that compilation required."""
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


#: Types whose values other expressions accept unchanged.
_PLAIN = frozenset({"BOOL", "BYTES", "DOUBLE", "INT", "LIST", "MAP", "NULL", "STRING"})


def _is_plain(value: Any) -> bool:
    """Return whether the value and everything in it is of these types."""
    if hasattr(value, "value") and hasattr(value, "type"):
        if value.type().name().partition("<")[0] not in _PLAIN:
            return False
        value = value.value()
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(held) for key, held in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | bytes | bytearray)


#: Precedes the JSON of a `Deep` in the bytes that represent it in expressions.
_DEEP = b"\x01"


def _opaque(value: Any) -> Any:
    """Return the value with bytes, in which expressions can select nothing, instead of each `Deep`."""
    if isinstance(value, dict):
        return {key: _opaque(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_opaque(item) for item in value]
    return _DEEP + value.data if isinstance(value, Deep) else value


def _json(value: Any) -> Any:
    """Return a value of the library as plain JSON."""
    if hasattr(value, "value") and hasattr(value, "type"):
        value = value.value()
    if isinstance(value, dict):
        return {str(_json(key)): _json(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, bytearray):
        value = bytes(value)
    if isinstance(value, bytes) and value.startswith(_DEEP):
        return Deep(value.removeprefix(_DEEP))
    if value is None or isinstance(value, bool | int | float | str | bytes | datetime | timedelta):
        return value
    return str(value)
