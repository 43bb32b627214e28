"""Logs: one JSON object (or readable line) per event, on standard error, with UTC times and without secrets.

The standard library's loggers, to which asyncio and aiohttp report unhandled errors, write through the same
processors, so all lines of the process have one format. A disabled debug line costs about a tenth of a microsecond.
Above debug nothing is logged for each pod on the way to its bind; repeating lines go through `LimitedLog`. A full,
closed or stalled output loses lines, which are counted, and never ends or blocks the process (`output`).
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping, MutableMapping
from io import StringIO
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TextIO

import orjson

from apimachinery.output import LogOutput, standard_error, to_stream
from apimachinery.visible import visible, visible_json, visible_lines
from kube_client.logs import FilteringBoundLogger, LimitedLog, OncePer, get_logger, structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

__all__ = [
    "FilteringBoundLogger",
    "LimitedLog",
    "get_logger",
    "is_secret",
    "lost_lines",
    "redact",
    "set_level",
    "setup",
    "shows_debug",
]

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console"]

_LEVELS: Mapping[LogLevel, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

#: Has the level, for code that must check it before creating a line; nothing is logged through it.
_ours = logging.getLogger("agent_scheduler")

#: The output since `setup`; before it, none.
_outputs: Final[list[LogOutput]] = []
#: Seconds between two equal lines of a library.
_LIBRARY_SECONDS: Final = 10.0

REDACTED = "[redacted]"
#: The value of a key that contains one of these is redacted.
_SECRET_KEYS = ("authorization", "token", "password", "secret", "key-data", "key_data", "credential")
#: A text after these words that is long or has digits is a credential rather than a word.
_SCHEME = re.compile(r"\b(bearer|basic) +(?=\S*[0-9=]|\S{24})[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
#: The limit of a value in characters. Users determine the length of messages and annotations.
_LONGEST = 8_192
_IN_URL = re.compile(r"//[^\s/?#@'\"]*@")


def is_secret(key: str) -> bool:
    """Return whether the value of `key` is a secret."""
    lower = key.lower()
    return any(word in lower for word in _SECRET_KEYS)


def redact(value: Any) -> Any:
    """Return `value` with secrets replaced at any depth.

    These are the values of secret keys, the texts after `Bearer` and `Basic`, and user and password in URLs.
    """
    if isinstance(value, Mapping):
        return {
            key: REDACTED if isinstance(key, str) and is_secret(key) else redact(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    if isinstance(value, str):
        if value[:7].lower() == "bearer ":
            return REDACTED
        if "@" in value:
            value = _IN_URL.sub(f"//{REDACTED}@", value)
        return _SCHEME.sub(rf"\1 {REDACTED}", value)
    return value


def _redact_event(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if is_secret(key):
            event[key] = REDACTED
        elif not isinstance(value, int | float):
            if isinstance(value, str) and len(value) > _LONGEST and key not in ("exception", "stack"):
                value = f"{value[:_LONGEST]}... ({len(value)} characters)"
            event[key] = redact(value)
    return event


def _to_json(event: MutableMapping[str, Any], **_: Any) -> str:
    try:
        text = orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        return text if text.isascii() else visible_json(text)
    except TypeError:
        # A lone surrogate or an integer beyond 64 bits, for example from a file name: logging it must not raise.
        return json.dumps(event, default=str, skipkeys=True)


def _visible_values(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Keep texts from adding lines to the log of a terminal, and from controlling it."""
    for key, value in event.items():
        if key not in ("exception", "exc_info", "stack") and not isinstance(value, int | float | None):
            event[key] = visible(str(value))
    return event


def _traceback(out: TextIO, exc_info: ExcInfo) -> None:
    text = StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    out.write(visible_lines(redact(text.getvalue())))


def _processors(log_format: LogFormat) -> tuple[list[Processor], list[Processor]]:
    """Return the processors of every line, and those for formatting. Redaction comes after all that add values."""
    shared: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.StackInfoRenderer(),
    ]
    if log_format == "json":
        shared += [structlog.processors.format_exc_info, _redact_event]
        return shared, [structlog.processors.JSONRenderer(serializer=_to_json)]
    return [*shared, _redact_event, _visible_values], [
        structlog.dev.ConsoleRenderer(
            colors=False,
            timestamp_key="time",
            pad_event_to=0,
            # The default prints the local variables of each frame, which may contain credentials.
            exception_formatter=_traceback,
        )
    ]


def setup(*, level: LogLevel = "info", log_format: LogFormat = "json", stream: BinaryIO | None = None) -> None:
    """Configure structlog and the standard library's root logger for the whole process.

    Call it before the first line is logged: a logger keeps the configuration of its first use. `stream` defaults
    to standard error.
    """
    set_level(level)
    out = standard_error() if stream is None else to_stream(stream)
    _outputs[:] = [out]
    shared, render = _processors(log_format)
    structlog.configure(
        processors=[*shared, *render, _encode],
        wrapper_class=_Logger,
        logger_factory=lambda name="agent_scheduler": _LineLogger(out, name),
        cache_logger_on_first_use=True,
    )
    handler = _LibraryHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]


class _Logger(structlog.make_filtering_bound_logger(logging.INFO)):  # type: ignore[misc]
    """The class of all loggers of structlog in the process. Its base, which `set_level` sets, ignores lower levels."""


def set_level(level: LogLevel) -> None:
    """Change the level given to `setup`, also for loggers in use, whichever package they belong to."""
    _ours.setLevel(_LEVELS[level])
    _Logger.__bases__ = (structlog.make_filtering_bound_logger(_LEVELS[level]),)
    logging.getLogger().setLevel(_library_level(level))


def shows_debug() -> bool:
    """Return whether debug lines are written, for code where even a disabled line costs too much."""
    return _ours.isEnabledFor(logging.DEBUG)


def _library_level(level: LogLevel) -> int:
    """Return the level for libraries, whose info lines are irrelevant, such as one per served request."""
    return max(_LEVELS[level], logging.WARNING) if level != "debug" else logging.INFO


def _encode(logger: WrappedLogger, method: str, line: Any) -> bytes:
    return str(line).encode("utf-8", "backslashreplace")


class _LineLogger:
    """structlog's innermost logger: writes encoded lines. `name` is the value of add_logger_name."""

    def __init__(self, out: LogOutput, name: str) -> None:
        self._out = out
        self.name = name

    def _line(self, line: bytes) -> None:
        self._out.write(line + b"\n")

    msg = debug = info = warning = error = critical = exception = fatal = failure = err = log = warn = _line


class _LibraryHandler(logging.Handler):
    """Writes the records of libraries: of repeating ones, one per period.

    A library reports failures of connections, which a stranger may cause at any rate, with a traceback each.
    """

    def __init__(self, out: LogOutput) -> None:
        super().__init__()
        self._out = out
        self._once = OncePer(_LIBRARY_SECONDS, clock=time.monotonic)

    def emit(self, record: logging.LogRecord) -> None:
        key = f"{record.name} {record.levelno} {record.msg!s:.200}"
        held = self._once.admit(key) if record.levelno >= logging.WARNING else 0
        if held is None:
            return
        if held:
            record.held_back = held
        try:
            line = self.format(record)
        except Exception:
            # A library gave values that do not fit its own text.
            line = repr(record.msg)
        self._out.write(f"{line}\n".encode("utf-8", "backslashreplace"))


def lost_lines() -> int:
    """Return the number of lines that the output of the log has lost since `setup`."""
    return sum(output.lost for output in _outputs)
