"""Jobs of Volcano, as the API server writes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.objects.job import TaskSpec


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ({"replicas": 4}, 4),
        ({"replicas": 4, "minAvailable": 0}, 0),
        ({"replicas": 6, "partitionPolicy": {"minPartitions": 2, "partitionSize": 2}}, 4),
        ({"replicas": 6, "partitionPolicy": {"totalPartitions": 3, "partitionSize": 2}}, 6),
        ({"replicas": 6, "minAvailable": 1, "partitionPolicy": {"minPartitions": 2, "partitionSize": 2}}, 1),
    ],
)
def test_a_task_runs_with_what_it_says_its_least_partitions_or_whole(
    spec: dict[str, Any], minimum: int
) -> None:
    assert msgspec.convert(spec, TaskSpec).minimum == minimum
