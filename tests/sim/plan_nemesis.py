"""What happens to shards that a controller plans: its configuration, the nodes, and hands in what is its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from agent_scheduler.controllers.sharding.store import OWNER, OWNER_LABEL
from embedded_kubernetes.requests import Request

from .plan_load import WARM, unusable, usable
from .plan_map import PlanMap
from .plan_process import Controller
from .shard_map import MERGE, PATH, Names
from .shard_nemesis import ShardNemesis

if TYPE_CHECKING:
    from .processes import Process
    from .world import World

NODES = ("", "nodes")
#: Seconds after which a controller that was taken away comes back.
_BACK_AFTER = (0.0, 5.0, 20.0, 40.0)
#: Seconds between two changes, more or less.
_PACES = (1.0, 3.0, 10.0)
#: Of the controller's writes such a part is in trouble, where requests may be slow.
_TROUBLE = 0.25
#: No more nodes than these come, and so many stay.
_MORE_NODES, _LEAST_NODES = 4, 2


class PlanNemesis(ShardNemesis):
    """Administrators, none of whom asks the others. Schedulers, and the wire, it treats as its base does."""

    def __init__(self, world: World, plans: PlanMap) -> None:
        super().__init__(world, plans.shards)
        self._plans = plans
        self._plan_rng = random.Random(f"{world.seed} plan nemesis")
        self._made = 0
        self._acts: dict[str, tuple[Callable[[], None], ...]] = {
            "plan_changed": (self._change_plan,),
            "shard_edited": (
                *(self._edit, self._edit, self._erase),
                *(self._hand_over, self._foreign, self._foreign),
            ),
            "fleet_changed": (self._node_comes, self._node_goes, self._not_ready, self._warm, self._cordon),
        }
        #: Seconds between two acts of each kind, and when the next one is.
        self._paces = {name: self._plan_rng.choice(_PACES) for name in self._acts}
        self._next = dict.fromkeys(self._acts, 0.0)
        #: Controller -> what goes wrong with all that it writes into shards, and until when.
        self._troubles: dict[str, tuple[str, float]] = {}

    def strike(self) -> None:
        plan, now = self._world.plan, self._world.loop.time()
        for name, acts in self._acts.items():
            if now >= self._next[name] and plan.happens(name, now=now):
                self._next[name] = now + self._plan_rng.expovariate(1 / self._paces[name])
                self._plan_rng.choice(acts)()
        for process in self._world.processes:
            if plan.strikes("owner_gone", now=now, share=0.3 * process.exposure):
                self._take_away(process)

    # -- processes

    def _take_away(self, process: Process) -> None:
        if not process.is_wanted:
            return
        if not isinstance(process, Controller):
            self._leave(process)
            return
        rng = self._plan_rng
        if rng.random() < 0.3:
            self._world.stop(process, rng.choice((12.0, 20.0, 100.0)))
            return
        back, kill = rng.choice(_BACK_AFTER), rng.random() < 0.6
        process.leave(why=f"{'killed' if kill else 'asked to end'}, and comes back after {back} s", kill=kill)
        self._after(back, process.come_back)

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
            self._after(rng.choice((0.0, 0.5, 3.0, 15.0)), lambda: plans.say(text, is_usable=True))

    # -- nodes

    def _some_node(self) -> tuple[str, dict[str, Any]] | None:
        records = list(self._world.store.tables[NODES].scan(""))
        if not records:
            return None
        record = self._plan_rng.choice(records)
        return f"/api/v1/nodes/{record.name}", orjson.loads(record.data)

    def _node_comes(self) -> None:
        if self._made < _MORE_NODES:
            self._made += 1
            amounts = {"cpu": "4", "memory": "8Gi", "pods": "20"}
            labels = {WARM: "true"} if self._plan_rng.random() < 0.5 else {}
            self._world.call(
                "POST",
                "/api/v1/nodes",
                {
                    "metadata": {"name": f"more-{self._made}", "labels": labels},
                    "status": {"allocatable": amounts, "capacity": amounts},
                },
            )

    def _node_goes(self) -> None:
        found = self._some_node()
        if found is not None and len(self._nodes()) > _LEAST_NODES:
            self._world.call("DELETE", found[0], {"gracePeriodSeconds": 0})

    def _not_ready(self) -> None:
        if (found := self._some_node()) is None:
            return
        path, node = found
        self._set_ready(path, node, "Unknown")
        if self._plan_rng.random() < 0.8:
            self._after(self._plan_rng.choice((0.1, 2.0, 10.0)), lambda: self._set_ready(path, node, "True"))

    def _set_ready(self, path: str, node: dict[str, Any], status: str) -> None:
        conditions = [
            {**each, "status": status} if each["type"] == "Ready" else each
            for each in node["status"].get("conditions") or ()
        ]
        self._world.call("PATCH", f"{path}/status", {"status": {"conditions": conditions}}, MERGE)

    def _warm(self) -> None:
        if (found := self._some_node()) is not None:
            path, node = found
            is_warm = WARM in (node["metadata"].get("labels") or {})
            self._world.call(
                "PATCH", path, {"metadata": {"labels": {WARM: None if is_warm else "true"}}}, MERGE
            )

    def _cordon(self) -> None:
        if (found := self._some_node()) is None:
            return
        path, _ = found
        self._world.call("PATCH", path, {"spec": {"unschedulable": True}}, MERGE)
        if self._plan_rng.random() < 0.8:
            back = {"spec": {"unschedulable": None}}
            self._after(
                self._plan_rng.choice((0.1, 2.0, 10.0)), lambda: self._world.call("PATCH", path, back, MERGE)
            )

    # -- hands in shards

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
        """A shard comes to belong to somebody else, for a while or for good."""
        if (name := self._one_of_ours()) is not None:
            self._label(name, None)
            if self._plan_rng.random() < 0.7:
                self._after(self._plan_rng.choice((0.0, 1.0, 10.0)), lambda: self._label(name, OWNER))

    def _label(self, name: str, owner: str | None) -> None:
        self._world.call("PATCH", f"{PATH}/{name}", {"metadata": {"labels": {OWNER_LABEL: owner}}}, MERGE)

    def _foreign(self) -> None:
        """Somebody makes a shard of their own, which may have a name that is configured."""
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
        self._world.states.reached("foreign shard of a configured name")
        if self._plan_rng.random() < 0.7:
            self._after(self._plan_rng.choice((0.5, 10.0)), lambda: self._remove(name))

    def _remove(self, name: str) -> None:
        found = self._shards.get(name)
        if found is not None and all(each.name != name for each in self._shards.managed()):
            self._shards.delete(name)

    # -- in the way of a write

    def status_hangs(self, process: Process) -> bool:
        """So may be a spec; or the controller can write nothing for as long as it tries, and what it decided on changes
        meanwhile; or both."""
        if not isinstance(process, Controller):
            return super().status_hangs(process)
        plan, rng, now = self._world.plan, self._plan_rng, self._world.loop.time()
        if self.trouble(process) or rng.random() > _TROUBLE or not plan.happens("slow", now=now):
            return False
        hangs = rng.random() < 0.7
        if hangs and rng.random() < 0.4:
            self._world.loop.call_later(rng.uniform(0.0, 0.002), process.kill)
        else:
            until = now + rng.choice((5.0, 15.0, 36.0))
            self._troubles[process.identity] = (
                rng.choice(("denied", "denied", "throttled", "lost_before")),
                until,
            )
            plan.lasts(until)
            if rng.random() < 0.5 and plan.happens("stop", now=now):
                # It will try again, and may no longer lead when it wakes up.
                seconds = self._plans.plans.lease[0] + rng.uniform(1.0, 10.0)
                self._world.loop.call_later(rng.uniform(0.01, 5.0), self._world.stop, process, seconds)
                plan.lasts(now + 5.0 + seconds)
        if plan.enabled("plan_changed") and rng.random() < 0.7:
            self._after(rng.uniform(0.0, 15.0), self._change_plan)
        return hangs

    def trouble(self, process: Process) -> str:
        fate, until = self._troubles.get(process.identity, ("", 0.0))
        return fate if self._world.loop.time() < until else ""

    def shard_written(self, asked: Request) -> None:
        if asked.method != "POST":
            super().shard_written(asked)
            return
        name = orjson.loads(asked.body)["metadata"]["name"]
        if self._shards.get(name) is None:
            self._shards.create(name, sorted(self._any_nodes()))
            after = self._plan_rng.choice((0.5, 10.0))
            if self._plan_rng.random() < 0.5:
                self._after(after, lambda: self._label(name, OWNER))
            else:
                self._after(after, lambda: self._remove(name))

    def _after(self, seconds: float, act: Any) -> None:
        self._world.plan.lasts(self._world.loop.time() + seconds)
        self._world.loop.call_later(seconds, act)
