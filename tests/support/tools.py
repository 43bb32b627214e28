"""The controllers of the tools in config/samples/tools, as schedulers see them: which objects they create, of whose.

Each function is given an object of a sample as it is stored, and creates what that tool's controllers create for it:
owners, names, labels, annotations and PodGroups. Containers that a controller adds are there if they count.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from agent_scheduler.objects.batch import GROUP_NAME, QUEUE_ALLOCATION_GATE, QUEUE_NAME, TASK_SPEC
from apimachinery.quantity import milli_value
from tests.support import objects
from tests.support.batched import DEFINITIONS
from tests.support.embedded import PODS, EmbeddedCluster
from tests.support.objects import Object
from tests.support.places import CONFIG

SAMPLES: Final = CONFIG / "samples" / "tools"
#: Kind -> the group, version and plural of the tools' own kinds.
KINDS: Final = {
    "RayCluster": ("ray.io", "v1", "rayclusters"),
    "RayJob": ("ray.io", "v1", "rayjobs"),
    "TrainingRuntime": ("trainer.kubeflow.org", "v1alpha1", "trainingruntimes"),
    "TrainJob": ("trainer.kubeflow.org", "v1alpha1", "trainjobs"),
    "JobSet": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "Workflow": ("argoproj.io", "v1alpha1", "workflows"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets"),
    "SandboxTemplate": ("extensions.agents.x-k8s.io", "v1beta1", "sandboxtemplates"),
    "SandboxWarmPool": ("extensions.agents.x-k8s.io", "v1beta1", "sandboxwarmpools"),
    "SandboxClaim": ("extensions.agents.x-k8s.io", "v1beta1", "sandboxclaims"),
    "Sandbox": ("agents.x-k8s.io", "v1beta1", "sandboxes"),
}
_LOOSE: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_MILLI: Final = 1000


def path_of(kind: str) -> str:
    group, version, plural = KINDS[kind]
    return f"/apis/{group}/{version}/namespaces/default/{plural}"


async def install_tools(cluster: EmbeddedCluster) -> None:
    """Install the tools' kinds, with schemas that accept everything."""
    for kind, (group, version, plural) in KINDS.items():
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": _LOOSE}}
        names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [served]}
        body = {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}
        await cluster.add(DEFINITIONS, body)


async def install_gate_policy(cluster: EmbeddedCluster) -> None:
    """Install config/gate-policy, which adds the gates of queues."""
    for each in yaml.safe_load_all((CONFIG / "gate-policy" / "policy.yaml").read_text()):
        plural = "mutatingadmissionpolicies" if each["kind"] == "MutatingAdmissionPolicy" else _BINDINGS
        await cluster.add(f"/apis/admissionregistration.k8s.io/v1/{plural}", each)


_BINDINGS: Final = "mutatingadmissionpolicybindings"


def documents(tool: str) -> list[Object]:
    return list(yaml.safe_load_all((SAMPLES / f"{tool}.yaml").read_text()))


async def add_sample(cluster: EmbeddedCluster, tool: str, kind: str, name: str, *, renamed: str = "") -> Object:
    """Create this object of a tool's sample, optionally under another name; return it as it is stored."""
    (body,) = (each for each in documents(tool) if (each["kind"], each["metadata"]["name"]) == (kind, name))
    if renamed:
        body = {**body, "metadata": {**body["metadata"], "name": renamed}}
    found: Object = await cluster.add(path_of(kind), body)
    return found


# ---- common


def owned_by(owner: Object, kind: str = "", version: str = "") -> list[Object]:
    """Return the owner reference of a controller, as controller-runtime writes it."""
    kind = kind or owner["kind"]
    if not version:
        version = "/".join(KINDS[kind][:2])
    about = owner["metadata"]
    reference = {"apiVersion": version, "kind": kind, "name": about["name"], "uid": about["uid"]}
    return [{**reference, "controller": True, "blockOwnerDeletion": True}]


def pod_of(
    name: str, template: Object, owners: list[Object], *, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Object:
    """Return a pod of a template, with what the tool's controller adds."""
    about = template.get("metadata") or {}
    merged = {
        "labels": {**(about.get("labels") or {}), **labels},
        "annotations": {**(about.get("annotations") or {}), **annotations},
    }
    metadata = objects.metadata(name, owners=owners, **merged)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def total(specs: Iterable[tuple[Object, int]]) -> dict[str, str]:
    """Return the requests of these pods, each with its number."""
    found: dict[str, int] = {}
    for spec, number in specs:
        for container in spec["containers"]:
            for resource, amount in container["resources"]["requests"].items():
                found[resource] = found.get(resource, 0) + number * milli_value(amount)
    return {name: f"{amount}m" if amount % _MILLI else str(amount // _MILLI) for name, amount in found.items()}


async def add_pod_group(cluster: EmbeddedCluster, name: str, owners: list[Object], **spec: Any) -> None:
    more = {"labels": spec.pop("labels", None), "annotations": spec.pop("annotations", None)}
    body = objects.pod_group(name, owners=owners, **more, **spec)
    await cluster.add("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups", body)


# ---- KubeRay, with or without its batch scheduler `volcano`

_RAY_QUEUE: Final = "volcano.sh/queue-name"


def _ray_groups(spec: Object) -> list[tuple[str, int, Object]]:
    workers = [(each["groupName"], each["replicas"], each["template"]) for each in spec["workerGroupSpecs"]]
    return [("headgroup", 1, spec["headGroupSpec"]["template"]), *workers]


async def ray_cluster(cluster: EmbeddedCluster, ray: Object, *, batch: bool, job: str = "") -> None:
    """Create a RayCluster's PodGroup and pods; the PodGroup of the RayCluster of a `job` is the job's."""
    if batch and not job:
        await ray_group(cluster, ray, ray["spec"])
    name = ray["metadata"]["name"]
    for group, replicas, template in _ray_groups(ray["spec"]):
        role = "head" if group == "headgroup" else "worker"
        for number in range(replicas):
            labels = {
                "app.kubernetes.io/created-by": "kuberay-operator",
                "app.kubernetes.io/name": "kuberay",
                "ray.io/cluster": name,
                "ray.io/group": group,
                "ray.io/identifier": f"{name}-{role}",
                "ray.io/is-ray-node": "yes",
                "ray.io/node-type": role,
            }
            annotations = {}
            spec = template["spec"]
            if batch:
                annotations = {GROUP_NAME: f"ray-{job or name}-pg", TASK_SPEC: group}
                if queue := (ray["metadata"].get("labels") or {}).get(_RAY_QUEUE):
                    labels[_RAY_QUEUE] = queue
                spec = {**spec, "schedulerName": "volcano"}
            if role == "worker":
                waits = objects.container("wait-gcs-ready", requests={"cpu": "200m", "memory": "256Mi"})
                spec = {**spec, "initContainers": [waits]}
            called = f"{name}-head" if role == "head" else f"{name}-{group}-worker-{number}"
            made = pod_of(called, {**template, "spec": spec}, owned_by(ray), labels=labels, annotations=annotations)
            await cluster.add(PODS, made)


async def ray_group(cluster: EmbeddedCluster, owner: Object, spec: Object, *submitter: Object) -> None:
    groups = _ray_groups(spec)
    needed = [(template["spec"], number) for _, number, template in groups]
    await add_pod_group(
        cluster,
        f"ray-{owner['metadata']['name']}-pg",
        owned_by(owner),
        annotations=owner["metadata"].get("annotations"),
        minMember=sum(number for _, number, _ in groups),
        minResources=total([*needed, *((each, 1) for each in submitter)]),
        queue=owner["metadata"]["labels"][_RAY_QUEUE],
    )


async def ray_job(cluster: EmbeddedCluster, job: Object) -> None:
    """Create a RayJob's PodGroup and RayCluster, with its pods."""
    spec, name = job["spec"], job["metadata"]["name"]
    await ray_group(cluster, job, spec["rayClusterSpec"], spec["submitterPodTemplate"]["spec"])
    labels = {**job["metadata"]["labels"], **_of_ray_job(name)}
    about = objects.metadata(f"{name}-xxxxx", labels=labels, owners=owned_by(job))
    ray = await cluster.add(
        path_of("RayCluster"),
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": about, "spec": spec["rayClusterSpec"]},
    )
    await ray_cluster(cluster, ray, batch=True, job=name)


async def ray_submitter(cluster: EmbeddedCluster, job: Object) -> None:
    """Create the Job that submits, which KubeRay does once the cluster is ready."""
    name, template = job["metadata"]["name"], job["spec"]["submitterPodTemplate"]
    labels = {**_of_ray_job(name), _RAY_QUEUE: job["metadata"]["labels"][_RAY_QUEUE]}
    annotations = {GROUP_NAME: f"ray-{name}-pg", TASK_SPEC: "submitter"}
    spec = {**template["spec"], "schedulerName": "volcano"}
    metadata = {"labels": labels, "annotations": annotations}
    body = {"backoffLimit": 2, "template": {"metadata": metadata, "spec": spec}}
    about = objects.metadata(name, labels=_of_ray_job(name), owners=owned_by(job))
    await cluster.add("/apis/batch/v1/namespaces/default/jobs", {"metadata": about, "spec": body})


def _of_ray_job(name: str) -> dict[str, str]:
    origin = {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": name}
    return {**origin, "app.kubernetes.io/created-by": "kuberay-operator"}


# ---- Kubeflow Trainer and JobSet


async def train_job(cluster: EmbeddedCluster, job: Object, runtime: Object) -> None:
    """Create a TrainJob's JobSet with the Jobs of its first stage, and its PodGroup if the runtime has a policy.

    The pods are those of the Job controller. JobSet creates a Job that depends on another when that one has ended.
    """
    name, spec = job["metadata"]["name"], runtime["spec"]
    template, nodes = spec["template"], spec["mlPolicy"]["numNodes"]
    group = {GROUP_NAME: name} if spec.get("podGroupPolicy") else {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    about = objects.metadata(name, annotations=annotations, owners=owned_by(job))
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": about, "spec": template["spec"]}
    jobset = await cluster.add(path_of("JobSet"), body)
    replicated = template["spec"]["replicatedJobs"]
    counts = {each["name"]: nodes if each["name"] == "node" else 1 for each in replicated}
    for each in replicated:
        if not each.get("dependsOn"):
            await _job_of_set(cluster, jobset, each, counts[each["name"]], group)
    if group:
        specs = [(each["template"]["spec"]["template"]["spec"], counts[each["name"]]) for each in replicated]
        least = {"minMember": sum(counts.values()), "minResources": total(specs)}
        await add_pod_group(cluster, name, owned_by(job), queue=annotations[QUEUE_NAME], **least)


async def _job_of_set(
    cluster: EmbeddedCluster, jobset: Object, replicated: Object, number: int, annotations: Mapping[str, str]
) -> None:
    of = jobset["metadata"]["name"]
    keys = {
        "jobset-name": of,
        "jobset-uid": jobset["metadata"]["uid"],
        "replicatedjob-name": replicated["name"],
        "replicatedjob-replicas": "1",
        "global-replicas": "1",
        "job-index": "0",
        "job-global-index": "0",
        "restart-attempt": "0",
    }
    added = {f"jobset.sigs.k8s.io/{key}": value for key, value in keys.items()}
    name = f"{of}-{replicated['name']}-0"
    owners, template = owned_by(jobset), replicated["template"]["spec"]["template"]
    made = pod_of("", template, [], labels=added, annotations={**added, **annotations})
    spec = {**made["spec"], "restartPolicy": "Never", "subdomain": of}
    body = {
        "completions": number,
        "parallelism": number,
        "completionMode": "Indexed",
        "template": {"metadata": {key: made["metadata"][key] for key in ("labels", "annotations")}, "spec": spec},
    }
    about = objects.metadata(name, labels=added, annotations=added, owners=owners)
    await cluster.add("/apis/batch/v1/namespaces/default/jobs", {"metadata": about, "spec": body})


# ---- Argo Workflows


async def workflow_step(cluster: EmbeddedCluster, flow: Object, template: str, number: int = 1) -> None:
    """Create the pods of a step, and the object of a `resource` template, which its pod creates."""
    name, spec = flow["metadata"]["name"], flow["spec"]
    (found,) = (each for each in spec["templates"] if each["name"] == template)
    owners = owned_by(flow)
    for index in range(number):
        node = f"{name}-{template}-{index}"
        labels = {"workflows.argoproj.io/workflow": name, "workflows.argoproj.io/completed": "false"}
        annotations = {
            "kubectl.kubernetes.io/default-container": "main",
            "workflows.argoproj.io/node-id": node,
            "workflows.argoproj.io/node-name": f"{name}.{template}({index}:{index})",
        }
        about = {
            key: {**((spec.get("podMetadata") or {}).get(key) or {}), **((found.get("metadata") or {}).get(key) or {})}
            for key in ("labels", "annotations")
        }
        about["annotations"] = {key: value.replace(_WORKFLOW, name) for key, value in about["annotations"].items()}
        body = _containers_of_step(found)
        body["schedulerName"] = found.get("schedulerName") or spec["schedulerName"]
        made = pod_of(node, {"metadata": about, "spec": body}, owners, labels=labels, annotations=annotations)
        await cluster.add(PODS, made)
    if "resource" in found:
        made = yaml.safe_load(found["resource"]["manifest"].replace(_WORKFLOW, name))
        assert found["resource"]["setOwnerReference"]
        await add_pod_group(cluster, made["metadata"]["name"], owners, **made["spec"])


_WORKFLOW: Final = "{{workflow.name}}"


def _containers_of_step(template: Object) -> Object:
    """Return the spec of a step's pod: the executor's containers, and `main` with the template's patch."""
    if "resource" in template:
        return {"restartPolicy": "Never", "containers": [objects.container("main")]}
    main = {"name": "main", **template["container"]}
    for patch in (yaml.safe_load(template.get("podSpecPatch") or "{}") or {}).get("containers", ()):
        assert patch["name"] == "main"
        resources = main["resources"]
        patched = {key: {**resources.get(key, {}), **value} for key, value in patch["resources"].items()}
        main = {**main, "resources": {**resources, **patched}}
    executor = objects.container("init"), objects.container("wait")
    return {"restartPolicy": "Never", "initContainers": [executor[0]], "containers": [executor[1], main]}


# ---- LeaderWorkerSet, with the scheduler provider `volcano`

_LWS: Final = "leaderworkerset.sigs.k8s.io"
_REVISION: Final = "6d5f8c7b9"


async def leader_worker_set(cluster: EmbeddedCluster, lws: Object, *, workers: bool = True) -> None:
    """Create the pods and the PodGroup of each replica. Without `workers`, the leaders are not ready yet."""
    leaders = await _stateful_set(cluster, lws["metadata"]["name"], owned_by(lws))
    for index in range(lws["spec"]["replicas"]):
        await _replica(cluster, lws, index, leaders)
        if workers:
            await lws_workers(cluster, lws, index)


async def _stateful_set(cluster: EmbeddedCluster, name: str, owners: list[Object]) -> Object:
    """Create a StatefulSet that does not select the pods, which the test creates itself."""
    never = {"matchLabels": {"none": "none"}}
    template = {"metadata": {"labels": {"none": "none"}}, "spec": {"containers": [objects.container()]}}
    spec = {"replicas": 0, "serviceName": name, "selector": never, "template": template}
    body = {"metadata": objects.metadata(name, owners=owners), "spec": spec}
    found: Object = await cluster.add("/apis/apps/v1/namespaces/default/statefulsets", body)
    return found


def _lws_pod(name: str, lws: Object, template: str, index: int, worker: int, owners: list[Object]) -> Object:
    of, spec = lws["metadata"]["name"], lws["spec"]["leaderWorkerTemplate"]
    labels = {
        f"{_LWS}/name": of,
        f"{_LWS}/group-index": str(index),
        f"{_LWS}/worker-index": str(worker),
        f"{_LWS}/group-key": f"{index}e238779391c8fd563d42eb5af19391bdcd7c130",
        f"{_LWS}/template-revision-hash": _REVISION,
        "statefulset.kubernetes.io/pod-name": name,
    }
    annotations = {f"{_LWS}/size": str(spec["size"]), GROUP_NAME: f"{of}-{index}-{_REVISION}"}
    if worker:
        annotations[f"{_LWS}/leader-name"] = f"{of}-{index}"
    return pod_of(name, spec[template], owners, labels=labels, annotations=annotations)


async def _replica(cluster: EmbeddedCluster, lws: Object, index: int, leaders: Object) -> None:
    of, spec = lws["metadata"]["name"], lws["spec"]["leaderWorkerTemplate"]
    owners = owned_by(leaders, "StatefulSet", "apps/v1")
    leader = await cluster.add(PODS, _lws_pod(f"{of}-{index}", lws, "leaderTemplate", index, 0, owners))
    whole = [(spec["leaderTemplate"]["spec"], 1), (spec["workerTemplate"]["spec"], spec["size"] - 1)]
    await add_pod_group(
        cluster,
        f"{of}-{index}-{_REVISION}",
        owned_by(leader, "Pod", "v1"),
        labels={f"{_LWS}/name": of, f"{_LWS}/group-index": str(index), f"{_LWS}/template-revision-hash": _REVISION},
        annotations={key: value for key, value in lws["metadata"]["annotations"].items() if key.startswith("volcano.")},
        minMember=1 if lws["spec"]["startupPolicy"] == "LeaderReady" else spec["size"],
        minResources=total(whole),
        queue=lws["metadata"]["annotations"][QUEUE_NAME],
    )


async def lws_workers(cluster: EmbeddedCluster, lws: Object, index: int) -> None:
    of, size = lws["metadata"]["name"], lws["spec"]["leaderWorkerTemplate"]["size"]
    leader = await cluster.get(f"{PODS}/{of}-{index}")
    owner = await _stateful_set(cluster, f"{of}-{index}", owned_by(leader, "Pod", "v1"))
    owners = owned_by(owner, "StatefulSet", "apps/v1")
    for worker in range(1, size):
        name = f"{of}-{index}-{worker}"
        await cluster.add(PODS, _lws_pod(name, lws, "workerTemplate", index, worker, owners))


# ---- agent-sandbox

_SANDBOX: Final = "agents.x-k8s.io"
_numbers = itertools.count()


async def warm_pool(cluster: EmbeddedCluster, pool: Object, template: Object, replicas: int = 0) -> list[Object]:
    """Create `replicas` Sandboxes of a pool, by default all, with their pods; return them."""
    name = pool["metadata"]["name"]
    found = []
    for _ in range(replicas or pool["spec"]["replicas"]):
        labels = {
            f"{_SANDBOX}/warm-pool-sandbox": "4f1a",
            f"{_SANDBOX}/sandbox-template-ref-hash": "9c2e",
            f"{_SANDBOX}/launch-type": "warm",
            f"{_SANDBOX}/created-by": "controller",
        }
        about = objects.metadata(f"{name}-{next(_numbers)}", labels=labels, owners=owned_by(pool))
        body = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": about, "spec": template["spec"]}
        found.append(await cluster.add(path_of("Sandbox"), body))
        await sandbox(cluster, found[-1])
    return found


async def sandbox(cluster: EmbeddedCluster, of: Object) -> None:
    """Create the pod of a Sandbox, which has its name."""
    template, name = of["spec"]["podTemplate"], of["metadata"]["name"]
    copied = ("warm-pool-sandbox", "sandbox-template-ref-hash", "created-by")
    said = of["metadata"].get("labels") or {}
    labels = {key: said[key] for key in (f"{_SANDBOX}/{each}" for each in copied) if key in said}
    labels[f"{_SANDBOX}/sandbox-name-hash"] = f"{abs(hash(name)):x}"[:8]
    keys = ",".join(sorted(template["metadata"]["annotations"]))
    annotations = {f"{_SANDBOX}/propagated-annotations": keys}
    spec = {**template["spec"], "automountServiceAccountToken": False}
    made = pod_of(name, {**template, "spec": spec}, owned_by(of), labels=labels, annotations=annotations)
    await cluster.add(PODS, made)


async def claim(cluster: EmbeddedCluster, of: Object, adopted: Object) -> None:
    """Give a Sandbox of a pool to a claim: it changes its owner and labels, its pod only labels."""
    name, uid = adopted["metadata"]["name"], of["metadata"]["uid"]
    changed = {f"{_SANDBOX}/warm-pool-sandbox": None, f"{_SANDBOX}/claim-uid": uid}
    about = {"ownerReferences": owned_by(of), "labels": changed}
    await cluster.patch(f"{path_of('Sandbox')}/{name}", {"metadata": about})
    await cluster.patch(f"{PODS}/{name}", {"metadata": {"labels": changed}})


GATE: Final = QUEUE_ALLOCATION_GATE
