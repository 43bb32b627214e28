"""Simulates several schedulers of one cluster with measured costs: a discrete-event model without clock or I/O.

Each scheduler is one server with a queue: it decides about its own pods, and reads every event of every pod and the
reports of all nodes, because the watches of all schedulers are the same. An event costs more if the process is idle
when it arrives, because events that arrive together are handled together. The API server has `lanes`, each of which
carries out one write at a time, and one queue that sends each event to every watch. `bench.sizing` has the costs.

A pod is created, assigned to a random scheduler, bound, reported twice by its kubelet, finished and deleted. Its
latency is from its creation to its bind. A scheduler knows its own assignments at once and those of others when its
watch delivers the bind, so in mode `soft` two may assign the last place of a node; the kubelet rejects the later pod.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import quantiles
from typing import Literal, NamedTuple

#: Watch events of a pod that a scheduler receives after the one of its creation: bound, two reports, finished.
_LATER_EVENTS = 4
#: Seconds from the bind to the two reports of a kubelet.
_STARTING, _RUNNING = 0.2, 0.5


class EventCost(NamedTuple):
    """CPU seconds of an event for a process that is idle when it arrives, and for one that is busy."""

    idle: float
    busy: float


NOTHING = EventCost(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """The API server. `writes` are seconds of a write with their shares; `lanes` writes are carried out at a time."""

    lanes: int
    writes: tuple[tuple[float, float], ...]
    #: Seconds in which an event is sent to one watch.
    fan_out: float
    #: Watches of pods besides those of the schedulers.
    others: int = 0

    @property
    def writes_per_second(self) -> float:
        return self.lanes / sum(seconds * share for seconds, share in self.writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWorld:
    """A cluster, its schedulers and its load. `own` and `foreign` are the costs of a pod's whole life."""

    shards: int
    own: EventCost
    foreign: EventCost
    plane: Plane
    rate: float
    seconds: float
    mode: Literal["soft", "hard"] = "hard"
    #: Pods that arrive at one moment.
    wave: int = 1
    #: Mean seconds that a pod runs; the lives are distributed exponentially.
    life: float = 10.0
    nodes: int = 1000
    #: Free places for the pods of this load in the whole cluster, spread evenly over the nodes.
    places: int = 1_000_000
    #: Reports of nodes per second, and the cost of one.
    reports: float = 0.0
    report: EventCost = NOTHING
    #: Concurrent binds of a scheduler.
    bind_concurrency: int = 64
    seed: int = 1


class ShardResult(NamedTuple):
    """The outcome. Rates are per second, latencies in seconds; utilizations are shares until the last arrival."""

    pods: int
    bound: int
    #: Pods beyond the capacity of their node.
    rejected: int
    #: Pods for which the nodes that their scheduler may use had no room at first.
    delayed: int
    pods_per_second: float
    p50: float
    p99: float
    busiest: float
    mean: float
    plane: float
    events_per_second: float


class _Places:
    """The free places of all nodes: as they are, and as schedulers know them."""

    def __init__(self, world: ShardWorld, chance: random.Random) -> None:
        each, rest = divmod(world.places, world.nodes)
        self._room = [each + (node < rest) for node in range(world.nodes)]
        self._taken = [0] * world.nodes
        #: What every scheduler knows of, and what one scheduler knows beyond that.
        self._seen = [0] * world.nodes
        self._mine: dict[tuple[int, int], int] = {}
        self._shards = world.shards
        self._soft = world.mode == "soft"
        self._chance = chance
        #: Nodes of each shard with free places by what all know, and the place of a node in its list.
        self._open: list[list[int]] = [[] for _ in range(world.shards)]
        self._at: dict[int, int] = {}
        for node in range(world.nodes):
            if self._room[node]:
                self._put(node)

    def choose(self, scheduler: int) -> int | None:
        """Return a random node that has a free place as far as the scheduler knows; None if it may use no such node."""
        others = [shard for shard in range(self._shards) if shard != scheduler] if self._soft else []
        self._chance.shuffle(others)
        for shard in (scheduler, *others):
            nodes = self._open[shard]
            # Where many nodes are free the first attempt succeeds; else look at all, from a random one on.
            begin = self._chance.randrange(len(nodes)) if nodes else 0
            for step in range(len(nodes)):
                node = nodes[(begin + step) % len(nodes)]
                if self._seen[node] + self._mine.get((scheduler, node), 0) < self._room[node]:
                    return node
        return None

    def take(self, scheduler: int, node: int) -> bool:
        """Assign a place; return False if the node has none, so that its kubelet will reject the pod."""
        self._mine[scheduler, node] = self._mine.get((scheduler, node), 0) + 1
        if self._taken[node] >= self._room[node]:
            return False
        self._taken[node] += 1
        return True

    def show(self, scheduler: int, node: int) -> None:
        """Record that every scheduler knows of the pod."""
        self._seen[node] += 1
        self._mine[scheduler, node] -= 1
        if not self._mine[scheduler, node]:
            del self._mine[scheduler, node]
        if self._seen[node] >= self._room[node] and node in self._at:
            nodes, place = self._open[node % self._shards], self._at.pop(node)
            last = nodes.pop()
            if last != node:
                nodes[place], self._at[last] = last, place

    def free(self, node: int, *, fits: bool) -> None:
        """Record the end of a pod; a pod that did not fit has taken no place."""
        self._taken[node] -= fits
        self._seen[node] -= 1
        if node not in self._at and self._seen[node] < self._room[node]:
            self._put(node)

    def _put(self, node: int) -> None:
        nodes = self._open[node % self._shards]
        self._at[node] = len(nodes)
        nodes.append(node)


@dataclass(slots=True)
class _Scheduler:
    in_flight: int = 0
    decided: deque[tuple[int, bool, float]] = field(default_factory=deque)
    waiting: deque[float] = field(default_factory=deque)


class _Simulation:
    def __init__(self, world: ShardWorld) -> None:
        self.world = world
        self.chance = random.Random(world.seed)
        self.places = _Places(world, self.chance)
        self.schedulers = [_Scheduler() for _ in range(world.shards)]
        self.until = [0.0] * world.shards
        self.spent = [0.0] * world.shards
        self.durations = [seconds for seconds, _ in world.plane.writes]
        self.shares = [share for _, share in world.plane.writes]
        self.lanes = [0.0] * world.plane.lanes
        self.served = 0.0
        self.sent_until = 0.0
        self.events = 0
        self.agenda: list[tuple[float, int, Callable[[float], object]]] = []
        self.count = 0
        self.latencies: list[float] = []
        self.last_bind = 0.0
        self.rejected = self.delayed = 0
        later = world.foreign.idle / (_LATER_EVENTS + 1), world.foreign.busy / (_LATER_EVENTS + 1)
        self.event = EventCost(*later)
        self.decision = EventCost(world.own.idle - _LATER_EVENTS * later[0], world.own.busy - _LATER_EVENTS * later[1])

    def at(self, moment: float, do: Callable[[float], object]) -> None:
        self.count += 1
        heapq.heappush(self.agenda, (moment, self.count, do))

    def write(self, now: float) -> float:
        """Carry out a write; return when it is done."""
        (seconds,) = self.chance.choices(self.durations, self.shares)
        done = max(now, heapq.heappop(self.lanes)) + seconds
        heapq.heappush(self.lanes, done)
        self.served += seconds
        return done

    def deliver(self, now: float, cost: EventCost, owner: int = -1, decision: EventCost | None = None) -> float:
        """Send an event to all watches; return when the owner's process has handled it."""
        watches = self.world.shards + self.world.plane.others
        self.events += watches
        now = self.sent_until = max(self.sent_until, now) + watches * self.world.plane.fan_out
        for scheduler, until in enumerate(self.until):
            its = decision if decision is not None and scheduler == owner else cost
            took = its.busy if until > now else its.idle
            self.until[scheduler] = max(until, now) + took
            self.spent[scheduler] += took
        return self.until[owner]

    def arrive(self, now: float) -> None:
        owner = self.chance.randrange(self.world.shards)
        self.at(self.write(now), lambda created: self.created(created, owner))

    def created(self, now: float, owner: int) -> None:
        handled = self.deliver(now, self.event, owner, self.decision)
        self.at(handled, lambda decided: self.decide(decided, owner, now))

    def decide(self, now: float, owner: int, created: float, *, again: bool = False) -> None:
        node = self.places.choose(owner)
        if node is None:
            self.delayed += not again
            self.schedulers[owner].waiting.append(created)
            return
        self.schedulers[owner].decided.append((node, self.places.take(owner, node), created))
        self.send(now, owner)

    def send(self, now: float, owner: int) -> None:
        scheduler = self.schedulers[owner]
        while scheduler.decided and scheduler.in_flight < self.world.bind_concurrency:
            scheduler.in_flight += 1
            self.at(self.write(now), partial(self.bound, owner, *scheduler.decided.popleft()))

    def bound(self, owner: int, node: int, fits: bool, created: float, now: float) -> None:
        self.schedulers[owner].in_flight -= 1
        self.send(now, owner)
        # The event that tells users.
        self.write(now)
        self.last_bind = now
        self.latencies.append(now - created)
        seen = self.deliver(now, self.event, owner)
        self.at(seen, lambda _: self.places.show(owner, node))
        if not fits:
            self.rejected += 1
            self.at(seen + _STARTING, lambda at: self.finish(at, owner, node, fits=False))
            return
        life = _RUNNING + self.chance.expovariate(1 / self.world.life)
        self.at(now + _STARTING, lambda at: self.reported(at, owner))
        self.at(now + _RUNNING, lambda at: self.reported(at, owner))
        self.at(seen + life, lambda at: self.finish(at, owner, node, fits=True))

    def reported(self, now: float, owner: int) -> None:
        self.at(self.write(now), lambda done: self.deliver(done, self.event, owner))

    def finish(self, now: float, owner: int, node: int, *, fits: bool) -> None:
        def finished(done: float) -> None:
            self.write(done)  # the deletion, of which the watch of running pods receives nothing
            self.at(self.deliver(done, self.event, owner), freed)

        def freed(at: float) -> None:
            self.places.free(node, fits=fits)
            for number in (owner, *range(self.world.shards)):
                waiting = self.schedulers[number].waiting
                if waiting and (node % self.world.shards == number or self.world.mode == "soft"):
                    created = waiting.popleft()
                    self.decide(at, number, created, again=True)
                    break

        self.at(self.write(now), finished)

    def run(self) -> ShardResult:
        world = self.world
        moment, pods = 0.0, 0
        while (moment := moment + self.chance.expovariate(world.rate / world.wave)) < world.seconds:
            for _ in range(world.wave):
                self.at(moment, self.arrive)
            pods += world.wave
        for number in range(round(world.reports * world.seconds)):
            self.at(number / world.reports, lambda now: self.deliver(now, world.report))
        used: list[float] = []
        plane = events = 0.0
        while self.agenda:
            now, _, do = heapq.heappop(self.agenda)
            if not used and now >= world.seconds:
                used = [
                    (spent - max(0.0, until - world.seconds)) / world.seconds
                    for spent, until in zip(self.spent, self.until, strict=True)
                ]
                late = sum(max(0.0, lane - world.seconds) for lane in self.lanes)
                plane = (self.served - late) / (world.seconds * world.plane.lanes)
                events = self.events / world.seconds
            do(now)
        ranks = quantiles(self.latencies, n=100)
        return ShardResult(
            pods=pods,
            bound=len(self.latencies) - self.rejected,
            rejected=self.rejected,
            delayed=self.delayed,
            pods_per_second=len(self.latencies) / max(self.last_bind, world.seconds),
            p50=ranks[49],
            p99=ranks[98],
            busiest=max(used),
            mean=sum(used) / len(used),
            plane=plane,
            events_per_second=events,
        )


def simulate(world: ShardWorld) -> ShardResult:
    """Simulate the world until its last pod is finished. Equal worlds have equal results."""
    return _Simulation(world).run()


def most_pods(world: ShardWorld) -> float:
    """Return the pods per second at which all schedulers are always busy, if the API server is no limit."""
    for_pods = 1 - world.reports * world.report.busy
    return for_pods * world.shards / (world.own.busy + (world.shards - 1) * world.foreign.busy)
