"""Jobs in all phases, with the scheduler and the controllers of an installation: at rest nothing is written.

Objects of the job controller that other clients delete, edit or restore are corrected, even if it did not run then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_scheduler.controllers.jobs.controller import JobSettings
from agent_scheduler.objects.job import DEPENDS_ON_GANG, RESERVE
from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE
from embedded_kubernetes.kubelet_play import EXIT_CODE, RUN_SECONDS
from tests.support import objects
from tests.support.batched import COMMANDS, add_queue, command
from tests.support.controllers import batch_world
from tests.support.embedded import MERGE, PODS
from tests.support.jobs import GROUPS, JOBS
from tests.support.level import until_as, without
from tests.support.tap import Tap
from tests.support.whole import Whole, stage

V1 = "/api/v1/namespaces/default"
SERVICES, MAPS, SECRETS = f"{V1}/services", f"{V1}/configmaps", f"{V1}/secrets"
CLAIMS, POLICIES = (f"{V1}/persistentvolumeclaims", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies")
PLACES = (PODS, GROUPS, JOBS, SERVICES, MAPS, SECRETS, CLAIMS, POLICIES)
NAME, OUT_OF_SYNC = "volcano.sh/job-name", "volcano.sh/controller-out-of-sync"
#: Fields of a status that hold times.
TIMES = {"lastTransitionTime", "transitionID", "lastProbeTime", "runningDuration"}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


class Installed(Whole):
    def start_controllers(self) -> None:
        self.start(JOB, PODGROUP, QUEUE, job=JobSettings(ssh=True))

    async def picture(self) -> dict[str, Any]:
        return {
            f"{place}/{each['metadata']['name']}": _shown(place, each)
            for place in PLACES
            for each in await self.items(place)
        }

    async def users_come(self) -> None:
        everything: Any = {"plugins": {"svc": [], "ssh": [], "ray": [], "env": []}}
        parts = {"partitionPolicy": {"totalPartitions": 1, "partitionSize": 2, "minPartitions": 1}}
        await self.make_job("runs", stage("head", 2, 2, **parts), minimum=2, **everything)
        later = stage("b", 1, 1, dependsOn={"name": ["a"]})
        for name in ("waits", "vain"):
            await self.make_job(name, stage("a", 1, 1, cpu="9"), later, minimum=2, **everything)
        await self.make_job("reserves", stage("a", 1, 1), later, minimum=2, annotations={DEPENDS_ON_GANG: RESERVE})
        for name, code in (("ends", "0"), ("fails", "1")):
            first = stage("a", 1, 1)
            first["template"]["metadata"] = {"annotations": {RUN_SECONDS: "1", EXIT_CODE: code}}
            await self.make_job(name, first, minimum=1, **everything)
        await self.make_job("lost", stage("a", 2, 2), stage("c", 1, 1, cpu="9"), minimum=2)
        for name in ("aborted", "terminated"):
            await self.make_job(name, stage("a", 1, 1), minimum=1, **everything)
        await add_queue(self, "small", capability={"cpu": "1"})
        volumes = [{"mountPath": "/data", "volumeClaim": CLAIM}]
        body = objects.job("held", stage("a", 2, 2), minimum=2, queue="small", volumes=volumes)
        await self.add(JOBS, body)
        await asyncio.sleep(10)
        for name, action in (("aborted", "AbortJob"), ("terminated", "TerminateJob")):
            target = {"apiVersion": objects.BATCH, "kind": "Job", "name": name, "uid": "u"}
            await self.add(COMMANDS, {**command(action, ""), "target": target})
        for name in ("lost-a-0", "vain-a-0"):
            await self.patch(f"{PODS}/{name}/status", {"status": {"phase": "Failed"}})


def _shown(place: str, each: Any) -> Any:
    metadata = each["metadata"]
    found = {key: metadata.get(key) or {} for key in ("labels", "annotations", "ownerReferences", "deletionTimestamp")}
    match place:
        case _ if place == PODS:
            return found | {"phase": each["status"].get("phase"), "node": "nodeName" in each["spec"]}
        case _ if place == SECRETS:
            return found | {"files": sorted(each["data"]), "config": each["data"].get("config")}
        case _ if place == JOBS:
            return without(TIMES, {**each["status"], "conditions": each["status"]["conditions"][-1:]})
        case _ if place == GROUPS:
            return found | {"spec": each["spec"], "phase": each["status"].get("phase")}
    spec = {key: value for key, value in (each.get("spec") or {}).items() if not key.startswith("clusterIP")}
    return found | {"spec": spec, "data": each.get("data")}


@asynccontextmanager
async def installed() -> AsyncIterator[tuple[Installed, Tap]]:
    """Yield an installation; Secrets, which the plugin ssh creates, are in none of its roles."""
    tap = Tap()
    async with batch_world(Installed, kubelets=True, disturb=tap, components=()) as it:
        for number in range(6):
            await it.add_node(f"n{number}", cpu="8")
        it.start_controllers()
        it.start_scheduler()
        try:
            await it.until_states(root="Open", default="Open")
            await it.users_come()
            await asyncio.sleep(60)
            yield it, tap
        finally:
            await it.stop_scheduler()


@pytest.mark.promise("L19")
async def test_at_rest_nothing_is_written_for_jobs_in_any_phase() -> None:
    async with installed() as (it, tap):
        phases = {each["metadata"]["name"]: each["status"]["state"]["phase"] for each in await it.items(JOBS)}
        assert phases == {
            **dict.fromkeys(("runs", "reserves", "lost"), "Running"),
            **dict.fromkeys(("waits", "held"), "Pending"),
            **dict.fromkeys(("fails", "vain"), "Failed"),
            "ends": "Completed",
            "aborted": "Aborted",
            "terminated": "Terminated",
        }
        before = len(tap.requests)
        await asyncio.sleep(60)
        sent = [f"{each.method} {each.path}" for each in tap.requests[before:] if each.method != "GET"]
        assert Counter(each for each in sent if "/leases" not in each) == {}


WRONG = {"a": "b"}
OWNED = {"metadata": {"ownerReferences": None}}
UNLABELLED = {"metadata": {"labels": {NAME: None}}}
#: What is done to each object of a place: a merge patch; None deletes it, and "restore" makes it again as it was first,
#: without its owner.
HARMS: dict[str, tuple[str, Any]] = {
    **{f"{place.split('/')[-1]} deleted": (place, None) for place in PLACES if place != JOBS},
    **{f"{place.split('/')[-1]} restored": (place, "restore") for place in PLACES if place not in (JOBS, PODS)},
    **{f"{place.split('/')[-1]} disowned": (place, OWNED) for place in PLACES if place != JOBS},
    **{f"{place.split('/')[-1]} without label": (place, UNLABELLED) for place in (PODS, *PLACES[3:])},
    "labels of pods": (PODS, {"metadata": {"labels": {"volcano.sh/task-spec": "x", "volcano.sh/task-index": None}}}),
    "annotations of pods": (
        PODS,
        {"metadata": {"annotations": {"volcano.sh/task-spec": "x", "volcano.sh/job-version": "9", NAME: None}}},
    ),
    "groups of pods": (PODS, {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "x"}}}),
    "pods out of sync": (PODS, {"metadata": {"annotations": {OUT_OF_SYNC: "true"}}}),
    "groups out of sync": (GROUPS, {"metadata": {"annotations": {OUT_OF_SYNC: "true"}}}),
    "minimums": (
        GROUPS,
        {"spec": {"minMember": 7, "minTaskMember": {"x": 3}, "minResources": {"cpu": "9", "x/y": "1"}}},
    ),
    "parts": (GROUPS, {"spec": {"subGroupPolicy": [{"name": "x", "subGroupSize": 3}], "priorityClassName": "x"}}),
    "fields of groups": (
        GROUPS,
        {
            "metadata": {
                "annotations": {
                    "agent-scheduler.io/waiting-roles": "x",
                    "agent-scheduler.io/attainable-minimum": "1,a=1",
                }
            }
        },
    ),
    "selectors": (SERVICES, {"spec": {"selector": {NAME: "x", **WRONG}, "publishNotReadyAddresses": True}}),
    "ports": (SERVICES, {"spec": {"ports": [{"name": "x", "port": 1, "protocol": "TCP"}]}}),
    "hosts": (MAPS, {"data": {"VC_A_HOSTS": "x", **WRONG}}),
    "policies": (POLICIES, {"spec": {"ingress": [], "egress": [], "policyTypes": ["Egress"]}}),
    "ssh": (SECRETS, {"data": {"config": None, "a": "Yg=="}}),
    "keys": (SECRETS, {"data": {"id_rsa": None}}),
    "numbers": (
        JOBS,
        {"status": {"running": 7, "taskStatusCount": {"x": {"phase": {"Running": 1}}}, "minAvailable": 9}},
    ),
    "reasons": (JOBS, {"status": {"state": {"reason": "x", "message": "y"}, "controlledResources": WRONG}}),
    "conditions": (JOBS, {"status": {"conditions": None}}),
    "phases": (JOBS, {"status": {"state": None}}),
    "statuses": (JOBS, {"status": None}),
}


@pytest.mark.promise("L19")
@pytest.mark.parametrize("stopped", [False, True])
async def test_what_others_do_to_what_a_job_has_comes_to_nothing(stopped: bool) -> None:
    async with installed() as (it, _tap):
        wanted, wrong = await it.picture(), []
        first = {f"{place}/{each['metadata']['name']}": each for place in PLACES for each in await it.items(place)}
        for name, (place, body) in HARMS.items():
            if stopped:
                await it.kill(it.processes[-1])
            # Ended pods are not created again, and an ended Job keeps its phase.
            kept = [f"{PODS}/{each}" for each in ("ends", "fails", "vain", "lost")]
            if name in ("phases", "statuses"):
                kept = [f"{JOBS}/{each}" for each in ("ends", "fails", "vain", "aborted", "terminated")]
            for path in [each for each in wanted if each.startswith(f"{place}/") and not each.startswith(tuple(kept))]:
                if body is None or body == "restore":
                    await it.call("DELETE", path)
                    await it.call("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
                if body == "restore":
                    old = {**first[path]["metadata"], "ownerReferences": None}
                    await it.call("POST", place, {**first[path], "metadata": old})  # 409: it exists again
                if isinstance(body, dict):
                    await it.patch(f"{path}/status" if place == JOBS else path, body)
            if stopped:
                it.start_controllers()
            wanted, left = await until_as(wanted, it.picture, 60)
            wrong += [f"{name}: {each}" for each in left]
        assert not wrong, "\n".join(wrong)
