"""Inputs of a hostile tenant: requests that an API server accepts, or that reach a component's own port.

Each input stands for a kind: objects with the most of something, many objects, changes without end, or connections.
Requests are those of a tenant with the rights of its namespace, unless `admin` is set: then they are of a careless
administrator, node or driver.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent_scheduler.objects.batch import API_VERSION as BATCH_API
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE, QUEUE_NAME, QUEUES, pod_groups
from agent_scheduler.objects.job import JOB_VERSION, jobs

NAMESPACE = "tenant"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
COMMANDS = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{NAMESPACE}/commands"
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
VOLUME_CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/agent-scheduler-webhook"
MUTATING = VALIDATING.replace("validating", "mutating")
MERGE, JSON = "application/merge-patch+json", "application/json"
_HOST, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_HUGE = 2**31 - 1
#: The label of the others' pods.
_ORDINARY = {"agent-scheduler.io/bench": "true"}

#: What a namespace's owner may do in it, like the role `edit` with the kinds of this project.
RIGHTS: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["pods", "events", "persistentvolumeclaims", "configmaps"], "verbs": ["*"]},
    {
        "apiGroups": ["resource.k8s.io", "batch.volcano.sh", "bus.volcano.sh", "policy"],
        "resources": ["*"],
        "verbs": ["*"],
    },
    {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["*"]},
]

Spec = Mapping[str, Any]


class Request(NamedTuple):
    """One request with its whole body."""

    method: str
    path: str
    body: bytes
    content_type: str = JSON


class Input(NamedTuple):
    """`requests` are sent by `parallel` senders, at most `rate` a second. `play` names what no request can do.

    With `batch` the scheduler's configuration has the sample's section for sessions, too.
    """

    name: str
    requests: Callable[[], Iterable[Request]] = tuple
    parallel: int = 16
    rate: float = 200.0
    admin: bool = False
    play: str = ""
    batch: bool = False


def create(path: str, obj: Mapping[str, Any] | str) -> Request:
    text = obj if isinstance(obj, str) else json.dumps(obj, separators=(",", ":"))
    return Request("POST", path, text.encode())


def merge(path: str, obj: Mapping[str, Any]) -> Request:
    return Request("PATCH", path, json.dumps(obj).encode(), MERGE)


def named(kind: str, version: str, name: str, spec: Spec | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": dict(spec or {})}


def pod(name: str, spec: Spec | None = None, *, cpu: str = "1m", **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}
    base = {"schedulerName": "agent-scheduler", "automountServiceAccountToken": False, "containers": [container]}
    return named("Pod", "v1", name, {**base, **(spec or {})}, **metadata)


def pods(count: int, spec: Callable[[int], Spec], **metadata: Any) -> Callable[[], Iterator[Request]]:
    """Return the creations of pods with names that the API server generates."""
    made = {"generateName": "h-", **metadata}
    return lambda: (create(PODS, {**pod("", spec(number)), "metadata": made}) for number in range(count))


# ---- specs of pods


def selector(number: int) -> Spec:
    return {"matchLabels": {"app": f"a{number}"}}


def spread(terms: int) -> Spec:
    """Return constraints with a key each: two constraints may not have the same key and action."""
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": f"{_ZONE}-{number}",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector(number),
            }
            for number in range(terms)
        ]
    }


def about_pods(field: str, terms: int, *, preferred: bool = False, key: str = _HOST) -> Spec:
    made: list[Spec] = [
        {"topologyKey": key, "labelSelector": selector(number), "namespaceSelector": {}} for number in range(terms)
    ]
    if preferred:
        weighted = [{"weight": 1 + number % 100, "podAffinityTerm": each} for number, each in enumerate(made)]
        return {"affinity": {field: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}
    return {"affinity": {field: {"requiredDuringSchedulingIgnoredDuringExecution": made}}}


def node_affinity(terms: int, tag: int = 0) -> Spec:
    made = [
        {"matchExpressions": [{"key": f"k{tag}-{number}", "operator": "NotIn", "values": [f"v{number}"]}]}
        for number in range(terms)
    ]
    required = {"nodeSelectorTerms": made}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def near(*wanted: Mapping[str, str], key: str = _HOST) -> Spec:
    """Near pods of any namespace with these labels; ordinary pods have those of `_ORDINARY`."""
    terms = [
        {"topologyKey": key, "labelSelector": {"matchLabels": labels}, "namespaceSelector": {}} for labels in wanted
    ]
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def tolerations(count: int, tag: int = 0) -> Spec:
    return {"tolerations": [{"key": f"t{tag}-{number}", "operator": "Exists"} for number in range(count)]}


def containers(count: int, **fields: Any) -> Spec:
    return {"containers": [{"name": f"c{number}", "image": "none", **fields} for number in range(count)]}


def large(number: int) -> Spec:
    """1.4 MB in 64 containers."""
    return containers(64, env=[{"name": f"V{each}", "value": "v" * 400} for each in range(50)])


def ports(count: int) -> Spec:
    made = [{"containerPort": 1 + number, "hostPort": 1 + number} for number in range(count)]
    return containers(1, ports=made)


def volumes(count: int) -> Spec:
    claimed = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}} for number in range(count)]
    return {"volumes": claimed}


def claims(count: int) -> Spec:
    return {"resourceClaims": [{"name": f"r{number}", "resourceClaimName": f"c{number}"} for number in range(count)]}


def extended(count: int, tag: int = 0) -> Spec:
    amounts = {f"example.com/r{tag}-{number}": "1" for number in range(count)}
    return containers(1, resources={"requests": amounts, "limits": amounts})


def gates(count: int) -> Spec:
    return {"schedulingGates": [{"name": f"example.com/g{number}"} for number in range(count)]}


# ---- other objects


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def deep_claim(name: str, levels: int) -> str:
    device = {"name": "d", "exactly": {"deviceClassName": "c"}}
    opaque = {"requests": ["d"], "opaque": {"driver": "example.com", "parameters": "@"}}
    made = named("ResourceClaim", "resource.k8s.io/v1", name, {"devices": {"requests": [device], "config": [opaque]}})
    return json.dumps(made).replace('"@"', nested(levels))


def search_claim(name: str) -> Spec:
    """Return a claim for many devices that no combination of devices satisfies."""
    each = {"deviceClassName": "hostile", "allocationMode": "ExactCount", "count": 2}
    requests = [{"name": f"r{number}", "exactly": each} for number in range(16)]
    alike = [{"matchAttribute": "example.com/odd"}, {"matchAttribute": "example.com/even"}]
    return named("ResourceClaim", "resource.k8s.io/v1", name, {"devices": {"requests": requests, "constraints": alike}})


def device_slice(number: int) -> Spec:
    """Return one of 128 devices with 32 attributes and capacities: the maximum of the API."""
    devices = [
        {
            "name": f"d{device}",
            "attributes": {
                **{f"example.com/a{each}": {"string": "v" * 60} for each in range(22)},
                "example.com/odd": {"int": device // 3},
                "example.com/even": {"int": device // 5},
            },
            "capacity": {f"example.com/c{each}": {"value": "1Gi"} for each in range(8)},
        }
        for device in range(128)
    ]
    pool = {"name": f"p{number}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "example.com", "pool": pool, "nodeName": f"node-{number:05d}", "devices": devices}
    return named("ResourceSlice", "resource.k8s.io/v1", f"s{number}", spec)


def task(name: str, replicas: int, spec: Spec | None = None, **more: Any) -> dict[str, Any]:
    template = {"metadata": {}, "spec": pod("", {"restartPolicy": "Never", **(spec or {})})["spec"]}
    template["spec"].pop("schedulerName")
    return {"name": name, "replicas": replicas, "minAvailable": 1, "template": template, **more}


def job(name: str, tasks: Sequence[Spec], **more: Any) -> dict[str, Any]:
    spec = {"schedulerName": "volcano", "queue": "default", "minAvailable": len(tasks), "tasks": [*tasks], **more}
    return named("Job", JOB_VERSION, name, spec)


def queue(name: str, parent: str) -> Request:
    return create(QUEUES, named("Queue", BATCH_API, name, {"weight": 1, "parent": parent, "reclaimable": True}))


def group(name: str, spec: Spec) -> Request:
    return create(pod_groups(NAMESPACE), named("PodGroup", BATCH_API, name, spec))


def deep_jobs(count: int, levels: int) -> Iterator[Request]:
    for number in range(count):
        made = json.dumps(job(f"deep-{number}", [task("t", 1, {"overhead": "@"})]))
        yield create(jobs(NAMESPACE), made.replace('"@"', nested(levels)))


def tasks_without_end(count: int, tasks: int) -> Iterator[Request]:
    for number in range(count):
        depends = [task(f"t{each}", 1, dependsOn={"name": [f"none-{each}"]}) for each in range(tasks)]
        yield create(jobs(NAMESPACE), job(f"dep-{number}", depends))


def unlocked(requests: Iterable[Request]) -> Iterator[Request]:
    """Yield the requests behind two that remove the webhook."""
    for path in (VALIDATING, MUTATING):
        yield Request("DELETE", path, b"")
    yield from requests


def then(first: Iterable[Request], *further: Iterable[Request]) -> Iterator[Request]:
    return itertools.chain(first, *further)


def storm(first: Iterable[Request], change: Callable[[int], Request], count: int = 8000) -> Iterator[Request]:
    return itertools.chain(first, map(change, range(count)))


def flipping(count: int) -> Iterator[Request]:
    """Gated pods whose gates are removed one by one, which are deleted, and come again."""
    for turn in range(3):
        for number in range(count):
            yield create(PODS, pod(f"g{turn}-{number}", gates(3)))
        for left in (2, 1, 0):
            for number in range(count):
                yield merge(f"{PODS}/g{turn}-{number}", {"spec": gates(left)})
        for number in range(count):
            yield Request("DELETE", f"{PODS}/g{turn}-{number}", b'{"gracePeriodSeconds":0}')


def _annotated(size: int) -> Mapping[str, str]:
    return {f"example.com/a{number}": "a" * 1000 for number in range(size // 1000)}


_DEVICE_CLASS = create(
    "/apis/resource.k8s.io/v1/deviceclasses", named("DeviceClass", "resource.k8s.io/v1", "hostile", {})
)

INPUTS: tuple[Input, ...] = (
    Input("nothing"),
    # Constraints of pods.
    Input("10 pods, 5,000 spread constraints", pods(10, lambda _: spread(5000))),
    Input("100 pods, 5,000 spread constraints", pods(100, lambda _: spread(5000))),
    Input("100 pods, 85 spread constraints", pods(100, lambda _: spread(85))),
    Input("1,000 pods, 5 spread constraints each its own", pods(1000, lambda n: {**spread(5), **tolerations(1, n)})),
    Input(
        "100 pods, 3,000 preferred affinity terms", pods(100, lambda _: about_pods("podAffinity", 3000, preferred=True))
    ),
    Input(
        "100 pods, 128 preferred affinity terms", pods(100, lambda _: about_pods("podAffinity", 128, preferred=True))
    ),
    Input("100 pods, 3,000 anti-affinity terms", pods(100, lambda _: about_pods("podAntiAffinity", 3000))),
    Input("100 pods, 128 anti-affinity terms", pods(100, lambda _: about_pods("podAntiAffinity", 128))),
    Input("1,000 pods, 8 anti-affinity terms each", pods(1000, lambda _: about_pods("podAntiAffinity", 8))),
    Input("10 pods, 9,000 node affinity terms", pods(10, lambda _: node_affinity(9000))),
    Input("100 pods, 120 own node affinity terms", pods(100, lambda n: node_affinity(120, n))),
    Input("1,000 pods, 16 own node affinity terms", pods(1000, lambda n: node_affinity(16, n))),
    Input("1,000 pods, 250 own tolerations", pods(1000, lambda n: tolerations(250, n))),
    Input("100 pods, 20,000 tolerations", pods(100, lambda _: tolerations(20_000))),
    Input("500 pods, 250 own extended resources", pods(500, lambda n: extended(250, n))),
    Input("100 pods, 10,000 extended resources", pods(100, lambda n: extended(10_000))),
    Input("1,000 pods near ordinary and other pods", pods(1000, lambda n: near(_ORDINARY, {"never": f"n{n}"}))),
    Input(
        "1,000 pods that each bind wakes", pods(1000, lambda n: {**near(_ORDINARY, key="none"), **tolerations(1, n)})
    ),
    # Sizes of pods.
    Input("100 pods, 64 containers, 1.4 MB", pods(100, large)),
    Input("100 pods, 256 KB of annotations", pods(100, lambda _: {}, annotations=_annotated(250_000))),
    Input("100 pods, 20,000 labels", pods(100, lambda _: {}, labels={f"l{n}": "x" for n in range(20_000)})),
    Input("50 pods, 5,000 host ports", pods(50, lambda _: ports(5000))),
    Input("50 pods, 5,000 volumes", pods(50, lambda _: volumes(5000))),
    Input("100 pods, 200 volumes that do not exist", pods(100, lambda _: volumes(200))),
    Input("50 pods, 5,000 claims", pods(50, lambda _: claims(5000))),
    Input("50 pods, 10,000 gates", pods(50, lambda _: gates(10_000))),
    Input(
        "50 pods, 5,000 owners",
        pods(
            50,
            lambda _: {},
            ownerReferences=[
                {"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{n}", "uid": f"u{n}"} for n in range(5000)
            ],
        ),
    ),
    # Groups and Jobs.
    Input(
        "1,000 PodGroups of 2^31-1",
        lambda: (
            group(f"g{n}", {"minMember": _HUGE, "queue": "default", "minResources": {"cpu": "9" * 900}})
            for n in range(1000)
        ),
    ),
    Input(
        "1,000 gangs of 3 that fit nowhere, sessions on",
        lambda: then(
            (group(f"g{n}", {"minMember": 3, "queue": "default"}) for n in range(1000)),
            (
                create(
                    PODS,
                    pod(
                        f"m{n}-{k}",
                        {"schedulerName": "volcano", **tolerations(20, n)},
                        cpu="64",
                        annotations={"scheduling.k8s.io/group-name": f"g{n}"},
                    ),
                )
                for n in range(1000)
                for k in range(3)
            ),
        ),
        batch=True,
    ),
    Input(
        "100 gang pods, 250 constraints, sessions on",
        lambda: then(
            [group("g", {"minMember": 100, "queue": "default"})],
            (
                create(
                    PODS,
                    pod(
                        f"m{n}",
                        {"schedulerName": "volcano", **about_pods("podAntiAffinity", 120)},
                        annotations={"scheduling.k8s.io/group-name": "g"},
                    ),
                )
                for n in range(100)
            ),
        ),
        batch=True,
    ),
    Input(
        "20 Jobs of 2^31-1 pods", lambda: (create(jobs(NAMESPACE), job(f"j{n}", [task("t", _HUGE)])) for n in range(20))
    ),
    Input(
        "a Job of 2^31-1 pods without a webhook",
        lambda: unlocked(create(jobs(NAMESPACE), job(f"j{n}", [task("t", _HUGE)])) for n in range(5)),
        admin=True,
    ),
    Input("a Job of 20,000 pods", lambda: [create(jobs(NAMESPACE), job("j", [task("t", 20_000)]))], batch=True),
    Input(
        "a Job of 2,000 pods of 500 KB",
        lambda: [
            create(
                jobs(NAMESPACE),
                job(
                    "j",
                    [
                        task(
                            "t",
                            2000,
                            containers(20, env=[{"name": f"V{each}", "value": "v" * 400} for each in range(50)]),
                        )
                    ],
                ),
            )
        ],
    ),
    Input(
        "10 Jobs of 1,000 tasks",
        lambda: (create(jobs(NAMESPACE), job(f"j{n}", [task(f"t{k}", 1) for k in range(1000)])) for n in range(10)),
    ),
    Input("20 Jobs of 6,000 unknown dependencies", lambda: tasks_without_end(20, 6000)),
    Input(
        "1,000 Jobs of one pod", lambda: (create(jobs(NAMESPACE), job(f"j{n}", [task("t", 1)])) for n in range(1000))
    ),
    Input("50 Jobs with templates of 1,500 levels", lambda: unlocked(deep_jobs(50, 1500)), admin=True),
    Input("20 Jobs with templates of 9,000 levels", lambda: unlocked(deep_jobs(20, 9000)), admin=True),
    Input(
        "2,000 Commands",
        lambda: (
            create(
                COMMANDS,
                {
                    "apiVersion": "bus.volcano.sh/v1alpha1",
                    "kind": "Command",
                    "metadata": {"name": f"c{n}"},
                    "action": "AbortJob",
                    "target": {"apiVersion": JOB_VERSION, "kind": "Job", "name": f"j{n}", "uid": f"u{n}"},
                },
            )
            for n in range(2000)
        ),
    ),
    # Queues.
    Input(
        "1,000 queues in a cycle",
        lambda: unlocked(queue(f"q{n}", f"q{(n + 1) % 1000}") for n in range(1000)),
        admin=True,
    ),
    Input(
        "1,000 queues in a chain, sessions on",
        lambda: unlocked(queue(f"q{n}", f"q{n - 1}" if n else "root") for n in range(1000)),
        admin=True,
        batch=True,
    ),
    Input("1,000 queues that the webhook reviews", lambda: (queue(f"q{n}", "root") for n in range(1000)), admin=True),
    Input(
        "1,000 pods of 1,000 unknown queues, gated",
        lambda: (
            create(PODS, pod(f"h{n}", annotations={QUEUE_NAME: f"no-{n}", QUEUE_ALLOCATION_GATE: "true"}))
            for n in range(1000)
        ),
        batch=True,
    ),
    # Claims and devices.
    Input("100 claims of 1,500 levels", lambda: (create(CLAIMS, deep_claim(f"c{n}", 1500)) for n in range(100))),
    Input("100 claims of 9,900 levels", lambda: (create(CLAIMS, deep_claim(f"c{n}", 9900)) for n in range(100))),
    Input(
        "200 ResourceSlices of the maximum", lambda: (create(SLICES, device_slice(n)) for n in range(200)), admin=True
    ),
    Input(
        "20 pods whose devices exist in no combination",
        lambda: then(
            [_DEVICE_CLASS],
            (create(SLICES, device_slice(n)) for n in range(40)),
            (create(CLAIMS, search_claim(f"c{n}")) for n in range(20)),
            (
                create(PODS, pod(f"h{n}", {"resourceClaims": [{"name": "r", "resourceClaimName": f"c{n}"}]}))
                for n in range(20)
            ),
        ),
        admin=True,
    ),
    # Changes.
    Input(
        "1,000 changes a second of nodes' labels",
        lambda: storm(
            (), lambda n: merge(f"/api/v1/nodes/node-{n % 200:05d}", {"metadata": {"labels": {f"l{n % 7}": f"v{n}"}}})
        ),
        rate=1000,
        admin=True,
    ),
    Input(
        "1,000 changes a second of nodes' labels, 500 pods wait",
        lambda: storm(
            pods(500, lambda n: {"nodeSelector": {"l0": f"w{n}"}})(),
            lambda n: merge(f"/api/v1/nodes/node-{n % 200:05d}", {"metadata": {"labels": {"l0": f"v{n}"}}}),
        ),
        rate=1000,
        admin=True,
    ),
    Input(
        "1,000 changes a second of a bound pod",
        lambda: storm([create(PODS, pod("h"))], lambda n: merge(f"{PODS}/h", {"metadata": {"labels": {"l": f"v{n}"}}})),
        rate=1000,
    ),
    Input(
        "1,000 changes a second of a pod that waits",
        lambda: storm(
            [create(PODS, pod("h", node_affinity(16), cpu="64"))],
            lambda n: merge(f"{PODS}/h", {"metadata": {"labels": {"l": f"v{n}"}}}),
        ),
        rate=1000,
    ),
    Input(
        "100 changes a second of a pod of 1 MB",
        lambda: storm(
            [create(PODS, pod("h", containers(40, env=[{"name": f"V{n}", "value": "v" * 500} for n in range(50)])))],
            lambda n: merge(f"{PODS}/h", {"metadata": {"labels": {"l": f"v{n}"}}}),
        ),
        rate=100,
    ),
    Input("400 pods with gates that flip", lambda: flipping(400)),
    Input(
        "1,000 PodDisruptionBudgets and 200 pods that preempt none",
        lambda: then(
            (
                create(BUDGETS, named("PodDisruptionBudget", "policy/v1", f"b{n}", {"minAvailable": 1, "selector": {}}))
                for n in range(1000)
            ),
            (create(PODS, pod(f"h{n}", tolerations(100), cpu="31")) for n in range(200)),
        ),
    ),
    Input(
        "3,000 events",
        lambda: (
            create(
                EVENTS,
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": f"e{n}", "namespace": NAMESPACE},
                    "involvedObject": {"kind": "Pod", "name": "x", "namespace": NAMESPACE},
                    "reason": "R",
                    "message": "m" * 900,
                },
            )
            for n in range(3000)
        ),
    ),
    Input(
        "500 volume claims, 500 pods wait for them",
        lambda: then(
            (
                create(
                    VOLUME_CLAIMS,
                    named(
                        "PersistentVolumeClaim",
                        "v1",
                        f"c{n}",
                        {
                            "accessModes": ["ReadWriteOnce"],
                            "storageClassName": f"none-{n}",
                            "resources": {"requests": {"storage": "1Ti"}},
                        },
                    ),
                )
                for n in range(500)
            ),
            (
                create(
                    PODS, pod(f"h{n}", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{n}"}}]})
                )
                for n in range(500)
            ),
        ),
    ),
    # Ports and outputs.
    Input("1,000 connections with slow headers to each port", play="slow headers"),
    Input("2,000 malformed requests to each port", play="malformed"),
    Input("100 unfinished bodies of 8 MiB to the webhook", play="bodies"),
    Input("a stalled reader of the scheduler's log", play="stalled log"),
)
