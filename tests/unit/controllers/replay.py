"""Replays a recorded scenario of Volcano's controllers, and tells what is different here.

A scenario has its own namespace, and queues that carry its name, so that several run on one cluster at a time. Where
no Job of Volcano's is in it, its controllers are ours alone.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any, Final

from agent_scheduler.objects.batch import QUEUES, pod_groups
from tests.support.needed import need, recording

from .batch_world import MERGE, BatchWorld

#: Where each kind is, by kind: (API path, plural, namespaced).
_KINDS: Final = {
    "Pod": ("/api/v1", "pods", True),
    "PodGroup": ("/apis/scheduling.volcano.sh/v1beta1", "podgroups", True),
    "Queue": ("/apis/scheduling.volcano.sh/v1beta1", "queues", False),
    "Command": ("/apis/bus.volcano.sh/v1alpha1", "commands", True),
    "ReplicaSet": ("/apis/apps/v1", "replicasets", True),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", True),
}
#: Seconds until a step has to have its result, and for how long that has to stay.
_PATIENCE: Final = 10.0
_STAYS: Final = 0.6
#: Of a pod; the rest is the API server's.
_POD: Final = ("annotations", "labels")


def scenarios(*families: str) -> list[dict[str, Any]]:
    """Those of some families in which no Job of Volcano's is made."""
    path = recording("volcano-jobs/controllers.jsonl.gz", "AGENT_SCHEDULER_VOLCANO_CONTROLLERS")
    need(path.is_file(), f"there is no recording at {path}")
    with gzip.open(path, "rt") as lines:
        found = [json.loads(line) for line in lines]
    return [each for each in found if each["family"] in families and not _makes_jobs(each)]


def _makes_jobs(scenario: dict[str, Any]) -> bool:
    return any(
        op.get("object", {}).get("apiVersion", "").startswith("batch.volcano.sh")
        for step in scenario["steps"]
        for op in step["ops"]
    )


class Replay:
    """One scenario."""

    def __init__(self, it: BatchWorld, scenario: dict[str, Any]) -> None:
        self._it = it
        self._scenario = scenario
        self._namespace = scenario["id"]
        #: Placeholders of UIDs, by UID; and the UIDs.
        self._named: dict[str, str] = {}

    async def run(self) -> list[str]:
        """Differences, by step."""
        body = {"metadata": {"name": self._namespace}}
        await self._it.cluster.ask("POST", "/api/v1/namespaces", body)
        found: list[str] = []
        for number, (step, result) in enumerate(
            zip(self._scenario["steps"], self._scenario["results"], strict=True)
        ):
            codes = [await self._do(self._filled(op)) for op in step["ops"]]
            if codes != result["op_codes"]:
                found.append(f"{self._namespace} step {number}: codes {result['op_codes']}, found {codes}")
            expected = _expected(result["state"])
            if (state := await self._settled(expected)) != expected:
                found.append(f"{self._namespace} step {number}: {_difference(expected, state)}")
        return found

    async def _settled(self, expected: dict[str, Any]) -> dict[str, Any]:
        """The state once it is as expected and stays so, or in the end."""
        loop = asyncio.get_running_loop()
        ends, since = loop.time() + _PATIENCE, None
        while True:
            state = await self._state()
            now = loop.time()
            if state != expected:
                since = None
                if now > ends:
                    return state
            elif since is None:
                since = now
            elif now - since > _STAYS:
                return state
            await asyncio.sleep(0.1)

    def _filled(self, op: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(op).replace("<ns>", self._namespace)
        for uid, placeholder in self._named.items():
            text = text.replace(placeholder, uid)
        return json.loads(text)  # type: ignore[no-any-return]

    # ---- operations

    async def _do(self, op: dict[str, Any]) -> int:
        match op["op"]:
            case "create":
                return await self._create(op["object"])
            case "command":
                target = {
                    "apiVersion": _version(op["kind"]),
                    "kind": op["kind"],
                    "name": op["name"],
                    "uid": "u",
                }
                metadata = {"generateName": "cmd-", "namespace": self._namespace}
                return await self._create(
                    {"apiVersion": _version("Command"), "kind": "Command", "metadata": metadata}
                    | {"action": op["action"], "target": target}
                )
            case "patch":
                path = self._path(op["kind"], op["name"]) + (f"/{op['sub']}" if op.get("sub") else "")
                return await self._call("PATCH", path, op["patch"], content_type=MERGE)
            case "pod_status":
                path = f"{self._path('Pod', op['name'])}/status"
                return await self._call("PATCH", path, {"status": op["status"]}, content_type=MERGE)
            case "delete":
                options = {"gracePeriodSeconds": op["grace"]} if "grace" in op else None
                return await self._call("DELETE", self._path(op["kind"], op["name"]), options)
            case "wait":
                await asyncio.sleep(op["seconds"])
                return 200
        raise ValueError(f"unknown operation {op['op']}")

    async def _create(self, body: dict[str, Any]) -> int:
        answer = await self._it.cluster.call("POST", self._path(body["kind"]), body)
        if answer.status == 201:
            metadata = json.loads(answer.body)["metadata"]
            self._named[metadata["uid"]] = f"<uid:{body['kind']}/{metadata['name']}>"
        return answer.status

    async def _call(self, method: str, path: str, body: Any, **more: Any) -> int:
        return (await self._it.cluster.call(method, path, body, **more)).status

    def _path(self, kind: str, name: str = "") -> str:
        path, plural, namespaced = _KINDS[kind]
        within = f"/namespaces/{self._namespace}" if namespaced else ""
        return f"{path}{within}/{plural}" + (f"/{name}" if name else "")

    # ---- the state, as the recorder took it

    async def _state(self) -> dict[str, Any]:
        ask = self._it.cluster.ask
        pods = (await ask("GET", self._path("Pod")))["items"]
        groups = (await ask("GET", pod_groups(self._namespace)))["items"]
        queues = [
            each
            for each in (await ask("GET", QUEUES))["items"]
            if each["metadata"]["name"].startswith(f"{self._namespace}-")
        ]
        events = (await ask("GET", "/apis/events.k8s.io/v1/events"))["items"]
        state = {
            "pods": {each["metadata"]["name"]: _pod(each) for each in pods},
            "podgroups": {each["metadata"]["name"]: _group(each) for each in groups},
            "queues": {each["metadata"]["name"]: _queue(each) for each in queues},
            "events": sorted(
                [
                    f"{each['regarding']['kind']}/{each['regarding']['name']}",
                    *(each["type"], each["reason"], each["note"]),
                ]
                for each in events
                if each["regarding"]["name"].startswith(f"{self._namespace}-")
            ),
        }
        text = json.dumps(state)
        for uid, placeholder in self._named.items():
            text = text.replace(uid, placeholder)
        return json.loads(text.replace(self._namespace, "<ns>"))  # type: ignore[no-any-return]


def _version(kind: str) -> str:
    return _KINDS[kind][0].removeprefix("/apis/").removeprefix("/api/")


def _expected(state: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a recorded state. The numbers of a queue's groups Volcano has in metrics alone.

    The recorded server had no garbage collector, and the one here has: what a pod owned goes with it.
    """
    pods = state.get("pods", {})
    return {
        "pods": {name: _pod(each) for name, each in pods.items()},
        "podgroups": {
            name: _group(each)
            for name, each in state.get("podgroups", {}).items()
            if all(
                owner["kind"] != "Pod" or owner["name"] in pods
                for owner in each["metadata"]["ownerReferences"]
            )
        },
        "queues": {
            name: {
                "annotations": each["annotations"],
                "spec": each["spec"],
                "state": each["status"].get("state"),
            }
            for name, each in state.get("queues", {}).items()
        },
        "events": sorted(state.get("events", [])),
    }


def _pod(each: dict[str, Any]) -> dict[str, Any]:
    return {part: each["metadata"].get(part) or {} for part in _POD}


def _group(each: dict[str, Any]) -> dict[str, Any]:
    metadata = each["metadata"]
    owners = metadata.get("ownerReferences") or []
    return {
        "annotations": metadata.get("annotations") or {},
        "labels": metadata.get("labels") or {},
        "owners": [{key: value for key, value in owner.items() if key != "apiVersion"} for owner in owners],
        "spec": each["spec"],
        "status": each.get("status") or {},
    }


def _queue(each: dict[str, Any]) -> dict[str, Any]:
    return {
        "annotations": each["metadata"].get("annotations") or {},
        "spec": each["spec"],
        "state": (each.get("status") or {}).get("state"),
    }


def _difference(expected: dict[str, Any], found: dict[str, Any]) -> str:
    parts = [
        f"{key}: expected {expected[key]}, found {found[key]}"
        for key in expected
        if expected[key] != found[key]
    ]
    return "; ".join(parts)
