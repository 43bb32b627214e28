"""How `make test` spreads the tests over its processes, and in which order.

Tests of a file stay together, as they share what the file starts, but for those that share nothing and take long.
End-to-end tests come first: they wait for processes most of the time, in which the others can use the cores; and what
takes long is not begun when all else is done.
"""

from __future__ import annotations

from typing import Any

import pytest

#: Files of which each test may run in any process.
APART = (
    "tests/sim/test_seeds.py",
    "tests/decisions/test_random.py",
    "tests/unit/engine/queueing/test_waking_bursts.py",
    "tests/unit/engine/queueing/test_waking_histories.py",
)
#: In this order; after them comes the rest, as it is collected.
FIRST = (
    "tests/e2e/test_processes.py",
    "tests/e2e/test_faults.py",
    "tests/e2e/",
    "tests/unit/processes/",
    "tests/unit/controllers/",
    "tests/unit/shards/",
    "tests/unit/kubelet/test_cluster",
    *APART,
    "tests/decisions/",
)


def scope(test: str) -> str:
    """What is not divided: the file of `test`, a node id, or the test alone."""
    file = test.partition("::")[0]
    return test if file in APART else file


def rank(test: str) -> int:
    """Its place among `FIRST`."""
    return next((at for at, start in enumerate(FIRST) if test.startswith(start)), len(FIRST))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """For xdist, which is not there in a run of one process."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    # Else it would begin with the files that have the most tests, which are the quick ones.
    config.option.loadscopereorder = False
    return Scheduling(config, log)
