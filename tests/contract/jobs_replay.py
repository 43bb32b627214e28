"""Replays a recorded scenario of Volcano's controllers in virtual time, and lists the differences.

Each scenario has its own cluster, a bare API server as the recorded one was, and the process that `agent-scheduler
controllers` runs. A step is over when nothing has changed for some seconds, which take no real time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import replace
from typing import Any, Final, NamedTuple

import yaml

from agent_scheduler.controllers.jobs.controller import JobSettings
from agent_scheduler.controllers.queues.controller import ANY_NAMESPACE, QueueCommandSettings
from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE
from agent_scheduler.process.controllers import ControllersProcess
from embedded_kubernetes.builtin import BUILTIN
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.inproc import Door
from embedded_kubernetes.store import Store
from kube_client.testing.loop import SimLoop
from kube_client.testing.virtual import EPOCH, timing
from tests.support.client import MERGE
from tests.support.controllers import settings
from tests.support.in_process import InProcessTransport
from tests.support.needed import recorded_cases
from tests.support.places import CONFIG

from .jobs_argued import Argued
from .jobs_state import KINDS, path_of, recorded_state, take

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CLASSES: Final = {"vc-rec-high": 1000, "vc-rec-mid": 500, "vc-rec-low": 10}
#: Seconds from one operation of a step to the next: the recorder only waited for each response. A controller's request
#: takes half of it.
_BETWEEN: Final = 0.012
#: Seconds until a step has come to rest.
_REST: Final = 3.0


class Outcome(NamedTuple):
    """Differences by step; and the rules of each step's intended differences, empty for an equal one."""

    differences: list[list[str]]
    argued: list[set[str]]


def scenarios() -> list[dict[str, Any]]:
    """Return the scenarios of the file in the environment variable, or of the two beside the checkout."""
    files = (f"volcano-jobs/controllers{part}.jsonl.gz" for part in ("", "-2"))
    return recorded_cases("AGENT_SCHEDULER_VOLCANO_CONTROLLERS", *files)


def replay(scenario: dict[str, Any]) -> Outcome:
    loop = SimLoop(0)
    try:
        found: Outcome = loop.run_until_complete(_Replay(scenario, loop).run())
    finally:
        loop.close()
    if loop.complaints:
        found.differences[-1].extend(loop.complaints)
    return found


class _Replay:
    def __init__(self, scenario: dict[str, Any], loop: SimLoop) -> None:
        self._scenario = scenario
        self._namespace = scenario["id"]
        self._loop = loop
        numbers = itertools.count(1)
        uid = lambda: f"00000000-0000-4000-8000-{next(numbers):012d}"  # noqa: E731
        store = Store(clock=lambda: EPOCH + loop.time(), uid=uid)
        self._door = Door(Api(store, BUILTIN, controllers=False))
        self._commands = itertools.count(1)
        self._created: dict[str, str] = {}

    async def run(self) -> Outcome:
        await self._install()
        process = self._process()
        running = asyncio.create_task(process.run(signals=False))
        await asyncio.sleep(_REST)
        argued = Argued(self._scenario)
        found = Outcome([], [])
        uids: dict[str, str] = {}
        owners: dict[str, str] = {}
        steps = zip(self._scenario["steps"], self._scenario["results"], strict=True)
        try:
            for number, (step, result) in enumerate(steps):
                codes = []
                for op in step["ops"]:
                    codes.append(await self._do(self._filled(op)))
                    await asyncio.sleep(_BETWEEN)
                await asyncio.sleep(_REST)
                owners |= {uid: placeholder for placeholder, uid in self._created.items()}
                state = await take(self._ask, self._namespace, uids, owners)
                argued.used = set()
                of_volcano = (result["op_codes"], recorded_state(result["state"]))
                found.differences.append(argued.compare(number, of_volcano, (codes, state)))
                found.argued.append(argued.used)
        finally:
            process.stop()
            await running
            self._door.close()
        return found

    def _process(self) -> ControllersProcess:
        # Volcano's controllers execute Commands of every namespace.
        commands = QueueCommandSettings(command_namespace=ANY_NAMESPACE)
        its = replace(settings(JOB, PODGROUP, QUEUE), job=JobSettings(ssh=True), queue=commands)
        by = replace(timing(), rng=lambda: 0.5)
        transport = InProcessTransport(self._door, latency=_BETWEEN / 2)
        return ControllersProcess(its, transport=transport, timing=by, identity="replay")

    async def _install(self) -> None:
        for file in sorted((CONFIG / "crd").glob("*.volcano.sh_*.yaml")):
            assert await self._call("POST", _DEFINITIONS, yaml.safe_load(file.read_text())) == 201
        await self._call("POST", "/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        await self._call("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
        for name, value in _CLASSES.items():
            body = {"metadata": {"name": name}, "value": value}
            await self._call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)

    # ---- operations

    def _filled(self, op: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(op).replace("<ns>", self._namespace)
        for placeholder, uid in self._created.items():
            text = text.replace(placeholder, uid)
        return json.loads(text)  # type: ignore[no-any-return]

    async def _do(self, op: dict[str, Any]) -> int:
        match op["op"]:
            case "create":
                return await self._create(op["object"])
            case "command":
                return await self._command(op)
            case "patch":
                path = await self._at(op["kind"], op["name"]) + (f"/{op['sub']}" if op.get("sub") else "")
                return await self._call("PATCH", path, op["patch"])
            case "pod_status":
                path = await self._at("Pod", op["name"])
                return await self._call("PATCH", f"{path}/status", {"status": op["status"]})
            case "podgroup_phase":
                status = {key: op[key] for key in ("phase", "conditions") if key in op}
                path = await self._at("PodGroup", f"of:{op['job']}")
                return await self._call("PATCH", path, {"status": status})
            case "bind":
                body = {"metadata": {"name": op["name"]}, "target": {"kind": "Node", "name": "node-1"}}
                path = await self._at("Pod", op["name"])
                return await self._call("POST", f"{path}/binding", body)
            case "delete":
                options = {"gracePeriodSeconds": op["grace"]} if "grace" in op else None
                return await self._call("DELETE", await self._at(op["kind"], op["name"]), options)
            case "reap":
                return await self._reap()
            case "wait":
                await asyncio.sleep(op["seconds"])
                return 200
        raise ValueError(f"unknown operation {op['op']}")

    async def _create(self, body: dict[str, Any]) -> int:
        status, answer = await self._request("POST", path_of(body["kind"], self._namespace), body)
        if status == 201:
            metadata = answer["metadata"]
            self._created[f"<uid:{body['kind']}/{metadata['name']}>"] = metadata["uid"]
        return status

    async def _command(self, op: dict[str, Any]) -> int:
        version = KINDS[op["kind"]][0].removeprefix("/apis/")
        return await self._create(
            {
                "apiVersion": "bus.volcano.sh/v1alpha1",
                "kind": "Command",
                "metadata": {"name": f"cmd-{next(self._commands)}", "namespace": self._namespace},
                "action": op["action"],
                "target": {"apiVersion": version, "kind": op["kind"], "name": op["name"], "uid": "u"},
            }
        )

    async def _reap(self) -> int:
        for pod in (await self._ask("GET", path_of("Pod", self._namespace)))["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                path = path_of("Pod", self._namespace, pod["metadata"]["name"])
                await self._call("DELETE", path, {"gracePeriodSeconds": 0})
        return 200

    async def _at(self, kind: str, name: str) -> str:
        """Return the object's path; `of:JOB` is the group of a Job."""
        if name.startswith("of:"):
            for each in (await self._ask("GET", path_of(kind, self._namespace)))["items"]:
                owners = each["metadata"].get("ownerReferences") or []
                if any((owner["kind"], owner["name"]) == ("Job", name[3:]) for owner in owners):
                    return path_of(kind, self._namespace, each["metadata"]["name"])
            name = "none"
        return path_of(kind, self._namespace, name)

    async def _call(self, method: str, path: str, body: Any = None) -> int:
        return (await self._request(method, path, body))[0]

    async def _ask(self, method: str, path: str) -> Any:
        return (await self._request(method, path))[1]

    async def _request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        kind = MERGE if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        status, _, answer = await self._door.request(method, path, body=data, headers={"content-type": kind})
        return status, json.loads(answer)
