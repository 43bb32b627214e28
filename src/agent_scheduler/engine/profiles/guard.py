"""Wraps plugins of other distributions, so that an error names the plugin that caused it.

Plugins of the scheduler itself are called directly. A plugin of another distribution is wrapped: its errors name the
plugin, and an answer of a wrong type or size is rejected immediately; otherwise it could break a distant expression or,
worse, be broadcast.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

import numpy as np

from ..framework.plugin import MAX_NODE_SCORE, Filter, PodRejected, PreEnqueue, Score
from ..framework.prebind import Permit, PreBind, Rejected, Reserve, Wait
from ..framework.registration import Registration

#: Returns the fault of an answer, given the method's arguments; empty if it is valid.
Check = Callable[..., str]

#: The attributes that a plugin must have, by point: all of its Protocol, most of which subclasses inherit.
_PROTOCOLS: dict[str, type] = {
    "preEnqueue": PreEnqueue,
    "filter": Filter,
    "score": Score,
    "reserve": Reserve,
    "permit": Permit,
    "preBind": PreBind,
}


class PluginError(RuntimeError):
    """A plugin of another distribution is broken; the text begins with its name."""


class Guarded:
    """A plugin with each of its methods guarded. Attributes are copied when it is created."""

    def __init__(self, plugin: object, registration: Registration) -> None:
        final = getattr(plugin, "normalize", None) is None
        checks = {**_CHECKS, **_FINAL_CHECKS} if final else _CHECKS
        for name in dir(plugin):
            if not name.startswith("_"):
                value = getattr(plugin, name)
                setattr(self, name, _guarded(name, value, registration, checks) if callable(value) else value)
        # The Protocol's default for one row calls the method for rows: that answer is checked, too.
        for name, default in _OF_ONE_ROW.items():
            if getattr(type(plugin), name, None) is default:
                setattr(self, name, MethodType(default, self))


def guarded(plugin: object, registration: Registration) -> Guarded:
    """Return the guarded `plugin`. Raises PluginError if it lacks an attribute that its points need."""
    whose = f"plugin {registration.name} (from {registration.origin})"
    if getattr(plugin, "name", None) != registration.name:
        raise PluginError(f"{whose}: its attribute name is {getattr(plugin, 'name', None)!r}")
    for point in registration.points:
        protocol = _PROTOCOLS.get(point, object)
        for needed in sorted({*inspect.get_annotations(protocol), *vars(protocol)}):
            if not needed.startswith("_") and not hasattr(plugin, needed):
                raise PluginError(f"{whose}: has no {needed}, which {point} needs; derive it from {protocol.__name__}")
    return Guarded(plugin, registration)


def _guarded(
    name: str, method: Callable[..., Any], registration: Registration, checks: Mapping[str, Check]
) -> Callable[..., Any]:
    whose = f"plugin {registration.name} (from {registration.origin})"
    check = checks.get(name)

    def failed(error: Exception) -> PluginError:
        return PluginError(f"{whose}: {name} raised {type(error).__name__}: {error}")

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call_async(*args: Any, **more: Any) -> Any:
            try:
                return await method(*args, **more)
            except PodRejected:
                raise
            except Exception as error:
                raise failed(error) from error

        return call_async

    @functools.wraps(method)
    def call(*args: Any, **more: Any) -> Any:
        try:
            answer = method(*args, **more)
        except PodRejected:
            # PodRejected is an answer, not a fault.
            raise
        except Exception as error:
            raise failed(error) from error
        problem = check(answer, *args) if check is not None else ""
        if problem:
            raise PluginError(f"{whose}: {name} {problem}")
        return answer

    return call


def _array(answer: object, rows: Any, kind: str, what: str) -> str:
    if isinstance(answer, np.ndarray) and answer.dtype.kind in kind and answer.shape == np.shape(rows):
        return ""
    shown = (
        f"an array of {answer.dtype} with shape {answer.shape}"
        if isinstance(answer, np.ndarray)
        else f"a {type(answer).__name__}"
    )
    return f"answered {shown}; allowed: an array with {what} for each of {len(rows)} rows"


def _feasible(answer: object, _state: Any, _nodes: Any, rows: Any) -> str:
    return _array(answer, rows, "b", "one bool")


def _raw_score(answer: object, _state: Any, _nodes: Any, rows: Any) -> str:
    return _array(answer, rows, "i", "one int64")


def _final_score(answer: object, _state: Any, _nodes: Any, rows: Any) -> str:
    return _normalize(answer, rows)


def _feasible_row(answer: object, *_asked: Any) -> str:
    return "" if isinstance(answer, bool | np.bool_) else f"answered {answer!r}; allowed: one bool"


def _raw_row(answer: object, *_asked: Any) -> str:
    whole = isinstance(answer, int | np.integer) and not isinstance(answer, bool)
    return "" if whole else f"answered {answer!r}; allowed: one int"


def _final_row(answer: Any, *_asked: Any) -> str:
    problem = _raw_row(answer)
    if not problem and not 0 <= answer <= MAX_NODE_SCORE:
        return f"answered {answer}; allowed: 0 to {MAX_NODE_SCORE}"
    return problem


def _normalize(answer: Any, raw: Any) -> str:
    problem = _array(answer, raw, "i", "one int64")
    if not problem and answer.size and (answer.min() < 0 or answer.max() > MAX_NODE_SCORE):
        return f"answered {answer.min()} to {answer.max()}; allowed: 0 to {MAX_NODE_SCORE}"
    return problem


def _permit(answer: object, *_asked: Any) -> str:
    known = answer is None or isinstance(answer, Rejected | Wait)
    return "" if known else f"answered {answer!r}; allowed: a Rejected, a Wait or None"


_CHECKS: Mapping[str, Check] = {
    "feasible": _feasible,
    "feasible_row": _feasible_row,
    "curable": _feasible,
    "score": _raw_score,
    "score_row": _raw_row,
    "normalize": _normalize,
    "permit": _permit,
}

#: Checks of scores that are not normalized.
_FINAL_CHECKS: Mapping[str, Check] = {"score": _final_score, "score_row": _final_row}

#: Defaults of the Protocols that call the method for rows.
_OF_ONE_ROW: Mapping[str, Callable[..., Any]] = {"feasible_row": Filter.feasible_row, "score_row": Score.score_row}
