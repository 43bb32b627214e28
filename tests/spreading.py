"""Distribution of tests over the processes of `make test`, their order, and portions of them.

Tests of a file stay together, as they share what the file starts, except the cases of long tests that share nothing.
Tests that mostly wait for processes and tests that compute are run alternately, so that some use the cores while others
wait, and long tests are begun early.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.needed import LACKING

#: Files whose cases may each run in any process.
APART = (
    "tests/sim/test_seeds.py",
    "tests/sim/test_found.py",
    "tests/sim/test_judges.py",
    "tests/decisions/test_random.py",
)
#: Tests that wait for processes and sockets, in this order.
WAITING = (
    "tests/e2e/test_image.py",
    "tests/e2e/test_faults.py",
    "tests/e2e/test_kubectl.py",
    "tests/pages/",
    "tests/e2e/",
    "tests/console/",
)
#: Tests that compute for long, in this order; the others follow, as they are collected.
COMPUTING = ("tests/decisions/", "tests/sim/", "tests/features/", "tests/unit/engine/")


def scope(test: str) -> str:
    """Return the tests that stay together with `test`, a node id: those of its file, or it alone."""
    file = test.partition("::")[0]
    return test if file in APART and test.endswith("]") else file


def order(tests: Iterable[str]) -> dict[str, float]:
    """Return the place of each scope in the run, from the first on."""
    scopes = list(dict.fromkeys(scope(test) for test in tests))
    waiting, computing = (
        sorted((each for each in scopes if each.startswith(kind)), key=lambda each: _place(each, kind))
        for kind in (WAITING, COMPUTING)
    )
    places = {each: float(len(scopes)) for each in scopes}
    places |= {each: float(place) for place, each in enumerate(waiting)}
    # Both kinds are mixed in proportion to their numbers, so that neither is left for the end.
    places |= {each: place * len(waiting) / len(computing) + 0.5 for place, each in enumerate(computing)}
    return places


def _place(test: str, starts: tuple[str, ...]) -> int:
    return next(at for at, start in enumerate(starts) if test.startswith(start))


def is_in_portion(test: str, percent: float, seed: str) -> bool:
    """Return whether `test`, a node id, belongs to the tests that `seed` selects: about `percent` of all."""
    return int.from_bytes(hashlib.sha256(f"{seed} {test}".encode()).digest()[:4]) < percent / 100 * 2**32


def import_share(config: pytest.Config, is_left_out: Callable[[Path], bool]) -> None:
    """Import a share of the test files first in each process of a run of all tests.

    Pytest rewrites and compiles new files when they are imported; without this every process would do so for every
    file.
    """
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    root = config.rootpath
    files = sorted(file for path in config.args for file in (root / path).rglob("test_*.py") if not is_left_out(file))
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        # A file that cannot be imported is an error of the collection that follows.
        with suppress(Exception, *LACKING):
            _import(file)


def _import(file: Path) -> None:
    """Import a file of tests under pytest's name for it, which begins at the first folder that is no package."""
    top = file.parent
    while (top / "__init__.py").exists():
        top = top.parent
    if str(top) not in sys.path:
        sys.path.insert(0, str(top))
    importlib.import_module(".".join(file.relative_to(top).with_suffix("").parts))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler of xdist, which is missing in a run of one process."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    # Without this it would begin with the files that have the most tests, which are the quick ones.
    config.option.loadscopereorder = False
    return Scheduling(config, log)
