"""Changes shards while they are used, and the objects of a controller that plans them. Its requests never fail.

`ShardNemesis` plans the shards itself. `PlanNemesis` changes the controller's configuration, the nodes, and the
controller's shards.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import orjson

from agent_scheduler.controllers.sharding.store import OWNER, OWNER_LABEL
from embedded_kubernetes.requests import Request

from .api import NODES, PODS_PATH, Json, is_named, name_of, pod
from .faults import FaultMaker
from .kinds import Process, World
from .shard_load import FENCE, PEER, WARM, unusable, usable
from .shard_map import SHARDS_PATH, Names, PlanMap, ShardMap

#: Seconds after which a process that has died returns; None: never.
_BACK_AFTER = (5.0, 20.0, 40.0, 100.0, None, None)
_LEASE = 15.0
#: Seconds for which a process is stopped instead: longer than a lease, or than lease and fence.
_STOPS = (20.0, 100.0)


class ShardNemesis(FaultMaker):
    """An administrator who keeps changing the shards, and the scheduler of `PEER`."""

    def __init__(self, world: World, shards: ShardMap) -> None:
        super().__init__(world, "shard nemesis")
        self._shards = shards
        #: Seconds between two changes of the shards, and the time of the next one.
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
        """Draw once for each kind."""
        plan, now = self._world.plan, self._now
        if self._shards.is_known and now >= self._next_change and plan.happens("shards_changed", now=now):
            self._next_change = now + self._rng.expovariate(1 / self._pace)
            self._change()
        for process in self._world.processes:
            if self._strikes("owner_gone", 0.3):
                self._take_away(process)

    # -- processes

    def _take_away(self, process: Process) -> None:
        if not process.is_wanted:
            return
        if self._shards.is_known and len(list(self._shards.all())) > 1 and self._rng.random() < 0.5:
            self._desire_later(self._rng.uniform(0.0, 5.0), *self._heir(process.scheduler))
        self._leave(process)

    def _leave(self, process: Process) -> None:
        """End or stop the process, for some time or permanently."""
        how = self._rng.choice(("killed", "killed", "asked to end", "stopped"))
        if how == "stopped":
            self._world.stop(process, self._rng.choice(_STOPS))
            return
        back = self._rng.choice(_BACK_AFTER)
        if back is None and self._shards.shape.all_return:
            back = 100.0
        process.leave(why=f"{how}, and comes back after {back} s", kill=how == "killed")
        if back is None:
            self._world.plan.lasts(self._now + _LEASE + FENCE)
        else:
            self._later(back, process.come_back)

    def _heir(self, scheduler: str) -> tuple[str, Names]:
        """Return another shard, and what it desires if it also gets the nodes of this one."""
        heir = self._rng.choice([each.name for each in self._shards.all() if each.name != scheduler])
        found = self._shards.get(scheduler)
        return heir, self._desired(heir) | (frozenset() if found is None else found.in_use)

    # -- the shards

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
                # Changes of several kinds at a time have lost some nodes.
                change = self._share_out
            change()

    def _pair(self) -> tuple[str, str]:
        """Return two of the existing shards."""
        one, other = self._rng.sample([each.name for each in self._shards.all()], 2)
        return one, other

    def _desired(self, name: str) -> Names:
        found = self._shards.get(name)
        return frozenset() if found is None else found.desired

    def _some(self, nodes: Names) -> Names:
        ordered = sorted(nodes)
        return frozenset(self._rng.sample(ordered, self._rng.randint(1, len(ordered)))) if ordered else nodes

    def _set(self, wanted: dict[str, Names]) -> None:
        """Write each shard once, in any order, with pauses in which two shards or none desire a node."""
        at = 0.0
        for name in self._rng.sample(sorted(wanted), len(wanted)):
            self._desire_later(at, name, wanted[name])
            at += self._rng.choice((0.0, 0.001, 0.05, 1.0, 5.0))

    def _desire_later(self, seconds: float, name: str, nodes: Names) -> None:
        if seconds:
            self._later(seconds, self._shards.desire, name, nodes)
        else:
            self._shards.desire(name, nodes)

    def _move(self) -> None:
        one, other = self._pair()
        mine, theirs = self._desired(one), self._desired(other)
        some = self._some(mine)
        self._set({one: mine - some, other: theirs | some})

    def _move_busy(self) -> None:
        """Move a node while its old owner binds pods to it, and its new one has pods that fit only there."""
        shards = self._shards
        busy = [each for each in shards.all() if each.desired & each.in_use and shards.works(each.name)]
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
        if self._strikes("slow", 10.0):
            self._hanging[one] = self._now + 0.1
        if self._strikes("owner_gone", 3.0):
            for process in self._shards.processes(one):
                self._world.loop.call_later(self._rng.uniform(0.0, 0.06), self._lose, process)

    def _lose(self, process: Process) -> None:
        """Kill the process during the change; it returns soon or never."""
        if self._rng.random() < 0.6:
            process.kill()
        else:
            self._take_away(process)

    def _ask_for(self, node: str, scheduler: str) -> None:
        """Create some pods that fit only one node."""
        term = {"matchFields": [is_named(node)]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        for _ in range(self._rng.randint(1, 3) if scheduler != PEER else 0):
            self._asked += 1
            cpu, lives = self._rng.choice((50, 1000)), self._rng.choice((0.5, 2.0, 5.0))
            more = {"schedulerName": scheduler, "affinity": {"nodeAffinity": required}}
            self._call("POST", PODS_PATH, pod(f"asked-{self._asked}", cpu=cpu, lives=lives, **more))

    def _swap(self) -> None:
        one, other = self._pair()
        self._set({one: self._desired(other), other: self._desired(one)})

    def _overlap(self) -> None:
        one, other = self._pair()
        mine = self._desired(other)
        self._shards.desire(other, mine | self._some(self._desired(one)))
        if self._rng.random() < 0.5:
            self._desire_later(self._rng.uniform(0.01, 8.0), other, mine)

    def _empty(self) -> None:
        name, _ = self._pair()
        nodes = self._desired(name)
        self._shards.desire(name, frozenset())
        self._desire_later(self._rng.uniform(0.01, 8.0), name, nodes)

    def _unknown(self) -> None:
        """Let a shard desire a node that does not exist, or no longer."""
        name, _ = self._pair()
        self._shards.desire(name, self._desired(name) | {f"none-{self._rng.randrange(3)}"})

    def _all_to_one(self) -> None:
        everything = frozenset(self._nodes())
        chosen, _ = self._pair()
        shards = self._shards.all()
        self._set({each.name: everything if each.name == chosen else frozenset() for each in shards})

    def _share_out(self) -> None:
        """Assign each node to one shard."""
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
        self._world.plan.lasts(self._now + again)
        if again:
            self._world.loop.call_later(again, self._shards.create, name, sorted(nodes))
        else:
            self._shards.create(name, sorted(nodes))

    # -- before a write

    def bind_hangs(self, process: Process) -> bool:
        """Return whether a bind that the process sends now is carried out after all processes have given it up."""
        return self._now < self._hanging.get(process.scheduler, 0.0)

    def status_hangs(self, process: Process) -> bool:
        """Return whether a status that the process sends now is carried out long after its death."""
        if not self._strikes("crash", 2.0):
            return False
        self._world.loop.call_later(self._rng.uniform(0.0, 0.002), process.kill)
        return True

    def trouble(self, process: Process) -> str:
        """Return the fault of all writes of shards that the process sends now; empty for none."""
        return ""

    def shard_written(self, asked: Request) -> None:
        """Write the shard just before the process does."""
        name = asked.path.removesuffix("/status").rpartition("/")[2]
        self._stamps += 1
        note = {"metadata": {"annotations": {"example.com/stamp": str(self._stamps)}}}
        self._call("PATCH", f"{SHARDS_PATH}/{name}", note)

    # -- a scheduler without a lease

    def _peer_looks(self) -> None:
        if not self._peer_is_awake:
            self._peer_is_awake = True
            self._world.plan.lasts(self._now + 2.0)
            self._world.loop.call_later(self._rng.uniform(0.0, 2.0), self._peer_acts)

    def _peer_acts(self) -> None:
        """Use what the shard desires and no other shard uses, from the moment that the status is written."""
        self._peer_is_awake = False
        own = self._shards.get(PEER)
        if own is None:
            return
        others: Names = frozenset().union(*(each.in_use for each in self._shards.all() if each.name != PEER))
        in_use = own.desired - (others - own.in_use)
        if in_use == own.in_use and own.to_add == own.desired - in_use and own.updated:
            return
        nodes = {"nodesInUse": in_use, "nodesToAdd": own.desired - in_use, "nodesToRemove": ()}
        status = {"lastUpdateTime": self._world.timestamp()}
        status |= {key: sorted(those) for key, those in nodes.items()}
        self._call("PATCH", f"{SHARDS_PATH}/{PEER}/status", {"status": status})


#: Seconds after which a controller that was ended returns.
_CONTROLLER_BACK_AFTER = (0.0, 5.0, 20.0, 40.0)
#: Average seconds between two changes.
_PACES = (1.0, 3.0, 10.0)
#: Share of the controller's writes that are affected, if requests may be slow.
_TROUBLE = 0.25
#: Maximum number of added nodes, and minimum number of remaining ones.
_MORE_NODES, _LEAST_NODES = 4, 2


class PlanNemesis(ShardNemesis):
    """Administrators who act independently. Schedulers and the network are treated as by the base class."""

    def __init__(self, world: World, plans: PlanMap) -> None:
        super().__init__(world, plans.shards)
        self._plans = plans
        self._plan_rng = random.Random(f"{world.seed} plan nemesis")
        self._made = 0
        self._acts: dict[str, tuple[Callable[[], None], ...]] = {
            "plan_changed": (self._change_plan,),
            "shard_edited": (*(self._edit, self._edit, self._erase), *(self._hand_over, self._foreign, self._foreign)),
            "fleet_changed": (
                self._node_comes,
                *(partial(self._to_a_node, act) for act in (self._go, self._not_ready)),
                *(partial(self._to_a_node, act) for act in (self._warm, self._cordon)),
            ),
        }
        #: Seconds between two acts of each kind, and the time of the next one.
        self._paces = {name: self._plan_rng.choice(_PACES) for name in self._acts}
        self._next = dict.fromkeys(self._acts, 0.0)
        #: Controller -> the fault of all its writes of shards, and until when.
        self._troubles: dict[str, tuple[str, float]] = {}

    def strike(self) -> None:
        plan, now = self._world.plan, self._now
        for name, acts in self._acts.items():
            if now >= self._next[name] and plan.happens(name, now=now):
                self._next[name] = now + self._plan_rng.expovariate(1 / self._paces[name])
                self._plan_rng.choice(acts)()
        for process in self._world.processes:
            if self._strikes("owner_gone", 0.3 * process.exposure):
                self._take_away(process)

    # -- processes

    def _take_away(self, process: Process) -> None:
        if not process.is_wanted:
            return
        if not process.is_planner:
            self._leave(process)
            return
        rng = self._plan_rng
        if rng.random() < 0.3:
            self._world.stop(process, rng.choice((12.0, 20.0, 100.0)))
            return
        back, kill = rng.choice(_CONTROLLER_BACK_AFTER), rng.random() < 0.6
        process.leave(why=f"{'killed' if kill else 'asked to end'}, and comes back after {back} s", kill=kill)
        self._later(back, process.come_back)

    # -- the configuration

    def _change_plan(self) -> None:
        rng, plans = self._plan_rng, self._plans
        names = plans.plans.names
        chance = rng.random()
        if chance < 0.6:
            plans.say(usable(rng, names), is_usable=True)
            return
        if chance < 0.8 or not plans.is_there:
            plans.say(unusable(rng, names), is_usable=False)
        else:
            plans.forget()
        if rng.random() < 0.85:
            text = usable(rng, names)
            self._later(rng.choice((0.0, 0.5, 3.0, 15.0)), lambda: plans.say(text, is_usable=True))

    # -- nodes

    def _to_a_node(self, act: Callable[[str, Json], None]) -> None:
        if nodes := self._objects(NODES):
            node = self._plan_rng.choice(nodes)
            act(f"/api/v1/nodes/{name_of(node)}", node)

    def _node_comes(self) -> None:
        if self._made < _MORE_NODES:
            self._made += 1
            amounts = {"cpu": "4", "memory": "8Gi", "pods": "20"}
            labels = {WARM: "true"} if self._plan_rng.random() < 0.5 else {}
            status = {"allocatable": amounts, "capacity": amounts}
            metadata = {"name": f"more-{self._made}", "labels": labels}
            self._call("POST", "/api/v1/nodes", {"metadata": metadata, "status": status})

    def _go(self, path: str, _node: Json) -> None:
        if len(self._nodes()) > _LEAST_NODES:
            self._call("DELETE", path, {"gracePeriodSeconds": 0})

    def _not_ready(self, path: str, node: Json) -> None:
        self._set_ready(path, node, "Unknown")
        if self._plan_rng.random() < 0.8:
            self._later(self._plan_rng.choice((0.1, 2.0, 10.0)), self._set_ready, path, node, "True")

    def _set_ready(self, path: str, node: Json, status: str) -> None:
        conditions = [dict(each) for each in node["status"].get("conditions") or ()]
        for each in conditions:
            each["status"] = status if each["type"] == "Ready" else each["status"]
        self._call("PATCH", f"{path}/status", {"status": {"conditions": conditions}})

    def _warm(self, path: str, node: Json) -> None:
        is_warm = WARM in (node["metadata"].get("labels") or {})
        self._call("PATCH", path, {"metadata": {"labels": {WARM: None if is_warm else "true"}}})

    def _cordon(self, path: str, _node: Json) -> None:
        self._call("PATCH", path, {"spec": {"unschedulable": True}})
        if self._plan_rng.random() < 0.8:
            back = {"spec": {"unschedulable": None}}
            self._call_later(self._plan_rng.choice((0.1, 2.0, 10.0)), "PATCH", path, back)

    # -- changes of shards by others

    def _one_of_ours(self) -> str | None:
        names = [each.name for each in self._shards.managed()]
        return self._plan_rng.choice(names) if names else None

    def _any_nodes(self) -> Names:
        nodes = self._nodes()
        return frozenset(self._plan_rng.sample(nodes, self._plan_rng.randint(0, len(nodes))))

    def _edit(self) -> None:
        if (name := self._one_of_ours()) is not None:
            nodes = self._any_nodes()
            how = self._plan_rng.choice(("more", "less", "other"))
            desired = self._desired(name)
            more = desired | nodes if how == "more" else desired - nodes if how == "less" else nodes
            self._shards.desire(name, more)

    def _erase(self) -> None:
        if (name := self._one_of_ours()) is not None:
            self._shards.delete(name)

    def _hand_over(self) -> None:
        """Remove a shard's label, for a while or permanently."""
        if (name := self._one_of_ours()) is not None:
            self._label(name, None)
            if self._plan_rng.random() < 0.7:
                self._later(self._plan_rng.choice((0.0, 1.0, 10.0)), self._label, name, OWNER)

    def _label(self, name: str, owner: str | None) -> None:
        self._call("PATCH", f"{SHARDS_PATH}/{name}", {"metadata": {"labels": {OWNER_LABEL: owner}}})

    def _foreign(self) -> None:
        """Create another owner's shard, possibly with a configured name."""
        if not self._shards.is_known:
            return
        names = [*self._plans.plans.names, "foreign-a", "foreign-b"]
        name = self._plan_rng.choice(names)
        if self._shards.get(name) is not None:
            if name.startswith("foreign"):
                self._shards.desire(name, self._any_nodes())
            return
        self._shards.create(name, sorted(self._any_nodes()))
        if name not in self._plans.plans.names:
            return
        self._reached("foreign shard of a configured name")
        if self._plan_rng.random() < 0.7:
            self._later(self._plan_rng.choice((0.5, 10.0)), self._remove, name)

    def _remove(self, name: str) -> None:
        found = self._shards.get(name)
        if found is not None and all(each.name != name for each in self._shards.managed()):
            self._shards.delete(name)

    # -- before a write

    def status_hangs(self, process: Process) -> bool:
        """Return whether a status or spec that the process sends now is carried out late.

        Or the controller cannot write for as long as it tries, and the state that it used changes meanwhile; or both.
        """
        if not process.is_planner:
            return super().status_hangs(process)
        plan, rng, now = self._world.plan, self._plan_rng, self._now
        if self.trouble(process) or rng.random() > _TROUBLE or not plan.happens("slow", now=now):
            return False
        hangs = rng.random() < 0.7
        if hangs and rng.random() < 0.4:
            self._world.loop.call_later(rng.uniform(0.0, 0.002), process.kill)
        else:
            until = now + rng.choice((5.0, 15.0, 36.0))
            fate = rng.choice(("denied", "denied", "throttled", "lost_before"))
            self._troubles[process.identity] = fate, until
            plan.lasts(until)
            if rng.random() < 0.5 and plan.happens("stop", now=now):
                # It retries, and may no longer lead when it continues.
                seconds = self._plans.plans.lease[0] + rng.uniform(1.0, 10.0)
                self._world.loop.call_later(rng.uniform(0.01, 5.0), self._world.stop, process, seconds)
                plan.lasts(now + 5.0 + seconds)
        if plan.enabled("plan_changed") and rng.random() < 0.7:
            self._later(rng.uniform(0.0, 15.0), self._change_plan)
        return hangs

    def trouble(self, process: Process) -> str:
        fate, until = self._troubles.get(process.identity, ("", 0.0))
        return fate if self._now < until else ""

    def shard_written(self, asked: Request) -> None:
        if asked.method != "POST":
            super().shard_written(asked)
            return
        name = orjson.loads(asked.body)["metadata"]["name"]
        if self._shards.get(name) is None:
            self._shards.create(name, sorted(self._any_nodes()))
            after = self._plan_rng.choice((0.5, 10.0))
            if self._plan_rng.random() < 0.5:
                self._later(after, self._label, name, OWNER)
            else:
                self._later(after, self._remove, name)
