"""Values of flags, for commands with some of a scheduler's settings and flags of their own.

All functions raise ConfigurationError with the flag and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from agent_scheduler.config.flags import FLAGS, Flag
from apimachinery.codec import decode
from apimachinery.durations import parse_duration
from apimachinery.errors import ConfigurationError, Invalid
from apimachinery.values import Section

SectionT = TypeVar("SectionT", bound=Section)


def section(values: Mapping[Flag, object], kind: type[SectionT], defaults: Mapping[str, Any]) -> SectionT:
    """Return the section `kind` of a configuration from `defaults`, overridden by `values` (`flags.given`)."""
    said = {flag.path[-1]: value for flag, value in values.items() if flag.setting.section is kind}
    return decode({**defaults, **said}, kind)


def checked(check: Callable[[], None]) -> None:
    """Run `check`, whose `Invalid` names a setting, and name its flag instead."""
    try:
        check()
    except Invalid as error:
        names = {flag.path: flag.names[0] for flag in FLAGS}
        place = names.get(tuple(str(step) for step in error.path), str(error.path))
        raise ConfigurationError(f"{place}: {error.message}") from None


def duration(flag: str, text: str) -> float:
    """Return seconds, above 0."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ConfigurationError(f"{flag}: found {text!r}; allowed: a duration above 0, such as 500ms, 15s or 5m")
    return seconds


def truth(flag: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(f"{flag}: found {text!r}; allowed: true, false")
    return text.lower() == "true"


def object_name(flag: str, text: str) -> str:
    if not text or text.split() != [text] or "/" in text:
        raise ConfigurationError(f"{flag}: found {text!r}; allowed: an object's name")
    return text


def scheduler_names(texts: Sequence[str] | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Return all --scheduler-name without duplicates; `usual` if there is none."""
    for name in texts or ():
        if not name or name.split() != [name] or "," in name:
            raise ConfigurationError(f"--scheduler-name: found {name!r}; allowed: a scheduler's name")
    return usual if texts is None else tuple(dict.fromkeys(texts))
