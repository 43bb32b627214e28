"""What holds for every test: how many examples it draws, how it leaves the process, and that no error is lost in it.

A test that runs a command in its own process sets logging up for the whole process, with streams that pytest closes
when the test ends; loggers that cache what they found then would fail in whatever test comes next.
"""

from __future__ import annotations

import gc
import logging
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests import spreading
from tests.support.examples import load_profile

load_profile()

#: The marker of what is left to `make verify`.
WIDE = "wide"
_ALL_WIDE = re.compile(rf"^pytestmark = .*pytest\.mark\.{WIDE}\b", re.MULTILINE)


class LostErrors(logging.Handler):
    """What an event loop can tell nobody: tasks that failed and were not awaited, callbacks that raised."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(logging.Formatter("%(message)s").format(record))

    def take(self) -> list[str]:
        told, self.told = self.told, []
        return told


_LOST = LostErrors()


def pytest_configure() -> None:
    logging.getLogger("asyncio").addHandler(_LOST)
    # What a shell starts in the background ignores SIGINT, and so would all that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return spreading.scheduler(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that have nothing to run are not imported: to import all takes as long as a hundred tests."""
    return (collection_path.match("test_*.py") and is_left_out(collection_path, config)) or None


def is_left_out(file: Path, config: pytest.Config) -> bool:
    """Whether a file has no test of the tier that is run.

    What is `wide` is marked by that word in its file, and a file that is wide as a whole by `pytestmark`.
    """
    chosen = config.option.markexpr
    if chosen not in (WIDE, f"not {WIDE}"):
        return False
    text = file.read_text()
    return WIDE not in text if chosen == WIDE else _ALL_WIDE.search(text) is not None


def pytest_collection(session: pytest.Session) -> None:
    spreading.import_share(session.config, partial(is_left_out, config=session.config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if by_address := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(
            f"each process would name this test differently; give it an id: {by_address[0]}"
        )
    places = spreading.order(item.nodeid for item in items)
    items.sort(key=lambda item: places[spreading.scope(item.nodeid)])


def pytest_collection_finish() -> None:
    # What was imported stays; to go through it in every collection would take longer than many a test.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def lost_errors() -> Iterator[LostErrors]:
    """Fails the test in which an error was lost. A test that is about such an error takes it."""
    _LOST.take()
    yield _LOST
    _fail_for(_LOST.take())


@pytest.fixture(scope="module", autouse=True)
def lost_errors_of_what_is_left() -> Iterator[None]:
    """A task in a cycle complains when it is collected: that is to be in the file that left it."""
    yield
    gc.collect()
    # A scheduler that ran in this process has unfrozen all, and recordings that were read stay too.
    gc.freeze()
    _fail_for(_LOST.take())


@pytest.fixture(scope="session", autouse=True)
def lost_errors_of_what_outlived_its_file() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.collect()
    _fail_for(_LOST.take())


def _fail_for(told: list[str]) -> None:
    if told:
        pytest.fail("an event loop had nobody to tell:\n" + "\n".join(told), pytrace=False)


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
