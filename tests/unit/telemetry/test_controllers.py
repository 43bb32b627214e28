"""What a scrape reads of a process of controllers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agent_scheduler.telemetry.controllers import PHASES, ControllersMetrics
from agent_scheduler.telemetry.families import Families


def scraped(prefix: str, **process: Any) -> dict[str, float]:
    """Samples whose names begin so, without the prefix."""
    metrics = ControllersMetrics(version="1")
    usual = {"reconciles_waiting": {}, "queue_counts": {}, "sharding": None}
    owner = SimpleNamespace(**(usual | process))
    metrics.families.read_from(owner)
    return samples(metrics.families, prefix)


def samples(families: Families, prefix: str) -> dict[str, float]:
    lines = [line for line in families.text().splitlines() if line.startswith(prefix)]
    return {name.removeprefix(prefix): float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_objects_that_wait_are_counted_by_controller() -> None:
    waiting = {"jobs": 3, "queues": 0}
    assert scraped("agent_scheduler_reconciles_waiting", reconciles_waiting=waiting) == {
        '{controller="jobs"}': 3,
        '{controller="queues"}': 0,
    }


def test_groups_of_a_queue_are_counted_in_each_phase() -> None:
    found = scraped("volcano_queue_pod_group_", queue_counts={"q": {"Pending": 2, "Running": 5}})
    numbers = dict.fromkeys(PHASES, 0) | {"Pending": 2, "Running": 5}
    assert found == {f'{phase.lower()}_count{{queue_name="q"}}': number for phase, number in numbers.items()}


def test_the_last_plan_of_shards_is_shown_once_there_is_one() -> None:
    reports = SimpleNamespace(foreign_count=1)
    plan = SimpleNamespace(counts={"a": 5, "b": 2}, short={"b": 3}, unassigned=["n1", "n2"])
    prefix = "agent_scheduler_sharding_"
    shown = scraped(prefix, sharding=SimpleNamespace(plan=plan, reports=reports))
    gauges = {'nodes{shard="a"}': 5, 'nodes{shard="b"}': 2, 'nodes_short{shard="b"}': 3}
    gauges |= {"nodes_unassigned": 2, "foreign_shards": 1}
    assert shown.items() >= gauges.items()
    unplanned = scraped(prefix, sharding=SimpleNamespace(plan=None, reports=reports))
    assert "foreign_shards" in unplanned and not unplanned.keys() & (gauges.keys() - {"foreign_shards"})
    assert not scraped(prefix).keys() & gauges.keys()
