"""The job controller on an embedded API server in virtual time, and what users, kubelets and a scheduler do."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import yaml

from agent_scheduler.controllers.jobs.controller import JobSettings
from agent_scheduler.kube.retry import Timing
from agent_scheduler.objects.job import DEPENDS_ON_GANG, RESERVE
from agent_scheduler.process.controller_flags import JOB, QUEUE
from agent_scheduler.process.controllers import ControllersProcess
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.inproc import Door
from embedded_kubernetes.store import Store
from tests.support.in_process import InProcessTransport
from tests.support.places import CONFIG

from .batch_world import Dying, settings

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
#: Seconds after which nothing is under way.
REST = 3.0
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
PODS = "/api/v1/namespaces/default/pods"


def task(name: str, replicas: int, minimum: int | None = None, **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    least = {} if minimum is None else {"minAvailable": minimum}
    return {
        "name": name,
        "replicas": replicas,
        **least,
        "template": {"spec": {"containers": [container]}},
        **more,
    }


def policy(event: str, action: str, **more: Any) -> dict[str, Any]:
    return {"event": event, "action": action, **more}


class JobsWorld:
    """Owner of the processes, which end with it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        numbers = itertools.count(1)
        store = Store(
            clock=lambda: _EPOCH + loop.time(), uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}"
        )
        self.door = Door(Api(store, BUILTIN, controllers=False))
        self.timing = Timing(
            clock=loop.time,
            sleep=asyncio.sleep,
            rng=lambda: 0.5,
            now=lambda: datetime.fromtimestamp(_EPOCH + loop.time(), UTC),
        )
        self._running: dict[ControllersProcess, asyncio.Task[int]] = {}

    # ---- processes

    def start(self, transport: Any = None, *, ssh: bool = False) -> ControllersProcess:
        process = ControllersProcess(
            replace(settings(JOB, QUEUE), job=JobSettings(ssh=ssh)),
            transport=transport or InProcessTransport(self.door),
            timing=self.timing,
            identity=f"c{len(self._running)}",
        )
        self._running[process] = asyncio.create_task(process.run(signals=False))
        return process

    async def kill(self, process: ControllersProcess) -> None:
        task = self._running.pop(process)
        task.cancel()
        await asyncio.wait({task})

    async def end(self) -> None:
        for process, running in self._running.items():
            process.stop()
            await running
        self.door.close()

    def dying(self, at: int, *, sent: bool) -> Dying:
        return Dying(InProcessTransport(self.door), at, sent=sent)

    # ---- what others do

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        status, _, answer = await self.door.request(method, path, body=data, headers={"content-type": kind})
        return status, json.loads(answer)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = await self.call(method, path, body)
        assert status < 300, (method, path, status, answer)
        return answer

    async def add_job(
        self, *tasks: dict[str, Any], minimum: int | None = None, reserves: bool = False, **spec: Any
    ) -> None:
        least = sum(each["replicas"] for each in tasks) if minimum is None else minimum
        common = {"queue": "default", "schedulerName": "volcano", "minAvailable": least}
        body = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "j", "annotations": {DEPENDS_ON_GANG: RESERVE} if reserves else {}},
            "spec": {**common, "tasks": list(tasks), **spec},
        }
        await self.ask("POST", JOBS, body)
        await asyncio.sleep(REST)

    async def group_is(self, phase: str) -> None:
        (group,) = (await self.ask("GET", GROUPS))["items"]
        await self.ask("PATCH", f"{GROUPS}/{group['metadata']['name']}", {"status": {"phase": phase}})
        await asyncio.sleep(REST)

    async def bind(self, *names: str) -> None:
        """So that a deletion takes until the kubelet has ended the pod."""
        for name in names:
            body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
            await self.ask("POST", f"{PODS}/{name}/binding", body)

    async def pods_are(self, phase: str, *names: str, code: int = 1) -> None:
        state = {"terminated": {"exitCode": code if phase == "Failed" else 0}}
        report: dict[str, Any] = {"name": "c", "image": "i", "imageID": "", "restartCount": 0}
        report |= {"ready": phase == "Running", "state": {"running": {}} if phase == "Running" else state}
        for name in names:
            status = {"phase": phase, "containerStatuses": [report]}
            await self.ask("PATCH", f"{PODS}/{name}/status", {"status": status})
        await asyncio.sleep(REST)

    async def reap(self) -> None:
        for pod in (await self.ask("GET", PODS))["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                await self.ask("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        await asyncio.sleep(REST)

    async def command(self, action: str) -> None:
        await self.ask(
            "POST",
            COMMANDS,
            {
                "apiVersion": "bus.volcano.sh/v1alpha1",
                "kind": "Command",
                "metadata": {"generateName": "order-"},
                "action": action,
                "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u"},
            },
        )

    # ---- what there is

    async def status(self) -> Any:
        return (await self.ask("GET", f"{JOBS}/j")).get("status") or {}

    async def phase(self) -> Any:
        return (await self.status())["state"]["phase"]

    async def pods(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in (await self.ask("GET", PODS))["items"]}

    async def notes(self) -> list[str]:
        found = (await self.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
        return sorted(each["note"] for each in found)


@asynccontextmanager
async def jobs_world() -> AsyncIterator[JobsWorld]:
    it = JobsWorld()
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in sorted((CONFIG / "crd").glob("*.volcano.sh_*.yaml")):
        await it.ask("POST", definitions, yaml.safe_load(file.read_text()))
    await it.call("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    await it.ask("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    try:
        yield it
    finally:
        await it.end()
