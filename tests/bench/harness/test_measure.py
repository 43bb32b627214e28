"""Metrics texts and /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.harness.measure import Exposition, usage


def test_an_exposition_is_summed_by_name_and_by_label() -> None:
    text = Exposition(
        "# HELP scheduler_pending_pods x\n# TYPE scheduler_pending_pods gauge\n"
        'scheduler_pending_pods{queue="active"} 3\nscheduler_pending_pods{queue="backoff",p="a b"} 1e1\n'
        'agent_scheduler_conflicts_total{kind="a\\"}b"} 2\nplain_total 5 1700000000\nbroken{x="1"} zero\n'
    )
    assert text.by("scheduler_pending_pods", "queue") == {"active": 3.0, "backoff": 10.0}
    assert text.total("scheduler_pending_pods") == 13.0
    assert text.total("agent_scheduler_conflicts_total") == 2.0
    assert text.total("plain_total") == 5.0
    assert text.total("broken") is None
    assert text.total("absent") is None
    assert text.by("absent", "queue") == {}


def test_a_processes_cost_is_its_cpu_and_memory() -> None:
    before = usage(os.getpid())
    if before is None:
        return  # no /proc on this system
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    after = usage(os.getpid())
    assert after is not None
    assert after.cpu_seconds > before.cpu_seconds
    assert after.rss > 1 << 20


def test_a_process_that_is_gone_costs_nothing_known(tmp_path: Path) -> None:
    assert usage(1, proc=tmp_path) is None
