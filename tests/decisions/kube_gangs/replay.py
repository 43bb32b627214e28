"""Runs a recorded case by the fast path on an embedded cluster, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import Any

from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.fastpath.scheduler import FastPath
from embedded_kubernetes import requests
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.inproc import Door
from embedded_kubernetes.resource import Resource
from embedded_kubernetes.store import Store
from kube_client.retry import Timing
from kube_client.testing.loop import START
from tests.support.client import MERGE
from tests.support.in_process import InProcessTransport
from tests.support.running import SETTINGS, Reports, scheduling

Obj = dict[str, Any]

#: Settings of the recordings.
PRIORITY_CLASSES = {"p100": (100, ""), "p1000": (1000, ""), "p2000": (2000, ""), "pnever": (1000, "Never")}
_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default"
_PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/default/pods",
    "PodGroup": f"{_GROUPS}/podgroups",
    "Workload": f"{_GROUPS}/workloads",
}
_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_MORNING = 1_790_000_000.0
#: Seconds without an event after which the recorder wrote the state, and after which it did so in any case.
QUIET, LONGEST = 0.6, 8.0
_LOOK = 0.05
#: Seconds from a request to its answer.
LATENCY = 0.004


def call(api: Api, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    answer = api.handle(requests.Request(method, path, "", body=data, content_type=content_type))
    assert isinstance(answer, requests.Response)
    assert answer.status < 300, (method, path, answer.status, answer.body)
    return json.loads(answer.body)


class Living:
    """One case's cluster and scheduler."""

    def __init__(self, api: Api, fast_path: FastPath, reports: Reports, *, pause: float | None) -> None:
        """`pause`: seconds between two objects of a step; None: all exist when the first is seen."""
        self.api = api
        self.fast_path = fast_path
        self.reports = reports
        self._pause = pause
        #: Group -> names of its members that were ever seen bound.
        self.bound_once: dict[str, set[str]] = {}
        self._told: dict[str, str] = {}

    def call(self, *about: Any) -> Any:
        return call(self.api, *about)

    def listed(self, kind: str) -> list[Obj]:
        items: list[Obj] = self.call("GET", _PATHS[kind])["items"]
        return items

    async def do(self, step: Obj) -> None:
        match step["do"]:
            case "create":
                for each in step["objects"]:
                    self.call("POST", _PATHS[each["kind"]], each)
                    if self._pause is not None:
                        await asyncio.sleep(self._pause)
            case "delete":
                for name in step["names"]:
                    self.call("DELETE", f"{_PATHS[step['kind']]}/{name}", {"gracePeriodSeconds": 0})
            case "patch":
                path = f"{_PATHS[step['kind']]}/{step['name']}"
                at = f"{path}/status" if "status" in step["body"] else path
                self.call("PATCH", at, step["body"], MERGE)
            case "ungate":
                for name in step["names"]:
                    self.call("PATCH", f"{_PATHS['Pod']}/{name}", {"spec": {"schedulingGates": None}}, MERGE)
            case "kubelet":
                for each in self.listed("Pod"):
                    if "deletionTimestamp" in each["metadata"]:
                        path = f"{_PATHS['Pod']}/{each['metadata']['name']}"
                        self.call("DELETE", path, {"gracePeriodSeconds": 0})
            case "wait":
                await asyncio.sleep(step["seconds"])
            case other:
                raise ValueError(f"a case has no step {other!r}")

    async def quiet(self) -> AsyncIterator[Obj]:
        """Yield the state repeatedly, until the recorder would have written it."""
        loop = asyncio.get_running_loop()
        began = changed = loop.time()
        version = self.api.store.rv
        while loop.time() - changed < QUIET and loop.time() - began < LONGEST:
            await asyncio.sleep(_LOOK)
            if self.api.store.rv != version:
                version, changed = self.api.store.rv, loop.time()
                yield self.after()

    def after(self) -> Obj:
        """Return the state in the form of the recordings."""
        return {
            "pods": {each["metadata"]["name"]: _pod(each) for each in self.listed("Pod")},
            "podGroups": {each["metadata"]["name"]: _group(each) for each in self.listed("PodGroup")},
            "events": list(self._events()),
        }

    def told(self) -> None:
        """Count the events so far as those of the steps so far."""
        for each in self.call("GET", _EVENTS)["items"]:
            self._told[each["metadata"]["name"]] = each["metadata"]["resourceVersion"]

    def _events(self) -> Iterator[list[str]]:
        for each in self.call("GET", _EVENTS)["items"]:
            if self._told.get(each["metadata"]["name"]) != each["metadata"]["resourceVersion"]:
                about = each["regarding"]
                yield [about["kind"], about["name"], each["type"], each["reason"], each.get("note", "")]


def _pod(pod: Obj) -> Obj:
    status = pod.get("status", {})
    found: Obj = {}
    if node := pod["spec"].get("nodeName"):
        found["node"] = node
    if nominated := status.get("nominatedNodeName"):
        found["nominatedNode"] = nominated
    for each in status.get("conditions") or ():
        if each["type"] == "PodScheduled":
            found["condition"] = _said(each)
    if "deletionTimestamp" in pod["metadata"]:
        found["deleting"] = True
    return found


def _group(group: Obj) -> Obj | None:
    conditions = group.get("status", {}).get("conditions") or ()
    return next((_said(each) for each in conditions if each["type"] == "PodGroupScheduled"), None)


def _said(condition: Obj) -> Obj:
    return {key: condition[key] for key in ("status", "reason", "message") if condition.get(key)}


@asynccontextmanager
async def living(
    *, pause: float | None = None, kinds: Iterable[Resource] = (*BUILTIN, *ALPHA), **changes: Any
) -> AsyncIterator[Living]:
    """Yield a cluster and its scheduler; `changes` has settings that differ from the defaults."""
    loop = asyncio.get_running_loop()
    numbers = itertools.count(1)
    store = Store(
        clock=lambda: _MORNING + loop.time() - START, uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}"
    )
    api = Api(store, kinds)
    door = Door(api)
    profile = build_profile(ProfileSpec(scheduler_name="default-scheduler", base="default-scheduler"))
    settings = replace(SETTINGS, profiles=(profile,), name="default-scheduler")
    changes.setdefault("initial_backoff", settings.initial_backoff)
    transport = InProcessTransport(door, latency=LATENCY)
    for name, (value, policy) in PRIORITY_CLASSES.items():
        body = {"metadata": {"name": name}, "value": value} | ({"preemptionPolicy": policy} if policy else {})
        call(api, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    by = Timing(clock=loop.time, rng=lambda: 0.0)
    with closing(door):
        async with scheduling(transport, settings, by=by, **changes) as running:
            await asyncio.sleep(0.1)
            fast_path = running.fast_path
            yield Living(api, fast_path, running.reports, pause=pause)
            fast_path.snapshot.refresh()
            columns, size = fast_path.snapshot.columns, fast_path.ledger.columns.size
            assert (columns.usage[:, :, :size] == fast_path.ledger.columns.usage[:, :, :size]).all()
