"""Random events of a Job: wherever its controller dies, the Job ends in a state that follows from the existing objects.

By seeds, users, kubelets and a scheduler make changes, and processes die at their writes or between them.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.support.batched import COMMANDS
from tests.support.embedded import MERGE, PODS
from tests.support.examples import FACTOR, in_time
from tests.support.jobs import GROUPS, JOBS, REST, JobsWorld, jobs_world, policy, reported
from tests.support.objects import task

_ACTIONS = ("AbortJob", "RestartJob", "RestartTask", "RestartPod", "TerminateJob", "CompleteJob", "ResumeJob")
_EVENTS = ("PodFailed", "PodEvicted", "TaskCompleted", "Unknown", "*")
_ORDERS = ("AbortJob", "ResumeJob", "ResumeJob", "RestartJob", "CompleteJob", "TerminateJob", "Nonsense")
_CLOSED = {"Aborting", "Aborted", "Terminating", "Terminated", "Completing", "Completed", "Failed"}
_FINISHED = {"Aborted", "Terminated", "Completed", "Failed"}
#: The number of events of one Job.
_TURNS = 25


class _Life:
    """The events of one Job, and the checks at the end."""

    def __init__(self, it: JobsWorld, seed: int) -> None:
        self._it = it
        self._rng = random.Random(seed)
        self._process: Any = None
        self._dying: Any = None

    async def run(self) -> None:
        rng = self._rng
        await self._takes_over()
        await self._it.add_job(*self._tasks(), minimum=rng.randint(1, 4), maxRetry=rng.randint(1, 4), **self._more())
        for _ in range(_TURNS):
            await rng.choice((self._pod, self._pod, self._pod, self._group, self._group, self._other))()
            await asyncio.sleep(rng.choice((0.0, 0.01, 0.1, REST)))
            if self._dying.died.is_set() or rng.random() < 0.1:
                await self._takes_over()
        await self._takes_over(for_good=True)
        for _ in range(3):
            await self._it.reap()
        await self._check()

    async def _takes_over(self, *, for_good: bool = False) -> None:
        """Start another process, which dies during its writes or does not."""
        if self._process is not None:
            await self._it.kill(self._process)
        at = 10**9 if for_good else self._rng.randint(1, 60)
        self._dying = self._it.dying(at, sent=self._rng.random() < 0.5)
        self._process = self._it.start(self._dying)
        await asyncio.sleep(self._rng.choice((0.05, REST)))

    # ---- events

    def _tasks(self, most: int = 3) -> list[dict[str, Any]]:
        rng = self._rng
        policies = [policy(rng.choice(_EVENTS), rng.choice(_ACTIONS)) for _ in range(rng.randint(0, 1))]
        first = task("a", rng.randint(0, most), minimum=rng.randint(0, 1), policies=policies)
        second = task("b", rng.randint(1, most), minimum=1, **rng.choice(({}, {"dependsOn": {"name": ["a"]}})))
        return [first, second]

    def _more(self) -> dict[str, Any]:
        rng = self._rng
        policies = [policy(rng.choice(_EVENTS), rng.choice(_ACTIONS)) for _ in range(rng.randint(0, 2))]
        return {"policies": policies, **rng.choice(({}, {"plugins": {"svc": [], "env": []}}, {"minSuccess": 2}))}

    async def _pod(self) -> None:
        rng = self._rng
        pods = await self._it.pods()
        if not pods:
            return
        name = rng.choice(sorted(pods))
        match rng.randint(0, 6):
            case 0:
                options = rng.choice((None, {"gracePeriodSeconds": 0}))
                await self._it.call("DELETE", f"{PODS}/{name}", options)
            case 1:
                binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
                await self._it.call("POST", f"{PODS}/{name}/binding", binding)
            case _:
                phase = rng.choice(("Running", "Running", "Succeeded", "Failed"))
                status = {"phase": phase, "containerStatuses": [reported(phase)]}
                await self._it.call("PATCH", f"{PODS}/{name}/status", {"status": status}, content_type=MERGE)

    async def _group(self) -> None:
        for group in await self._it.items(GROUPS):
            phase = self._rng.choice(("Pending", "Inqueue", "Inqueue", "Running", "Running", "Unknown"))
            await self._it.call(
                "PATCH", f"{GROUPS}/{group['metadata']['name']}", {"status": {"phase": phase}}, content_type=MERGE
            )

    async def _other(self) -> None:
        match self._rng.randint(0, 3):
            case 0:
                await self._it.command(self._rng.choice(_ORDERS))
            case 1:
                tasks = (await self._it.get(f"{JOBS}/j"))["spec"]["tasks"]
                for each in tasks:
                    each["replicas"] = self._rng.randint(1, 4)
                await self._it.patch(f"{JOBS}/j", {"spec": {"tasks": tasks}})
            case 2:
                await self._it.reap()
            case _:
                for group in (await self._it.items(GROUPS))[:1]:
                    await self._it.call("DELETE", f"{GROUPS}/{group['metadata']['name']}")

    # ---- invariants

    async def _check(self) -> None:
        job = await self._it.get(f"{JOBS}/j")
        status, spec, pods = job["status"], job["spec"], await self._it.pods()
        phase = status["state"]["phase"]
        assert await self._it.items(COMMANDS) == []
        phases = [pod["status"]["phase"] for pod in pods.values()]
        for name, key in (
            ("Pending", "pending"),
            ("Running", "running"),
            ("Succeeded", "succeeded"),
            ("Failed", "failed"),
        ):
            assert status.get(key, 0) == phases.count(name), (key, status, phases)
        assert not any("deletionTimestamp" in pod["metadata"] for pod in pods.values())
        conditions = [each["status"] for each in status["conditions"]]
        assert conditions[-1] == phase
        assert len(set(conditions)) == len(conditions)
        assert status.get("retryCount", 0) <= spec["maxRetry"]
        groups = await self._it.items(GROUPS)
        services = await self._it.items("/api/v1/namespaces/default/services")
        if phase in _CLOSED:
            assert phase in _FINISHED
            assert groups == services == []
            assert set(phases) <= {"Succeeded", "Failed"}
            return
        (group,) = groups
        assert group["spec"].get("minMember", 0) == spec["minAvailable"]
        assert len(services) == ("svc" in (spec.get("plugins") or {}))
        wanted = {f"j-{each['name']}-{index}" for each in spec["tasks"] for index in range(each["replicas"])}
        if (group.get("status") or {}).get("phase", "") not in ("", "Pending"):
            assert pods.keys() <= wanted
            missing = {name.split("-")[1] for name in wanted - pods.keys()}
            assert missing <= {"b"}
            assert (status["state"].get("reason") == "TasksWaiting") == bool(missing)


@in_time
@pytest.mark.drawn
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.wide if seed > 2 else ()) for seed in range(12 * FACTOR)]
)
@pytest.mark.promise("L19")
async def test_a_job_comes_to_rest_in_a_state_that_follows_from_what_is_there(seed: int) -> None:
    async with jobs_world() as it:
        await _Life(it, seed).run()
