"""All kinds of faults of a world, by name, and the random generator that decides when they occur.

A world draws a few kinds and how often each occurs (swarm testing: a run in which everything fails at once reaches
fewer states than many runs that fail in few ways). Faults end at a set time, and their effects soon after: from then on
the world must come to rest (see `liveness`).

To add a fault: add a line to `KINDS`, call `Plan.strikes` for it where it happens (network.py for requests and watches,
nemesis.py for objects and processes), and name in states.py what a run with it must have reached.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from .api import Json, objects
from .kinds import World

#: All kinds, in the order in which they are drawn. docs/reliability.md describes them.
KINDS = (
    # Requests: the state that the server finds, or what happens to the request.
    *("bound_elsewhere", "recreated", "gone", "deleting", "gated", "denied", "throttled", "failed"),
    *("lost_before", "lost_after", "slow", "node_vanished", "not_the_server", "slow_credentials"),
    # Watches and lists.
    *("cut", "gone_on_connect", "gone_in_stream", "stale_list", "held_back", "missed_delete", "duplicate"),
    *("stall", "garbage", "storm", "lagging", "unlistable", "server_restarted", "rolled_back"),
    # Objects.
    *("group_changed", "node_again", "node_changed", "pod_deleted", "pod_changed", "foreign"),
    # Processes.
    *("crash", "sigterm", "lease", "stop", "clock_jump", "clocks_drift", "unfair", "no_connection"),
    *("preemptor", "room_taken", "reload"),
    # Claims and devices.
    *("claim_taken", "claim_changed", "pool_changed", "class_changed", "not_attached"),
    *("shards_changed", "shard_written", "owner_gone", "rotated", "mangled"),
    *("plan_changed", "shard_edited", "fleet_changed"),
    *("queue_changed", "members_deleted", "group_written", "groups_late", "webhook_down", "webhook_lies"),
    *("job_changed", "job_commanded", "pod_failed", "gpus_changed", "gpu_taken", "gpu_index_edited"),
    "webhook_slow",
)
#: Faults that occur only in worlds of a family, each with this probability. The families: processes speak HTTP; nodes
#: are shared; a controller plans the shards; pods are in gangs; pods have gates; there are Jobs; nodes have GPUs.
FAMILIES: dict[str, tuple[float, tuple[str, ...]]] = {
    "wired": (0.7, ("rotated", "mangled")),
    "shards": (0.7, ("shards_changed", "shard_written", "owner_gone")),
    "plans": (0.7, ("plan_changed", "shard_edited", "fleet_changed")),
    "gangs": (0.5, ("group_changed", "queue_changed", "members_deleted", "group_written", "groups_late")),
    "gates": (0.5, ("webhook_down", "webhook_lies")),
    "jobs": (0.7, ("job_changed", "job_commanded", "pod_failed")),
    "gpus": (0.5, ("gpus_changed", "gpu_taken", "gpu_index_edited")),
}
#: Faults that do not occur in a family: only the controller, and clients that change its shards, move nodes; and the
#: settings of sessions do not change.
_NOT_IN = {"plans": "shards_changed", "gangs": "reload"}


class Plan:
    """The random faults of a world. `strikes(name)` draws once, and counts what occurs.

    Invariant: nothing occurs at or after `ends`; `calm_at` is when the last effect of a fault is over.
    """

    def __init__(self, rng: random.Random, names: Iterable[str], *, ends: float, rates: Sequence[float]) -> None:
        self._rng = rng
        self.ends = self.calm_at = ends
        self.rates: dict[str, float] = {}
        for name in names:
            if name not in KINDS:
                raise ValueError(f"unknown fault {name!r}; known: {', '.join(KINDS)}")
            self.rates[name] = rng.choice(rates)
        self.fired: Counter[str] = Counter()

    def enabled(self, name: str) -> bool:
        return name in self.rates

    def strikes(self, name: str, *, now: float, share: float = 1.0) -> bool:
        """Return whether fault `name` happens now; `share` scales its rate."""
        rate = self.rates.get(name)
        if rate is None or now >= self.ends or self._rng.random() >= rate * share:
            return False
        return self.happens(name, now=now)

    def happens(self, name: str, *, now: float) -> bool:
        """Return whether fault `name` is enabled now and count it; the caller has drawn for it."""
        if not self.enabled(name) or now >= self.ends:
            return False
        self.fired[name] += 1
        return True

    def lasts(self, until: float) -> None:
        """Record that an effect of a fault lasts until then."""
        self.calm_at = max(self.calm_at, until)


#: Kinds that are worst together, such as lost responses while the watch that would deliver the outcome is late.
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
_ELSEWHERE = {name for _, names in FAMILIES.values() for name in names}
_ELSEWHERE |= {"rolled_back", "not_attached", "webhook_slow"}
#: Share of worlds whose store goes back: all processes then start over, which leaves less time for everything else.
_ROLLED_BACK = 0.1
#: Share of worlds with failing drivers, if their devices must be made ready.
_NOT_ATTACHED = 0.5


def draw(
    rng: random.Random, *, only: Collection[str] = (), likely: Collection[str] = (), families: Collection[str] = ()
) -> list[str]:
    """Draw the kinds of one world, in the order of `KINDS`: a theme, or some of all, with more of the `likely` ones.

    `families`: those of the world, whose own faults become likely.
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
    for family, (chance, names) in FAMILIES.items():
        if family in families:
            found.update(name for name in names if rng.random() < chance)
            found.discard(_NOT_IN.get(family, ""))
    if found and rng.random() < _ROLLED_BACK:
        found.add("rolled_back")
    if found and rng.random() < _NOT_ATTACHED:
        found.add("not_attached")
    return [name for name in KINDS if name in found]


class FaultMaker:
    """A client that changes objects or processes of a world, with its own random generator.

    Its requests never fail.
    """

    #: Kinds that methods of their names carry out whenever they occur -> factor of their rate.
    shares: Mapping[str, float] = {}

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed} {name}")
        self._call = world.call
        self._reached = world.states.reached

    def strike(self) -> None:
        """Draw once for each kind."""
        for name, share in self.shares.items():
            if self._strikes(name, share):
                getattr(self, name)()

    def _strikes(self, name: str, share: float = 1.0) -> bool:
        return self._world.plan.strikes(name, now=self._now, share=share)

    def _objects(self, kind: tuple[str, str], namespace: str = "") -> list[Json]:
        return objects(self._world.store, kind, namespace)

    @property
    def _now(self) -> float:
        return self._world.loop.time()

    def _soon(self, act: Callable[[], object]) -> None:
        """Call `act` after a short random delay."""
        self._world.loop.call_later(self._rng.choice((0.0, 0.0005, 0.003, 0.02)), act)

    def _later(self, seconds: float, act: Callable[..., object], *about: Any) -> None:
        self._world.plan.lasts(self._now + seconds)
        self._world.loop.call_later(seconds, act, *about)

    def _call_later(self, seconds: float, *about: Any) -> None:
        self._later(seconds, self._call, *about)
