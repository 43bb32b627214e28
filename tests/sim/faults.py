"""Everything that can go wrong in a world, by name, and the dice that decide when it does.

A world draws a handful of kinds and how often each strikes (swarm testing: a run in which everything fails at once
reaches fewer states than many runs that fail in few ways). Faults end at a set time, and what they held back ends
soon after: from then on the world must come to rest (see `liveness`).

To add a fault: add a line to `KINDS`, ask `Plan.strikes` for it where it happens (network.py for requests and watches,
nemesis.py for objects and processes), and name in states.py what a run with it must have reached.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """`where` it strikes: bind, write, any request, list, watch, cluster or process.

    `number` is its place in docs/reliability.md; `where` "shards" is of worlds that have some, "plans" of those where a
    controller plans them, "gangs" of those where pods come in gangs, "gates" of those where they have gates besides,
    "webhook" of those of them in which it is likely, "jobs" of those with Jobs, "gpus" of those with GPUs,
    "wire" of those where processes speak HTTP.
    """

    number: int
    where: str
    about: str


KINDS: dict[str, Kind] = {
    # Requests: what the server finds, or what becomes of the request on its way.
    "bound_elsewhere": Kind(1, "bind", "409: another scheduler was faster by a moment"),
    "recreated": Kind(2, "bind", "409: the name has another pod by now"),
    "gone": Kind(3, "bind", "404: the pod was deleted just before"),
    "deleting": Kind(4, "bind", "409: the pod is being deleted"),
    "gated": Kind(5, "bind", "409: the pod has gates"),
    "denied": Kind(6, "write", "403 or 422: refused for good"),
    "throttled": Kind(7, "any", "429 with Retry-After"),
    "failed": Kind(
        8, "any", "500, 503 or 504: before anything was done, after it, or while it is being done"
    ),
    "lost_before": Kind(9, "any", "the request is lost: a reset, or no answer at all"),
    "lost_after": Kind(10, "any", "it was carried out, and the answer is lost"),
    "slow": Kind(11, "any", "it is carried out late, maybe after the client gave up"),
    "node_vanished": Kind(12, "bind", "the node goes just before the bind, which the server accepts"),
    "not_the_server": Kind(
        49,
        "any",
        "the answer is a proxy's: a bare 404, an HTML 502 or 403, a login page with 200, a cut body",
    ),
    "slow_credentials": Kind(
        50, "any", "the credentials for a request come late: between the question whether to send it and that"
    ),
    # Watches and lists.
    "cut": Kind(13, "watch", "the stream ends, at any byte, as if all were well"),
    "gone_on_connect": Kind(14, "watch", "410 in answer to a watch"),
    "gone_in_stream": Kind(15, "watch", "410 as an ERROR event"),
    "stale_list": Kind(16, "list", "a list of an older state, as from a replica that lags"),
    "held_back": Kind(17, "watch", "one kind's events come seconds late"),
    "missed_delete": Kind(18, "cluster", "objects go while no watch runs, and history is compacted"),
    "duplicate": Kind(19, "watch", "events come again"),
    "stall": Kind(20, "watch", "half open: nothing comes, and no end"),
    "garbage": Kind(21, "watch", "lines that are no JSON, no event, or have fields nobody knows"),
    "storm": Kind(22, "watch", "every watch ends as soon as it began"),
    "lagging": Kind(53, "watch", "a replica lags: watches and lists of one kind, or of all, are long behind"),
    "unlistable": Kind(55, "cluster", "a kind can no longer be listed, at a takeover for one"),
    "server_restarted": Kind(
        51, "cluster", "the API server restarts: all connections end, and it remembers no history"
    ),
    "rolled_back": Kind(
        52,
        "cluster",
        "the store is restored from a backup: objects and versions are as they were, connections end",
    ),
    # Objects.
    "group_changed": Kind(
        27, "gangs", "a PodGroup's minimum, queue, class or phase changes, or it goes and comes back"
    ),
    "node_again": Kind(23, "cluster", "a node is deleted and comes back under its name"),
    "node_changed": Kind(24, "cluster", "a node shrinks, is tainted or cordoned, and recovers"),
    "pod_deleted": Kind(25, "cluster", "pods are deleted, whatever is being done with them"),
    "pod_changed": Kind(26, "cluster", "labels, tolerations, gates or requests change"),
    "foreign": Kind(28, "cluster", "another scheduler takes capacity"),
    # Processes.
    "crash": Kind(29, "process", "the process dies between any two steps, and is started again"),
    "sigterm": Kind(30, "process", "the process is asked to end at any moment, and is started again"),
    "lease": Kind(31, "process", "requests for the lease fail more than all others"),
    "stop": Kind(32, "process", "the process stands still for longer than a lease"),
    "clock_jump": Kind(34, "process", "the time of day jumps"),
    "clocks_drift": Kind(54, "process", "the clocks of processes run at different rates, and apart"),
    "unfair": Kind(35, "process", "what is ready runs in any order"),
    "no_connection": Kind(36, "any", "no connection can be opened"),
    # Preemption, and the configuration.
    "preemptor": Kind(37, "cluster", "the pod for which others are evicted is deleted or changes"),
    "room_taken": Kind(38, "cluster", "another scheduler takes the capacity that victims leave"),
    "reload": Kind(39, "process", "the configuration file changes, into one that can be taken over or not"),
    # Devices.
    "claim_taken": Kind(40, "write", "409: a claim is allocated, reserved or labelled by others just before"),
    "claim_changed": Kind(41, "cluster", "claims are deleted, deallocated, unreserved or labelled"),
    "pool_changed": Kind(
        42, "cluster", "a driver publishes a pool anew, incomplete for a while, or less of it"
    ),
    "class_changed": Kind(43, "cluster", "a DeviceClass goes, or selects nothing, and comes back"),
    "not_attached": Kind(58, "cluster", "a device that has to be made ready fails, or nothing is said of it"),
    # Shards.
    "shards_changed": Kind(
        33,
        "shards",
        "nodes move between shards, are swapped, desired twice or by nobody; a shard goes and comes back",
    ),
    "shard_written": Kind(44, "shards", "409: a NodeShard was written by others just before"),
    "owner_gone": Kind(45, "shards", "a scheduler ends or stands still, and comes back late or never"),
    # Bytes.
    "rotated": Kind(
        56, "wire", "token, certificate or authority are replaced, and the old refused, with connections open"
    ),
    "mangled": Kind(
        57,
        "wire",
        "answers in single bytes, behind interim ones, cut, stalled, twice, in garbage; connections closed when idle",
    ),
    # Plans of shards.
    "plan_changed": Kind(
        46,
        "plans",
        "the sharding controller's ConfigMap changes, into one that can be used or not, goes, and comes",
    ),
    "shard_edited": Kind(
        47,
        "plans",
        "a planned shard is edited or deleted by hand, or comes to be somebody else's; others make some",
    ),
    "fleet_changed": Kind(48, "plans", "nodes come, go, are cordoned, lose Ready, and change their labels"),
    # Gangs and queues.
    "queue_changed": Kind(
        59,
        "gangs",
        "a queue is closed, its capability lowered, in mid-session too, or it goes and comes back",
    ),
    "members_deleted": Kind(
        60, "gangs", "members of a gang are deleted while a session goes on, and made again"
    ),
    "group_written": Kind(61, "gangs", "409: a PodGroup was written by others just before"),
    "groups_late": Kind(62, "gangs", "events of PodGroups and queues come seconds late, and twice"),
    # Gates.
    "webhook_down": Kind(
        63, "gates", "a pod comes without the gate that it asks for, as by failurePolicy Ignore"
    ),
    "webhook_lies": Kind(64, "gates", "a pod comes with the gate though it does not ask for it"),
    # Jobs.
    "job_changed": Kind(
        65, "jobs", "a Job is scaled, its minimum changes, or it is deleted and may come back"
    ),
    "job_commanded": Kind(66, "jobs", "a Job is told to abort, resume, restart, complete or terminate"),
    "pod_failed": Kind(67, "jobs", "a pod of a Job fails, or its containers were restarted"),
    # GPUs.
    "gpus_changed": Kind(68, "gpus", "a node loses GPUs, those in use too, or gains some"),
    "gpu_taken": Kind(69, "gpus", "another scheduler's pod takes GPUs, and says which, or not, or nonsense"),
    "gpu_index_edited": Kind(70, "gpus", "a user removes the annotation of a pod's GPUs, or writes another"),
    # Gates again.
    "webhook_slow": Kind(
        71,
        "webhook",
        "the webhook answers late: within its timeout, or beyond, by failurePolicy Ignore or Fail",
    ),
}


class Plan:
    """The dice. `strikes(name)` is one throw; it counts what fell.

    Invariant: nothing strikes at or after `ends`; `calm_at` is when the last effect of a fault is over.
    """

    def __init__(
        self, rng: random.Random, names: Iterable[str], *, ends: float, rates: Collection[float]
    ) -> None:
        self._rng = rng
        self.ends = ends
        self.calm_at = ends
        self.rates: dict[str, float] = {}
        choices = tuple(rates)
        for name in names:
            if name not in KINDS:
                raise ValueError(f"unknown fault {name!r}; known: {', '.join(KINDS)}")
            self.rates[name] = rng.choice(choices)
        self.fired: Counter[str] = Counter()

    def enabled(self, name: str) -> bool:
        return name in self.rates

    def strikes(self, name: str, *, now: float, share: float = 1.0) -> bool:
        """Whether fault `name` happens now; `share` scales its rate."""
        rate = self.rates.get(name)
        if rate is None or now >= self.ends or self._rng.random() >= rate * share:
            return False
        self.fired[name] += 1
        return True

    def happens(self, name: str, *, now: float) -> bool:
        """Whether fault `name` happens now that whoever asks has thrown dice of its own for it."""
        if not self.enabled(name) or now >= self.ends:
            return False
        self.fired[name] += 1
        return True

    def lasts(self, until: float) -> None:
        """An effect of a fault goes on until then."""
        self.calm_at = max(self.calm_at, until)


#: What can go wrong only where nodes are shared.
OF_SHARDS = tuple(name for name, kind in KINDS.items() if kind.where == "shards")
#: What can go wrong only where a process speaks HTTP.
OF_WIRE = tuple(name for name, kind in KINDS.items() if kind.where == "wire")
#: And where a controller plans who has which.
OF_PLANS = tuple(name for name, kind in KINDS.items() if kind.where == "plans")
#: And where pods come in gangs.
OF_GANGS = tuple(name for name, kind in KINDS.items() if kind.where == "gangs")
#: And where they have gates.
OF_GATES = tuple(name for name, kind in KINDS.items() if kind.where == "gates")
#: And where there are Jobs.
OF_JOBS = tuple(name for name, kind in KINDS.items() if kind.where == "jobs")
#: And where nodes have GPUs.
OF_GPUS = tuple(name for name, kind in KINDS.items() if kind.where == "gpus")
#: Kinds that are worst together: answers that are lost while the watch that would tell is late, for one.
THEMES: tuple[tuple[str, ...], ...] = (
    ("lost_after", "lost_before", "slow", "held_back", "unfair"),
    ("lost_after", "failed", "throttled", "cut", "stall", "duplicate"),
    ("lease", "stop", "failed", "throttled", "unfair"),
    ("crash", "sigterm", "lost_after", "slow", "held_back"),
    ("node_again", "node_changed", "node_vanished", "held_back", "missed_delete"),
    ("pod_deleted", "pod_changed", "recreated", "gone", "deleting", "gated", "unfair"),
    ("missed_delete", "stale_list", "gone_on_connect", "gone_in_stream", "garbage", "storm"),
    ("foreign", "bound_elsewhere", "denied", "no_connection", "held_back"),
    ("preemptor", "room_taken", "failed", "held_back", "crash", "node_changed"),
    ("preemptor", "denied", "lost_before", "lost_after", "slow", "recreated", "gone", "deleting"),
    ("reload", "crash", "stop", "lost_after", "failed", "node_changed", "unfair"),
    ("not_the_server", "lost_after", "slow", "held_back", "pod_deleted", "failed"),
    ("slow_credentials", "clocks_drift", "lease", "stop", "server_restarted", "crash"),
    ("unlistable", "lease", "stop", "server_restarted", "crash", "lagging"),
    ("lagging", "stale_list", "lost_after", "slow", "missed_delete", "gone_on_connect", "pod_deleted"),
    ("claim_taken", "claim_changed", "lost_after", "slow", "held_back", "pod_deleted"),
    ("claim_taken", "pool_changed", "class_changed", "crash", "failed", "denied", "bound_elsewhere"),
)
_ELSEWHERE = frozenset(
    (
        *(*OF_SHARDS, *OF_PLANS, *OF_GANGS, *OF_GATES, *OF_JOBS, *OF_GPUS, *OF_WIRE),
        *("rolled_back", "not_attached", "webhook_slow"),
    )
)
#: How many worlds have a store that goes back: it makes everybody start over, which leaves less time for all else.
_ROLLED_BACK = 0.1
#: And how many have drivers that fail, if their devices have to be made ready.
_NOT_ATTACHED = 0.5


def draw(
    rng: random.Random,
    *,
    only: Collection[str] = (),
    likely: Collection[str] = (),
    shards: bool = False,
    plans: bool = False,
    gangs: bool = False,
    gates: bool = False,
    jobs: bool = False,
    gpus: bool = False,
    wired: bool = False,
) -> list[str]:
    """The kinds of one world, in the order of `KINDS`: a theme, or some of all, and of those that are `likely` more.

    `shards`: the world has some, and what can go wrong with these is likely, too; `plans`: a controller plans them;
    `gangs`: pods come in gangs; `gates`: and have gates; `jobs`: there are Jobs;
    `gpus`: nodes have GPUs.
    """
    if only:
        return [name for name in KINDS if name in only]
    if rng.random() < 0.4:
        found = set(rng.choice(THEMES))
    else:
        wanted = rng.choice((0.0, 0.1, 0.2, 0.35, 0.6))
        found = {name for name in KINDS if name not in _ELSEWHERE and rng.random() < wanted}
    if found:
        found.update(name for name in likely if rng.random() < 0.5)
    if wired:
        found.update(name for name in OF_WIRE if rng.random() < 0.7)
    if shards:
        found.update(name for name in OF_SHARDS if rng.random() < 0.7)
    if plans:
        found.update(name for name in OF_PLANS if rng.random() < 0.7)
        # Nobody but the controller, and who meddles with it, moves nodes.
        found.discard("shards_changed")
    if gangs:
        found.update(name for name in OF_GANGS if rng.random() < 0.5)
        # The settings of sessions stay as they are.
        found.discard("reload")
    if gates:
        found.update(name for name in OF_GATES if rng.random() < 0.5)
    if jobs:
        found.update(name for name in OF_JOBS if rng.random() < 0.7)
    if gpus:
        found.update(name for name in OF_GPUS if rng.random() < 0.5)
    if found and rng.random() < _ROLLED_BACK:
        found.add("rolled_back")
    if found and rng.random() < _NOT_ATTACHED:
        found.add("not_attached")
    return [name for name in KINDS if name in found]
