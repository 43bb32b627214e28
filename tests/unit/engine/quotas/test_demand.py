"""What a job was let in for and does not hold yet."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.quotas.demand import JobDemand

GPU = "nvidia.com/gpu"


def job(phase: str = "Inqueue", **fields: object) -> JobDemand:
    return JobDemand(queue="q", phase=phase, **{"minimum": {"cpu": 4000, "memory": 10}, **fields})  # type: ignore[arg-type]


def test_what_is_allocated_is_not_waited_for_again() -> None:
    assert job(allocated={"cpu": 1000, "memory": 99, "pods": 1}).admitted() == {"cpu": 3000, "memory": 0}


def test_what_gates_hold_is_not_waited_for() -> None:
    assert job(gated={"cpu": 9000, "pods": 1}).admitted() == {"cpu": 0, "memory": 10}


@pytest.mark.parametrize("phase", ["Pending", "Unknown", "Completed", ""])
def test_a_job_in_another_phase_waits_for_nothing(phase: str) -> None:
    assert job(phase).admitted() == {}


def test_a_job_without_a_minimum_waits_for_nothing() -> None:
    assert job(minimum=None).admitted() == {}


def test_a_running_job_waits_only_while_it_has_its_members() -> None:
    assert job("Running", min_member=2, holding=1, allocated={"cpu": 1}).admitted() == {}
    assert job("Running", min_member=2, holding=2, allocated={"cpu": 1}).admitted() == {
        "cpu": 3999,
        "memory": 10,
    }


def test_of_other_resources_a_thousandth_counts_as_for_volcano() -> None:
    assert job(minimum={GPU: 2000}).admitted() == {"cpu": 0, "memory": 0, GPU: 2}
    assert job(minimum={GPU: 2000}, allocated={GPU: 1000}).admitted() == {"cpu": 0, "memory": 0}


def test_what_is_held_above_the_minimum_is_elastic() -> None:
    assert job(allocated={"cpu": 5000, "memory": 4, "pods": 2}).elastic() == {
        "cpu": 1000,
        "memory": 0,
        "pods": 2,
    }
