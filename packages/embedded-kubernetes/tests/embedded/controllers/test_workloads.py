"""Deployments, ReplicaSets and Jobs, with the controllers that act on them and simulated kubelets."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any

import pytest

from embedded.support import (
    ADMISSION,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PODS,
    SETS,
    World,
    labelling,
    named,
    rule,
    until,
    webhook,
)
from embedded_kubernetes.controller_list import NAMES, start
from embedded_kubernetes.kubelet import Kubelets
from embedded_kubernetes.kubelet_play import EXIT_CODE, RUN_SECONDS
from embedded_kubernetes.store import Record
from embedded_kubernetes.workloads import controller
from embedded_kubernetes.workloads.pods import Pod, read
from embedded_kubernetes.workloads.replica_sets import ReplicaSets


@pytest.fixture
def world() -> World:
    made = World(nodes="n1")
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "200"}
    made.patch("/api/v1/nodes/n1/status", {"status": {"allocatable": amounts}})
    controllers = frozenset(name for name in NAMES if name.split("-")[0] in ("deployment", "replicaset", "job"))
    made.controllers = [*start(made.api, controllers, kubelets=True), Kubelets(made.store)]
    return made


def template(image: str = "i", **annotations: str) -> dict[str, Any]:
    """Return a template of pods that need no scheduler."""
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": image}]}
    return {"metadata": {"labels": {"app": "x"}, "annotations": annotations}, "spec": spec}


def replicated(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "x"}}
    return named(name, spec={"replicas": replicas, "selector": selector, "template": template(), **spec})


def job(name: str = "j", policy: str = "Never", code: str = "0", life: str = "1", **spec: Any) -> dict[str, Any]:
    made = template(**{EXIT_CODE: code, RUN_SECONDS: life})
    made["spec"]["restartPolicy"] = policy
    del made["metadata"]["labels"]
    return named(name, spec={"template": made, **spec})


def pods(world: World) -> list[Any]:
    found: list[Any] = world.get(PODS)["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def images(found: Iterable[Any]) -> set[str]:
    return {each["spec"]["containers"][0]["image"] for each in found}


def conditions(world: World, path: str) -> dict[str, tuple[str, str]]:
    found = world.get(path)["status"].get("conditions", [])
    return {each["type"]: (each["status"], each.get("reason", "")) for each in found}


def reasons(world: World, name: str) -> set[str]:
    events = world.get(EVENTS)["items"]
    return {each["reason"] for each in events if each["involvedObject"]["name"].startswith(name)}


# ---- ReplicaSets


def test_a_replica_set_has_as_many_pods_as_it_asks_for(world: World) -> None:
    world.post(SETS, replicated("r", 3))
    world.settle()
    first, *_ = found = pods(world)
    assert len(found) == 3
    (owner,) = first["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ReplicaSet", "r", True)
    assert first["metadata"]["name"].startswith("r-")
    status = world.get(f"{SETS}/r")["status"]
    counts = {"replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
    assert status == {**counts, "observedGeneration": 1}
    assert reasons(world, "r") == {"SuccessfulCreate"}


@pytest.mark.parametrize(("path", "made"), [(SETS, replicated("r", 60)), (JOBS, job(parallelism=60, completions=60))])
def test_a_controller_decodes_each_version_of_a_pod_about_once(
    world: World, path: str, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions: list[tuple[str, int]] = []

    def noted(record: Record) -> Pod:
        versions.append((record.uid, record.rv))
        return read(record)

    monkeypatch.setattr(controller, "read", noted)
    world.post(path, made)
    world.settle()
    assert len(pods(world)) == 60
    assert len({uid for uid, _ in versions}) == 60
    assert len(versions) == len(set(versions)) <= 10 * 60


def test_a_pod_that_goes_or_fails_is_replaced(world: World) -> None:
    world.post(SETS, replicated("r", 2))
    world.settle()
    one, two = (pod["metadata"]["name"] for pod in pods(world))
    world.delete(f"{PODS}/{one}")
    world.patch(f"{PODS}/{two}/status", {"status": {"phase": "Failed"}})
    world.settle(5.0)
    assert two in world.names(PODS)
    assert one not in world.names(PODS)
    assert sum(pod["status"]["phase"] == "Running" for pod in pods(world)) == 2


def test_who_is_not_ready_goes_before_who_is_cheap_before_who_is_old(world: World) -> None:
    world.post(SETS, replicated("r", 3))
    world.settle(5.0)
    sick, cheap, dear = (pod["metadata"]["name"] for pod in pods(world))
    world.report(sick, ready=False)
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}}
    world.patch(f"{PODS}/{cheap}", cost)
    for left in ({cheap, dear}, {dear}):
        world.patch(f"{SETS}/r/scale", {"spec": {"replicas": len(left)}})
        world.settle(5.0)
        assert {pod["metadata"]["name"] for pod in pods(world)} == left
    assert "SuccessfulDelete" in reasons(world, "r")


def test_a_pod_is_available_when_it_was_ready_for_long_enough(world: World) -> None:
    world.post(SETS, replicated("r", 1, minReadySeconds=20))
    world.settle(10.0)
    status = world.get(f"{SETS}/r")["status"]
    assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (1, 0)
    world.settle(15.0)
    assert world.get(f"{SETS}/r")["status"]["availableReplicas"] == 1


def test_pods_that_are_refused_are_tried_again(world: World) -> None:
    constraints = {"resourceRules": [rule("pods", operations="CREATE")]}
    validation = {"expression": "request.userInfo.username.endsWith('x')", "message": "no pods"}
    world.policy("Validating", {"matchConstraints": constraints, "validations": [validation]})
    world.post(SETS, replicated("r", 2))
    world.settle(10.0)
    assert pods(world) == []
    assert conditions(world, f"{SETS}/r") == {"ReplicaFailure": ("True", "FailedCreate")}
    assert reasons(world, "r") == {"FailedCreate"}
    world.delete(f"{ADMISSION}/validatingadmissionpolicybindings/b")
    world.settle(60.0)
    assert len(pods(world)) == 2
    assert conditions(world, f"{SETS}/r") == {}


async def test_a_pod_that_a_webhook_is_asked_about_is_made_once_and_as_it_says() -> None:
    released = asyncio.Event()

    async def waits(request: dict[str, Any]) -> dict[str, Any]:
        assert request["userInfo"]["username"] == "system:serviceaccount:kube-system:replicaset-controller"
        await released.wait()
        return labelling("x")

    world = World(hooks={"m": waits})
    one = rule("pods", operations="CREATE")
    world.configure("Mutating", webhook("m", rules=[one]))
    sets = ReplicaSets(world.api)
    world.post(SETS, replicated("r", 2))
    sets.advance()
    # Another client changes it in between.
    world.patch(f"{SETS}/r", {"metadata": {"labels": {"a": "b"}}})
    for _ in range(5):
        sets.advance()
        await asyncio.sleep(0)
    assert len(world.asked) == 2
    released.set()
    await until(lambda: len(world.names(PODS)) == 2)
    await asyncio.sleep(0.01)
    sets.advance()
    assert len(world.asked) == 2
    assert all(pod["metadata"]["labels"]["x"] == "1" for pod in world.get(PODS)["items"])
    assert world.get(f"{SETS}/r")["status"]["replicas"] == 2


def test_a_replica_set_that_waits_for_its_pods_to_go_makes_none_and_reports_no_failure(world: World) -> None:
    held = template()
    held["metadata"]["finalizers"] = ["example.com/hold"]
    world.post(SETS, replicated("r", 2, template=held))
    world.settle()
    world.delete(f"{SETS}/r", propagationPolicy="Foreground")
    world.settle(60.0)
    assert (len(world.names(PODS)), pods(world)) == (2, [])
    assert conditions(world, f"{SETS}/r") == {}


def test_a_look_at_one_of_several_is_to_be_followed_by_another_at_once(world: World) -> None:
    sets = ReplicaSets(world.api)
    for name in "ab":
        world.post(SETS, replicated(name, 1))
    assert [sets.advance(most=1), sets.advance(most=1)][0] == -math.inf
    assert {pod["metadata"]["name"][0] for pod in pods(world)} == {"a", "b"}


# ---- Deployments


def revision(world: World, path: str) -> str:
    return world.get(path)["metadata"]["annotations"]["deployment.kubernetes.io/revision"]


def rolled(world: World, seconds: float = 60.0) -> list[tuple[int, int]]:
    """Let it roll, and return the number of pods, and of available ones, at each time."""
    found = []
    end = world.now + seconds
    while world.now < end:
        world.settle(0.1)
        there = pods(world)
        said = [{each["type"]: each["status"] for each in pod["status"].get("conditions", ())} for pod in there]
        found.append((len(there), sum(each.get("Ready") == "True" for each in said)))
    return found


def test_a_deployment_goes_from_one_template_to_another_without_gap_or_crowd(world: World) -> None:
    world.post(DEPLOYMENTS, replicated("d", 4))
    world.settle()
    (before,) = world.names(SETS)
    late = template("j", **{"agent-scheduler.io/ready-after-seconds": "2"})
    world.patch(f"{DEPLOYMENTS}/d", {"spec": {"template": late}})
    seen = rolled(world)
    # At most 25 % more pods, and at most 25 % fewer available ones.
    assert max(count for count, _ in seen) == 5
    assert min(ready for _, ready in seen) == 3
    assert images(pods(world)) == {"j"}
    status = world.get(f"{DEPLOYMENTS}/d")["status"]
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 4)
    assert {key: status[key] for key in counts} == counts
    assert "unavailableReplicas" not in status
    assert conditions(world, f"{DEPLOYMENTS}/d") == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    sets = {each["metadata"]["name"]: each for each in world.get(SETS)["items"]}
    assert len(sets) == 2
    assert sets[before]["spec"]["replicas"] == 0
    assert revision(world, f"{DEPLOYMENTS}/d") == "2"
    # Back again: the existing ReplicaSet is used, as the newest revision.
    old = {"spec": {"template": {**template(), "metadata": template()["metadata"]}}}
    old["spec"]["template"]["metadata"]["annotations"] = {"agent-scheduler.io/ready-after-seconds": None}
    world.patch(f"{DEPLOYMENTS}/d", old)
    rolled(world)
    assert world.get(f"{SETS}/{before}")["spec"]["replicas"] == 4
    assert revision(world, f"{SETS}/{before}") == "3"


def test_one_that_recreates_has_no_pods_of_two_templates_at_once(world: World) -> None:
    world.post(DEPLOYMENTS, replicated("d", 3, strategy={"type": "Recreate"}))
    world.settle()
    world.patch(f"{DEPLOYMENTS}/d", {"spec": {"template": template("j")}})
    for _ in range(100):
        world.settle(0.1)
        assert len(images(world.get(PODS)["items"])) <= 1
    assert images(pods(world)) == {"j"}
    assert len(pods(world)) == 3


def test_one_that_is_paused_is_scaled_and_not_rolled(world: World) -> None:
    world.post(DEPLOYMENTS, replicated("d", 2))
    world.settle()
    paused = {"spec": {"paused": True, "replicas": 3, "template": template("j")}}
    world.patch(f"{DEPLOYMENTS}/d", paused)
    world.settle(10.0)
    assert images(pods(world)) == {"i"}
    assert len(pods(world)) == 3
    world.patch(f"{DEPLOYMENTS}/d", {"spec": {"paused": None}})
    world.settle(30.0)
    assert images(pods(world)) == {"j"}


def test_one_whose_pods_never_come_to_be_ready_says_so_when_its_time_is_over(world: World) -> None:
    never = template("j", **{"agent-scheduler.io/ready-after-seconds": "never"})
    world.post(DEPLOYMENTS, replicated("d", 2, template=never, progressDeadlineSeconds=30))
    world.settle(20.0)
    assert conditions(world, f"{DEPLOYMENTS}/d")["Progressing"][0] == "True"
    assert conditions(world, f"{DEPLOYMENTS}/d")["Available"] == ("False", "MinimumReplicasUnavailable")
    world.settle(20.0)
    assert conditions(world, f"{DEPLOYMENTS}/d")["Progressing"] == ("False", "ProgressDeadlineExceeded")


def test_as_many_earlier_replica_sets_are_kept_as_it_says(world: World) -> None:
    world.post(DEPLOYMENTS, replicated("d", 1, revisionHistoryLimit=2))
    for image in "abcd":
        world.settle(10.0)
        world.patch(f"{DEPLOYMENTS}/d", {"spec": {"template": template(image)}})
    world.settle(20.0)
    assert images(each["spec"]["template"] for each in world.get(SETS)["items"]) == {"b", "c", "d"}


# ---- Jobs


def status_of(world: World, name: str = "j") -> dict[str, Any]:
    return world.get(f"{JOBS}/{name}").get("status", {})


def test_a_job_runs_as_many_at_a_time_until_enough_have_succeeded(world: World) -> None:
    world.post(JOBS, job(completions=5, parallelism=2))
    world.settle(0.5)
    assert status_of(world)["active"] == len(pods(world)) == 2
    most = 0
    for _ in range(40):
        world.settle(0.2)
        most = max(most, sum(pod["status"]["phase"] == "Running" for pod in pods(world)))
    status = status_of(world)
    assert (most, status["succeeded"]) == (2, 5)
    assert "active" not in status
    assert conditions(world, f"{JOBS}/j") == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    assert status["startTime"] < status["completionTime"]
    assert len(pods(world)) == 5
    # No pod that was counted keeps its finalizer.
    assert all("finalizers" not in pod["metadata"] for pod in pods(world))


def test_pods_of_an_indexed_job_have_each_index_once(world: World) -> None:
    world.post(JOBS, job(completions=4, parallelism=3, completionMode="Indexed"))
    world.settle(0.5)
    one = pods(world)[0]
    assert one["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
    assert one["spec"]["hostname"] == "j-0"
    assert one["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    world.settle(10.0)
    assert status_of(world)["completedIndexes"] == "0-3"
    names = sorted(pod["metadata"]["name"][:4] for pod in pods(world))
    assert names == ["j-0-", "j-1-", "j-2-", "j-3-"]


def test_a_job_that_is_widened_waits_for_none_of_its_running_pods(world: World) -> None:
    world.post(JOBS, job(life="1000", completions=2, parallelism=1))
    world.settle(1.0)
    world.patch(f"{JOBS}/j", {"spec": {"parallelism": 2}})
    world.settle(1.0)
    assert status_of(world)["active"] == len(pods(world)) == 2


def test_a_job_that_may_not_fail_once_completes_if_none_fails(world: World) -> None:
    world.post(JOBS, job(backoffLimit=0))
    world.settle(10.0)
    assert conditions(world, f"{JOBS}/j")["Complete"] == ("True", "CompletionsReached")


def test_a_job_fails_when_too_many_pods_have(world: World) -> None:
    world.post(JOBS, job(code="1", backoffLimit=2))
    world.settle(5.0)
    # The next pod waits for 10 s.
    assert status_of(world)["failed"] == len(pods(world)) == 1
    world.settle(100.0)
    assert status_of(world)["failed"] == len(pods(world)) == 3
    assert conditions(world, f"{JOBS}/j")["Failed"] == ("True", "BackoffLimitExceeded")
    assert reasons(world, "j") >= {"SuccessfulCreate", "BackoffLimitExceeded"}


def test_containers_that_are_started_again_count_too(world: World) -> None:
    world.post(JOBS, job(policy="OnFailure", code="1", backoffLimit=2))
    world.settle(100.0)
    assert conditions(world, f"{JOBS}/j")["Failed"] == ("True", "BackoffLimitExceeded")
    assert pods(world) == []


def test_a_job_may_take_so_long_and_no_longer(world: World) -> None:
    world.post(JOBS, job(life="1000", activeDeadlineSeconds=20, ttlSecondsAfterFinished=30))
    world.settle(15.0)
    assert status_of(world)["active"] == 1
    world.settle(10.0)
    assert conditions(world, f"{JOBS}/j")["Failed"] == ("True", "DeadlineExceeded")
    assert pods(world) == []
    world.settle(40.0)
    assert world.names(JOBS) == []


def test_the_pods_of_a_deleted_job_go_after_it(world: World) -> None:
    world.post(JOBS, job(life="1000", parallelism=2, completions=2))
    world.settle(5.0)
    assert len(pods(world)) == 2
    world.delete(f"{JOBS}/j", propagationPolicy="Background")
    world.settle(60.0)
    assert world.get(PODS)["items"] == []


def test_a_job_that_is_suspended_has_no_pods_and_none_that_failed(world: World) -> None:
    world.post(JOBS, job(life="5", parallelism=2, completions=2))
    world.settle(1.0)
    world.patch(f"{JOBS}/j", {"spec": {"suspend": True}})
    world.settle(10.0)
    assert pods(world) == []
    assert conditions(world, f"{JOBS}/j") == {"Suspended": ("True", "JobSuspended")}
    assert "startTime" not in status_of(world)
    world.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
    world.settle(20.0)
    assert conditions(world, f"{JOBS}/j")["Complete"] == ("True", "CompletionsReached")
    assert "failed" not in status_of(world)


def test_a_pod_that_a_user_deletes_has_failed(world: World) -> None:
    world.post(JOBS, job(life="1000"))
    world.settle(1.0)
    (pod,) = pods(world)
    world.delete(f"{PODS}/{pod['metadata']['name']}")
    world.settle(1.0)
    assert status_of(world)["failed"] == 1
    assert pod["metadata"]["name"] not in world.names(PODS)


def test_what_has_nothing_to_do_costs_no_write(world: World) -> None:
    world.post(DEPLOYMENTS, replicated("d", 2))
    world.post(JOBS, job())
    world.settle(30.0)
    kind = ("apps", "deployments")
    for record in list(world.store.tables[kind].scan("")):
        world.store.replace(kind, record, world.api.registry.object(kind, record.key) or {})
    before = world.store.rv
    world.settle()
    assert world.store.rv == before
