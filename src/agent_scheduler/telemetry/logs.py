"""Logs: one JSON object (or a readable line) an event, on standard error, with UTC times and nothing secret.

The standard library's loggers, where asyncio and aiohttp report what nobody awaited, write through the same
processors, so that every line of the process has one form. A debug line that is switched off costs about a tenth
of a microsecond. Above debug nothing is logged for each pod on the way to its bind; what repeats goes through
`OncePer`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping
from io import StringIO
from typing import Any, BinaryIO, Literal, TextIO
from weakref import WeakSet

import orjson

# structlog imports rich and Pygments wherever they are installed, for tracebacks of a form that is not asked for here.
# That takes longer than all the rest of it, so it is made to find none.
_rich = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]
try:
    import structlog
    from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, Processor, WrappedLogger
finally:
    if _rich is None:
        del sys.modules["rich"]
    else:
        sys.modules["rich"] = _rich

__all__ = [
    "FilteringBoundLogger",
    "OncePer",
    "get_logger",
    "is_secret",
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

#: Every logger that was given out and is still used.
_loggers: WeakSet[FilteringBoundLogger] = WeakSet()

#: Knows the level for who has to ask before a line is made; nothing is logged through it.
_ours = logging.getLogger("agent_scheduler")

REDACTED = "[redacted]"
#: A key that contains one of these has a value that is nobody's business.
_SECRET_KEYS = ("authorization", "token", "password", "secret", "key-data", "key_data", "credential")
#: What follows these two and is neither short nor made of letters alone is no word.
_SCHEME = re.compile(r"\b(bearer|basic) +(?=\S*[0-9=]|\S{24})[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_IN_URL = re.compile(r"//[^\s/?#@'\"]*@")


def is_secret(key: str) -> bool:
    """Whether the value under `key` must not be shown."""
    lower = key.lower()
    return any(word in lower for word in _SECRET_KEYS)


def redact(value: Any) -> Any:
    """`value` with the values of secret keys, at any depth, replaced; and what is a secret by its looks in any text:
    what follows `Bearer` or `Basic`, and the user and password of a URL."""
    if isinstance(value, Mapping):
        return {
            key: REDACTED if isinstance(key, str) and is_secret(key) else redact(item)
            for key, item in value.items()
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
            event[key] = redact(value)
    return event


def _to_json(event: MutableMapping[str, Any], **_: Any) -> str:
    try:
        return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        # A lone surrogate or an integer beyond 64 bits, say from a file name: to log it must not raise.
        return json.dumps(event, default=str, skipkeys=True)


def _traceback(out: TextIO, exc_info: ExcInfo) -> None:
    text = StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    out.write(redact(text.getvalue()))


def _processors(log_format: LogFormat) -> tuple[list[Processor], list[Processor]]:
    """What every line passes, and what turns it into text. Redaction comes last of all that adds values."""
    shared: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.StackInfoRenderer(),
    ]
    if log_format == "json":
        shared += [structlog.processors.format_exc_info, _redact_event]
        return shared, [structlog.processors.JSONRenderer(serializer=_to_json)]
    return [*shared, _redact_event], [
        structlog.dev.ConsoleRenderer(
            colors=False,
            timestamp_key="time",
            pad_event_to=0,
            # The default shows the locals of each frame, among which are credentials.
            exception_formatter=_traceback,
        )
    ]


def setup(
    *, level: LogLevel = "info", log_format: LogFormat = "json", stream: BinaryIO | None = None
) -> None:
    """Configures structlog and the standard library's root logger for the whole process.

    Call it before the first line is logged: a logger keeps the configuration of its first use. `stream` defaults
    to standard error.
    """
    _ours.setLevel(_LEVELS[level])
    out = sys.stderr.buffer if stream is None else stream
    shared, render = _processors(log_format)
    structlog.configure(
        processors=[*shared, *render, _encode],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda name="agent_scheduler": _NamedBytesLogger(out, name),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(_TextOver(out))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_library_level(level))


def set_level(level: LogLevel) -> None:
    """Change the level given to `setup`, for loggers that were used already, too."""
    _ours.setLevel(_LEVELS[level])
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]))
    for logger in _loggers:
        # What structlog keeps in a logger since its first line; without it the next line makes it anew.
        vars(logger).pop("bind", None)
    logging.getLogger().setLevel(_library_level(level))


def shows_debug() -> bool:
    """Whether lines of level debug are written, for where even one that is not written costs too much."""
    return _ours.isEnabledFor(logging.DEBUG)


def _library_level(level: LogLevel) -> int:
    """Libraries say at info what is news to nobody, such as each request that was served."""
    return max(_LEVELS[level], logging.WARNING) if level != "debug" else logging.INFO


def _encode(logger: WrappedLogger, method: str, line: Any) -> bytes:
    return str(line).encode("utf-8", "backslashreplace")


class _NamedBytesLogger(structlog.BytesLogger):
    """`name` is what add_logger_name puts on a line."""

    def __init__(self, out: BinaryIO, name: str) -> None:
        super().__init__(out)
        self.name = name


class _TextOver:
    """The text stream that logging.StreamHandler wants, on the byte stream that both kinds of logger share."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, text: str) -> None:
        self._out.write(text.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        self._out.flush()


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry `logger=name`. Cheap to keep at module level: it is made on its first line."""
    logger: FilteringBoundLogger = structlog.get_logger(name)
    _loggers.add(logger)
    return logger


class OncePer:
    """Lets one line a key through every `seconds`, and says how many it held back.

    For what may repeat thousands of times a second, such as an API server that refuses every write. Owner of what
    it remembers: at most `keys` keys, the least recently seen forgotten first, so a key made of untrusted text
    cannot fill the memory; a forgotten key may be logged again early.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float], keys: int = 1024) -> None:
        if seconds <= 0 or keys < 1:
            raise ValueError(f"OncePer needs seconds above 0 and at least 1 key, not {seconds} and {keys}")
        self._seconds = seconds
        self._clock = clock
        self._keys = keys
        # key -> (when it may be logged again, how often it was held back since it last was).
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def admit(self, key: str) -> int | None:
        """None: say nothing now. A number: log it, and add that so many lines like it were held back."""
        now = self._clock()
        until, held = self._seen.get(key, (now, 0))
        if now < until:
            self._seen[key] = (until, held + 1)
            self._seen.move_to_end(key)
            return None
        self._seen[key] = (now + self._seconds, 0)
        self._seen.move_to_end(key)
        if len(self._seen) > self._keys:
            self._seen.popitem(last=False)
        return held
