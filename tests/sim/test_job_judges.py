"""The judges of worlds with Jobs see a controller that breaks what it promises of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agent_scheduler.cluster.standing_by import StandingBy
from agent_scheduler.controllers.jobs import carrying, controller, depends
from agent_scheduler.controllers.jobs.carrying import Carrying
from agent_scheduler.controllers.jobs.controller import JobController
from agent_scheduler.controllers.jobs.states import COMPLETED, ENDED, RESTART_JOB, RUNNING
from agent_scheduler.engine.session.plugins import gang
from agent_scheduler.engine.session.tiers import Tiers

from .job_load import DEPENDS_ON_GANG, JOB_VERSION, JOBS
from .judging import found
from .scenarios import pod
from .world import Options, World, run


def test_all_is_well_in_what_they_see_otherwise() -> None:
    for seed in (0, 3, 7, 11, 14):
        assert not run(Options(seed=seed, scenario="jobs", faults=())).violations


def test_a_stage_that_begins_before_its_turn_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "waiting_tasks", lambda _job, _pods: {})
    assert "begins before its turn" in found("jobs", "S35:")


def test_a_stage_that_begins_with_pods_that_are_not_ready_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the judge asks what the controller knew."""
    monkeypatch.setattr(depends, "is_ready", lambda pod: pod.metadata.deletion_timestamp is None)
    assert "begins before its turn" in found("jobs", "S35:", faults=("lagging", "job_changed"))


def test_a_stage_that_begins_with_pods_of_before_a_restart_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has succeeded counts when a Job is resumed, and when it is restarted it does not."""
    kill_for = controller.kill_for

    def keeps(job: Any, action: str) -> Any:
        kill = kill_for(job, action)
        return replace(kill, retain=ENDED) if kill is not None and action == RESTART_JOB else kill

    monkeypatch.setattr(controller, "kill_for", keeps)
    assert "begins before its turn" in found("jobs", "S35:", faults=("pod_failed",), first=23)


def test_pods_that_nobody_asked_for_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = carrying.wanted_pods

    def one_more(job: Any) -> Any:
        found = wanted(job)
        task, index = next(reversed(found.values()))
        return found | {f"{job.metadata.name}-{task.name}-{index + 1}": (task, index + 1)}

    monkeypatch.setattr(carrying, "wanted_pods", one_more)
    assert "is one of" in found("jobs", "S36:")


def test_a_phase_that_leads_nowhere_from_there_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    next_phase = carrying.next_phase

    def back(job: Any, status: Any) -> str:
        found = next_phase(job, status)
        return RUNNING if found == COMPLETED and status.state.phase == COMPLETED else found

    monkeypatch.setattr(carrying, "next_phase", back)
    assert "from Completed to Running" in found("jobs", "S37:")


def test_a_job_that_is_tried_for_ever_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_scheduler.controllers.jobs.states.max_retry", lambda _job: 100)
    assert "is tried again for the" in found("jobs", "S37:", faults=("pod_failed",), first=4)


def test_pods_that_are_never_made_again_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Carrying._make_pods

    async def few(self: Carrying, job: Any, missing: Any, *more: Any) -> bool:
        return await make(self, job, [each for each in missing if each[1] == 0], *more)

    monkeypatch.setattr(Carrying, "_make_pods", few)
    assert "lacks" in found("jobs", "L19:")


def test_numbers_that_are_not_told_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = carrying.counted
    monkeypatch.setattr(
        carrying, "counted", lambda status, pods: msgspec.structs.replace(counted(status, pods), running=0)
    )
    assert "says 0 running" in found("jobs", "L19:")


def test_jobs_that_stay_when_their_time_is_over_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stay(*_args: Any) -> bool:
        return True

    monkeypatch.setattr(JobController, "_expire", stay)
    assert "was to go" in found("jobs", "L19:", first=9)


def test_commands_that_nobody_carries_out_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobController, "_next_command", lambda *_args: None)
    assert "command" in found("jobs", "L19:", faults=("job_commanded",))


def test_room_with_which_pods_stand_by_that_nobody_runs_before_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Tiers, "in_pending_order", lambda self, _job, tasks: self.in_task_order(tasks))
    monkeypatch.setattr(gang, "_somebody_runs", lambda *_args: True)
    monkeypatch.setattr(StandingBy, "left_alone", lambda *_args: None)
    assert "binds are in flight" in found("jobs", "L5:", faults=None, first=4004692)


def _task(name: str, replicas: int, *, cpu: int, **more: Any) -> dict[str, Any]:
    template = pod(name, cpu=cpu, restartPolicy="Never")
    del template["metadata"]["name"], template["spec"]["schedulerName"]
    return {"name": name, "replicas": replicas, "template": template, **more}


def test_pods_may_stand_by_with_room_for_as_long_as_others_run_before_them() -> None:
    world = World(Options(seed=3, scenario="jobs", faults=()))
    world.shape.pods.clear()
    tasks = [
        # Some of these run for ever, and the others fit nowhere.
        _task("a", 10 * len(world.shape.nodes), cpu=900),
        _task("b", 1, cpu=50, dependsOn={"name": ["a"], "iteration": "all"}),
    ]
    job = {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "metadata": {"name": "j", "annotations": {DEPENDS_ON_GANG: "reserve"}},
        "spec": {"schedulerName": "volcano", "queue": "default", "minAvailable": 1, "tasks": tasks},
    }
    world.shape.acts[:] = [each for each in world.shape.acts if "/jobs" not in each[2]]
    world.shape.acts.append((2.0, "POST", JOBS, job))
    verdict = world.run()
    assert verdict.violations == []
    assert verdict.states["pod stands by at rest"]
