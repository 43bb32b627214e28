"""`agent-scheduler job` as a shell sees it, against an embedded cluster; the job controller where it is to act."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from agent_scheduler.cli.main import main
from agent_scheduler.process.controller_flags import JOB, QUEUE
from embedded_kubernetes import EmbeddedCluster
from tests.support.batched import COMMANDS
from tests.support.command_line import kubeconfig
from tests.support.controllers import BatchWorld, batch_world
from tests.support.embedded import PODS, until
from tests.support.jobs import GROUPS, JOBS
from tests.support.objects import condition, pod, pod_group, task
from tests.support.objects import job as make_job
from tests.support.places import CONFIG

Capture = pytest.CaptureFixture[str]
HEAD = "NAME CREATION PHASE JOBTYPE REPLICAS MIN PENDING RUNNING SUCCEEDED FAILED UNKNOWN RETRYCOUNT"


def job(name: str, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return make_job(
        name, *(tasks or [task("main", 2, 1)]), **{"namespace": "default", "queue": "default", **more}
    )


class Shell:
    """Runs the command against a cluster of its own: exit code, standard output and standard error."""

    def __init__(self, cluster: EmbeddedCluster, capsys: Capture) -> None:
        self.cluster = cluster
        self._capsys = capsys

    def __call__(self, *line: str) -> tuple[int, str, str]:
        action, *rest = line
        code = main(["job", action, "--kubeconfig", str(self.cluster.kubeconfig), *rest])
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err

    def add(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            self.cluster.apply(yaml.safe_dump(each))

    def jobs(self, *line: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self("list", "-o", "json", *line)[1])["jobs"]
        return found


@pytest.fixture
def shell(capsys: Capture) -> Iterator[Shell]:
    with EmbeddedCluster() as cluster:
        for crd in sorted((CONFIG / "crd").glob("*_*.yaml")):
            cluster.apply(crd.read_text())
        yield Shell(cluster, capsys)


def whole(shell: Shell, name: str) -> dict[str, Any]:
    """What `describe` says for programs."""
    code, out, err = shell("describe", name, "-o", "json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


# ---- list


def test_jobs_are_listed_with_vcctls_columns(shell: Shell) -> None:
    shell.add(job("b", labels={"volcano.sh/job-type": "MPI"}), job("a", task("m", 1), task("w", 4, 2)))
    code, out, err = shell("list")
    assert (code, err) == (0, "")
    head, first, second = (line.split() for line in out.splitlines())
    assert head == HEAD.split()
    assert first[0] == "a" and first[3:] == ["Batch", "5", "0", "0", "0", "0", "0", "0", "0"]
    assert second[0] == "b" and second[3:5] == ["MPI", "2"]


def test_a_list_says_nothing_where_there_are_no_jobs(shell: Shell) -> None:
    assert shell("list")[0::2] == (
        0,
        "agent-scheduler job list: there are no such jobs in namespace default\n",
    )
    assert "there are no such jobs in any namespace" in shell("list", "-A")[2]


def test_jobs_of_all_namespaces_of_a_scheduler_or_with_labels_can_be_asked_for(shell: Shell) -> None:
    shell.add({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    elsewhere = job("c", schedulerName="mine", namespace="other")
    shell.add(job("a", labels={"team": "x"}), job("b"), elsewhere)
    assert [each["name"] for each in shell.jobs()] == ["a", "b"]
    assert [each["name"] for each in shell.jobs("-n", "other")] == ["c"]
    assert [each["name"] for each in shell.jobs("-A")] == ["a", "b", "c"]
    assert [each["name"] for each in shell.jobs("-A", "-S", "mine")] == ["c"]
    assert [each["name"] for each in shell.jobs("-l", "team=x")] == ["a"]
    lines = shell("list", "-A", "-o", "wide")[1].splitlines()
    assert lines[0].split() == [
        *("NAMESPACE", *HEAD.split()),
        *("TERMINATING", "VERSION", "QUEUE", "SCHEDULER", "AGE", "MESSAGE"),
    ]
    assert lines[3].split()[:2] == ["other", "c"] and "mine" in lines[3]


def test_programs_get_json_and_yaml_alike(shell: Shell) -> None:
    shell.add(job("a", minAvailable=2))
    assert shell.jobs() == yaml.safe_load(shell("list", "-o", "yaml")[1])["jobs"]
    (found,) = shell.jobs()
    assert (found["replicas"], found["minAvailable"], found["phase"]) == (2, 2, None)
    assert found["pods"]["running"] == 0
    of_yaml = yaml.safe_load(shell("describe", "a", "-o", "yaml")[1])
    assert of_yaml == whole(shell, "a")
    assert of_yaml["job"]["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] == "i"


# ---- run


def test_a_job_is_made_of_flags(shell: Shell) -> None:
    line = (
        "run",
        "--name",
        "j",
        "--image",
        "img",
        "--replicas",
        "3",
        "-m",
        "2",
        "--requests",
        "cpu=2,memory=1Gi",
    )
    assert shell(*line) == (0, "job default/j is made\n", "")
    found = whole(shell, "j")["job"]["spec"]
    assert (found["minAvailable"], found["schedulerName"], found["queue"]) == (2, "volcano", "default")
    (only,) = found["tasks"]
    assert (only["replicas"], only["minAvailable"]) == (3, 2)
    spec = only["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["restartPolicy"] == "Never" and container["image"] == "img"
    wanted = {"cpu": "2", "memory": "1Gi"}
    # A limit below what is requested would be refused of each pod.
    assert container["resources"] == {"requests": wanted, "limits": wanted}


def test_flags_have_vcctls_usual_values(shell: Shell) -> None:
    assert shell("run", "-N", "j", "-L", "cpu=4", "-S", "mine", "-q", "research")[0] == 0
    found = whole(shell, "j")["job"]["spec"]
    assert (found["minAvailable"], found["schedulerName"], found["queue"]) == (1, "mine", "research")
    (container,) = found["tasks"][0]["template"]["spec"]["containers"]
    assert container["image"] == "busybox"
    assert container["resources"] == {
        "requests": {"cpu": "1000m", "memory": "100Mi"},
        "limits": {"cpu": "4"},
    }


def test_a_job_is_made_of_a_file_or_of_standard_input(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "job.yaml"
    body = job("of-file", task("m", 1), task("w", 2, dependsOn={"name": ["m"]}))
    file.write_text("---\n" + yaml.safe_dump(body))
    assert shell("run", "-f", str(file)) == (0, "job default/of-file is made\n", "")
    assert shell("run", "-f", str(file), "--name", "again") == (0, "job default/again is made\n", "")
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "some-"
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(body)))
    code, out, _ = shell("run", "-f", "-")
    assert code == 0 and out.startswith("job default/some-")
    assert [each["replicas"] for each in shell.jobs()] == [3, 3, 3]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ((), "--name is missing; allowed: --name JOB, or --filename FILE"),
        (("--name", "J"), "--name 'J': a lowercase RFC 1123 label must consist of"),
        (("--name", "j", "-r", "0"), "--replicas 0: allowed: 1 or more"),
        (("--name", "j", "-r", "2", "-m", "3"), "--min 3: allowed: 0 to 2, the number of replicas"),
        (
            ("--name", "j", "-R", "cpu"),
            "--requests cpu: found 'cpu'; allowed: each resource once, as NAME=AMOUNT",
        ),
        (("--name", "j", "-R", "cpu=1,cpu=2"), "found 'cpu=2'; allowed: each resource once"),
        (("--name", "j", "-L", "cpu=x"), "--limits cpu=x: cpu: invalid quantity 'x'"),
        (("-f", "FILE", "-i", "x", "-m", "1"), "--image, --min: of no use with --filename"),
        (("-f", "/no/such"), "--filename /no/such: No such file or directory"),
        (
            ("-f", "FILE", "-n", "elsewhere"),
            "--namespace elsewhere: the job's is default; leave one of the two out",
        ),
    ],
)
def test_a_job_that_cannot_be_made_is_one_line_that_says_what_can(
    shell: Shell, tmp_path: Path, line: tuple[str, ...], told: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job("j")))
    code, out, err = shell("run", *(str(file) if each == "FILE" else each for each in line))
    assert (code, out) == (2, "")
    assert err.startswith("agent-scheduler job run: ") and told in err and err.count("\n") == 1
    assert shell.jobs() == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "is no YAML"),
        ("", "found 0 objects; allowed: one Job"),
        ("- 1", "found None of None; allowed: kind Job"),
        (
            "{apiVersion: batch/v1, kind: Job}",
            "found Job of batch/v1; allowed: kind Job of apiVersion batch.volcano",
        ),
        (
            "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job}",
            "metadata.name is missing; give one with --name",
        ),
        ("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: 1}", "metadata is no object"),
    ],
)
def test_a_file_that_is_no_job_is_told(shell: Shell, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    code, _, err = shell("run", "-f", str(file))
    assert code == 2 and told in err and err.count("\n") == 1


def test_a_name_that_is_taken_is_told(shell: Shell) -> None:
    shell.add(job("j"))
    code, out, err = shell("run", "--name", "j")
    assert (code, out) == (2, "")
    assert (
        err
        == "agent-scheduler job run: job default/j is there already; delete it first, or give another --name\n"
    )


def test_what_the_api_server_refuses_is_told_as_it_says_it(shell: Shell) -> None:
    code, _, err = shell("run", "--name", "j", "-n", "no-such")
    assert (
        code == 2 and "job no-such/j cannot be made: 404" in err and 'namespaces "no-such" not found' in err
    )


def test_an_answer_that_is_lost_makes_one_job(shell: Shell) -> None:
    lost = {"match": {"resource": "jobs", "verbs": ["create"]}, "count": 1, "fault": {"lose": {}}}
    shell.cluster.inject({"rules": [lost]})
    assert shell("run", "--name", "j") == (0, "job default/j is made\n", "")
    assert [each["name"] for each in shell.jobs()] == ["j"]


def test_an_api_server_that_does_not_answer_is_given_up_on(shell: Shell) -> None:
    refused = {"match": {"resource": "jobs", "verbs": ["create"]}, "fault": {"error": {"status": 503}}}
    shell.cluster.inject({"rules": [refused]})
    code, _, err = shell("run", "--name", "j")
    assert code == 2 and "job default/j cannot be made: 503" in err and err.count("\n") == 1


# ---- one job


@pytest.mark.parametrize("action", ["describe", "suspend", "resume", "delete"])
def test_a_job_that_there_is_not_is_told(shell: Shell, action: str) -> None:
    assert shell(action, "--name", "j") == (
        2,
        "",
        f"agent-scheduler job {action}: there is no job j in namespace default; those that there are: "
        "agent-scheduler job list --namespace default\n",
    )
    assert shell(action) == (
        2,
        "",
        f"agent-scheduler job {action}: which job? allowed: agent-scheduler job {action} JOB\n",
    )
    assert "found a and --name b; allowed: one of the two" in shell(action, "a", "-N", "b")[2]
    assert "job 'a,b': a lowercase RFC 1123 subdomain" in shell(action, "a,b")[2]


def test_a_cluster_without_the_kind_is_told_what_to_install(capsys: Capture) -> None:
    with EmbeddedCluster() as cluster:
        shell = Shell(cluster, capsys)
        told = (
            "the API server has no Job (batch.volcano.sh/v1alpha1); install it: kubectl apply -k config/crd\n"
        )
        for line in (("list",), ("describe", "j"), ("run", "--name", "j")):
            assert shell(*line) == (2, "", f"agent-scheduler job {line[0]}: {told}")


def test_a_job_is_deleted(shell: Shell) -> None:
    shell.add(job("j"), job("k"))
    assert shell("delete", "j") == (0, "job default/j is deleted\n", "")
    assert [each["name"] for each in shell.jobs()] == ["k"]


def test_what_cannot_be_read_of_a_job_is_said_and_the_rest_shown(shell: Shell) -> None:
    shell.add(job("j", task("m", 1), task("w", 2, dependsOn={"name": ["m"]})))
    rules = [
        {"match": {"resource": kind}, "fault": {"error": {"status": 403}}}
        for kind in ("pods", "events", "podgroups")
    ]
    shell.cluster.inject({"rules": rules})
    code, out, err = shell("describe", "j")
    assert code == 0
    assert [line.split(" cannot be shown: ")[0] for line in err.splitlines()] == [
        f"agent-scheduler job describe: {what}" for what in ("pods", "the PodGroup", "events")
    ]
    assert "Pods:" not in out and "Events:" not in out
    worker = next(line for line in out.splitlines() if line.split()[:1] == ["w"])
    assert worker.split()[-2:] == ["m", "?"]


# ---- with the controller


class Ordered:
    """The job controller over an embedded cluster, and the command as a user has it."""

    def __init__(self, world: BatchWorld, kubeconfig: Path, capsys: Capture) -> None:
        self.world = world
        self._kubeconfig = kubeconfig
        self._capsys = capsys

    async def __call__(self, *line: str) -> tuple[int, str, str]:
        whole_line = ["job", *line, "--kubeconfig", str(self._kubeconfig)]
        code = await asyncio.to_thread(main, whole_line)
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return await self.world.cluster.ask(method, path, body, content_type=content)

    async def until_phase(self, phase: str, name: str = "j") -> None:
        async def so() -> bool:
            found = (await self.ask("GET", f"{JOBS}/{name}")).get("status") or {}
            return bool(found.get("state", {}).get("phase") == phase)

        await until(so)

    async def let_in(self) -> dict[str, Any]:
        await until(self.world.groups)
        (group,) = (await self.world.groups()).values()
        name = group["metadata"]["name"]
        await self.ask("PATCH", f"{GROUPS}/{name}", {"status": {"phase": "Inqueue"}})
        return dict(group)

    async def until_pods(self, *names: str) -> None:
        async def so() -> bool:
            return {each["metadata"]["name"] for each in (await self.ask("GET", PODS))["items"]} == set(names)

        await until(so)


@pytest.fixture
async def ordered(tmp_path: Path, capsys: Capture) -> AsyncIterator[Ordered]:
    # What the controllers log is no output of the command.
    with structlog.testing.capture_logs():
        async with _with_controllers(tmp_path, capsys) as found:
            yield found


@asynccontextmanager
async def _with_controllers(tmp_path: Path, capsys: Capture) -> AsyncIterator[Ordered]:
    async with batch_world() as world:
        for kind in ("batch.volcano.sh_jobs", "bus.volcano.sh_commands"):
            definition = yaml.safe_load((CONFIG / "crd" / f"{kind}.yaml").read_text())
            await world.cluster.call(
                "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
            )
        world.start(JOB, QUEUE)
        await world.until_states(default="Open")
        yield Ordered(world, kubeconfig(tmp_path, world.cluster.server.url), capsys)


async def test_a_job_is_suspended_and_resumed_by_commands_that_go_with_it(ordered: Ordered) -> None:
    assert (await ordered("run", "--name", "j", "--replicas", "2"))[0] == 0
    await ordered.let_in()
    await ordered.until_pods("j-default0-0", "j-default0-1")
    code, _, err = await ordered("resume", "j")
    assert code == 2
    assert err == (
        "agent-scheduler job resume: job default/j is Pending; there is something to resume of: Aborted, Aborting\n"
    )
    told = (0, "job default/j is told to suspend (Command AbortJob)\n", "")
    assert await ordered("suspend", "j") == told
    await ordered.until_phase("Aborted")
    await ordered.until_pods()
    assert (await ordered("suspend", "j"))[0] == 2
    assert (await ordered("resume", "j"))[1] == "job default/j is told to resume (Command ResumeJob)\n"
    await ordered.until_phase("Pending")
    assert [each["retryCount"] for each in json.loads((await ordered("list", "-o", "json"))[1])["jobs"]] == [
        1
    ]
    await ordered.world.until_no_commands()


async def test_a_command_names_its_job_as_owner_and_target(ordered: Ordered) -> None:
    await ordered.world.end()
    await ordered.ask("POST", JOBS, job("j"))
    assert (await ordered("suspend", "j"))[0] == 0
    (command,) = (await ordered.ask("GET", COMMANDS))["items"]
    uid = (await ordered.ask("GET", f"{JOBS}/j"))["metadata"]["uid"]
    (owner,) = command["metadata"]["ownerReferences"]
    assert owner == command["target"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Job", "j", uid, True)
    assert command["action"] == "AbortJob" and command["metadata"]["name"].startswith("j-abortjob-")


async def test_a_job_is_described_with_who_waits_for_whom_its_group_pods_and_events(ordered: Ordered) -> None:
    tasks = [task("master", 2, 2), task("worker", 3, 1, dependsOn={"name": ["master"]})]
    policies = [{"event": "PodEvicted", "action": "RestartJob", "timeout": "5m"}]
    await ordered.ask(
        "POST",
        JOBS,
        job("j", *tasks, minimum=3, minSuccess=2, maxRetry=4, policies=policies, plugins={"env": []}),
    )
    group = await ordered.let_in()
    await ordered.ask("POST", GROUPS, pod_group("another"))
    await ordered.until_pods("j-master-0", "j-master-1")
    report = {
        "name": "c",
        "image": "i",
        "imageID": "",
        "restartCount": 0,
        "ready": True,
        "state": {"running": {}},
    }
    status = {"phase": "Running", "containerStatuses": [report]}
    await ordered.ask("PATCH", f"{PODS}/j-master-1/status", {"status": status})
    full = condition("PodScheduled", "False", "QueueFull", "queue default is full")
    await ordered.ask("PATCH", f"{PODS}/j-master-0/status", {"status": {"conditions": [full]}})

    async def counted() -> bool:
        return bool((await ordered.ask("GET", f"{JOBS}/j"))["status"].get("running") == 1)

    await until(counted)
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {
            "kind": "PodGroup",
            "namespace": "default",
            "name": group["metadata"]["name"],
            "uid": group["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": "Unschedulable",
        "message": "2/2 tasks in gang\nunschedulable",
        "count": 3,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    other = {**event["involvedObject"], "uid": "of-an-earlier-one"}
    of_another = {
        **event,
        "metadata": {"name": "f", "namespace": "default"},
        "involvedObject": other,
        "reason": "Old",
    }
    for about in (event, of_another):
        await ordered.ask("POST", "/api/v1/namespaces/default/events", about)
    code, out, err = await ordered("describe", "j")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "Message: worker waits for master (1 of 2 ready)" in lines
    assert "Policies: PodEvicted → RestartJob after 5m" in lines
    assert "Plugins: env" in lines
    assert "Min success: 2" in lines and "Retries: 0 of 4" in lines
    assert "master 2 2 1 1 0 0 0 - -" in lines
    assert "worker 3 1 0 0 0 0 0 master master (1 of 2 ready)" in lines
    assert "master c i cpu=1 - - -" in lines
    assert f"Name: {group['metadata']['name']}" in lines and "Min task member: master=2,worker=1" in lines
    first, second = (line for line in lines if line.startswith("j-master-"))
    assert first.split()[:5] == ["j-master-0", "master", "Pending", "0/1", "0"]
    assert first.endswith("QueueFull: queue default is full")
    assert second.split()[:5] == ["j-master-1", "master", "Running", "1/1", "0"]
    shown = next(line for line in lines if line.startswith("Warning Unschedulable"))
    assert "(x3)" in shown and shown.endswith("PodGroup: 2/2 tasks in gang unschedulable")
    found = json.loads((await ordered("describe", "j", "-o", "json"))[1])
    assert found["waiting"] == {
        "worker": {"anyOf": False, "on": [{"task": "master", "ready": 1, "least": 2}]}
    }
    assert found["podGroup"]["metadata"]["uid"] == group["metadata"]["uid"]
    assert len(found["pods"]) == 2
    assert "Old" not in out


async def test_pods_that_an_earlier_job_of_the_name_left_are_not_shown(ordered: Ordered) -> None:
    task_of = {"volcano.sh/task-spec": "main"}
    left = pod("j-main-0", labels={"volcano.sh/job-name": "j"}, annotations=task_of)
    await ordered.ask("POST", PODS, left)
    await ordered.ask("POST", JOBS, job("j"))
    assert json.loads((await ordered("describe", "j", "-o", "json"))[1])["pods"] == []


# ---- rights


def test_who_has_the_role_of_the_samples_can_do_all_of_it_and_no_more(
    tmp_path: Path, capsys: Capture
) -> None:
    with EmbeddedCluster(authorization_mode="RBAC") as cluster:
        for crd in sorted((CONFIG / "crd").glob("*_*.yaml")):
            cluster.apply(crd.read_text())
        role = yaml.safe_load((CONFIG / "samples" / "job-user.yaml").read_text())
        group = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "users", "namespace": "default"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role["metadata"]["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": "builder", "namespace": "default"}],
        }
        for each in (role, binding):
            cluster.apply(yaml.safe_dump(each))
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": cluster.service_account_token("builder")}
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config))

        def run(*line: str) -> tuple[int, str]:
            code = main(["job", *line, "--kubeconfig", str(file)])
            return code, capsys.readouterr().err

        lost = {"match": {"verbs": ["create"]}, "count": 1, "fault": {"lose": {}}}
        cluster.inject({"rules": [lost]})
        assert run("run", "--name", "j") == (0, "")
        assert run("list") == run("describe", "j") == (0, "")
        cluster.inject({"rules": [lost]})
        assert run("suspend", "j") == run("delete", "j") == (0, "")
        code, err = run("list", "-A")
        assert code == 2 and "403" in err and err.count("\n") == 1
        (rule,) = [each for each in role["rules"] if each["apiGroups"] == ["batch.volcano.sh"]]
        used = {
            asked.attributes.verb
            for asked in cluster.requests
            if asked.by.endswith(":builder") and asked.attributes.resource == "jobs" and asked.allowed
        }
        assert used == set(rule["verbs"])
