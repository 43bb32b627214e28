"""What plugins say of pods whose templates or tasks are not the plain ones; Volcano's recordings have the rest."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from agent_scheduler.controllers.jobs.plugins import parts
from agent_scheduler.controllers.jobs.plugins.registry import changed, objects_of
from agent_scheduler.controllers.jobs.pods import pod_for
from agent_scheduler.controllers.jobs.policies import pending_limits
from agent_scheduler.controllers.jobs.templates import MOST_BYTES, remembered
from agent_scheduler.controllers.jobs.volumes import mounted
from agent_scheduler.objects.job import Job, JobSpec, LifecyclePolicy, TaskSpec
from tests.support.objects import job, stored, task

FIXED = {"containers": [{"name": "c"}], "hostname": "h", "subdomain": "s"}
INIT = {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}
RANKED = {"containers": [{"name": "c", "env": [{"name": "RANK", "value": "7"}]}]}


def made(plugins: Any, *tasks: Any) -> Job:
    body = stored(job("j", *tasks, namespace="d", plugins=plugins))
    return msgspec.json.decode(msgspec.json.encode(body), type=Job)


def pod(of: Job, number: int = 0, index: int = 0) -> Any:
    one = (of.spec.tasks or ())[number]
    return changed(of, one, index, pod_for(of, one, index))


def test_hosts_are_those_of_templates_and_keys_have_no_dash() -> None:
    of = made({"svc": [], "ssh": ["--ssh-port=2200"]}, task("a-b", 2, template=FIXED), task("c", 2))
    data = {body["kind"]: body.get("data") for body in objects_of(of)}
    assert list((data["ConfigMap"] or {}).items()) == [
        *(("a_b.host", "h.s"), ("VC_A_B_HOSTS", "h.s"), ("VC_A_B_NUM", "1")),
        *(("c.host", "j-c-0.j\nj-c-1.j"), ("VC_C_HOSTS", "j-c-0.j,j-c-1.j"), ("VC_C_NUM", "2")),
    ]
    hosts = b64decode(data["Secret"]["config"]).decode().split("Host ")[1:]
    pairs = (("h", "h.s"), ("j-c-0", "j-c-0.j"), ("j-c-1", "j-c-1.j"))
    assert hosts == [f"{name}\n  HostName {full}\n  Port 2200\n" for name, full in pairs]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ("ps", {"ps": ["h.s:2222", "h.s:2222"], "worker": ["j-worker-0.j:2222"]})),
        (["--ps=worker"], ("ps", {"ps": ["j-worker-0.j:2222"]})),
        (["--chief=ps"], ("chief", {"ps": ["h.s:2222", "h.s:2222"], "worker": ["j-worker-0.j:2222"]})),
    ],
)
def test_a_task_that_is_given_for_two_roles_is_one_of_the_cluster_and_another_itself(
    given: list[str], expected: tuple[str, Any]
) -> None:
    of = made({"tensorflow": given}, task("ps", 2, template=FIXED), task("worker"))
    config = json.loads(pod(of)["spec"]["containers"][0]["env"][0]["value"])
    assert (config["task"]["type"], config["cluster"]) == expected


@pytest.mark.parametrize(
    ("plugins", "replicas", "problem"),
    [
        ({"tensorflow": []}, 5_000, ""),
        ({"tensorflow": []}, 10_000, "variable TF_CONFIG: 170000 characters of hosts; allowed: 131072"),
        ({"mpi": ["--master=worker", "--worker=worker"]}, 10_000, "variable MPI_HOST: 170000 characters"),
        # Numbers that no field accepts are ignored.
        *(({name: ["--port=" + "9" * 5_000]}, 1, "") for name in ("tensorflow", "mpi", "pytorch", "ray")),
        ({"ssh": ["--ssh-port=" + "9" * 5_000]}, 1, ""),
    ],
)
def test_values_that_no_pod_can_have_are_not_computed(plugins: Any, replicas: int, problem: str) -> None:
    of = made({"svc": [], **plugins}, task("worker", replicas))
    if not problem:
        assert "9" * 5_000 not in json.dumps([pod(of), *objects_of(of)])
        return
    with pytest.raises(msgspec.ValidationError, match=problem):
        pod(of)


def test_a_pod_that_is_alone_is_no_cluster() -> None:
    assert "env" not in pod(made({"tensorflow": []}, task("worker")))["spec"]["containers"][0]


def test_all_containers_of_an_mpi_job_listen() -> None:
    of = made({"mpi": []}, task("other", template=INIT))
    assert [
        each["ports"][0]["containerPort"] for part in ("containers", "initContainers") for each in pod(of)["spec"][part]
    ] == [22, 22]
    assert "ports" not in pod(made({"mpi": []}, task("master")))["spec"]["containers"][0], "it has no workers"


def test_a_rank_is_the_one_that_a_pod_says_itself() -> None:
    of = made({"hcclrank": []}, task("worker", template=RANKED), task("master", 2))
    assert [pod(of, number)["metadata"]["annotations"]["hccl/rankIndex"] for number in (0, 1)] == ["7", "0"]


@pytest.mark.parametrize("digits", ["9" * 5_000, "9" * 19, "\u0663", "-1"])
@pytest.mark.parametrize("plugin", ["ray", "mpi", "tensorflow", "pytorch"])
def test_a_port_that_is_no_number_of_64_bits_is_the_default_one(plugin: str, digits: str) -> None:
    tasks = task("master"), task("worker", 2), task("head")
    said = made({plugin: [f"--port={digits}"]}, *tasks)
    assert pod(said) == pod(made({plugin: []}, *tasks))


MANY = {"containers": [{"name": f"c{number}"} for number in range(900)]}


@pytest.mark.parametrize("plugin", ["svc", "mpi", "tensorflow"])
def test_a_pod_that_plugins_make_too_large_for_the_server_is_an_error(plugin: str) -> None:
    """The additions are estimated before they are made: hosts of all pods, or all tasks, for each container."""
    tasks = [task(f"t{number}", 0) for number in range(900)]
    of = made({plugin: []}, task("master", template=MANY), task("worker", 5_000), task("ps", 2), *tasks)
    with pytest.raises(msgspec.ValidationError, match=r"spec\.plugins add .* to each of 900 containers"):
        pod(of)


def test_the_hosts_of_all_pods_are_made_from_one_reading_of_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(template: bytes) -> Any:
        nonlocal read
        read += 1
        return original(template)

    original = parts._names
    monkeypatch.setattr(parts, "_names", counted)
    of = made({"svc": [], "ssh": []}, task("a", 5_000))
    objects_of(of)
    assert read == 2


def test_a_pod_that_volumes_make_too_large_for_the_server_is_an_error() -> None:
    body = stored(job("j", task("a", template=MANY), namespace="d"))
    body["spec"]["volumes"] = [{"mountPath": f"/{number}", "volumeClaimName": "same"} for number in range(2_000)]
    of = msgspec.json.decode(msgspec.json.encode(body), type=Job)
    with pytest.raises(msgspec.ValidationError, match=r"spec\.volumes add .* to each of 900 containers"):
        mounted(of, pod_for(of, (of.spec.tasks or ())[0], 0))


def test_long_templates_are_not_remembered() -> None:
    seen: list[int] = []
    compute = remembered(lambda template: seen.append(len(template)))
    for length in (MOST_BYTES, MOST_BYTES, MOST_BYTES + 1, MOST_BYTES + 1):
        compute(b" " * length)
    assert seen == [MOST_BYTES, MOST_BYTES + 1, MOST_BYTES + 1]


def test_limits_of_pending_pods_cost_what_tasks_and_policies_cost_together() -> None:
    looked = 0

    class Policies(tuple[LifecyclePolicy, ...]):
        def __iter__(self) -> Any:
            nonlocal looked
            looked += 1
            return super().__iter__()

    pending = LifecyclePolicy(action="RestartJob", event="PodPending", timeout="5s")
    own = TaskSpec(name="own", policies=(LifecyclePolicy(action="AbortJob", event="PodPending", timeout="1s"),))
    tasks = (own, TaskSpec(name="own"), *(TaskSpec(name=f"t{number}") for number in range(1_000)))
    found = pending_limits(Job(spec=JobSpec(tasks=tasks, policies=Policies((pending,)))))
    assert looked == 1 and len(found) == 1_001
    assert found["own"] == ("AbortJob", 1.0) and found["t7"] == ("RestartJob", 5.0)
