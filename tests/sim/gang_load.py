"""Gangs, queues and settings of sessions; gated pods and an autoscaler's node groups; Jobs and their users' actions.

Everything is drawn from the seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from .api import Body, Load, name_of, pod

#: The schedulerName of the batch scheduler.
NAME = "volcano"
API = "/apis/scheduling.volcano.sh/v1beta1"
GROUPS_OF_DEFAULT = f"{API}/namespaces/default/podgroups"
#: Prefix of the names of Kubernetes PodGroups where they are stored together with those of Volcano.
NATIVE = "scheduling.k8s.io/"
NATIVE_OF_DEFAULT = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
ROLE = "volcano.sh/task-spec"
RUN_SECONDS = "agent-scheduler.io/run-seconds"
#: Priority classes of groups and of their members.
PRIORITIES = {"lesser": 10, "usual": 100, "greater": 1000}
_FIRST = "{name: priority}, {name: gang}, {name: conformance}"
#: How the sessions of a world are configured, and how often. shipped: as the shipped files, with the default actions
#: and plugins; usual: a list of actions that installations use; any: actions in any order.
SHIPPED, USUAL, ANY = "shipped", "usual", "any"
SET_UPS = {SHIPPED: 0.5, USUAL: 0.25, ANY: 0.25}
_SECOND = {
    "neither": "{name: predicates}, {name: nodeorder}",
    "proportion": "{name: overcommit}, {name: predicates}, {name: proportion}, {name: nodeorder}",
    "capacity": "{name: predicates}, {name: capacity}, {name: nodeorder}",
    "tree": "{name: predicates}, {name: capacity, enableHierarchy: true}, {name: nodeorder}",
}
_ACTIONS_OF_SESSIONS = (
    *(("enqueue", "allocate", "backfill"), ("enqueue", "allocate", "backfill"), ("allocate", "backfill")),
    *(("enqueue", "allocate", evicts, "backfill") for evicts in ("preempt", "reclaim")),
    ("enqueue", "allocate", "preempt", "reclaim", "backfill"),
)
_DRF = {True: "{name: drf}", False: "{name: drf, enablePreemptable: false}"}


@dataclass
class Gangs:
    """The queues from the start, and the settings of the sessions."""

    queues: list[Body] = field(default_factory=list)
    actions: tuple[str, ...] = ("enqueue", "allocate", "backfill")
    #: The plugins that divide the cluster: proportion, capacity, tree (capacity with a hierarchy of queues), or
    #: neither.
    divides: str = "proportion"
    #: Whether shares also decide about evictions: drf votes where no earlier tier names a victim.
    by_share: bool = False
    pdb: bool = False
    binpack: bool = False
    #: Replicas of the controllers of queues and groups; 0: the world opens queues itself.
    controllers: int = 0
    #: Groups that exist or will be created, by name.
    groups: dict[str, Body] = field(default_factory=dict)
    #: Whether the API server also serves Kubernetes PodGroups.
    native: bool = False
    #: One of `SET_UPS`.
    set_up: str = USUAL

    @property
    def leaves(self) -> list[str]:
        """Return the queues without children."""
        names = map(name_of, self.queues)
        return [name for name in names if not name.startswith(("root", "above"))]

    @property
    def text(self) -> str:
        """Return the section of the configuration."""
        if self.set_up == SHIPPED:
            return "batch: {}\n"
        more = [", {name: pdb}" if self.pdb else "", ", {name: binpack}" if self.binpack else ""]
        return (
            f'batch: {{schedulerName: {NAME}, actions: "{", ".join(self.actions)}", tiers: ['
            f"{{plugins: [{_FIRST}{more[0]}]}}, "
            f"{{plugins: [{_DRF[self.by_share]}, {_SECOND[self.divides]}{more[1]}]}}]}}\n"
        )


def drawn_set_up(rng: random.Random) -> str:
    return rng.choices(tuple(SET_UPS), tuple(SET_UPS.values()))[0]


def configure(rng: random.Random, gangs: Gangs, set_up: str) -> None:
    """Configure the sessions by that set-up."""
    gangs.set_up = set_up
    if set_up == SHIPPED:
        gangs.actions, gangs.divides = ("enqueue", "allocate", "backfill"), "proportion"
        gangs.by_share, gangs.pdb, gangs.binpack = True, False, False
        gangs.controllers = max(1, gangs.controllers)
    elif set_up == ANY:
        others = [name for name in ("enqueue", "preempt", "reclaim") if rng.random() < 0.6]
        actions = ["allocate", "backfill", *others]
        rng.shuffle(actions)
        gangs.actions = tuple(actions)
        gangs.divides = rng.choice(("proportion", "capacity", "neither", gangs.divides))


def queue(name: str, *, state: str = "Open", **spec: Any) -> Body:
    return {**_typed("Queue"), "metadata": {"name": name}, "spec": spec, "status": {"state": state}}


def group(name: str, *, minimum: int, **spec: Any) -> Body:
    return {**_typed("PodGroup"), "metadata": {"name": name}, "spec": {"minMember": minimum, **spec}}


def _typed(kind: str) -> Body:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": kind}


def gather(rng: random.Random, load: Load, nodes: int) -> Gangs:
    """Add gangs and single pods, priority classes, and changes over time."""
    gangs = Gangs(
        actions=rng.choice(_ACTIONS_OF_SESSIONS),
        divides=rng.choice(("proportion", "capacity", "capacity", "tree")),
        by_share=rng.random() < 0.15,
        pdb=rng.random() < 0.2,
        binpack=rng.random() < 0.3,
        controllers=rng.choice((0, 0, 1)),
    )
    cpus = 4 * nodes
    leaves = _queues(rng, gangs, cpus)
    for name, value in PRIORITIES.items():
        body: Body = {"metadata": {"name": name}, "value": value}
        load.act(0.0, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    if gangs.pdb:
        _budgets(rng, load)
    if {"preempt", "reclaim"} & set(gangs.actions) and rng.random() < 0.8:
        _crowd(rng, gangs, cpus, leaves, load)
    asked = 0.0
    most = cpus * rng.choice((0.5, 1.0, 1.5, 2.5))
    for number in range(rng.randrange(3, 15)):
        if asked > most:
            break
        asked += _gang(rng, gangs, f"g{number}", leaves, load)
    for number in range(rng.choice((0, 0, 3, 8))):
        bare = pod(f"bare-{number}", cpu=rng.choice((0, 100, 700)), lives=rng.choice((None, 2.0, 6.0)))
        _ask(bare, rng.choice(("", *leaves)))
        load.pods.append((rng.uniform(0, 12), bare))
    return gangs


def _queues(rng: random.Random, gangs: Gangs, cpus: int) -> list[str]:
    """Draw the queues; return the names of those that groups may name."""
    gangs.queues = [queue("root", reclaimable=False), queue("default", parent="root")]
    leaves = ["default"]
    for number in range(rng.choice((0, 1, 2, 3))):
        name, spec = f"q{number}", _limits(rng, cpus)
        if gangs.divides == "tree" and rng.random() < 0.5:
            above = f"above-{number}"
            gangs.queues.append(queue(above, parent="root", **_limits(rng, cpus)))
            spec["parent"] = above
            if rng.random() < 0.5:
                gangs.queues.append(queue(f"{name}-beside", parent=above))
                leaves.append(f"{name}-beside")
        gangs.queues.append(queue(name, **spec))
        leaves.append(name)
    return leaves


def _limits(rng: random.Random, cpus: int) -> Body:
    spec: Body = {"weight": rng.choice((1, 1, 2, 5))}
    if rng.random() < 0.5:
        spec["capability"] = {"cpu": str(max(1, int(cpus * rng.choice((0.25, 0.5, 1.0)))))}
    if rng.random() < 0.5:
        spec["deserved"] = {"cpu": str(max(1, int(cpus * rng.choice((0.1, 0.25))))), "memory": "4Gi"}
    if rng.random() < 0.2:
        spec["reclaimable"] = False
    return spec


def _budgets(rng: random.Random, load: Load) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    for number in range(3):
        selector = {"matchLabels": {"gang": f"g{number}"}}
        spec = {"selector": selector, "minAvailable": rng.choice((1, 2, "60%"))}
        load.act(0.0, "POST", path, {"metadata": {"name": f"budget-{number}"}, "spec": spec})


def _crowd(rng: random.Random, gangs: Gangs, cpus: int, leaves: list[str], load: Load) -> None:
    """Add gangs of low priority that fill the cluster and stay, and later some of higher priority."""
    queues = rng.sample(leaves, min(len(leaves), 2))
    cpu, late = rng.choice((500, 1000)), rng.choice((5.0, 7.0))
    for number in range(max(1, int(cpus * 1000 / cpu / rng.choice((2, 3, 4))))):
        size = rng.choice((2, 3, 4))
        _members(rng, gangs, f"low-{number}", size, cpu, 0.1, load)
        spec = gangs.groups[f"low-{number}"]["spec"]
        spec.update(minMember=rng.choice((1, size - 1, size)), queue=queues[0], priorityClassName="lesser")
    for number in range(rng.choice((1, 2, 3))):
        _members(rng, gangs, f"high-{number}", rng.choice((1, 2, 4)), cpu, late, load)
        spec = gangs.groups[f"high-{number}"]["spec"]
        spec.update(queue=rng.choice(queues), priorityClassName="greater")


def _members(rng: random.Random, gangs: Gangs, name: str, size: int, cpu: int, at: float, load: Load) -> None:
    """Add a gang of equal pods that stay."""
    body = gangs.groups[name] = group(name, minimum=size)
    load.act(at, "POST", GROUPS_OF_DEFAULT, body)
    for number in range(size):
        made = pod(f"{name}-{number}", cpu=cpu, terminationGracePeriodSeconds=rng.choice((0, 1, 30)))
        _ask(made, "", group=name)
        made["metadata"]["labels"] = {"gang": name}
        load.pods.append((at + rng.uniform(0, 0.1), made))


def _gang(rng: random.Random, gangs: Gangs, name: str, leaves: list[str], load: Load) -> float:
    """Add a drawn gang; return the number of CPUs that it requests."""
    size = rng.choice((1, 2, 2, 3, 4, 4, 6, 9))
    minimum = rng.choice((size, size, size, max(1, size - 1), max(1, size // 2), 1))
    other = "nowhere" if rng.random() < 0.1 else "default"
    spec: Body = {"queue": rng.choice((*leaves, *leaves, "default", other))}
    roles = ["", ""]
    if size > 1 and rng.random() < 0.25:
        roles = ["head", "worker"]
        spec["minTaskMember"] = {"head": 1, "worker": max(1, minimum - 1)}
        minimum = rng.choice((1 + spec["minTaskMember"]["worker"], minimum))
    cpu = rng.choice((100, 300, 500, 500, 1000, 2000))
    if rng.random() < 0.3:
        spec["minResources"] = {"cpu": f"{cpu * minimum}m", "memory": f"{64 * minimum}Mi"}
    if rng.random() < 0.6:
        spec["priorityClassName"] = rng.choice(tuple(PRIORITIES))
    at = rng.choice((0.1, 0.1, 4.0, 9.0)) + rng.uniform(0, rng.choice((0.2, 3.0)))
    body = gangs.groups[name] = group(name, minimum=minimum, **spec)
    late = rng.choice((0.0, 0.0, 0.0, rng.uniform(0, 3.0)))
    load.act(at + late, "POST", GROUPS_OF_DEFAULT, body)
    lives = rng.choice((None, None, 3.0, 8.0, rng.uniform(1, 20)))
    spread = rng.choice((0.0, 0.0, 0.05, 4.0))
    for number in range(size):
        role = roles[0] if number == 0 else roles[1]
        extra: Body = {"terminationGracePeriodSeconds": rng.choice((0, 1, 30))}
        if "priorityClassName" in spec:
            extra["priorityClassName"] = spec["priorityClassName"]
        made = pod(f"{name}-{number}", cpu=2 * cpu if role == "head" else cpu, lives=lives, **extra)
        _ask(made, "", group=name, role=role)
        made["metadata"]["labels"] = {"gang": name}
        if rng.random() < 0.05:
            made["metadata"]["annotations"]["volcano.sh/preemptable"] = "false"
        load.pods.append((at + rng.uniform(0, spread), made))
    return size * cpu / 1000


def _ask(pod: Body, queue_name: str, *, group: str = "", role: str = "") -> None:
    """Make the pod one of the batch scheduler, in this queue or group."""
    pod["spec"]["schedulerName"] = NAME
    said = pod["metadata"].setdefault("annotations", {})
    if group:
        said[GROUP_NAME] = group
    if role:
        said[ROLE] = role
    if queue_name:
        said[QUEUE_NAME] = queue_name


def count_in_queues(rng: random.Random, gangs: Gangs, load: Load) -> None:
    """Give some pods of the fast path the annotation of a queue."""
    names = [name_of(each) for each in gangs.queues if name_of(each) != "root"]
    for _, body in load.pods:
        if body["spec"]["schedulerName"] != NAME and rng.random() < 0.5:
            body["metadata"].setdefault("annotations", {})[QUEUE_NAME] = rng.choice(names)


#: The annotation by which a pod opts in, and the gate.
GATE = "scheduling.volcano.sh/queue-allocation-gate"
_TIGHT = ({"cpu": "1"}, {"cpu": "2"}, {"cpu": "3"}, {"cpu": "6"}, {"cpu": "2", "memory": "256Mi"})
#: Label and taint of nodes that only few pods tolerate.
POOL, SPECIAL = "example.com/pool", "special"


@dataclass(frozen=True, slots=True)
class Gates:
    """The part of a `Shape` that is about gates.

    `rules`: the autoscaler's groups. `asked`: share of pods that opt in to the gate. `off`: gates are removed
    regardless of the queues. `timeout`: seconds after which a reservation without a node ends; 0: never.
    """

    rules: tuple[str, ...]
    asked: float
    off: bool = False
    timeout: int = 0

    @property
    def text(self) -> str:
        """Return the part of the configuration."""
        gates = f"featureGates: {{SchedulingGatesQueueAdmission: {str(not self.off).lower()}}}"
        return f"queueReservationTimeout: {self.timeout}s\n{gates}\n"


def hold(rng: random.Random, gangs: Gangs, load: Load) -> Gates:
    """Let pods opt in to the gate, reduce queues, and add pods of the fast path in some queues."""
    for each in gangs.queues:
        if name_of(each) != "root" and rng.random() >= 0.3:
            each["spec"]["capability"] = rng.choice(_TIGHT)
    names = gangs.leaves
    for number in range(rng.choice((0, 3, 8, 15))):
        body = pod(f"fast-{number}", cpu=rng.choice((0, 300, 700, 1500)), lives=rng.choice((None, 2.0, 9.0)))
        if rng.random() < 0.85:
            body["metadata"]["annotations"][QUEUE_NAME] = rng.choice(names)
        load.pods.append((rng.uniform(0, 15), body))
    gates = Gates(_rules(rng), rng.choice((1.0, 1.0, 0.7, 0.3)))
    choices: dict[str, tuple[bool, bool]] = {}
    for _, body in load.pods:
        said = body["metadata"].setdefault("annotations", {})
        gang = said.get(GROUP_NAME, "")
        drawn = rng.random() < gates.asked, len(gates.rules) > 1 and rng.random() < 0.2
        # Most gangs opt in as a whole, and all members use the same nodes.
        asks, special = choices.setdefault(gang, drawn) if gang else drawn
        if asks if rng.random() < 0.95 else drawn[0]:
            said[GATE] = "true" if rng.random() < 0.97 else "True"
        _set_apart(body, special, rng.random() < 0.05)
    return replace(gates, off=rng.random() < 0.06, timeout=rng.choice((0, 0, 0, 0, 5, 30)))


def add_native(rng: random.Random, gangs: Gangs, gates: Gates, load: Load) -> None:
    """Add gangs of Kubernetes PodGroups, each of one of the two schedulers.

    Their groups name no queue: members for the fast path do; for the batch scheduler this makes no difference.
    """
    gangs.native = True
    names = gangs.leaves
    for number in range(rng.randrange(2, 7)):
        size = rng.choice((1, 2, 2, 3, 4, 6))
        # Groups of the two kinds may have the same name.
        name = rng.choice((f"own-{number}", f"g{number}"))
        least = rng.choice((size, size, size, max(1, size - 1), max(1, size // 2)))
        policy: Body = {"basic": {}} if rng.random() < 0.1 else {"gang": {"minCount": least}}
        at, late = rng.uniform(0, 12), rng.choice((0.0, 0.0, 0.0, rng.uniform(0, 4)))
        body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}
        load.act(at + late, "POST", NATIVE_OF_DEFAULT, body)
        scheduler = rng.choice(("agent-scheduler", "agent-scheduler", NAME))
        queues = rng.choice((names, names, [])) if rng.random() < 0.1 else [rng.choice(names)]
        asks, special = rng.random() < gates.asked, len(gates.rules) > 1 and rng.random() < 0.2
        cpu, lives = rng.choice((0, 300, 500, 1000)), rng.choice((None, None, 4.0, 12.0))
        spread = rng.choice((0.0, 0.0, 0.05, 4.0))
        for member in range(size):
            own = cpu if rng.random() < 0.9 else 2 * cpu
            made = pod(f"own-{number}-{member}", cpu=own, lives=lives, schedulingGroup={"podGroupName": name})
            made["spec"]["schedulerName"] = scheduler
            said = made["metadata"]["annotations"]
            if queues:
                said[QUEUE_NAME] = rng.choice(queues)
            if asks if rng.random() < 0.95 else not asks:
                said[GATE] = "true"
            _set_apart(made, special, rng.random() < 0.03)
            load.pods.append((at + rng.uniform(0, spread), made))


def _set_apart(pod: Body, special: bool, gated: bool) -> None:
    """Restrict the pod to the special nodes, and give it another gate."""
    if special:
        pod["spec"]["nodeSelector"] = {POOL: SPECIAL}
        pod["spec"]["tolerations"] = [{"key": POOL, "operator": "Exists"}]
    if gated:
        pod["spec"]["schedulingGates"] = [{"name": "example.com/other"}]


def _rules(rng: random.Random) -> tuple[str, ...]:
    more = f"pods=20,delay={rng.choice((0.5, 3, 10))},idle={rng.choice((5, 20, 100))}"
    plain = f"cpu=4,memory=8Gi,name=plain,max={rng.choice((40, 40, 40, 2))},{more}"
    special = f"cpu=4,memory=8Gi,name=special,max=40,label:{POOL}={SPECIAL},taint:{POOL}:NoSchedule,{more}"
    return rng.choice(((plain,), (plain, special), (special, plain)))


JOB_VERSION = "batch.volcano.sh/v1alpha1"
JOBS_PATH = f"/apis/{JOB_VERSION}/namespaces/default/jobs"
#: Makes a Job's later tasks reserved stages, for which capacity is kept.
DEPENDS_ON_GANG = "agent-scheduler.io/depends-on-gang"
_EVENTS = ("PodFailed", "PodEvicted", "TaskCompleted", "TaskFailed", "Unknown", "*")
_ACTIONS = (*("RestartJob", "RestartTask", "RestartPod"), *("AbortJob", "TerminateJob", "CompleteJob"))


class Jobs:
    """Whether a world has Jobs: present if it does."""


def employ(rng: random.Random, gangs: Gangs, load: Load) -> Jobs:
    """Add Jobs in the queues of `gangs`, handled by the job controller."""
    gangs.controllers = rng.choice((1, 1, 2))
    leaves = gangs.leaves
    for number in range(rng.randrange(1, 7)):
        body = _job(rng, f"j{number}", rng.choice(("default", *leaves)))
        at = rng.choice((0.1, 0.1, 4.0, 9.0)) + rng.uniform(0, 2.0)
        load.act(at, "POST", JOBS_PATH, body)
        if rng.random() < 0.15:
            load.act(at + rng.uniform(0.01, 15.0), "DELETE", f"{JOBS_PATH}/j{number}", None)
    return Jobs()


def _job(rng: random.Random, name: str, queue: str) -> Body:
    tasks = _tasks(rng)
    least = sum(task.get("minAvailable", task["replicas"]) for task in tasks)
    most = sum(task["replicas"] for task in tasks)
    spec: Body = {
        "schedulerName": NAME,
        "queue": queue,
        "minAvailable": rng.choice((least, least, most, rng.randint(1, most))),
        "maxRetry": rng.randint(1, 4),
        "tasks": tasks,
        "policies": _policies(rng, rng.choice((0, 1, 2))),
    }
    if rng.random() < 0.3:
        spec["ttlSecondsAfterFinished"] = rng.choice((0, 1, 10))
    if rng.random() < 0.2:
        spec["minSuccess"] = rng.randint(1, most)
    if rng.random() < 0.3:
        spec["plugins"] = rng.choice(({"env": []}, {"svc": []}, {"svc": [], "env": []}))
    metadata: Body = {"name": name}
    if rng.random() < 0.2:
        metadata["annotations"] = {DEPENDS_ON_GANG: "reserve"}
    return {"apiVersion": JOB_VERSION, "kind": "Job", "metadata": metadata, "spec": spec}


def _tasks(rng: random.Random) -> list[Body]:
    """Return drawn tasks; each may depend on earlier ones."""
    tasks: list[Body] = []
    for name in ("a", "b", "c")[: rng.choice((1, 1, 2, 2, 3))]:
        replicas = rng.choice((1, 1, 2, 3))
        lives = rng.choice((None, 1.0, 3.0, 8.0))
        template = pod("unnamed", cpu=rng.choice((100, 500, 1000)), lives=lives, restartPolicy="Never")
        del template["metadata"]["name"], template["spec"]["schedulerName"]
        template["spec"]["terminationGracePeriodSeconds"] = rng.choice((0, 1, 30))
        task: Body = {"name": name, "replicas": replicas, "template": template}
        if rng.random() < 0.7:
            task["minAvailable"] = rng.randint(0 if tasks else 1, replicas)
        if tasks and rng.random() < 0.7:
            earlier = [each["name"] for each in tasks]
            on = rng.sample(earlier, rng.randint(1, len(earlier)))
            task["dependsOn"] = {"name": on, "iteration": rng.choice(("any", "all"))}
        if rng.random() < 0.4:
            task["policies"] = _policies(rng, 1)
        tasks.append(task)
    return tasks


def _policies(rng: random.Random, count: int) -> list[Body]:
    """Return policies for different events: the webhook accepts no second policy for an event."""
    events = rng.sample(_EVENTS[:-1], count) if rng.random() < 0.8 else [_EVENTS[-1]] * min(count, 1)
    return [{"event": event, "action": rng.choice(_ACTIONS)} for event in events]
