"""Judges shared nodes and planned shards by requests and commits: S19 to S24 of docs/reliability.md.

S19 to S21 are about nodes that are shared in mode hard, S22 to S24 about a controller that plans shards. Excepted are
binds of the scheduler of a shard that an administrator has deleted together with its claims, until the scheduler has
observed that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from embedded_kubernetes.store import Event

from .api import PODS, content
from .judge import Judge
from .kinds import Controller, Process, World
from .shard_load import PEER
from .shard_map import SHARDS_PATH, Names, PlanMap, ShardMap, View, is_managed, same, view

#: Seconds from the response to a list of the shards to the last bind that was decided before it.
_SEEN_WITHIN = 1.0


@dataclass(eq=False, slots=True)
class Sent:
    """A bind in flight. `excepted`: its claim was deleted by another client."""

    scheduler: str
    identity: str
    node: str
    uid: str
    key: str
    at: float
    excepted: bool = False

    def __str__(self) -> str:
        return f"the bind of {self.key} is on its way there, which {self.identity} has sent at {self.at:.6f}"


class ShardSafety(Judge):
    """Owner of the binds in flight of all schedulers in mode hard."""

    def __init__(self, world: World, shards: ShardMap) -> None:
        super().__init__(world)
        self._shards = shards
        self._in_flight: dict[str, list[Sent]] = {}
        #: Scheduler -> how often its shard was deleted; `_robbed`: those that have not observed that yet.
        self._deleted: Counter[str] = Counter()
        self._robbed: set[str] = set()
        #: Identity -> nodes to which it has sent binds since its shard desires them.
        self._used: dict[str, set[str]] = {}
        shards.subscribers.append(self._changed)
        self._node_field = world.store.tables[PODS].field_names.index("spec.nodeName")

    def went_back(self) -> None:
        """Reset the records after a restore of the store: all claims are undone, and requests in flight are lost."""
        self._in_flight.clear()
        self._used.clear()
        self._robbed.clear()

    # -- requests

    def sent(self, process: Process, path: str, body: bytes) -> Sent | None:
        """Check a bind that a process sends; the result must be passed to `over`."""
        scheduler = process.scheduler
        if self._shards.mode(scheduler) != "hard":
            return None
        binding = orjson.loads(body)
        node = binding["target"]["name"]
        _, _, _, _, namespace, _, name, _ = path.partition("?")[0].split("/")
        sent = Sent(
            scheduler,
            process.identity,
            node,
            binding["metadata"].get("uid", ""),
            f"{namespace}/{name}",
            self.world.loop.time(),
            scheduler in self._robbed or self._is_unaware(process),
        )
        if sent.excepted:
            self.world.safety.not_ours.add(node)
        else:
            self._judge(sent)
        shard = self._shards.get(scheduler)
        if shard is not None and node in shard.desired:
            self._used.setdefault(process.identity, set()).add(node)
        self._in_flight.setdefault(node, []).append(sent)
        return sent

    def over(self, sent: Sent | None) -> None:
        """Record that the bind was carried out, rejected, or lost."""
        if sent is not None and sent in self._in_flight.get(sent.node, ()):
            self._in_flight[sent.node].remove(sent)

    def deleted(self, process: Process) -> int:
        return self._deleted[process.scheduler]

    def listed(self, process: Process, deleted: int) -> None:
        """Record that a process has listed the shards in a state in which its own had been deleted `deleted` times."""
        if process.scheduler in self._robbed:
            self.world.loop.call_later(_SEEN_WITHIN, self._saw, process.scheduler, deleted)

    def _saw(self, scheduler: str, deleted: int) -> None:
        if self._deleted[scheduler] == deleted:
            self._robbed.discard(scheduler)

    def _judge(self, sent: Sent) -> None:
        self._look("S19")
        for other in self.in_flight(sent.node):
            if other.scheduler != sent.scheduler and not other.excepted:
                what = f"sends a bind of {sent.key} to {sent.node}, while {other}"
                self._violated("S19", f"{sent.identity} {what}")
        self._look("S20")
        shard = self._shards.get(sent.scheduler)
        if shard is None or sent.node not in shard.in_use:
            claims = "has no shard" if shard is None else f"uses {sorted(shard.in_use)}"
            self._violated("S20", f"{sent.identity} sends a bind of {sent.key} to {sent.node} and {claims}")

    def in_flight(self, node: str) -> Iterator[Sent]:
        """Yield the binds to a node that can still be carried out."""
        for sent in self._in_flight.get(node, ()):
            record = self.world.store.tables[PODS].records.get(sent.key)
            if record is None or record.uid != sent.uid:
                continue
            if not record.deleting and not record.fields[self._node_field]:
                yield sent

    # -- commits

    def _changed(self, event: Event) -> None:
        if self.world.backups.restoring:
            return
        world, name = self.world, event.record.name
        now = view(event.record)
        uses = f"desired {sorted(now.desired)} in use {sorted(now.in_use)}"
        changes = f"to add {sorted(now.to_add)} to remove {sorted(now.to_remove)}"
        world.trace("", f"shard {event.type} {name} {uses} {changes}")
        before = None if event.previous is None else view(event.previous)
        actor, _ = world.safety.author()
        if event.type == "DELETED":
            # A controller must not delete a shard with binds in flight.
            if actor is None:
                self._rob(name)
            return
        if before is None:
            return
        for process in self._shards.processes(name):
            self._used.get(process.identity, set()).difference_update(before.desired - now.desired)
        if any(True for node in before.desired - now.desired for _ in self._of(name, node)):
            world.states.reached("hand-over while binds in flight")
        if actor is None or not actor.scheduler or world.backups.is_unaware(actor):
            return
        self._robbed.discard(name)
        if actor.scheduler != name or before.desired != now.desired:
            self._wrong("S20", actor, f"wrote what is not its own of shard {name}")
        for node in sorted(before.in_use - now.in_use):
            for sent in self._of(name, node):
                if not sent.excepted:
                    self._wrong("S20", actor, f"gives {node} back while {sent}")
        self._judge_kept(actor, name, before.in_use - now.in_use, now.desired)
        for other in self._shards.all():
            taken = (now.in_use - before.in_use) & other.in_use
            if other.name == name or not taken:
                continue
            if self._shards.works(other.name) or other.name == PEER:
                world.states.reached("node claimed by two")
            else:
                world.states.reached("dead owner's nodes taken")

    def _of(self, scheduler: str, node: str) -> Iterator[Sent]:
        return (sent for sent in self.in_flight(node) if sent.scheduler == scheduler)

    def _rob(self, name: str) -> None:
        """Record the deletion of a shard: its scheduler's claims are gone, and it cannot know that yet."""
        self._reached("shard deleted")
        self._robbed.add(name)
        self._deleted[name] += 1
        for process in self._shards.processes(name):
            self._used.pop(process.identity, None)
        for sent in (each for all_sent in self._in_flight.values() for each in all_sent):
            sent.excepted |= sent.scheduler == name
            if sent.excepted:
                # The next owner of these nodes cannot know what is bound there until then.
                self.world.safety.not_ours.add(sent.node)

    def _judge_kept(self, actor: Process, name: str, left: frozenset[str], desired: frozenset[str]) -> None:
        self._look("S21")
        used = self._used.get(actor.identity, set())
        if (given := left & desired & used) and not actor.is_ending and name not in self._robbed:
            self._wrong("S21", actor, f"gives {sorted(given)} back, which it has used and its shard desires")


def is_version_asked(query: str) -> bool:
    """Return whether a list only requests the version of the collection."""
    return "limit=1&" in f"{query}&"


def is_list(method: str, path: str, query: str) -> bool:
    """Return whether a request lists the shards, and not only the version of the list."""
    return method == "GET" and path.partition("?")[0] == SHARDS_PATH and not is_version_asked(query)


class PlanSafety(Judge):
    """Owner of what others have written into shards of the controller."""

    def __init__(self, world: World, plans: PlanMap) -> None:
        super().__init__(world)
        self._plans = plans
        self._shards = plans.shards
        #: Shard -> nodes that others have put there, and about which the controller has not decided since.
        self._by_hand: dict[str, Names] = {}
        #: Identities of controllers that have used a ConfigMap.
        self._told: set[str] = set()
        #: Identity of the last writer.
        self._last = ""
        #: Number of committed writes of the controller.
        self.writes = 0
        self._shards.subscribers.append(self._changed)

    def went_back(self) -> None:
        """Reset the records after a restore: the order of the restored writes is unknown."""
        self._by_hand = {each.name: each.desired for each in self._shards.managed()}

    # -- requests

    def sent(self, process: Controller, method: str, path: str) -> None:
        """Check a write of a NodeShard that a controller sends."""
        if self._is_unaware(process):
            return
        if path.partition("?")[0].endswith("/status"):
            self._wrong("S23", process, f"sends {method} {path}")
        self._look("S24")
        goes_by = process.in_effect
        if goes_by is None:
            self._wrong("S24", process, f"sends {method} {path} and goes by nothing")
            return
        if not any(same(goes_by, said) for said in self._plans.may_go_by(process.began)):
            what = f"goes by what no ConfigMap said since {process.began:.6f}: {goes_by}"
            self._wrong("S24", process, what)
        if not same(goes_by, self._plans.flags):
            self._told.add(process.identity)
        elif process.identity in self._told:
            self._wrong("S24", process, "goes by its flags, although it had a ConfigMap")

    # -- commits

    def _changed(self, event: Event) -> None:
        if self.world.backups.restoring:
            return
        actor, may = self.world.safety.author()
        name, before = event.record.name, event.previous
        had = view(before) if before is not None and is_managed(before) else None
        has = view(event.record) if event.type != "DELETED" and is_managed(event.record) else None
        if actor is None or not actor.is_planner or self._is_unaware(actor):
            self._written_by_others(name, had, has)
            return
        self.writes += 1
        if self._last and self._last != actor.identity:
            self._reached("shard written by the next controller")
        self._last = actor.identity
        self._judge_kind(actor, event)
        if event.type == "DELETED":
            self._by_hand.pop(name, None)
            # A write from before the process lost its lease or died used the configuration until then.
            self._judge_deletion(actor, view(event.record), since=actor.began if may else 0.0)
        elif not may:
            # It was sent before the process lost its lease or died, and a successor cannot know of it before it is
            # observed.
            self._reached("late write of a shard")
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
        self._look("S23")
        before = event.previous
        if not is_managed(event.record) or (before is not None and not is_managed(before)):
            self._wrong("S23", actor, f"writes {event.record.name}, which is not its own")
        if event.type == "DELETED" or before is None:
            return
        was, now = (content(each).get("status") for each in (before, event.record))
        if was != now:
            self._wrong("S23", actor, f"writes the status of {event.record.name}: {now}")

    def _judge_overlap(self, actor: Controller, name: str, had: View | None, has: View) -> None:
        self._look("S22")
        gained = has.desired - (had.desired if had is not None else frozenset())
        held: Names = frozenset()
        for other in self._shards.managed():
            if other.name == name:
                continue
            held |= other.desired
            if twice := gained & other.desired - self._by_hand.get(other.name, frozenset()):
                self._wrong("S22", actor, f"gives {sorted(twice)} to {name}, which {other.name} desires")
        by_hand = self._by_hand.pop(name, frozenset())
        if by_hand - has.desired:
            self._reached("edit by hand put right")
        if left := by_hand & has.desired & held:
            self._by_hand[name] = left
        if had is not None and gained and had.desired - has.desired:
            self._reached("nodes of a shard exchanged at once")

    def _judge_deletion(self, actor: Controller, was: View, *, since: float) -> None:
        self._reached("shard retired")
        if was.desired:
            self._wrong("S23", actor, f"deletes {was.name}, which desires {sorted(was.desired)}")
        if was.in_use and (was.name == PEER or self._shards.works(was.name)):
            self._wrong("S23", actor, f"deletes {was.name}, which uses {sorted(was.in_use)}")
        if was.in_use:
            self._reached("shard of a dead scheduler retired")
        if all(was.name in said.plan.names for said in self._plans.may_go_by(since)):
            self._wrong("S24", actor, f"deletes {was.name}, which is configured")
