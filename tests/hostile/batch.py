"""Hostile groups, queues, Jobs, commands, quotas and shards."""

from __future__ import annotations

import json
from typing import Any

from agent_scheduler.objects.batch import ATTAINABLE, GROUP_MIN_MEMBER, QUEUE_NAME, QUOTA_PARTS, WAITING_ROLES

from .cases import case, merged, spec
from .drawing import INT32, INT64, MOST, QUANTITIES, SIZE, Draw, Object
from .kinds import OF_JOB, container, task, template

_GROUPS, _NATIVE = "podgroups.scheduling.volcano.sh", "podgroups.scheduling.k8s.io"
_QUEUES, _JOBS, _COMMANDS = "queues.scheduling.volcano.sh", "jobs.batch.volcano.sh", "commands.bus.volcano.sh"
_SHARDS, _QUOTAS, _PRIORITIES = "nodeshards.shard.volcano.sh", "resourcequotas", "priorityclasses.scheduling.k8s.io"


def _amounts(draw: Draw, most: int) -> Object:
    named = ("cpu", "memory", "pods", "nvidia.com/gpu", "", "\u202e", "a/b/c", "CPU")
    found = {name: draw.some(*QUANTITIES) for name in named}
    return {**found, **{f"example.com/{number}": draw.some(*QUANTITIES) for number in range(draw.count(most))}}


# ---- groups


@case(_GROUPS, "quantity", "count")
def min_resources(draw: Draw) -> Object:
    return spec(_GROUPS, draw, minResources=_amounts(draw, draw.some(5, 5_000)))


@case(_GROUPS, "maximum")
def minimum(draw: Draw) -> Object:
    return spec(_GROUPS, draw, minMember=INT32, minTaskMember={"a": INT32, "b": -INT32, "": 1, "\u202e": 0})


@case(_GROUPS, "count")
def roles(draw: Draw) -> Object:
    return spec(
        _GROUPS, draw, minTaskMember={f"r{number}": draw.some(1, INT32) for number in range(draw.count(40_000))}
    )


@case(_GROUPS, "count", "maximum", "duplicate")
def sub_groups(draw: Draw) -> Object:
    def policy(number: int) -> Object:
        size = draw.some(1, INT32)
        selector = {"matchExpressions": [{"key": "a", "operator": draw.some("In", "Nonsense", ""), "values": ["b"]}]}
        topology = {"mode": "hard", "highestTierAllowed": draw.some(0, INT64)}
        about = {"name": draw.some("same", f"s{number}"), "subGroupSize": size, "minSubGroups": size}
        return {**about, "labelSelector": selector, "matchLabelKeys": [draw.text()], "networkTopology": topology}

    return spec(_GROUPS, draw, minMember=INT32, subGroupPolicy=draw.many(4_000, policy))


@case(_GROUPS, "count")
def label_keys(draw: Draw) -> Object:
    keys = draw.many(40_000, lambda number: f"k{number}")
    return spec(_GROUPS, draw, subGroupPolicy=[{"name": "a", "labelSelector": {}, "matchLabelKeys": keys}])


@case(_GROUPS, "garbage", "depth")
def garbage_of_ours(draw: Draw) -> Object:
    parts = [{"scopes": ["BestEffort"] * draw.count(1_000), "resources": {"cpu": draw.some(*QUANTITIES)}}] * 2
    quotas = draw.some(
        *("[" * n for n in (900, 60_000)), json.dumps(parts), "null", "{}", '[{"resources":{"a":[]}}]', "\x00"
    )
    attainable = draw.some(
        "9" * 5_000, "5," + ",".join(f"r{number}=1/1" for number in range(draw.count(5_000))), "=,=", ""
    )
    roles = draw.some(",".join(f"r{number}" for number in range(draw.count(9_000))), draw.text(), ",,,")
    about = {QUOTA_PARTS: quotas, ATTAINABLE: attainable, WAITING_ROLES: roles}
    return merged(spec(_GROUPS, draw), {"metadata": {"annotations": about}})


@case(_GROUPS, "time", "duplicate", "size")
def group_conditions(draw: Draw) -> Object:
    def condition(number: int) -> Object:
        about = {"type": draw.some("Unschedulable", "Scheduled"), "status": "True", "lastTransitionTime": draw.time()}
        return {**about, "transitionID": draw.text(), "reason": draw.text(), "message": draw.long(300)}

    phase = draw.some("Pending", "Inqueue", "Running", "Unknown", "Completed")
    status = {"phase": phase, "running": INT32, "succeeded": INT32, "conditions": draw.many(3_000, condition)}
    return {**spec(_GROUPS, draw), "status": status}


@case(_GROUPS, "garbage")
def queue_of_nobody(draw: Draw) -> Object:
    return spec(_GROUPS, draw, queue=draw.some("nobody", "root", "x" * 253), priorityClassName=draw.text())


@case(_NATIVE, "maximum")
def native_minimum(draw: Draw) -> Object:
    return {"spec": {"schedulingPolicy": {"gang": {"minCount": INT32}}}}


@case(_NATIVE, "time", "unicode")
def native_conditions(draw: Draw) -> Object:
    about = {"type": "PodGroupScheduled", "status": "True", "reason": "A", "message": draw.text()}
    status = {"conditions": [{**about, "lastTransitionTime": draw.time(), "observedGeneration": INT64}]}
    return {**spec(_NATIVE, draw), "status": status}


# ---- queues


def _named(draw: Draw, number: int) -> str:
    return f"{draw.name}-{number}"


@case(_QUEUES, "cycle", "count")
def ring(draw: Draw) -> list[Object]:
    """Queues of which each is the parent of the next."""
    count = draw.count(draw.some(2, 300))
    return [
        {"metadata": {"name": _named(draw, number)}, "spec": {"parent": _named(draw, (number + 1) % count)}}
        for number in range(count)
    ]


@case(_QUEUES, "depth")
def chain(draw: Draw) -> list[Object]:
    """A queue with many ancestors, the first of which does not exist."""
    return [
        {"metadata": {"name": _named(draw, number)}, "spec": {"parent": _named(draw, number - 1)}}
        for number in range(1, draw.count(300))
    ]


@case(_QUEUES, "cycle")
def its_own_parent(draw: Draw) -> Object:
    return {"metadata": {"name": _named(draw, 0)}, "spec": {"parent": _named(draw, 0)}}


@case(_QUEUES, "count")
def siblings(draw: Draw) -> list[Object]:
    count = draw.count(200)
    return [{"metadata": {"name": _named(draw, number)}, "spec": {"weight": 65535}} for number in range(count)]


@case(_QUEUES, "quantity", "count")
def queue_amounts(draw: Draw) -> Object:
    few, many = draw.some(3, 3_000), {"count": draw.some(-INT64, INT64), "capacity": _amounts(draw, 2)}
    limits = {"capability": _amounts(draw, few), "deserved": _amounts(draw, few)}
    devices = {"capability": {f"class-{number}": many for number in range(draw.count(300))}}
    return spec(_QUEUES, draw, **limits, dra=devices)


@case(_QUEUES, "quantity")
def queue_guarantee(draw: Draw) -> Object:
    """A queue that reserves more than there is: its groups alone get something."""
    return spec(_QUEUES, draw, guarantee={"resource": _amounts(draw, draw.some(3, 3_000))})


@case(_QUEUES, "maximum", "size")
def queue_maxima(draw: Draw) -> Object:
    names = draw.many(20_000, lambda number: f"group-{number}")
    affinity = {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": names}}
    clusters = draw.many(500, lambda number: {"name": draw.text(), "weight": -INT32, "capacity": _amounts(draw, 2)})
    about: Object = {"weight": 65535, "priority": INT32, "type": draw.text(), "dequeueStrategy": "fifo"}
    return spec(_QUEUES, draw, **about, affinity=affinity, extendClusters=clusters)


@case(_QUEUES, "garbage")
def queue_status(draw: Draw) -> Object:
    counts = dict.fromkeys(("pending", "inqueue", "running", "unknown", "completed"), INT32)
    nodes = draw.many(10_000, lambda number: f"n{number}")
    reserved = {"nodes": nodes, "resource": _amounts(draw, 10)}
    state = draw.some("Closed", "Closing", "Unknown", "Open")
    status = {**counts, "state": state, "allocated": _amounts(draw, 1_000), "reservation": reserved}
    return {**spec(_QUEUES, draw), "status": status}


# ---- Jobs


def _job(*tasks: Object, **more: Any) -> Object:
    return {"spec": {"schedulerName": "agent-scheduler", "minAvailable": 1, "tasks": list(tasks), **more}}


@case(_JOBS, "depth")
def deep_template(draw: Draw) -> Object:
    found = template()
    place = draw.some("metadata", "spec", "affinity", "annotations")
    if place == "affinity":
        found["spec"]["affinity"] = draw.deep()
    elif place == "annotations":
        found["metadata"]["annotations"] = {"a": draw.deep()}
    else:
        found[place]["unknown"] = draw.deep()
    return _job({"name": "a", "replicas": 1, "template": found})


@case(_JOBS, "maximum")
def replicas(draw: Draw) -> Object:
    about: Object = {"minAvailable": draw.some(1, INT32), "maxRetry": INT32, "ttlSecondsAfterFinished": INT32}
    tasks = task("a", INT32, minAvailable=draw.some(0, 1, INT32), maxRetry=INT32), task("b", draw.some(1, INT32))
    return merged(_job(*tasks), {"spec": {**about, "minSuccess": INT32}})


@case(_JOBS, "maximum")
def partitions(draw: Draw) -> Object:
    sizes = draw.some((INT32, INT32), (1, INT32), (INT32, 1), (100, 100))
    topology = {"mode": "hard", "highestTierAllowed": INT64}
    policy = {"totalPartitions": sizes[0], "partitionSize": sizes[1], "minPartitions": draw.some(0, INT32)}
    return _job(task("a", 2, partitionPolicy={**policy, "networkTopology": topology}), networkTopology=topology)


@case(_JOBS, "cycle")
def dependency_cycle(draw: Draw) -> Object:
    count = draw.count(draw.some(2, 900, 9_000))
    some = (task(f"t{number}", 0, dependsOn={"name": [f"t{(number + 1) % count}"]}) for number in range(count))
    return _job(*some)


@case(_JOBS, "count")
def dependencies(draw: Draw) -> Object:
    """A task that depends on everything, itself and strangers included."""
    names = draw.many(20_000, lambda number: f"t{number}")
    mode = draw.some("any", "all", "\u202e")
    return _job(
        task("t0", 1, dependsOn={"name": names, "iteration": mode}), task("t1", 1, dependsOn={"name": names[:90]})
    )


@case(_JOBS, "count")
def tasks(draw: Draw) -> Object:
    unknown = {"name": ["nobody"]}
    return _job(
        *draw.many(draw.some(1_000, 9_000), lambda number: task(f"t{number}", draw.some(0, 1), dependsOn=unknown))
    )


@case(_JOBS, "duplicate", "missing")
def same_names(draw: Draw) -> Object:
    return _job(*([task("same", 1)] * draw.count(500)), {}, {"replicas": 2}, {"template": {}})


@case(_JOBS, "count", "garbage")
def policies(draw: Draw) -> Object:
    timeouts = ("9999999h", "-1s", "banana", "9" * 5_000 + "s", "1e9s", "\u0663s", "", "1ns" * 1_000)

    def policy(number: int) -> Object:
        when: Object = draw.some({"event": "*"}, {"events": ["PodFailed"] * 20}, {"exitCode": -INT32}, {})
        return {"action": draw.some("RestartJob", "Nonsense", draw.text()), "timeout": draw.some(*timeouts), **when}

    most = draw.some(20, 5_000)
    others = [task(f"t{number}", 0) for number in range(draw.count(draw.some(2, 900)))]
    return _job(task("a", 1, policies=draw.many(most, policy)), *others, policies=draw.many(most, policy))


@case(_JOBS, "count", "garbage")
def plugins(draw: Draw) -> Object:
    odd = ["--worker=" + draw.text(), "--port=" + "9" * 5_000, "--", "-1", "=", draw.long(1_000), "--master=\x00"]
    known = ("svc", "ssh", "env", "pytorch", "tensorflow", "mpi", "ray", "hcclrank")
    others = [f"p{number}" for number in range(draw.count(draw.some(0, 150)))]
    return _job(task("a", 1), plugins=dict.fromkeys((*draw.rng.sample(known, 3), *others), odd))


@case(_JOBS, "count", "size")
def hosts_in_each_container(draw: Draw) -> Object:
    """Plugins that add the hosts of all pods, or variables of all tasks, to each of many containers."""
    containers = [container(f"c{number}", resources={}) for number in range(draw.count(1_000))]
    template = {"spec": {"containers": containers}}
    many = {"name": draw.some("worker", "ps"), "replicas": draw.count(500), "template": {"spec": {"containers": []}}}
    few = [task(f"t{number}", 0) for number in range(draw.count(900))]
    args = [f"--port={'9' * 5_000}", "--master=master", "--worker=worker"]
    chosen = draw.rng.sample(("svc", "ssh", "mpi", "tensorflow", "pytorch", "ray"), draw.some(1, 6))
    return _job(
        {"name": "master", "replicas": 1, "template": template}, many, *few, plugins=dict.fromkeys(chosen, args)
    )


@case(_JOBS, "count")
def volumes_in_each_container(draw: Draw) -> Object:
    containers = [container(f"c{number}") for number in range(draw.count(1_000))]
    some = draw.many(8_000, lambda number: {"mountPath": f"/{number}", "volumeClaimName": "same"})
    return _job({"name": "a", "replicas": 1, "template": {"spec": {"containers": containers}}}, volumes=some)


@case(_JOBS, "count", "duplicate", "null")
def job_volumes(draw: Draw) -> Object:
    claims: list[Object] = [{"storageClassName": "nobody"}, {"accessModes": None}, {"resources": 7}, {}]
    claims.append({"a": draw.deep(1_500)})

    def volume(number: int) -> Object:
        path = draw.some("/same", f"/{number}", "/" + draw.text().replace(":", ""))
        about = {"mountPath": path, "volumeClaimName": draw.some("", "same", draw.text())}
        return {**about, "volumeClaim": draw.some(*claims)}

    return _job(task("a", 1), volumes=draw.many(draw.some(5, 2_000), volume))


@case(_JOBS, "null", "garbage")
def wrong_templates(draw: Draw) -> Object:
    """Templates of any form: the definition preserves what is in them."""
    wrong: tuple[Any, ...] = (
        {"spec": None, "metadata": None},
        {"spec": 7, "metadata": []},
        {"spec": {"containers": None}},
        {"spec": {"containers": [None, 7, "c", {}]}},
        {"spec": {"containers": [container(env=None, ports=7, resources=None, volumeMounts="a")]}},
        {"spec": {"containers": [container()], "tolerations": [None], "affinity": [], "volumes": {}}},
        {"spec": {"containers": [container(resources={"requests": {"cpu": [], "memory": None, "a": True}})]}},
        {"metadata": {"annotations": {"a": None, "b": 1}, "labels": [1]}, "spec": {"containers": [container()]}},
        {"spec": {"containers": [container()], "priorityClassName": 1, "schedulingGates": "x", "nodeName": "n1"}},
        {"spec": {"containers": [container(resources={"requests": {"cpu": "1e999999999", "memory": "-1"}})]}},
        {"spec": {"containers": {"a": 1}}, "metadata": {"ownerReferences": 3, "finalizers": {}, "name": "x" * 400}},
    )
    return _job(*({"name": f"t{number}", "replicas": 1, "template": each} for number, each in enumerate(wrong)))


@case(_JOBS, "size")
def long_template(draw: Draw) -> Object:
    found = template()
    found["spec"]["containers"] = [container(args=[draw.long(SIZE - 5_000)])]
    return _job({"name": "a", "replicas": draw.some(1, 20), "template": found})


@case(_JOBS, "time", "maximum", "garbage")
def job_status(draw: Draw) -> Object:
    kept = (
        "minAvailable",
        "pending",
        "running",
        "succeeded",
        "failed",
        "terminating",
        "unknown",
        "version",
        "retryCount",
    )
    phase = draw.some("Pending", "Running", "Restarting", "Completed", "Aborting", "Terminating", "Failed")
    state = {"phase": phase, "reason": draw.text(), "message": draw.text(), "lastTransitionTime": draw.time()}
    counts = {f"t{number}": {"phase": {draw.text(): -INT32}} for number in range(draw.count(3_000))}
    ends = draw.many(2_000, lambda _: {"status": draw.text(), "lastTransitionTime": draw.time()})
    owned = {"plugin-svc": draw.text(), "volume-emptyDir-a": "9" * 5_000}
    status = {**dict.fromkeys(kept, INT32), "state": state, "taskStatusCount": counts, "conditions": ends}
    return {**_job(task("a", 1)), "status": {**status, "controlledResources": owned, "runningDuration": "banana"}}


# ---- commands, quotas, priorities, shards


@case(_COMMANDS, "size", "unicode")
def odd_command(draw: Draw) -> Object:
    action = draw.some("AbortJob", "OpenQueue", draw.text(), draw.long(500_000))
    target = {"apiVersion": draw.text(), "kind": draw.some("Queue", "Job", draw.text()), "name": draw.text(), "uid": ""}
    return {"action": action, "target": target, "reason": draw.text(), "message": draw.long(500_000)}


@case(_COMMANDS, "missing")
def without_target(_draw: Draw) -> Object:
    return {"action": "CloseQueue"}


@case(_COMMANDS, "garbage")
def command_to(draw: Draw) -> Object:
    kinds = (("Queue", "scheduling.volcano.sh/v1beta1"), ("Job", "batch.volcano.sh/v1alpha1"), ("Node", "v1"))
    kind, version = draw.some(*kinds)
    name = draw.some("nobody", "../../x", "root", draw.text())
    return {
        "action": draw.some("CloseQueue", "RestartJob", "TerminateJob"),
        "target": {"apiVersion": version, "kind": kind, "name": name, "uid": draw.text()},
    }


@case(_QUOTAS, "count", "quantity")
def quota(draw: Draw) -> Object:
    hard = {f"requests.example.com/{number}": draw.some("0", str(MOST)) for number in range(draw.count(2_000))}
    values = draw.many(10_000, lambda number: f"class-{number}")
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": values}]}
    status = {"hard": hard, "used": hard}
    return {"spec": {"hard": hard, "scopeSelector": selector}, "status": status}


@case(_QUOTAS, "missing")
def empty_quota(draw: Draw) -> Object:
    return {"spec": {}, "status": {"hard": None, "used": {"pods": "1"}}}


@case(_PRIORITIES, "maximum", "unicode")
def priority(draw: Draw) -> Object:
    value = draw.some(1_000_000_000, -INT32 - 1)
    return {
        "value": value,
        "preemptionPolicy": draw.some("Never", "PreemptLowerPriority"),
        "description": draw.long(900_000),
    }


@case(_SHARDS, "count", "duplicate", "unicode")
def shard(draw: Draw) -> Object:
    desired = [*draw.many(40_000, lambda number: f"n{number % 30_000}"), "", "\u202e", *draw.nodes, *draw.nodes]
    using = draw.many(5_000, lambda number: f"n{number}")
    status = {"lastUpdateTime": draw.time(), "nodesInUse": using, "nodesToAdd": using, "nodesToRemove": using}
    return {"spec": {"nodesDesired": desired}, "status": status}


@case("namespaces", "garbage", "unicode")
def namespace_queue(draw: Draw) -> Object:
    return {"metadata": {"annotations": {QUEUE_NAME: draw.some(draw.text(), draw.long(200_000), "root", "../..")}}}


# ---- what belongs to a Job, and workloads

for _resource in ("configmaps", "secrets", "services", "networkpolicies.networking.k8s.io", "persistentvolumeclaims"):

    @case(_resource, "owner", "garbage")
    def of_no_job(draw: Draw, resource: str = _resource) -> Object:
        """An object with the label and the owner of a Job that does not exist."""
        owner = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "name": "nobody",
            "uid": "u",
            "controller": True,
        }
        about = {"labels": {OF_JOB: draw.some("nobody", "", "x" * 63)}, "ownerReferences": [owner]}
        return merged(spec(resource, draw) if resource not in ("configmaps", "secrets") else {}, {"metadata": about})


@case("configmaps", "size", "count")
def long_data(draw: Draw) -> Object:
    odd = {f"k{number}": draw.text() for number in range(draw.count(5_000))}
    return {"metadata": {"labels": {OF_JOB: "nobody"}}, "data": {**odd, "long": draw.long(700_000)}}


@case("secrets", "size")
def long_secret(draw: Draw) -> Object:
    return {"metadata": {"labels": {OF_JOB: "nobody"}}, "data": {"a": "eHh4" * draw.count(200_000)}}


for _resource in ("replicasets.apps", "statefulsets.apps"):

    @case(_resource, "count", "maximum")
    def large_selector(draw: Draw, resource: str = _resource) -> Object:
        values = draw.many(20_000, lambda number: f"v{number}")
        expression = {"key": "app", "operator": "In", "values": ["a", *values]}
        minimums = {"annotations": {GROUP_MIN_MEMBER: draw.some("9" * 5_000, "-1", "\u0663", str(INT64))}}
        selector = {"matchLabels": {"app": "a"}, "matchExpressions": [expression]}
        return merged(spec(resource, draw, selector=selector), {"metadata": minimums})


@case("services", "count")
def service_selector(draw: Draw) -> Object:
    return spec("services", draw, selector={f"example.com/{number}": "a" for number in range(draw.count(8_000))})


@case("replicationcontrollers", "count")
def controller_selector(draw: Draw) -> Object:
    labels = {f"example.com/{number}": "a" for number in range(draw.count(4_000))}
    return {"spec": {"replicas": 0, "selector": labels, "template": {**template(), "metadata": {"labels": labels}}}}


@case("poddisruptionbudgets.policy", "count", "time")
def budget(draw: Draw) -> Object:
    values = draw.many(20_000, lambda number: f"v{number}")
    selector = {"matchExpressions": [{"key": "app", "operator": draw.some("In", "NotIn"), "values": values}]}
    names = {f"pod-{number}": draw.time() for number in range(draw.count(9_000))}
    counts = {"disruptionsAllowed": INT32, "currentHealthy": INT32, "desiredHealthy": 0, "expectedPods": INT32}
    least = draw.some(INT32, "100%", "0%")
    return {"spec": {"selector": selector, "minAvailable": least}, "status": {**counts, "disruptedPods": names}}


@case("poddisruptionbudgets.policy", "missing")
def budget_for_all(draw: Draw) -> Object:
    return {"spec": {"selector": draw.some({}, None), "maxUnavailable": 0}}
