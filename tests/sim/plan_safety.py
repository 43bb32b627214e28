"""What may never be seen of a controller that plans shards; judged from its requests as they leave and from commits.

S22 no write of the controller gives a node to a shard while another of its shards desires it, unless somebody else has
    put it there, or a write that a process of the controller had on its way when it died or lost its lease
S23 it writes the specs of shards that have its label, and nothing else of NodeShards; it deletes only what desires
    nothing, is used by no living scheduler, and was not configured in some configuration that it may go by
S24 it goes by a configuration that could be used and has been in effect since it began, whole, or by its flags if it
    began without one; a ConfigMap that is empty, broken or deleted changes nothing
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from embedded_kubernetes.store import Event

from .plan_map import PlanMap, same
from .plan_process import Controller
from .shard_load import PEER
from .shard_map import Names, View, is_managed, view

if TYPE_CHECKING:
    from .processes import Process
    from .world import World


class PlanSafety:
    """Owner of what others have written into shards of the controller."""

    def __init__(self, world: World, plans: PlanMap) -> None:
        self._world = world
        self._plans = plans
        self._shards = plans.shards
        #: Shard -> nodes that somebody else put there, and that the controller has not decided on since.
        self._by_hand: dict[str, Names] = {}
        #: Identities of controllers that have gone by a ConfigMap.
        self._told: set[str] = set()
        #: Who wrote last.
        self._last = ""
        #: Writes of the controller that were committed.
        self.writes = 0
        self._shards.subscribers.append(self._changed)

    def went_back(self) -> None:
        """The store has: in which order what it says came to be there nobody knows."""
        self._by_hand = {each.name: each.desired for each in self._shards.managed()}

    # -- requests

    def sent(self, process: Process, method: str, path: str) -> None:
        """A write of a NodeShard leaves a controller."""
        assert isinstance(process, Controller)
        if self._world.backups.is_unaware(process):
            return
        safety = self._world.safety
        if path.partition("?")[0].endswith("/status"):
            safety.violated("S23", f"{process.identity} sends {method} {path}")
        safety.checked["S24"] += 1
        goes_by = process.in_effect
        if goes_by is None:
            safety.violated("S24", f"{process.identity} sends {method} {path} and goes by nothing")
            return
        if not any(same(goes_by, said) for said in self._plans.may_go_by(process.began)):
            safety.violated(
                "S24",
                f"{process.identity} goes by what no ConfigMap said since {process.began:.6f}: {goes_by}",
            )
        if not same(goes_by, self._plans.flags):
            self._told.add(process.identity)
        elif process.identity in self._told:
            safety.violated("S24", f"{process.identity} goes by its flags, although it had a ConfigMap")

    # -- commits

    def _changed(self, event: Event) -> None:
        if self._world.backups.restoring:
            return
        actor, may = self._world.safety.author()
        name, before = event.record.name, event.previous
        had = view(before) if before is not None and is_managed(before) else None
        has = view(event.record) if event.type != "DELETED" and is_managed(event.record) else None
        if not isinstance(actor, Controller) or self._world.backups.is_unaware(actor):
            self._written_by_others(name, had, has)
            return
        self.writes += 1
        if self._last and self._last != actor.identity:
            self._world.states.reached("shard written by the next controller")
        self._last = actor.identity
        self._judge_kind(actor, event)
        if event.type == "DELETED":
            self._by_hand.pop(name, None)
            # One that was sent before the process lost its right or its life went by what was said until then.
            self._judge_deletion(actor, view(event.record), since=actor.began if may else 0.0)
        elif not may:
            # It was sent before the process lost its right or its life, and whoever follows cannot know of it before
            # it is seen.
            self._world.states.reached("late write of a shard")
            self._written_by_others(name, had, has)
        elif has is not None:
            self._judge_overlap(actor, name, had, has)

    def _written_by_others(self, name: str, had: View | None, has: View | None) -> None:
        if has is None:
            self._by_hand.pop(name, None)
            return
        known = self._by_hand.get(name, frozenset())
        gained = has.desired - (had.desired if had is not None else frozenset())
        self._by_hand[name] = (known | gained) & has.desired

    def _judge_kind(self, actor: Controller, event: Event) -> None:
        safety = self._world.safety
        safety.checked["S23"] += 1
        before = event.previous
        if not is_managed(event.record) or (before is not None and not is_managed(before)):
            safety.violated("S23", f"{actor.identity} writes {event.record.name}, which is not its own")
        if event.type == "DELETED" or before is None:
            return
        was, now = (orjson.loads(each.data).get("status") for each in (before, event.record))
        if was != now:
            safety.violated("S23", f"{actor.identity} writes the status of {event.record.name}: {now}")

    def _judge_overlap(self, actor: Controller, name: str, had: View | None, has: View) -> None:
        safety = self._world.safety
        safety.checked["S22"] += 1
        gained = has.desired - (had.desired if had is not None else frozenset())
        held: Names = frozenset()
        for other in self._shards.managed():
            if other.name == name:
                continue
            held |= other.desired
            if twice := gained & other.desired - self._by_hand.get(other.name, frozenset()):
                safety.violated(
                    "S22", f"{actor.identity} gives {sorted(twice)} to {name}, which {other.name} desires"
                )
        by_hand = self._by_hand.pop(name, frozenset())
        if by_hand - has.desired:
            self._world.states.reached("edit by hand put right")
        if left := by_hand & has.desired & held:
            self._by_hand[name] = left
        if had is not None and gained and had.desired - has.desired:
            self._world.states.reached("nodes of a shard exchanged at once")

    def _judge_deletion(self, actor: Controller, was: View, *, since: float) -> None:
        safety = self._world.safety
        self._world.states.reached("shard retired")
        if was.desired:
            safety.violated(
                "S23", f"{actor.identity} deletes {was.name}, which desires {sorted(was.desired)}"
            )
        if was.in_use and (was.name == PEER or self._shards.works(was.name)):
            safety.violated("S23", f"{actor.identity} deletes {was.name}, which uses {sorted(was.in_use)}")
        if was.in_use:
            self._world.states.reached("shard of a dead scheduler retired")
        if all(was.name in said.plan.names for said in self._plans.may_go_by(since)):
            safety.violated("S24", f"{actor.identity} deletes {was.name}, which is configured")
