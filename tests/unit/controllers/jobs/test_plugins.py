"""What plugins say of pods whose templates or tasks are not the plain ones; Volcano's recordings have the rest."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from agent_scheduler.controllers.jobs.plugins.registry import changed, objects_of
from agent_scheduler.controllers.jobs.pods import pod_for
from agent_scheduler.objects.job import Job
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
