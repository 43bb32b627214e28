"""What every test leaves as it found it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Setting up the program's logging is for the whole process: the next test would write to a stream that is gone."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if structlog.is_configured():
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
