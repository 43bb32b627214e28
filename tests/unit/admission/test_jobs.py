"""Jobs: what they are given, and what is said of those that make no sense."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_scheduler.admission.jobs import JobRules, mutate, validate
from agent_scheduler.admission.review import UnreadableObject, write_review
from agent_scheduler.objects.job import DEPENDS_ON_GANG
from tests.support.reviews import known, patched, queue, request

STRICT = JobRules(scheduler="volcano")
LAX = JobRules(scheduler="volcano", strict_min_available=False)
QUEUES = known(
    *(queue("root", parent=""), queue("default"), queue("above"), queue("below", parent="above")),
    queue("shut", state="Closed"),
)


def task(name: str = "a", replicas: int = 2, **more: Any) -> Any:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def job(*tasks: Any, minimum: int | None = None, **spec: Any) -> Any:
    given = {} if minimum is None else {"minAvailable": minimum}
    return {"metadata": {"name": "j"}, "spec": {"queue": "default", "tasks": list(tasks or (task(),)), **given, **spec}}


def partitions(total: int, size: int, least: int = 0) -> dict[str, int]:
    return {"totalPartitions": total, "partitionSize": size, "minPartitions": least}


def waiting(name: str, *others: str, **more: Any) -> Any:
    return task(name, dependsOn={"name": list(others), **more})


def made(given: Any) -> Any:
    return patched(given, mutate(request(given), STRICT))


def told(given: Any, *, old: Any = None, rules: JobRules = STRICT) -> list[str]:
    """Problems without what is allowed instead."""
    operation = "CREATE" if old is None else "UPDATE"
    answer = validate(request(given, old=old, operation=operation), QUEUES, rules)
    assert answer.allowed == (not answer.message)
    return [each for each in answer.message.split("; ") if each and not each.startswith("allowed: ")]


def fields(given: Any, *, old: Any = None) -> list[str]:
    """The fields that have a problem."""
    return [each.partition(": ")[0] for each in told(given, old=old)]


def test_a_job_is_refused_where_its_queue_lists_other_namespaces() -> None:
    listed = known(queue("q", annotations={"agent-scheduler.io/namespaces": "team"}))
    asked = request(job(queue="q"), namespace="default")
    problem = "spec.queue: namespace default is not among those that may use queue q"
    assert problem in validate(asked, listed, STRICT).message
    assert problem not in validate(request(job(queue="q"), namespace="team"), listed, STRICT).message


# ---- defaults


def test_a_job_that_says_little_is_given_the_rest() -> None:
    tasks = [{"replicas": 2}, {"replicas": 3, "minAvailable": 1}]
    assert made({"metadata": {"name": "j"}, "spec": {"tasks": tasks}})["spec"] == {
        "queue": "default",
        "schedulerName": "volcano",
        "maxRetry": 3,
        "minAvailable": 3,
        "tasks": [
            {"name": "default0", "replicas": 2, "minAvailable": 2, "maxRetry": 3},
            {"name": "default1", "replicas": 3, "minAvailable": 1, "maxRetry": 3},
        ],
    }


def test_what_a_job_says_stays() -> None:
    whole = job(task(minAvailable=1, maxRetry=1), minimum=1, schedulerName="s", maxRetry=1)
    assert mutate(request(whole), STRICT).patch == ()


@pytest.mark.parametrize(
    ("tasks", "minimum", "expected"),
    [
        # The table of Volcano's design: the job's minimum, then those of its tasks.
        ((task(), task("b", 3)), None, (5, [2, 3])),
        ((task(minAvailable=1), task("b", 3, minAvailable=2)), None, (3, [1, 2])),
        ((task(minAvailable=1), task("b", 3)), None, (4, [1, 3])),
        ((task(),), 1, (1, [1])),
        ((task(), task("b", 3)), 5, (5, [2, 3])),
        ((task(minAvailable=0), task("b", 3)), None, (3, [0, 3])),
        ((task("p", 4, partitionPolicy=partitions(2, 2, 1)),), 4, (4, [2])),
    ],
)
def test_minimums_that_are_missing_follow_from_those_that_are_there(
    tasks: tuple[Any, ...], minimum: int | None, expected: tuple[int, list[int]]
) -> None:
    spec = made(job(*tasks, minimum=minimum))["spec"]
    assert (spec["minAvailable"], [each["minAvailable"] for each in spec["tasks"]]) == expected


def test_tasks_on_the_hosts_network_find_services() -> None:
    on_host = task()
    on_host["template"]["spec"]["hostNetwork"] = True
    own = json.loads(json.dumps(on_host))
    own["template"]["spec"]["dnsPolicy"] = "Default"
    tasks = made(job(on_host, {**own, "name": "b"}))["spec"]["tasks"]
    assert [each["template"]["spec"]["dnsPolicy"] for each in tasks] == ["ClusterFirstWithHostNet", "Default"]


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ({"mpi": []}, {"mpi": [], "ssh": [], "svc": []}),
        ({"pytorch": ["--port=1"], "svc": ["x"]}, {"pytorch": ["--port=1"], "svc": ["x"]}),
        ({"env": []}, {"env": []}),
    ],
)
def test_frameworks_get_the_plugins_that_they_need(plugins: Any, expected: Any) -> None:
    assert made(job(plugins=plugins))["spec"]["plugins"] == expected


@pytest.mark.parametrize("annotations", [None, {}, {"dependent-job": "no", "x": "y"}])
def test_a_job_whose_tasks_wait_for_others_is_marked(annotations: Any) -> None:
    given = job(task(), waiting("b", "a"))
    if annotations is not None:
        given["metadata"]["annotations"] = annotations
    assert made(given)["metadata"]["annotations"] == {**(annotations or {}), "dependent-job": "true"}
    assert "annotations" not in made(job(task(), waiting("b")))["metadata"]


# ---- minimums


@pytest.mark.promise("JOB-4")
@pytest.mark.parametrize(
    ("tasks", "minimum", "wanted"),
    [
        ((task(), task("b", 3)), 4, "5 (a 2 + b 3)"),
        ((task(minAvailable=1), task("b", 3, minAvailable=2)), 5, "3 (a 1 + b 2)"),
        ((task(minAvailable=1),), 2, "1 (a 1)"),
    ],
)
def test_a_minimum_that_is_no_sum_is_told_of(tasks: tuple[Any, ...], minimum: int, wanted: str) -> None:
    given = job(*tasks, minimum=minimum)
    strict = validate(request(given), QUEUES, STRICT)
    assert strict.message == (
        f"spec.minAvailable: {minimum} is not the sum of the tasks' minAvailable, or replicas where a task has none; "
        f"allowed: {wanted}, or none, which is made that"
    )
    lax = validate(request(given), QUEUES, LAX)
    assert (lax.allowed, lax.warnings) == (True, (strict.message,))
    written = json.loads(write_review(request(given), lax))["response"]
    assert (written["allowed"], written["warnings"]) == (True, [strict.message])


@pytest.mark.parametrize(
    "given", [job(minimum=1), job(task(), task("b", 3), minimum=5), job(task(minAvailable=0), task("b"), minimum=2)]
)
def test_what_is_made_of_a_job_is_allowed(given: Any) -> None:
    assert told(made(given)) == []


# ---- dependencies

NO_DAG = "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)"


@pytest.mark.promise("JOB-9")
@pytest.mark.parametrize(
    ("tasks", "cycle"),
    [
        ((waiting("a", "a"),), "a -> a"),
        ((waiting("a", "b"), waiting("b", "a")), "a -> b -> a"),
        ((waiting("x", "a"), waiting("a", "c"), waiting("b", "a"), waiting("c", "x", "b")), "x -> a -> c -> x"),
    ],
)
def test_tasks_that_wait_in_a_circle_are_named(tasks: tuple[Any, ...], cycle: str) -> None:
    assert told(job(*tasks)) == [f"spec.tasks[0].dependsOn.name: {NO_DAG}: {cycle}"]


@pytest.mark.parametrize("first", [waiting("x", "a"), task("x")])
def test_a_circle_is_found_behind_and_beside_other_tasks(first: Any) -> None:
    given = job(first, waiting("a", "b"), waiting("b", "a"))
    assert told(given) == [f"spec.tasks[1].dependsOn.name: {NO_DAG}: a -> b -> a"]


@pytest.mark.promise("JOB-9")
def test_a_task_that_is_not_there_is_named() -> None:
    answer = validate(request(job(task(), waiting("b", "a", "ghost"))), QUEUES, STRICT)
    assert answer.message == (
        f"spec.tasks[1].dependsOn.name: {NO_DAG}: there is no task 'ghost'; allowed: names of other tasks: a"
    )


@pytest.mark.parametrize(
    "tasks",
    [
        (task(), waiting("b", "a", "a")),
        (task(), waiting("b", "a", iteration="any"), waiting("c", "a", "b", iteration="all")),
        (task(), waiting("b", "a"), waiting("c", "a"), waiting("d", "b", "c")),
    ],
)
def test_tasks_may_wait_for_others_twice_and_by_several_ways(tasks: tuple[Any, ...]) -> None:
    assert told(job(*tasks)) == []


def test_many_tasks_in_a_row_are_followed() -> None:
    row = [task("t0"), *(waiting(f"t{number}", f"t{number - 1}") for number in range(1, 1000))]
    assert told(job(*row)) == []
    (circle,) = told(job({**row[0], "dependsOn": {"name": ["t999"]}}, *row[1:]))
    assert circle.endswith("t981 -> and 981 more")


LARGEST = 2**31 - 1


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        (
            [task(), task("b", LARGEST)],
            f"spec.tasks[1].replicas: the tasks have {LARGEST + 2} replicas together; allowed: at most 20000",
        ),
        (
            [task(f"t{number}", 30) for number in range(1000)],
            "spec.tasks[0].replicas: the tasks have 30000 replicas together; allowed: at most 20000",
        ),
        (
            [waiting(f"t{number}", f"gone{number}") for number in range(9000)],
            "spec.tasks: the job has 9000 tasks; allowed: at most 1000",
        ),
    ],
)
def test_a_job_that_is_too_large_is_told_so_and_nothing_else(tasks: list[Any], problem: str) -> None:
    given, small = job(*tasks), job(task())
    for old in (None, small):
        operation = "CREATE" if old is None else "UPDATE"
        assert validate(request(given, old=old, operation=operation), QUEUES, STRICT).message == problem
    changed = {**given, "metadata": {"name": "j", "finalizers": []}}
    assert told(changed, old=given) == [], "it can be deleted"


@pytest.mark.parametrize(
    "given",
    [
        job(*(waiting(f"t{number}", *(f"gone{other}" for other in range(300))) for number in range(1000))),
        job(*(task("same", policies=[{"event": f"e{each}"} for each in range(9)]) for _ in range(1000))),
        job({**task("a" * 90_000), "replicas": 1}, task("b" * 90_000)),
        job(volumes=[{"mountPath": ""}] * 9000, plugins={f"p{number}": [] for number in range(9000)}),
    ],
    ids=["names", "policies", "long", "volumes"],
)
def test_an_answer_has_few_problems_of_many(given: Any) -> None:
    message = validate(request(given), QUEUES, STRICT).message
    assert len(message) < 25_000
    assert len(message.split("; ")) <= 2 * 21


@pytest.mark.parametrize("value", ["", "true", "Reserve"])
def test_room_for_later_tasks_is_reserved_or_not_asked_for(value: str) -> None:
    given = made(job(task("a"), waiting("b", "a")))
    given["metadata"]["annotations"] = {DEPENDS_ON_GANG: "reserve"}
    assert told(given) == []
    given["metadata"]["annotations"] = {DEPENDS_ON_GANG: value}
    assert told(given) == [f"metadata.annotations[{DEPENDS_ON_GANG}]: found {value!r}"]


@pytest.mark.promise("JOB-12")
def test_an_iteration_is_any_or_all() -> None:
    answer = validate(request(job(task(), waiting("b", "a", iteration="some"))), QUEUES, STRICT)
    assert answer.message == "spec.tasks[1].dependsOn.iteration: found 'some'; allowed: any, all"


# ---- the rest


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = job(
        task(minAvailable=3, policies=[{"action": "SyncJob", "exitCode": 3}]),
        task("a", partitionPolicy=partitions(0, 0)),
        minimum=9,
        policies=[{"action": "RestartJob", "event": "No"}, {"action": "Nope", "event": "*"}],
        plugins={"bogus": []},
        volumes=[{"mountPath": "/d"}, {"mountPath": "/d", "volumeClaimName": "Bad"}],
        queue="above",
    )
    places = """tasks[0].minAvailable tasks[0].policies[0].action tasks[1].name
        tasks[1].partitionPolicy.totalPartitions tasks[1].partitionPolicy.partitionSize minAvailable
        policies[0].event policies[1].action policies plugins volumes[0] volumes[1].mountPath
        volumes[1].volumeClaimName queue minAvailable"""
    assert fields(wrong) == [f"spec.{place}" for place in places.split()]


OPEN = "can only submit job to queue with state `Open`, queue `shut` status is `Closed`"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("root", "can not submit job to root queue"),
        ("above", "can only submit job to leaf queue, queue `above` has 1 child queues"),
        ("none", 'unable to find job queue: queue.scheduling.volcano.sh "none" not found'),
        ("shut", OPEN),
        ("below", ""),
    ],
)
def test_a_job_is_in_a_queue_that_takes_pods(name: str, problem: str) -> None:
    assert told(job(queue=name)) == ([f"spec.queue: {problem}"] if problem else [])


def container(*, cpu: Any = None, task_of: Any = None, host_network: bool = False, **more: Any) -> Any:
    """A task whose container has these fields, or `cpu` as its request."""
    given = task(**(task_of or {}))
    spec = given["template"]["spec"]
    spec["containers"][0] |= more if cpu is None else {"resources": {"requests": {"cpu": cpu}}}
    return given if not host_network else {**given, "template": {"spec": {**spec, "hostNetwork": True}}}


def asks(requests: Any, limits: Any) -> Any:
    return {"resources": {"requests": requests, "limits": limits}}


RESTRICTED = {"topologyPolicy": "restricted"}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"ports": [{"containerPort": 65535}]}, ""),
        ({"ports": [{"containerPort": 1, "hostPort": 2}]}, ""),
        ({"ports": [{"containerPort": 1, "hostPort": 1}], "host_network": True}, ""),
        ({"cpu": "0"}, ""),
        ({"cpu": "much"}, "resources.requests[cpu]"),
        (asks({"cpu": "1"}, {"cpu": "1"}), ""),
        (asks({"a.example/gpu": 1}, {"a.example/gpu": 1}), ""),
        ({"readinessProbe": {"tcpSocket": {"port": 1}, "timeoutSeconds": 0}}, ""),
        # With a topology policy CPUs are whole.
        *(({"cpu": cpu, "task_of": RESTRICTED}, "") for cpu in ("1", 2, "3000m")),
        *(({"cpu": cpu, "task_of": RESTRICTED}, "resources.requests[cpu]") for cpu in ("0", "500m", "1500m")),
        ({"task_of": RESTRICTED}, "resources.requests[cpu]"),
        ({"cpu": "500m", "task_of": {"topologyPolicy": "none"}}, ""),
        ({"resources": {"limits": {"cpu": "2"}}, "task_of": RESTRICTED}, ""),
    ],
)
def test_a_template_of_which_no_pod_could_be_made_is_refused(given: Any, field: str) -> None:
    place = "spec.tasks[0].template.spec.containers[0]"
    assert fields(job(container(**given))) == ([f"{place}.{field}"] if field else [])


def parted(*sizes: int, **more: Any) -> Any:
    return job(task(partitionPolicy=partitions(*sizes), **more))


def policies(*given: Any) -> Any:
    """`given`: of each policy its events, or its exit code."""
    said = [
        {"action": "RestartJob", **({"exitCode": each} if isinstance(each, int) else {"events": each})}
        for each in given
    ]
    return job(policies=said)


TIERS = {"highestTierAllowed": 1, "highestTierName": "n"}
MOUNT = {"mountPath": "/b"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (parted(1, 2), []),
        (parted(2, 1, 1, minAvailable=1), []),
        (parted(2, 1, 0, minAvailable=2), []),
        (parted(2, 1, 1), []),
        (parted(2, 1, 1, minAvailable=2), ["spec.tasks[0].minAvailable"]),
        (parted(0, 1), ["spec.tasks[0].partitionPolicy.totalPartitions"]),
        (parted(2, 0), ["spec.tasks[0].partitionPolicy.partitionSize"]),
        *((parted(*each), ["spec.tasks[0].replicas"]) for each in ((2, 2), (1, 3), (3, 1))),
        (policies(["*"]), []),
        (policies(["PodFailed", "PodEvicted"], ["TaskFailed"], 1, 2), []),
        (policies(["*", "PodFailed"]), ["spec.policies"]),
        (policies(["*"], ["PodFailed"]), ["spec.policies"]),
        (policies(["PodFailed"], ["PodFailed"]), ["spec.policies[1].event"]),
        (policies(1, 1), ["spec.policies[1].exitCode"]),
        (policies(0), ["spec.policies[0].exitCode"]),
        (policies([]), ["spec.policies[0]"]),
        (job(policies=[{"action": "RestartJob", "event": "*", "exitCode": 3}]), ["spec.policies[0]"]),
        (job(task(policies=[{"action": "Nope", "event": "*"}])), ["spec.tasks[0].policies[0].action"]),
        (job(plugins={"mpi": []}), ["spec.plugins[mpi]"]),
        (job(task("master"), plugins={"mpi": []}), []),
        (job(plugins={"mpi": ["--master=a"]}), []),
        (job(plugins={"mpi": ["-master", "a"]}), []),
        (job(plugins={"mpi": ["--master=a", "--master=b"]}), ["spec.plugins[mpi]"]),
        (job(volumes=[{"mountPath": "/a", "volumeClaim": {}}, {**MOUNT, "volumeClaimName": "c"}]), []),
        (job(volumes=[{"volumeClaim": {}}]), ["spec.volumes[0].mountPath"]),
        (job(volumes=[{**MOUNT, "volumeClaim": {}, "volumeClaimName": "c"}]), ["spec.volumes[0]"]),
        (job(networkTopology=TIERS), ["spec.networkTopology"]),
        (job(networkTopology={"highestTierAllowed": 1}), []),
        (job(networkTopology={"highestTierName": "n"}), []),
        (job(task("a" * 59)), []),
        (job(task("a" * 60)), ["spec.tasks[0].name"]),
        (job(task("a" * 59, 11)), ["spec.tasks[0].name"]),
        (job(minimum=2), []),
        (job(minimum=3), ["spec.minAvailable"]),
        (job(task(minAvailable=2), minimum=2), []),
        (job(task(minAvailable=3)), ["spec.tasks[0].minAvailable"]),
    ],
)
def test_each_field_has_its_limits_when_a_job_is_made(given: Any, expected: list[str]) -> None:
    assert fields(given) == expected


def test_the_name_of_a_job_is_the_value_of_a_label() -> None:
    (problem,) = told({**job(task("a", 1)), "metadata": {"name": "-"}})[1:]
    assert problem.startswith("metadata.name: create job with name - validate failed [name part must consist of")
    (_, problem) = fields({**job(task("a", 1)), "metadata": {"name": "j" * 64}})
    assert problem == "metadata.name"


# ---- what may change


def was(*tasks: Any, minimum: int = 3, **spec: Any) -> Any:
    """A job of two tasks of which both have minimums, or one that differs from it."""
    return job(*(tasks or (task(minAvailable=1), task("b", 3, minAvailable=2))), minimum=minimum, **spec)


A, B = task(minAvailable=1), task("b", 3, minAvailable=2)
STRICT_FIELD = "spec.minAvailable"


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (was(priorityClassName="high"), []),
        (was(task(replicas=9, minAvailable=1), B), []),
        (was(task(minAvailable=2), B, minimum=4), []),
        # Each of the numbers alone is noticed.
        (was(task(minAvailable=2), B), [STRICT_FIELD]),
        (was(A, task("b", 3, minAvailable=1)), [STRICT_FIELD]),
        (was(task(), B), [STRICT_FIELD]),
        (was(minimum=2), [STRICT_FIELD]),
        (was(minimum=5), [STRICT_FIELD]),
        (was(minimum=6), [STRICT_FIELD, STRICT_FIELD]),
        (was(task(replicas=0, minAvailable=1), B), ["spec.tasks[0].minAvailable"]),
        (was(task(replicas=-1, minAvailable=1), B), ["spec.tasks[0].replicas", STRICT_FIELD]),
        (was(task(replicas=0, minAvailable=0), B, minimum=2), []),
        (was(task(minAvailable=-1), B), ["spec.tasks[0].minAvailable", STRICT_FIELD]),
        (was(minimum=-1), [STRICT_FIELD, STRICT_FIELD]),
        (was(networkTopology=TIERS), ["spec.networkTopology", "spec.networkTopology"]),
        (was(B), ["spec.tasks", STRICT_FIELD]),
        (was(A, B, task("c", 1, minAvailable=0)), ["spec.tasks"]),
        # And nothing else may change.
        (was(queue="below"), ["spec.queue"]),
        (was(schedulerName="x", maxRetry=9), ["spec.maxRetry, spec.schedulerName"]),
        (was(plugins={"svc": []}), ["spec.plugins"]),
        (was(policies=[{"action": "RestartJob", "event": "*"}]), ["spec.policies"]),
        (was(volumes=[{"mountPath": "/d", "volumeClaimName": "c"}]), ["spec.volumes"]),
        (was(volumes=[]), []),
        (was(task(minAvailable=1, maxRetry=1), B), ["spec.tasks[0].maxRetry"]),
        (was(A, waiting("b", "a", replicas=3, minAvailable=2)), ["spec.tasks[1].dependsOn"]),
        (was(task("x", minAvailable=1), B), ["spec.tasks[0].name"]),
        (was(container(cpu="2", task_of={"minAvailable": 1}), B), ["spec.tasks[0].template"]),
        (was(container(resources={}, task_of={"minAvailable": 1}), B), []),
        (was(task(minAvailable=1, template={**task()["template"], "metadata": {}}), B), []),
        (was(container(securityContext={}, task_of={"minAvailable": 1}), B), ["spec.tasks[0].template"]),
        (
            was(task(minAvailable=1, partitionPolicy=partitions(0, 1)), B),
            ["spec.tasks[0].partitionPolicy.totalPartitions", "spec.tasks[0].partitionPolicy"],
        ),
    ],
)
def test_a_changed_job_keeps_all_but_its_numbers_and_its_priority(new: Any, expected: list[str]) -> None:
    assert fields(new, old=was()) == expected


def test_jobs_of_before_may_be_changed_but_for_their_minimums() -> None:
    old = job(task(minAvailable=1), minimum=2)
    assert told({**old, "metadata": {"name": "j", "labels": {"x": "y"}}}, old=old) == []
    assert told(job(task(minAvailable=1), minimum=2, priorityClassName="high"), old=old) == []
    assert fields(job(task(replicas=3, minAvailable=1), minimum=2), old=old) == [STRICT_FIELD]
    new = job(task(replicas=3, minAvailable=1), minimum=2)
    answer = validate(request(new, old=old, operation="UPDATE"), QUEUES, LAX)
    assert answer.allowed and len(answer.warnings) == 1


def test_a_network_topology_has_no_effect_and_causes_a_warning() -> None:
    parts = {"totalPartitions": 2, "partitionSize": 2, "networkTopology": {}}
    partitioned = job(task(replicas=4, minAvailable=4, partitionPolicy=parts), minimum=4)
    for found in (job(task(minAvailable=1), minimum=1, networkTopology={}), partitioned):
        answer = validate(request(found), QUEUES, LAX)
        assert (answer.allowed, answer.message) == (True, "")
        assert [each.partition(":")[0] for each in answer.warnings] == ["networkTopology is ignored"]


def test_the_name_of_a_claim_that_is_made_for_a_job_is_no_change_of_it() -> None:
    made, other = ({**MOUNT, "volumeClaim": {}, "volumeClaimName": name} for name in ("x", "y"))
    assert told(was(volumes=[made]), old=was(volumes=[{**MOUNT, "volumeClaim": {}}])) == []
    assert told(was(volumes=[made]), old=was(volumes=[other])) == []
    named = [was(volumes=[{**MOUNT, "volumeClaimName": name}]) for name in ("x", "y")]
    assert fields(named[0], old=named[1]) == ["spec.volumes"]


def test_amounts_are_the_same_however_they_are_written() -> None:
    cpus = [was(container(cpu=cpu, task_of={"minAvailable": 1}), B) for cpu in ("1", "1000m", "1001m")]
    assert told(cpus[0], old=cpus[1]) == []
    assert fields(cpus[0], old=cpus[2]) == ["spec.tasks[0].template"]


def test_plugins_without_arguments_are_the_same_however_that_is_written() -> None:
    assert told(was(plugins={"svc": []}), old=was(plugins={"svc": None})) == []
    assert fields(was(plugins={"svc": []}), old=was(plugins={"svc": None, "ssh": None})) == ["spec.plugins"]


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_jobs_are_reviewed_when_they_are_made_or_changed_alone(operation: str) -> None:
    assert not validate(request(was(), old=was(), operation=operation), QUEUES, STRICT).allowed
    assert not mutate(request(was(), old=was(), operation="UPDATE"), STRICT).allowed


def test_a_job_that_was_made_wrong_may_lose_its_finalizers() -> None:
    old = job(task(minAvailable=9), minimum=99)
    assert told({**old, "metadata": {"name": "j", "finalizers": []}}, old=old) == []


def test_a_job_without_a_spec_is_left_for_what_is_said_of_it() -> None:
    bare = {"metadata": {"name": "j"}}
    assert mutate(request(bare), STRICT).patch == ()
    assert "spec.tasks: No task specified in job spec" in told(bare)


def test_an_object_of_another_form_is_refused_with_its_place() -> None:
    with pytest.raises(UnreadableObject, match=r"spec\.tasks\[0\]\.replicas"):
        validate(request(job({**task(), "replicas": "two"})), QUEUES, STRICT)
    with pytest.raises(UnreadableObject, match="containers"):
        validate(request(job({"name": "a", "template": {"spec": {"containers": "c"}}})), QUEUES, STRICT)
