"""Who plans the shards while they are used, and what else happens to them. Its own requests never fail."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from embedded_kubernetes.requests import Request

from .scenarios import pod
from .shard_load import FENCE, PEER
from .shard_map import MERGE, PATH, Names, ShardMap

if TYPE_CHECKING:
    from .processes import Process
    from .world import World

NODES = ("", "nodes")
#: Seconds after which a process that has died comes back; None: never.
_BACK_AFTER = (5.0, 20.0, 40.0, 100.0, None, None)
_LEASE = 15.0
#: Seconds for which one stands still instead: longer than a lease, or than lease and fence.
_STOPS = (20.0, 100.0)


class ShardNemesis:
    """An administrator who cannot make up his mind, and the scheduler of `PEER`."""

    def __init__(self, world: World, shards: ShardMap) -> None:
        self._world = world
        self._shards = shards
        self._rng = random.Random(f"{world.seed} shard nemesis")
        #: Seconds between two changes of the map, and when the next one is.
        self._pace = self._rng.choice((0.3, 1.0, 3.0))
        self._next_change = 0.0
        self._stamps = 0
        self._asked = 0
        #: Scheduler -> until when its binds hang.
        self._hanging: dict[str, float] = {}
        if shards.shape.peer:
            shards.subscribers.append(lambda _event: self._peer_looks())
        self._peer_is_awake = False

    def strike(self) -> None:
        """Throw the dice once for each kind."""
        plan, now = self._world.plan, self._world.loop.time()
        if self._shards.is_known and now >= self._next_change and plan.happens("shards_changed", now=now):
            self._next_change = now + self._rng.expovariate(1 / self._pace)
            self._change()
        for process in self._world.processes:
            if plan.strikes("owner_gone", now=now, share=0.3):
                self._take_away(process)

    # -- processes

    def _take_away(self, process: Process) -> None:
        if not process.is_wanted:
            return
        if self._shards.is_known and len(list(self._shards.all())) > 1 and self._rng.random() < 0.5:
            self._later(self._rng.uniform(0.0, 5.0), *self._heir(process.scheduler))
        self._leave(process)

    def _leave(self, process: Process) -> None:
        """It ends, or stands still, for some time or for good."""
        how = self._rng.choice(("killed", "killed", "asked to end", "stopped"))
        if how == "stopped":
            self._world.stop(process, self._rng.choice(_STOPS))
            return
        back = self._rng.choice(_BACK_AFTER)
        if back is None and self._shards.shape.all_return:
            back = 100.0
        process.leave(why=f"{how}, and comes back after {back} s", kill=how == "killed")
        world = self._world
        if back is None:
            world.plan.lasts(world.loop.time() + _LEASE + FENCE)
        else:
            world.plan.lasts(world.loop.time() + back)
            world.loop.call_later(back, process.come_back)

    def _heir(self, scheduler: str) -> tuple[str, Names]:
        """Another shard, and what that desires when the nodes of this one are to be its, too."""
        heir = self._rng.choice([each.name for each in self._shards.all() if each.name != scheduler])
        found = self._shards.get(scheduler)
        return heir, self._desired(heir) | (frozenset() if found is None else found.in_use)

    # -- the map

    def _change(self) -> None:
        change = self._rng.choice(
            (
                self._share_out,
                *(self._move, self._move, self._swap, self._swap),
                *(self._move_busy, self._move_busy, self._move_busy, self._move_busy),
                *(self._overlap, self._empty, self._unknown, self._delete, self._all_to_one),
            )
        )
        if len(list(self._shards.all())) > 1:
            covered = frozenset().union(*(each.desired for each in self._shards.all()))
            if len(covered.intersection(self._nodes())) < len(self._nodes()) / 2:
                # What was moved to and fro by several hands at a time has been lost on the way.
                change = self._share_out
            change()

    def _pair(self) -> tuple[str, str]:
        """Two of the shards that there are."""
        one, other = self._rng.sample([each.name for each in self._shards.all()], 2)
        return one, other

    def _desired(self, name: str) -> Names:
        found = self._shards.get(name)
        return frozenset() if found is None else found.desired

    def _some(self, nodes: Names) -> Names:
        ordered = sorted(nodes)
        return frozenset(self._rng.sample(ordered, self._rng.randint(1, len(ordered)))) if ordered else nodes

    def _set(self, wanted: dict[str, Names]) -> None:
        """One write each, in any order, some time apart: in between nodes are desired by two, or by nobody."""
        at = 0.0
        for name in self._rng.sample(sorted(wanted), len(wanted)):
            self._later(at, name, wanted[name])
            at += self._rng.choice((0.0, 0.001, 0.05, 1.0, 5.0))

    def _later(self, seconds: float, name: str, nodes: Names) -> None:
        if not seconds:
            self._shards.desire(name, nodes)
            return
        self._world.plan.lasts(self._world.loop.time() + seconds)
        self._world.loop.call_later(seconds, self._shards.desire, name, nodes)

    def _move(self) -> None:
        one, other = self._pair()
        mine, theirs = self._desired(one), self._desired(other)
        some = self._some(mine)
        self._set({one: mine - some, other: theirs | some})

    def _move_busy(self) -> None:
        """One node moves while its old owner binds pods to it, and its new one has pods that can go nowhere else."""
        busy = [
            each
            for each in self._shards.all()
            if each.desired & each.in_use and self._shards.works(each.name)
        ]
        if not busy:
            return
        found = self._rng.choice(busy)
        one = found.name
        other = self._rng.choice([each.name for each in self._shards.all() if each.name != one])
        node = self._rng.choice(sorted(found.desired & found.in_use))
        self._ask_for(node, one)
        self._ask_for(node, other)
        rest, more = found.desired - {node}, self._desired(other) | {node}
        self._world.loop.call_later(self._rng.uniform(0.0, 0.03), self._set, {one: rest, other: more})
        if self._world.plan.strikes("slow", now=self._world.loop.time(), share=10.0):
            self._hanging[one] = self._world.loop.time() + 0.1
        if self._world.plan.strikes("owner_gone", now=self._world.loop.time(), share=3.0):
            for process in self._shards.processes(one):
                self._world.loop.call_later(self._rng.uniform(0.0, 0.06), self._lose, process)

    def _lose(self, process: Process) -> None:
        """It dies in the middle of that, and is there again soon or never."""
        if self._rng.random() < 0.6:
            process.kill()
        else:
            self._take_away(process)

    def _ask_for(self, node: str, scheduler: str) -> None:
        """Some pods that can only go to one node."""
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        for _ in range(self._rng.randint(1, 3) if scheduler != PEER else 0):
            self._asked += 1
            body = pod(
                f"asked-{self._asked}",
                cpu=self._rng.choice((50, 1000)),
                lives=self._rng.choice((0.5, 2.0, 5.0)),
                schedulerName=scheduler,
                affinity={"nodeAffinity": required},
            )
            self._world.call("POST", "/api/v1/namespaces/default/pods", body)

    def _swap(self) -> None:
        one, other = self._pair()
        self._set({one: self._desired(other), other: self._desired(one)})

    def _overlap(self) -> None:
        one, other = self._pair()
        mine = self._desired(other)
        self._shards.desire(other, mine | self._some(self._desired(one)))
        if self._rng.random() < 0.5:
            self._later(self._rng.uniform(0.01, 8.0), other, mine)

    def _empty(self) -> None:
        name, _ = self._pair()
        nodes = self._desired(name)
        self._shards.desire(name, frozenset())
        self._later(self._rng.uniform(0.01, 8.0), name, nodes)

    def _unknown(self) -> None:
        """A node that is not there, or no longer."""
        name, _ = self._pair()
        self._shards.desire(name, self._desired(name) | {f"none-{self._rng.randrange(3)}"})

    def _all_to_one(self) -> None:
        everything = frozenset(self._nodes())
        chosen, _ = self._pair()
        self._set(
            {each.name: everything if each.name == chosen else frozenset() for each in self._shards.all()}
        )

    def _share_out(self) -> None:
        """Each node to one of them."""
        wanted: dict[str, set[str]] = {each.name: set() for each in self._shards.all()}
        for node in self._nodes():
            wanted[self._rng.choice(list(wanted))].add(node)
        self._set({name: frozenset(nodes) for name, nodes in wanted.items()})

    def _nodes(self) -> list[str]:
        return [each.name for each in self._world.store.tables[NODES].scan("")]

    def _delete(self) -> None:
        name, _ = self._pair()
        nodes = self._desired(name)
        self._shards.delete(name)
        again = self._rng.choice((0.0, 0.01, 0.5, 4.0))
        self._world.plan.lasts(self._world.loop.time() + again)
        if again:
            self._world.loop.call_later(again, self._shards.create, name, sorted(nodes))
        else:
            self._shards.create(name, sorted(nodes))

    # -- in the way of a write

    def bind_hangs(self, process: Process) -> bool:
        """Whether a bind that it sends now is carried out when everybody has given it up."""
        return self._world.loop.time() < self._hanging.get(process.scheduler, 0.0)

    def status_hangs(self, process: Process) -> bool:
        """Whether a status that is sent now is carried out when its sender has long been dead."""
        if not self._world.plan.strikes("crash", now=self._world.loop.time(), share=2.0):
            return False
        self._world.loop.call_later(self._rng.uniform(0.0, 0.002), process.kill)
        return True

    def trouble(self, process: Process) -> str:
        """What goes wrong with every write of a shard that it sends now."""
        return ""

    def shard_written(self, asked: Request) -> None:
        """Somebody else writes the shard just before."""
        name = asked.path.removesuffix("/status").rpartition("/")[2]
        self._stamps += 1
        note = {"metadata": {"annotations": {"example.com/stamp": str(self._stamps)}}}
        self._world.call("PATCH", f"{PATH}/{name}", note, MERGE)

    # -- a scheduler without a lease

    def _peer_looks(self) -> None:
        if not self._peer_is_awake:
            self._peer_is_awake = True
            self._world.plan.lasts(self._world.loop.time() + 2.0)
            self._world.loop.call_later(self._rng.uniform(0.0, 2.0), self._peer_acts)

    def _peer_acts(self) -> None:
        """It uses what its shard desires and nobody else uses, from the moment that it says so."""
        self._peer_is_awake = False
        own = self._shards.get(PEER)
        if own is None:
            return
        others: Names = frozenset().union(*(each.in_use for each in self._shards.all() if each.name != PEER))
        in_use = own.desired - (others - own.in_use)
        if in_use == own.in_use and own.to_add == own.desired - in_use and own.updated:
            return
        status: dict[str, Any] = {
            "lastUpdateTime": self._world.time_of_day().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "nodesInUse": sorted(in_use),
            "nodesToAdd": sorted(own.desired - in_use),
            "nodesToRemove": [],
        }
        self._world.call("PATCH", f"{PATH}/{PEER}/status", {"status": status}, MERGE)
