"""What every test leaves behind as it found it: the process's logging.

A test that runs a command in its own process sets logging up for the whole process, with streams that pytest closes
when the test ends; loggers that cache what they found then would fail in whatever test comes next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_ends_with_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure = structlog.configure

    def without_cache(*args: Any, **settings: Any) -> None:
        configure(*args, **{**settings, "cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", without_cache)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
