"""Errors of a configuration: the place, the value and what is allowed."""

from __future__ import annotations

Path = tuple[str | int, ...]


class ConfigurationError(ValueError):
    """The configuration is invalid. The message is complete: a caller prints it and exits with status 2."""


class Invalid(ValueError):
    """An invalid value with its path; `load` adds the file and line, or the flag."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{show(path)}: {message}" if path else message)
        self.path = path
        self.message = message


def show(path: Path) -> str:
    """Format a path as `profiles[0].schedulerName`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def found(value: object) -> str:
    """Format a value as quoted in errors."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {value}"
        case str():
            return f"{value!r}"
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            return f"a {type(value).__name__}"
