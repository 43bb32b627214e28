"""What may never be seen of nodes that are shared, in mode hard; judged from requests as they leave and from commits.

S19 no node has binds of two schedulers in flight: from the moment a scheduler sends a bind to a node, and until that is
    carried out or can no longer be, no other one sends a bind there
S20 a scheduler sends binds only to nodes that stand in nodesInUse of its own shard at that time
    and a status gives no node back to which a bind of that shard is still on its way
S21 a node that its scheduler uses stays with it for as long as its shard desires it and the scheduler works

Excepted is what an administrator takes away together with the claims that it stood on: binds of the scheduler of a
deleted shard, until it has seen that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from embedded_kubernetes.store import Event

from .shard_load import PEER
from .shard_map import PATH, ShardMap, view

if TYPE_CHECKING:
    from .processes import Process
    from .world import World

PODS = ("", "pods")
#: Seconds from the answer to a list of the shards to the last bind that was decided before it.
_SEEN_WITHIN = 1.0


@dataclass(eq=False, slots=True)
class Sent:
    """A bind on its way. `excepted`: its claim was taken from under it."""

    scheduler: str
    identity: str
    node: str
    uid: str
    key: str
    at: float
    excepted: bool = False


class ShardSafety:
    """Owner of the binds in flight of all schedulers in mode hard."""

    def __init__(self, world: World, shards: ShardMap) -> None:
        self._world = world
        self._shards = shards
        self._in_flight: dict[str, list[Sent]] = {}
        #: Scheduler -> how often its shard was deleted; and those which have not seen that yet.
        self._deleted: Counter[str] = Counter()
        self._robbed: set[str] = set()
        #: Identity -> nodes that it has sent binds to, since its shard desires them.
        self._used: dict[str, set[str]] = {}
        shards.subscribers.append(self._changed)
        self._node_field = world.store.tables[PODS].field_names.index("spec.nodeName")

    def went_back(self) -> None:
        """The store has, and the claims of all with it: what was on its way is lost."""
        self._in_flight.clear()
        self._used.clear()
        self._robbed.clear()

    # -- requests

    def sent(self, process: Process, path: str, body: bytes) -> Sent | None:
        """A bind leaves a process; `over` is to be told of what is given."""
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
            self._world.loop.time(),
            scheduler in self._robbed or self._world.backups.is_unaware(process),
        )
        if sent.excepted:
            self._world.safety.not_ours.add(node)
        else:
            self._judge(sent)
        shard = self._shards.get(scheduler)
        if shard is not None and node in shard.desired:
            self._used.setdefault(process.identity, set()).add(node)
        self._in_flight.setdefault(node, []).append(sent)
        return sent

    def over(self, sent: Sent | None) -> None:
        """It was carried out, refused, or lost."""
        if sent is not None and sent in self._in_flight.get(sent.node, ()):
            self._in_flight[sent.node].remove(sent)

    def deleted(self, process: Process) -> int:
        return self._deleted[process.scheduler]

    def listed(self, process: Process, deleted: int) -> None:
        """A process is told of all shards as they were when its own had been deleted so often."""
        if process.scheduler in self._robbed:
            self._world.loop.call_later(_SEEN_WITHIN, self._saw, process.scheduler, deleted)

    def _saw(self, scheduler: str, deleted: int) -> None:
        if self._deleted[scheduler] == deleted:
            self._robbed.discard(scheduler)

    def _judge(self, sent: Sent) -> None:
        checked = self._world.safety.checked
        checked["S19"] += 1
        for other in self.in_flight(sent.node):
            if other.scheduler != sent.scheduler and not other.excepted:
                self._world.safety.violated(
                    "S19",
                    f"{sent.identity} sends a bind of {sent.key} to {sent.node}, while that of {other.key} is on its "
                    f"way there, which {other.identity} has sent at {other.at:.6f}",
                )
        checked["S20"] += 1
        shard = self._shards.get(sent.scheduler)
        if shard is None or sent.node not in shard.in_use:
            claims = "has no shard" if shard is None else f"uses {sorted(shard.in_use)}"
            self._world.safety.violated(
                "S20", f"{sent.identity} sends a bind of {sent.key} to {sent.node} and {claims}"
            )

    def in_flight(self, node: str) -> Iterator[Sent]:
        """Binds to a node that can still be carried out."""
        for sent in self._in_flight.get(node, ()):
            record = self._world.store.tables[PODS].records.get(sent.key)
            if (
                record is not None
                and record.uid == sent.uid
                and not record.deleting
                and not record.fields[self._node_field]
            ):
                yield sent

    # -- commits

    def _changed(self, event: Event) -> None:
        if self._world.backups.restoring:
            return
        world, name = self._world, event.record.name
        now = view(event.record)
        world.trace(
            "",
            f"shard {event.type} {name} desired {sorted(now.desired)} in use {sorted(now.in_use)} "
            f"to add {sorted(now.to_add)} to remove {sorted(now.to_remove)}",
        )
        before = None if event.previous is None else view(event.previous)
        actor, _ = world.safety.author()
        if event.type == "DELETED":
            # What a controller deletes may be under no bind.
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
        self._judge_author(actor, name, before.desired == now.desired)
        for node in sorted(before.in_use - now.in_use):
            for sent in self._of(name, node):
                if not sent.excepted:
                    world.safety.violated(
                        "S20",
                        f"{actor.identity} gives {node} back while the bind of {sent.key} is on its way there, which "
                        f"{sent.identity} has sent at {sent.at:.6f}",
                    )
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
        """The shard is deleted: its scheduler's claims are gone, and it cannot know that yet."""
        self._world.states.reached("shard deleted")
        self._robbed.add(name)
        self._deleted[name] += 1
        for process in self._shards.processes(name):
            self._used.pop(process.identity, None)
        for all_sent in self._in_flight.values():
            for sent in all_sent:
                sent.excepted |= sent.scheduler == name
        # Of what is bound there by then nobody who claims these nodes can know.
        self._world.safety.not_ours.update(
            sent.node for all_sent in self._in_flight.values() for sent in all_sent if sent.excepted
        )

    def _judge_author(self, actor: Process, name: str, spec_stays: bool) -> None:
        if actor.scheduler != name or not spec_stays:
            self._world.safety.violated("S20", f"{actor.identity} wrote what is not its own of shard {name}")

    def _judge_kept(self, actor: Process, name: str, left: frozenset[str], desired: frozenset[str]) -> None:
        self._world.safety.checked["S21"] += 1
        used = self._used.get(actor.identity, set())
        if (given := left & desired & used) and not actor.is_ending and name not in self._robbed:
            self._world.safety.violated(
                "S21", f"{actor.identity} gives {sorted(given)} back, which it has used and its shard desires"
            )


def is_version_asked(query: str) -> bool:
    """Whether a list is asked for its version, and not for what is in it."""
    return "limit=1&" in f"{query}&"


def is_list(method: str, path: str, query: str) -> bool:
    """Whether a request lists the shards, and does not merely ask for the version of the list."""
    return method == "GET" and path.partition("?")[0] == PATH and not is_version_asked(query)
