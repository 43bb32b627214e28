"""Hooks and fixtures of every test: the number of examples, the state of the process, and errors that would be lost.

A test that runs a command in its own process configures logging for the whole process, with streams that pytest closes
when the test ends. Loggers that have cached such a stream would fail in the next test.
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

#: The marker of tests that only `make verify` runs.
WIDE = "wide"
_ALL_WIDE = re.compile(rf"^pytestmark = .*pytest\.mark\.{WIDE}\b", re.MULTILINE)


class LostErrors(logging.Handler):
    """Collects errors of event loops that reach no caller: failed tasks not awaited, and callbacks that raised."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(logging.Formatter("%(message)s").format(record))

    def take(self) -> list[str]:
        told, self.told = self.told, []
        return told


_LOST = LostErrors()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("portions")
    group.addoption("--portion", type=float, default=100.0, metavar="PERCENT", help="run only PERCENT of the tests")
    group.addoption("--portion-seed", default="", metavar="TEXT", help="which tests these are; TEXT may be a commit")


def pytest_configure() -> None:
    logging.getLogger("asyncio").addHandler(_LOST)
    # Processes that a shell starts in the background ignore SIGINT, and so would those that tests start and
    # interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return spreading.scheduler(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the import of a file that has no test to run, because it takes as long as many tests."""
    return (collection_path.match("test_*.py") and is_left_out(collection_path, config)) or None


def is_left_out(file: Path, config: pytest.Config) -> bool:
    """Return whether a file has no test of the tier that is run.

    A test is marked by the word `wide` in its file, a whole file by `pytestmark`.
    """
    chosen = config.option.markexpr
    if chosen not in (WIDE, f"not {WIDE}"):
        return False
    text = file.read_text()
    return WIDE not in text if chosen == WIDE else _ALL_WIDE.search(text) is not None


def pytest_collection(session: pytest.Session) -> None:
    spreading.import_share(session.config, partial(is_left_out, config=session.config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if by_address := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"each process would name this test differently; give it an id: {by_address[0]}")
    percent, seed = config.option.portion, config.option.portion_seed
    left_out = {item for item in items if not spreading.is_in_portion(item.nodeid, percent, seed)}
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    places = spreading.order(item.nodeid for item in items)
    items.sort(key=lambda item: places[spreading.scope(item.nodeid)])


def pytest_collection_finish() -> None:
    # Imported modules stay; to traverse them in every collection would take longer than many a test.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def lost_errors() -> Iterator[LostErrors]:
    """Fail the test in which an error was lost; a test about such an error takes it from this fixture."""
    _LOST.take()
    yield _LOST
    _fail_for(_LOST.take())


@pytest.fixture(scope="module", autouse=True)
def lost_errors_of_what_is_left() -> Iterator[None]:
    """Collect garbage after each file, because a task in a cycle reports its error only when it is collected."""
    yield
    gc.collect()
    # A scheduler that ran in this process has unfrozen all objects, and the recordings that were read stay, too.
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
        pytest.fail("an event loop had no caller to report to:\n" + "\n".join(told), pytrace=False)


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
