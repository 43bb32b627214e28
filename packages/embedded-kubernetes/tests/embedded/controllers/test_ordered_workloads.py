"""StatefulSets, DaemonSets and CronJobs, and the eviction of pods by taints, with simulated kubelets."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.support import JOBS, NODES, PODS, PVCS, World, named
from embedded_kubernetes.controller_list import chosen, start
from embedded_kubernetes.kubelet import Kubelets
from embedded_kubernetes.kubelet_play import EXIT_CODE, READY_AFTER, RUN_SECONDS
from embedded_kubernetes.resource import is_true

APPS = "/apis/apps/v1/namespaces/default"
STATEFUL, DAEMONS, REVISIONS = (f"{APPS}/{plural}" for plural in ("statefulsets", "daemonsets", "controllerrevisions"))
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"


class Binder:
    """Binds every pod to the node of its affinity, or to n1: stands in for a scheduler."""

    wake = staticmethod(lambda: None)

    def __init__(self, world: World) -> None:
        self._world = world

    def advance(self, *, most: int = 64) -> float | None:
        for pod in self._world.get(PODS)["items"]:
            if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                terms = str(pod["spec"].get("affinity"))
                nodes = [name for name in self._world.names(NODES) if f"'{name}'" in terms]
                self._world.bind(pod["metadata"]["name"], (nodes or ["n1"])[0])
        return None


@pytest.fixture
def world() -> World:
    made = World()
    for name in ("n1", "n2", "n3"):
        made.node(name, labels={"zone": name})
    controllers = chosen(
        "statefulset-controller,daemonset-controller,cronjob-controller,job-controller,taint-eviction-controller,"
        "persistentvolumeclaim-protection-controller"
    )
    made.controllers = [*start(made.api, controllers, kubelets=True), Kubelets(made.store), Binder(made)]
    return made


def template(image: str = "i", *, spec: dict[str, Any] | None = None, **annotations: str) -> dict[str, Any]:
    pod = {"containers": [{"name": "c", "image": image}], **(spec or {})}
    return {"metadata": {"labels": {"app": "x"}, "annotations": annotations}, "spec": pod}


def selecting(name: str, **spec: Any) -> dict[str, Any]:
    return named(name, spec={"selector": {"matchLabels": {"app": "x"}}, "template": template(), **spec})


def images(world: World) -> dict[str, str]:
    return {
        pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"]
        for pod in world.get(PODS)["items"]
        if "deletionTimestamp" not in pod["metadata"]
    }


def set_image(world: World, path: str, image: str = "new") -> None:
    world.patch(path, {"spec": {"template": template(image)}})


# ---- StatefulSets


def test_pods_come_one_after_the_other_and_go_from_the_last(world: World) -> None:
    slow = template(**{READY_AFTER: "10"})
    world.post(STATEFUL, selecting("s", replicas=3, serviceName="svc", template=slow))
    world.settle(5.0)
    assert world.names(PODS) == ["s-0"]
    world.settle(10.0)
    assert world.names(PODS) == ["s-0", "s-1"]
    world.settle(60.0)
    first = world.get(f"{PODS}/s-0")
    labels = first["metadata"]["labels"]
    assert (labels["statefulset.kubernetes.io/pod-name"], labels["apps.kubernetes.io/pod-index"]) == ("s-0", "0")
    assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("s-0", "svc")
    status = world.get(f"{STATEFUL}/s")["status"]
    counts = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")
    assert [status[count] for count in counts] == [3] * 5
    assert status["currentRevision"] == status["updateRevision"] == labels["controller-revision-hash"]
    watch = world.watch(f"{PODS}?watch=true&resourceVersion={world.store.rv}")
    world.patch(f"{STATEFUL}/s/scale", {"spec": {"replicas": 1}})
    world.settle(5.0)
    assert [name for kind, name in watch.seen() if kind == "DELETED"] == ["s-2", "s-1"]


def test_a_pod_that_fails_or_goes_comes_back_under_its_name_with_its_claims(world: World) -> None:
    claim = named("data", spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
    parallel = {"podManagementPolicy": "Parallel", "ordinals": {"start": 5}}
    world.post(STATEFUL, selecting("s", replicas=2, volumeClaimTemplates=[claim], **parallel))
    world.settle(5.0)
    assert world.names(PVCS) == ["data-s-5", "data-s-6"]
    before = {name: world.get(f"{PODS}/{name}")["metadata"]["uid"] for name in ("s-5", "s-6")}
    (volume,) = world.get(f"{PODS}/s-5")["spec"]["volumes"]
    assert volume == {"name": "data", "persistentVolumeClaim": {"claimName": "data-s-5"}}
    world.patch(f"{PODS}/s-5/status", {"status": {"phase": "Failed"}})
    world.delete(f"{PODS}/s-6")
    world.settle(5.0)
    assert world.names(PODS) == ["s-5", "s-6"]
    assert all(world.get(f"{PODS}/{name}")["metadata"]["uid"] != uid for name, uid in before.items())
    retain = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}, "replicas": 1}
    world.patch(f"{STATEFUL}/s", {"spec": retain})
    world.settle(5.0)
    assert world.names(PVCS) == ["data-s-5"]


def test_a_rolling_update_goes_down_to_the_partition_and_waits_for_each_pod(world: World) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    world.post(STATEFUL, selecting("s", replicas=3, updateStrategy=rolling))
    world.settle(5.0)
    watch = world.watch(f"{PODS}?watch=true&resourceVersion={world.store.rv}")
    set_image(world, f"{STATEFUL}/s")
    world.settle(30.0)
    assert images(world) == {"s-0": "i", "s-1": "new", "s-2": "new"}
    order = [step for step in watch.seen() if step[0] != "MODIFIED"]
    assert order == [("DELETED", "s-2"), ("ADDED", "s-2"), ("DELETED", "s-1"), ("ADDED", "s-1")]
    status = world.get(f"{STATEFUL}/s")["status"]
    assert status["currentRevision"] != status["updateRevision"]
    assert (status["currentReplicas"], status["updatedReplicas"]) == (1, 2)
    # A pod below the partition comes back with the old template.
    world.delete(f"{PODS}/s-0")
    world.settle(5.0)
    assert images(world)["s-0"] == "i"
    world.patch(f"{STATEFUL}/s", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    world.settle(30.0)
    assert set(images(world).values()) == {"new"}
    status = world.get(f"{STATEFUL}/s")["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert len(world.names(REVISIONS)) == 2
    # The old template gets the number after the last one, and its revision is used again.
    set_image(world, f"{STATEFUL}/s", "i")
    world.settle(30.0)
    assert sorted(each["revision"] for each in world.get(REVISIONS)["items"]) == [2, 3]


def test_with_on_delete_pods_are_replaced_only_when_they_are_deleted(world: World) -> None:
    world.post(STATEFUL, selecting("s", replicas=2, updateStrategy={"type": "OnDelete"}))
    world.settle(5.0)
    set_image(world, f"{STATEFUL}/s")
    world.settle(30.0)
    assert set(images(world).values()) == {"i"}
    world.delete(f"{PODS}/s-1")
    world.settle(5.0)
    assert images(world) == {"s-0": "i", "s-1": "new"}


# ---- DaemonSets


def nodes_of_pods(world: World) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in world.get(PODS)["items"])


def test_each_node_that_is_selected_and_tolerated_has_one_pod(world: World) -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    world.patch(f"{NODES}/n2", {"spec": {"taints": [taint]}})
    world.patch(f"{NODES}/n3", {"spec": {"taints": [cordon], "unschedulable": True}})
    world.post(DAEMONS, selecting("d"))
    world.settle(5.0)
    assert nodes_of_pods(world) == ["n1", "n3"]
    world.node("n4")
    world.patch(f"{NODES}/n2", {"spec": {"taints": []}})
    world.settle(5.0)
    assert nodes_of_pods(world) == ["n1", "n2", "n3", "n4"]
    status = world.get(f"{DAEMONS}/d")["status"]
    counts = "desiredNumberScheduled currentNumberScheduled numberReady numberAvailable updatedNumberScheduled"
    assert [status[count] for count in counts.split()] == [4] * 5
    assert status["numberMisscheduled"] == 0
    world.patch(f"{DAEMONS}/d", {"spec": {"template": {"spec": {"nodeSelector": {"zone": "n2"}}}}})
    world.settle(30.0)
    assert nodes_of_pods(world) == ["n2"]
    world.patch(f"{DAEMONS}/d", {"spec": {"template": {"spec": {"nodeSelector": None, "nodeName": "n3"}}}})
    world.settle(30.0)
    assert nodes_of_pods(world) == ["n3"]
    world.delete(f"{DAEMONS}/d")
    world.settle(5.0)
    assert world.names(PODS) == world.names(REVISIONS) == []


@pytest.mark.parametrize(
    ("rolling", "most", "least"), [({}, 3, 2), ({"maxUnavailable": 2}, 3, 1), ({"maxSurge": 1}, 4, 3)]
)
def test_a_rolling_update_keeps_enough_pods(world: World, rolling: dict[str, int], most: int, least: int) -> None:
    if "maxSurge" in rolling:
        rolling = {**rolling, "maxUnavailable": 0}
    strategy = {"type": "RollingUpdate", **({"rollingUpdate": rolling} if rolling else {})}
    world.post(DAEMONS, selecting("d", updateStrategy=strategy))
    world.settle(5.0)
    world.patch(f"{DAEMONS}/d", {"spec": {"template": template("new", **{READY_AFTER: "1"})}})
    seen = set()
    for _ in range(60):
        world.settle(0.1)
        running = [pod for pod in world.get(PODS)["items"] if "deletionTimestamp" not in pod["metadata"]]
        seen.add(sum(is_true(pod["status"], "Ready") for pod in running))
        assert len(running) <= most
    assert min(seen) >= least
    assert set(images(world).values()) == {"new"}
    assert nodes_of_pods(world) == ["n1", "n2", "n3"]


def test_a_daemon_pod_that_fails_is_replaced(world: World) -> None:
    world.post(DAEMONS, selecting("d"))
    world.settle(5.0)
    failed = world.names(PODS)[0]
    world.patch(f"{PODS}/{failed}/status", {"status": {"phase": "Failed"}})
    world.settle(5.0)
    assert failed not in world.names(PODS)
    assert nodes_of_pods(world) == ["n1", "n2", "n3"]


# ---- CronJobs


def cron_job(name: str = "c", *, life: str = "10", code: str = "0", **spec: Any) -> dict[str, Any]:
    pod = template(spec={"restartPolicy": "Never"}, **{RUN_SECONDS: life, EXIT_CODE: code})
    job = {"metadata": {"labels": {"of": "c"}}, "spec": {"template": pod, "backoffLimit": 0}}
    return named(name, spec={"schedule": "* * * * *", "jobTemplate": job, **spec})


def at_second(world: World, second: int) -> None:
    """Let the time pass to this second of the next minute."""
    world.settle(60 - world.now % 60 + second)


def active(world: World) -> int:
    return len(world.get(f"{CRON_JOBS}/c")["status"].get("active", ()))


def test_a_job_is_made_at_each_time_and_only_the_last_ones_are_kept(world: World) -> None:
    world.post(CRON_JOBS, cron_job(successfulJobsHistoryLimit=2))
    at_second(world, 5)
    (job,) = world.get(JOBS)["items"]
    assert job["metadata"]["name"] == f"c-{int(world.now) // 60}"
    assert job["metadata"]["labels"] == {"of": "c"}
    scheduled = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    status = world.get(f"{CRON_JOBS}/c")["status"]
    assert status["lastScheduleTime"] == scheduled
    assert [each["uid"] for each in status["active"]] == [job["metadata"]["uid"]]
    at_second(world, 50)
    assert active(world) == 0
    assert world.get(f"{CRON_JOBS}/c")["status"]["lastSuccessfulTime"]
    for _ in range(3):
        at_second(world, 50)
    assert len(world.names(JOBS)) == 2
    world.patch(f"{CRON_JOBS}/c", {"spec": {"suspend": True}})
    before = world.names(JOBS)
    at_second(world, 50)
    assert world.names(JOBS) == before


@pytest.mark.parametrize(("policy", "running", "jobs"), [("Allow", 2, 2), ("Forbid", 1, 1), ("Replace", 1, 1)])
def test_concurrency(world: World, policy: str, running: int, jobs: int) -> None:
    world.post(CRON_JOBS, cron_job(life="100", concurrencyPolicy=policy))
    at_second(world, 5)
    (first,) = world.names(JOBS)
    at_second(world, 5)
    assert (active(world), len(world.names(JOBS))) == (running, jobs)
    assert (first in world.names(JOBS)) == (policy != "Replace")


def test_failed_jobs_are_kept_by_a_limit_of_their_own_and_late_starts_have_a_deadline(world: World) -> None:
    world.post(CRON_JOBS, cron_job(code="1", life="1", failedJobsHistoryLimit=0, startingDeadlineSeconds=20))
    at_second(world, 30)
    assert world.names(JOBS) == []
    last = world.get(f"{CRON_JOBS}/c")["status"]["lastScheduleTime"]
    # Nothing runs for an hour and a half: the missed times are too old.
    world.now += 5400.0 + 30.0 - world.now % 60
    world.settle()
    assert world.get(f"{CRON_JOBS}/c")["status"]["lastScheduleTime"] == last
    at_second(world, 10)
    assert world.get(f"{CRON_JOBS}/c")["status"]["lastScheduleTime"] != last


def test_the_schedule_is_that_of_its_time_zone_and_both_are_validated(world: World) -> None:
    # The time of the tests is 2027-01-15T08:00:00Z: 17:00 in Tokyo.
    world.post(CRON_JOBS, cron_job(schedule="30 17 * * *", timeZone="Asia/Tokyo"))
    world.settle(1790.0)
    assert world.names(JOBS) == []
    world.settle(15.0)
    (job,) = world.get(JOBS)["items"]
    marked = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert marked == "2027-01-15T17:30:00+09:00"
    for wrong, field in (({"schedule": "61 * * * *"}, "schedule"), ({"timeZone": "Mars/Base"}, "timeZone")):
        assert world.wrong("POST", CRON_JOBS, cron_job("d", **wrong)) == [f"spec.{field}"]


# ---- Taints


def test_a_no_execute_taint_evicts_who_does_not_tolerate_it_and_others_after_their_time(world: World) -> None:
    def tolerating(seconds: int | None) -> dict[str, Any]:
        toleration = {"key": "bad", "operator": "Exists", "effect": "NoExecute"}
        more = {} if seconds is None else {"tolerationSeconds": seconds}
        return {"nodeName": "n1", "tolerations": [{**toleration, **more}]}

    world.pod("never", spec={"nodeName": "n1"})
    world.pod("elsewhere", spec={"nodeName": "n2"})
    for name, seconds in (("soon", 30), ("late", 600), ("always", None)):
        world.pod(name, spec=tolerating(seconds))
    world.settle(1.0)
    world.patch(f"{NODES}/n1", {"spec": {"taints": [{"key": "bad", "effect": "NoExecute"}]}})
    world.settle(0.1)
    (target,) = (each for each in world.status("never")["conditions"] if each["type"] == "DisruptionTarget")
    assert target["reason"] == "DeletionByTaintManager"
    world.settle(5.0)
    assert world.names(PODS) == ["always", "elsewhere", "late", "soon"]
    world.settle(30.0)
    assert world.names(PODS) == ["always", "elsewhere", "late"]
    # A pod that comes to the node later is evicted as well, and a taint that goes cancels the others.
    world.pod("new", spec={"nodeName": "n1"})
    world.settle(5.0)
    world.patch(f"{NODES}/n1", {"spec": {"taints": []}})
    world.settle(1000.0)
    assert world.names(PODS) == ["always", "elsewhere", "late"]
