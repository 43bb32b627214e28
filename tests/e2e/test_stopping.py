"""A scheduler that receives SIGTERM completes its binds, and one that is killed loses no pod either."""

from __future__ import annotations

import signal

import pytest

from .conftest import Start
from .plane import ControlPlane

PODS = 60
#: Binds take some time, so that there are always some under way.
SLOWLY = {"clientConnection": {"qps": 40, "burst": 1}, "bindConcurrency": 8, "workerCount": 4}


async def prepared(plane: ControlPlane) -> list[str]:
    """Create room for all of the pods, and the pods, before a scheduler starts, so that all of them wait for it."""
    for number in range(3):
        await plane.add_node(f"n{number}", cpu="16")
    names = [f"p{number}" for number in range(PODS)]
    await plane.add_pods(names)
    return names


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.wide)])
@pytest.mark.promise("L6", "L4")
async def test_a_signal_lets_binds_under_way_end_and_exits_0(
    plane: ControlPlane, start: Start, number: signal.Signals
) -> None:
    await prepared(plane)
    scheduler = start(config=SLOWLY)
    await plane.pods.until(lambda: len(plane.placed()) >= 10, "10 pods on nodes")
    assert await scheduler.terminate(number) == 0
    (stopping,) = scheduler.records("stopping")
    assert stopping["binds_in_flight"] > 0
    assert scheduler.records("stopped")
    assert not scheduler.records("grace period is over")
    # Binds that were begun are completed and reported; other pods stay as they are.
    pods = await plane.items(f"/api/v1/namespaces/{plane.namespace}/pods?labelSelector={plane.selector}")
    bound = [plane.short(pod["metadata"]["name"]) for pod in pods if pod["spec"].get("nodeName")]
    assert 10 <= len(bound) < PODS
    for name in bound:
        await plane.event(name, "Scheduled")
    plane.assert_never_moved()


async def test_the_next_scheduler_goes_on_where_a_killed_one_ended(plane: ControlPlane, start: Start) -> None:
    names = await prepared(plane)
    await plane.add_pod("hopeless", cpu="99")
    first = start("first", config=SLOWLY)
    await plane.pods.until(lambda: len(plane.placed()) >= 10, "10 pods on nodes")
    assert await first.terminate(signal.SIGKILL) == -signal.SIGKILL
    second = start("second", config={"workerCount": 4})
    placed = await plane.bound(*names)
    assert placed.keys() == set(names)
    await plane.refused("hopeless", message=await plane.fit_error({"Insufficient cpu": 3}))
    plane.assert_never_moved()
    # The second scheduler bound the remaining pods, and tried none that was bound.
    done = second.metric("agent_scheduler_bind_outcomes_total", outcome="bound")
    assert done == second.metric("agent_scheduler_bind_outcomes_total") <= PODS - 10
    for name in names:
        assert len(plane.told(name, "Scheduled")) <= 1
