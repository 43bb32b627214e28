"""`agent-scheduler job` as a shell sees it, against an embedded cluster; the job controller where it is to act."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from agent_scheduler.process.controller_flags import JOB, QUEUE
from embedded_kubernetes import EmbeddedCluster
from tests.support.batched import COMMANDS
from tests.support.command_line import Command, kubeconfig
from tests.support.controllers import BatchWorld, batch_world
from tests.support.embedded import PODS, until
from tests.support.jobs import GROUPS, JOBS
from tests.support.objects import condition, pod, pod_group, task
from tests.support.objects import job as make_job
from tests.support.places import CONFIG

Capture = pytest.CaptureFixture[str]
HEAD = "NAME CREATION PHASE JOBTYPE REPLICAS MIN PENDING RUNNING SUCCEEDED FAILED UNKNOWN RETRYCOUNT"


def job(name: str, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return make_job(name, *(tasks or [task("main", 2, 1)]), **{"namespace": "default", "queue": "default", **more})


class Shell(Command):
    """The command, and the cluster that it is run against."""

    def __init__(self, cluster: EmbeddedCluster, capsys: Capture) -> None:
        super().__init__("job", cluster.kubeconfig, capsys)
        self.cluster = cluster

    def install(self) -> None:
        for crd in sorted((CONFIG / "crd").glob("*_*.yaml")):
            self.cluster.apply(crd.read_text())

    def add(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            self.cluster.apply(yaml.safe_dump(each))

    def faulty(self, fault: dict[str, Any], *kinds: str) -> None:
        """What is asked of these kinds goes wrong so."""
        rules = [{"match": {"resource": each}, "fault": fault} for each in kinds]
        self.cluster.inject({"rules": rules})

    def jobs(self, line: str = "") -> Any:
        return json.loads(self(f"list -o json {line}")[1])["jobs"]

    def names(self, line: str = "") -> list[str]:
        return [each["name"] for each in self.jobs(line)]

    def whole(self, name: str) -> Any:
        """What `describe` says for programs."""
        code, out, err = self(f"describe {name} -o json")
        assert (code, err) == (0, "")
        return json.loads(out)


@pytest.fixture
def shell(capsys: Capture) -> Iterator[Shell]:
    with EmbeddedCluster() as cluster:
        found = Shell(cluster, capsys)
        found.install()
        yield found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


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
    told = "agent-scheduler job list: there are no matching jobs in namespace default\n"
    assert shell("list")[0::2] == (0, told)
    assert "there are no matching jobs in any namespace" in shell("list -A")[2]


def test_jobs_of_all_namespaces_of_a_scheduler_or_with_labels_can_be_asked_for(shell: Shell) -> None:
    shell.add({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    elsewhere = job("c", schedulerName="mine", namespace="other")
    shell.add(job("a", labels={"team": "x"}), job("b"), elsewhere)
    assert shell.names() == ["a", "b"] and shell.names("-A") == ["a", "b", "c"]
    assert shell.names("-n other") == shell.names("-A -S mine") == ["c"]
    assert shell.names("-l team=x") == ["a"]
    lines = shell("list -A -o wide")[1].splitlines()
    assert lines[0].split() == f"NAMESPACE {HEAD} TERMINATING VERSION QUEUE SCHEDULER AGE MESSAGE".split()
    assert lines[3].split()[:2] == ["other", "c"] and "mine" in lines[3]


def test_programs_get_json_and_yaml_alike(shell: Shell) -> None:
    shell.add(job("a", minAvailable=2))
    assert shell.jobs() == yaml.safe_load(shell("list -o yaml")[1])["jobs"]
    (found,) = shell.jobs()
    assert (found["replicas"], found["minAvailable"], found["phase"]) == (2, 2, None)
    assert found["pods"]["running"] == 0
    of_yaml = yaml.safe_load(shell("describe a -o yaml")[1])
    assert of_yaml == shell.whole("a")
    assert of_yaml["job"]["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] == "i"


# ---- run


def test_a_job_is_made_of_flags(shell: Shell) -> None:
    line = "run --name j --image img --replicas 3 -m 2 --requests cpu=2,memory=1Gi"
    assert shell(line) == (0, "job default/j was created\n", "")
    found = shell.whole("j")["job"]["spec"]
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
    assert shell("run -N j -L cpu=4 -S mine -q research")[0] == 0
    found = shell.whole("j")["job"]["spec"]
    assert (found["minAvailable"], found["schedulerName"], found["queue"]) == (1, "mine", "research")
    (container,) = found["tasks"][0]["template"]["spec"]["containers"]
    assert container["image"] == "busybox"
    usual = {"cpu": "1000m", "memory": "100Mi"}
    assert container["resources"] == {"requests": usual, "limits": {"cpu": "4"}}


def test_a_job_is_made_of_a_file_or_input(shell: Shell, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = job("of-file", task("m", 1), task("w", 2, dependsOn={"name": ["m"]}))
    file.write_text("---\n" + yaml.safe_dump(body))
    assert shell(f"run -f {file}") == (0, "job default/of-file was created\n", "")
    assert shell(f"run -f {file} --name again") == (0, "job default/again was created\n", "")
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "some-"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(body).encode())))
    code, out, _ = shell("run -f -")
    assert code == 0 and out.startswith("job default/some-")
    assert [each["replicas"] for each in shell.jobs()] == [3, 3, 3]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "--name is missing; allowed: --name JOB, or --filename FILE"),
        ("--name J", "--name 'J': a lowercase RFC 1123 label must consist of"),
        ("--name j -r 0", "--replicas 0: allowed: 1 or more"),
        ("--name j -r 2 -m 3", "--min 3: allowed: 0 to 2, the number of replicas"),
        ("--name j -R cpu", "--requests cpu: found 'cpu'; allowed: each resource once, as NAME=AMOUNT"),
        ("--name j -R cpu=1,cpu=2", "found 'cpu=2'; allowed: each resource once"),
        ("--name j -L cpu=x", "--limits cpu=x: cpu: invalid quantity 'x'"),
        ("-f FILE -i x -m 1", "--image, --min: not allowed with --filename"),
        ("-f /no/such", "--filename /no/such: No such file or directory"),
        ("-f FILE -n elsewhere", "--namespace elsewhere: the job's namespace is default; remove one of the two"),
    ],
)
def test_a_job_that_cannot_be_made_is_one_line(shell: Shell, file: Path, line: str, told: str) -> None:
    file.write_text(yaml.safe_dump(job("j")))
    code, out, err = shell("run " + line.replace("FILE", str(file)))
    assert (code, out) == (2, "")
    assert err.startswith("agent-scheduler job run: ") and told in err and err.count("\n") == 1
    assert shell.jobs() == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "not valid YAML: line 2"),
        ("[" * 1_000_000, "not valid YAML: line 1: nested too deeply; allowed: 100 levels"),
        ("{VOLCANOS, kind: Job, metadata: &a {x: *a}}", "the alias *a is within its own anchor"),
        ("", "found 0 objects; allowed: one Job"),
        ("- 1", "found None of None; allowed: kind Job"),
        ("{apiVersion: batch/v1, kind: Job}", "found Job of batch/v1; allowed: kind Job of apiVersion batch.volc"),
        ("{VOLCANOS, kind: Job}", "metadata.name is missing; give one with --name"),
        ("{VOLCANOS, kind: Job, metadata: 1}", "metadata is not an object"),
    ],
)
def test_a_file_that_is_no_job_is_told(shell: Shell, file: Path, text: str, told: str) -> None:
    file.write_text(text.replace("VOLCANOS", "apiVersion: batch.volcano.sh/v1alpha1"))
    code, _, err = shell(f"run -f {file}")
    assert code == 2 and told in err and err.count("\n") == 1


def test_a_name_that_is_taken_is_told(shell: Shell) -> None:
    shell.add(job("j"))
    told = "job default/j already exists; delete it first, or use another --name"
    assert shell("run --name j") == (2, "", f"agent-scheduler job run: {told}\n")


def test_what_the_api_server_refuses_is_told_as_it_says_it(shell: Shell) -> None:
    code, _, err = shell("run --name j -n no-such")
    assert code == 2 and "job no-such/j cannot be created: 404" in err
    assert 'namespaces "no-such" not found' in err
    shell.faulty({"error": {"status": 503}}, "jobs")
    code, _, err = shell("run --name j")
    assert code == 2 and "job default/j cannot be created: 503" in err and err.count("\n") == 1


def test_an_answer_that_is_lost_makes_one_job(shell: Shell) -> None:
    lost = {"match": {"resource": "jobs", "verbs": ["create"]}, "count": 1, "fault": {"lose": {}}}
    shell.cluster.inject({"rules": [lost]})
    assert shell("run --name j") == (0, "job default/j was created\n", "")
    assert shell.names() == ["j"]


# ---- one job


@pytest.mark.parametrize("action", ["describe", "suspend", "resume", "delete"])
def test_a_job_that_there_is_not_is_told(shell: Shell, action: str) -> None:
    told = "there is no job j in namespace default; list the jobs with: agent-scheduler job list"
    expected = f"agent-scheduler job {action}: {told} --namespace default\n"
    assert shell(f"{action} --name j") == (2, "", expected)
    told = f"the job's name is missing; allowed: agent-scheduler job {action} JOB"
    assert shell(action) == (2, "", f"agent-scheduler job {action}: {told}\n")
    assert "found a and --name b; allowed: one of the two" in shell(f"{action} a -N b")[2]
    assert "job 'a,b': a lowercase RFC 1123 subdomain" in shell(f"{action} a,b")[2]


def test_a_cluster_without_the_kind_is_told_what_to_install(capsys: Capture) -> None:
    told = "the API server has no Job (batch.volcano.sh/v1alpha1); install it: kubectl apply -k config/crd\n"
    with EmbeddedCluster() as cluster:
        shell = Shell(cluster, capsys)
        for line in ("list", "describe j", "run --name j"):
            assert shell(line) == (2, "", f"agent-scheduler job {line.split()[0]}: {told}")


def test_a_job_is_deleted(shell: Shell) -> None:
    shell.add(job("j"), job("k"))
    assert shell("delete j") == (0, "job default/j was deleted\n", "")
    assert shell.names() == ["k"]


def test_what_cannot_be_read_of_a_job_is_said_and_the_rest_shown(shell: Shell) -> None:
    shell.add(job("j", task("m", 1), task("w", 2, dependsOn={"name": ["m"]})))
    shell.faulty({"error": {"status": 403}}, "pods", "events", "podgroups")
    code, out, err = shell("describe j")
    assert code == 0
    assert [line.split(" cannot be read: ")[0] for line in err.splitlines()] == [
        f"agent-scheduler job describe: {what}" for what in ("pods", "the PodGroup", "events")
    ]
    assert "Pods:" not in out and "Events:" not in out
    worker = next(line for line in out.splitlines() if line.split()[:1] == ["w"])
    assert worker.split()[-2:] == ["m", "?"]


# ---- with the controller


class Ordered(BatchWorld):
    """The job controller over an embedded cluster, and the command as a user has it."""

    def has_command(self, folder: Path, capsys: Capture) -> None:
        self.run = Command("job", kubeconfig(folder, self.server.url), capsys).beside

    async def until_phase(self, phase: str) -> None:
        await self.seen(f"{JOBS}/j", lambda it: it.get("status", {}).get("state", {}).get("phase") == phase)

    async def until_pods(self, *names: str) -> None:
        await self.seen(PODS, lambda it: {each["metadata"]["name"] for each in it["items"]} == set(names))

    async def let_in(self) -> dict[str, Any]:
        ((name, group),) = (await until(self.groups)).items()
        await self.patch(f"{GROUPS}/{name}", {"status": {"phase": "Inqueue"}})
        return dict(group)


@pytest.fixture
async def ordered(tmp_path: Path, capsys: Capture) -> AsyncIterator[Ordered]:
    # What the controllers log is no output of the command.
    with structlog.testing.capture_logs():
        async with batch_world(Ordered) as world:
            world.start(JOB, QUEUE)
            await world.until_states(default="Open")
            world.has_command(tmp_path, capsys)
            yield world


async def test_a_job_is_suspended_and_resumed_by_commands_that_go_with_it(ordered: Ordered) -> None:
    run = ordered.run
    assert (await run("run --name j --replicas 2"))[0] == 0
    await ordered.let_in()
    await ordered.until_pods("j-default0-0", "j-default0-1")
    told = "job default/j is Pending; resume is allowed in: Aborted, Aborting"
    assert await run("resume j") == (2, "", f"agent-scheduler job resume: {told}\n")
    assert await run("suspend j") == (0, "job default/j: requested to suspend (Command AbortJob)\n", "")
    await ordered.until_phase("Aborted")
    await ordered.until_pods()
    assert (await run("suspend j"))[0] == 2
    assert (await run("resume j"))[1] == "job default/j: requested to resume (Command ResumeJob)\n"
    await ordered.until_phase("Pending")
    assert [each["retryCount"] for each in json.loads((await run("list -o json"))[1])["jobs"]] == [1]
    await ordered.until_no_commands()


async def test_a_command_names_its_job_as_owner_and_target(ordered: Ordered) -> None:
    await ordered.end()
    uid = (await ordered.add(JOBS, job("j")))["metadata"]["uid"]
    assert (await ordered.run("suspend j"))[0] == 0
    (command,) = await ordered.items(COMMANDS)
    (owner,) = command["metadata"]["ownerReferences"]
    assert owner == command["target"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Job", "j", uid, True)
    assert command["action"] == "AbortJob" and command["metadata"]["name"].startswith("j-abortjob-")


async def test_a_job_is_described_with_who_waits_for_whom_its_group_pods_and_events(ordered: Ordered) -> None:
    tasks = [task("master", 2, 2), task("worker", 3, 1, dependsOn={"name": ["master"]})]
    tasks[1]["template"]["spec"]["containers"][0] |= {"command": ["run"], "args": ["--for", "\x1b[2J\u202eever"]}
    policies = [{"event": "PodEvicted", "action": "RestartJob", "timeout": "5m"}]
    more: dict[str, Any] = {"policies": policies, "plugins": {"env": []}}
    await ordered.add(JOBS, job("j", *tasks, minimum=3, minSuccess=2, maxRetry=4, **more))
    group = (await ordered.let_in())["metadata"]
    await ordered.add(GROUPS, pod_group("another"))
    await ordered.until_pods("j-master-0", "j-master-1")
    report = {"name": "c", "image": "i", "imageID": "", "restartCount": 0, "ready": True}
    status = {"phase": "Running", "containerStatuses": [report | {"state": {"running": {}}}]}
    await ordered.patch(f"{PODS}/j-master-1/status", {"status": status})
    full = condition("PodScheduled", "False", "QueueFull", "queue default is full")
    await ordered.patch(f"{PODS}/j-master-0/status", {"status": {"conditions": [full]}})
    await ordered.seen(f"{JOBS}/j", lambda it: it["status"].get("running") == 1)
    words = {"Unschedulable": group["uid"], "Old": "of-an-earlier-one"}
    for reason, uid in words.items():
        about = {"kind": "PodGroup", "namespace": "default", "name": group["name"], "uid": uid}
        said = {"type": "Warning", "reason": reason, "message": "2/2 tasks in gang\nunschedulable"}
        event = {"involvedObject": about, **said, "count": 3, "lastTimestamp": "2026-01-01T00:00:00Z"}
        named = {"metadata": {"name": reason.lower(), "namespace": "default"}}
        await ordered.add("/api/v1/namespaces/default/events", named | event)
    code, out, err = await ordered.run("describe j")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "Message: worker waits for master (1 of 2 ready)" in lines
    assert "Policies: PodEvicted → RestartJob after 5m" in lines
    assert "Plugins: env" in lines
    assert "Min success: 2" in lines and "Retries: 0 of 4" in lines
    assert "master 2 2 1 1 0 0 0 - -" in lines
    assert "worker 3 1 0 0 0 0 0 master master (1 of 2 ready)" in lines
    assert "master c i cpu=1 - - -" in lines and "worker c i cpu=1 - - run --for \\x1b[2J\\u202eever" in lines
    assert f"Name: {group['name']}" in lines and "Min task member: master=2,worker=1" in lines
    first, second = (line for line in lines if line.startswith("j-master-"))
    assert first.split()[:5] == ["j-master-0", "master", "Pending", "0/1", "0"]
    assert first.endswith("QueueFull: queue default is full")
    assert second.split()[:5] == ["j-master-1", "master", "Running", "1/1", "0"]
    shown = next(line for line in lines if line.startswith("Warning Unschedulable"))
    assert "(x3)" in shown and shown.endswith("PodGroup: 2/2 tasks in gang unschedulable")
    found = json.loads((await ordered.run("describe j -o json"))[1])
    waits = {"anyOf": False, "on": [{"task": "master", "ready": 1, "least": 2}]}
    assert found["waiting"] == {"worker": waits}
    assert found["podGroup"]["metadata"]["uid"] == group["uid"]
    assert len(found["pods"]) == 2
    assert "Old" not in out


async def test_pods_that_an_earlier_job_of_the_name_left_are_not_shown(ordered: Ordered) -> None:
    task_of = {"volcano.sh/task-spec": "main"}
    await ordered.add(PODS, pod("j-main-0", labels={"volcano.sh/job-name": "j"}, annotations=task_of))
    await ordered.add(JOBS, job("j"))
    assert json.loads((await ordered.run("describe j -o json"))[1])["pods"] == []


# ---- rights


def test_who_has_the_role_of_the_samples_can_do_all_and_no_more(tmp_path: Path, capsys: Capture) -> None:
    with EmbeddedCluster(authorization_mode="RBAC") as cluster:
        shell = Shell(cluster, capsys)
        shell.install()
        role = yaml.safe_load((CONFIG / "samples" / "job-user.yaml").read_text())
        group = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "users", "namespace": "default"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role["metadata"]["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": "builder", "namespace": "default"}],
        }
        shell.add(role, binding)
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": cluster.service_account_token("builder")}
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        user = Command("job", file, capsys)
        lost = {"match": {"verbs": ["create"]}, "count": 1, "fault": {"lose": {}}}
        for line in ("run --name j", "list", "describe j", "suspend j", "delete j"):
            if line in ("run --name j", "suspend j"):
                cluster.inject({"rules": [lost]})
            assert user(line)[0::2] == (0, ""), line
        code, _, err = user("list -A")
        assert code == 2 and "403" in err and err.count("\n") == 1
        (rule,) = [each for each in role["rules"] if each["apiGroups"] == ["batch.volcano.sh"]]
        used = {
            asked.attributes.verb
            for asked in cluster.requests
            if asked.by.endswith(":builder") and asked.attributes.resource == "jobs" and asked.allowed
        }
        assert used == set(rule["verbs"])
