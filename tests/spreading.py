"""How `make test` spreads the tests over its processes, and in which order.

Tests of a file stay together, as they share what the file starts; but not the cases of a test that share nothing and
take long.
Those that wait for processes most of the time and those that compute are taken by turns, so that the ones use the
cores while the others wait; and what takes long is not begun when all else is done.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.needed import LACKING

#: Files of whose tests each case may run in any process.
APART = (
    "tests/sim/test_seeds.py",
    "tests/sim/test_found.py",
    "tests/sim/test_judges.py",
    "tests/decisions/test_random.py",
)
#: What waits for processes and sockets, in this order.
WAITING = (
    "tests/e2e/test_image.py",
    "tests/e2e/test_faults.py",
    "tests/e2e/test_kubectl.py",
    "tests/e2e/",
    "tests/console/",
)
#: What computes for long, in this order; after all comes the rest, as it is collected.
COMPUTING = ("tests/decisions/", "tests/sim/", "tests/features/", "tests/unit/engine/")


def scope(test: str) -> str:
    """What is not divided: the file of `test`, a node id, or the test alone."""
    file = test.partition("::")[0]
    return test if file in APART and test.endswith("]") else file


def order(tests: Iterable[str]) -> dict[str, float]:
    """Each scope's place, from the first on."""
    scopes = list(dict.fromkeys(scope(test) for test in tests))
    waiting, computing = (
        sorted((each for each in scopes if each.startswith(kind)), key=lambda each: _place(each, kind))
        for kind in (WAITING, COMPUTING)
    )
    places = {each: float(len(scopes)) for each in scopes}
    places |= {each: float(place) for place, each in enumerate(waiting)}
    # As many of the one kind before as of the other, in proportion, so that neither is left for the end.
    places |= {each: place * len(waiting) / len(computing) + 0.5 for place, each in enumerate(computing)}
    return places


def _place(test: str, starts: tuple[str, ...]) -> int:
    return next(at for at, start in enumerate(starts) if test.startswith(start))


def import_share(config: pytest.Config, is_left_out: Callable[[Path], bool]) -> None:
    """Of a run of all tests, each process imports some of the files first: those that are new are rewritten by pytest
    and compiled on the way, which else every process would do with every file."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    root = config.rootpath
    files = sorted(
        file for path in config.args for file in (root / path).rglob("test_*.py") if not is_left_out(file)
    )
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        # What cannot be imported is an error of the collection that follows.
        with suppress(Exception, *LACKING):
            _import(file)


def _import(file: Path) -> None:
    """Imports a file of tests under the name that pytest gives it: from the first folder that is no package."""
    top = file.parent
    while (top / "__init__.py").exists():
        top = top.parent
    if str(top) not in sys.path:
        sys.path.insert(0, str(top))
    importlib.import_module(".".join(file.relative_to(top).with_suffix("").parts))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """For xdist, which is not there in a run of one process."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    # Else it would begin with the files that have the most tests, which are the quick ones.
    config.option.loadscopereorder = False
    return Scheduling(config, log)
