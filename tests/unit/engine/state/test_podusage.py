"""What pods count as in a quota."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.state.podusage import quota_usage, times
from agent_scheduler.objects.workload import TemplateSpec
from apimachinery.quantity import QuantityError


def usage(number: int = 1, **spec: Any) -> dict[str, str]:
    return times(quota_usage(msgspec.convert(spec, TemplateSpec)), number)


def container(requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def test_requests_and_limits_have_the_names_of_quotas_and_extended_resources_both() -> None:
    found = usage(
        3,
        containers=[
            container({"cpu": "500m", "memory": "512Mi", "nvidia.com/gpu": 1}, {"cpu": 1, "nvidia.com/gpu": 1})
        ],
    )
    assert found == {
        "pods": "3",
        "count/pods": "3",
        "cpu": "1500m",
        "requests.cpu": "1500m",
        "limits.cpu": "3",
        "memory": "1536Mi",
        "requests.memory": "1536Mi",
        "nvidia.com/gpu": "3",
        "requests.nvidia.com/gpu": "3",
    }


def test_an_init_step_counts_where_it_takes_more_and_a_sidecar_always() -> None:
    init = [container({"memory": "1Gi"}, restartPolicy="Always"), container({"cpu": "4", "memory": "1Mi"})]
    found = usage(containers=[container({"cpu": "1", "memory": "1Gi"})], initContainers=init)
    assert (found["cpu"], found["memory"]) == ("4", "2Gi")


def test_the_pods_own_amounts_take_the_place_of_the_sum_and_overhead_comes_on_top() -> None:
    found = usage(
        containers=[container({"cpu": "1", "memory": "1Gi"}, {"memory": "1Gi"})],
        resources={"requests": {"cpu": "3"}},
        overhead={"cpu": "250m", "memory": "1Mi"},
    )
    assert found["cpu"] == "3250m"
    assert (found["memory"], found["limits.memory"]) == ("1025Mi", "1025Mi")
    # What has no limit gets none from the overhead.
    assert "limits.cpu" not in found


def test_no_pods_count_as_nothing_and_a_pod_without_requests_as_a_pod() -> None:
    assert usage(0, containers=[container({"cpu": 1})]) == {}
    assert usage(2, containers=[{}]) == {"pods": "2", "count/pods": "2"}


def test_what_is_no_amount_is_refused() -> None:
    with pytest.raises(QuantityError):
        usage(containers=[container({"cpu": "much"})])
