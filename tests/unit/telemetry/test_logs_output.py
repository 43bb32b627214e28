"""The log of a process whose standard error does not accept its lines."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROCESS = """
import sys
from agent_scheduler.telemetry import logs

logs.setup(log_format=sys.argv[1])
for number in range(400):
    logs.get_logger("x").warning("line", number=number, text="y" * 5_000)
import logging
logging.getLogger("lib").error("foreign %s", 1)
print(logs.lost_lines())
"""


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize(
    ("redirected", "least"),
    [("2>/dev/full", 401), ("2> >(exec 0<&-; sleep 0.2)", 1), ("2> >(exec sleep 1 >/dev/null)", 100), ("2>&-", 401)],
)
def test_a_process_ends_as_it_would_and_counts_the_lost_lines(redirected: str, least: int, log_format: str) -> None:
    command = f'exec "$0" -c "$1" {log_format} {redirected}'
    run = subprocess.run(
        ["/bin/bash", "-c", command, sys.executable, PROCESS], stdout=subprocess.PIPE, timeout=60, check=False
    )
    assert run.returncode == 0
    assert int(run.stdout) >= least
