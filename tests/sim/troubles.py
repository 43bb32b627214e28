"""What goes wrong with the requests and watches of one process: which fault strikes which of them, and for how long."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from .exchange import LONGEST
from .nemesis import KINDS_WATCHED
from .shard_map import PATH as SHARD_PATH

if TYPE_CHECKING:
    from .processes import Process
    from .world import World


def verb_of(method: str, path: str) -> str:
    """What a request is, as faults tell them apart."""
    plain = path.partition("?")[0]
    if plain.endswith("/binding"):
        return "bind"
    if "/leases" in plain:
        return "lease"
    if "/persistentvolume" in plain and method == "PATCH":
        return "volume"
    if "/resourceclaims" in plain and method != "GET":
        return "claim"
    if plain.startswith(SHARD_PATH) and method != "GET":
        return "shard"
    if "/podgroups/" in plain and method == "PATCH":
        return "group"
    if "/pods/" in plain and method == "PATCH" and not plain.endswith("/status"):
        return "pod"
    if method == "GET":
        return "list" if plain.rpartition("/")[2] in KINDS_WATCHED else "get"
    if method == "DELETE":
        return "evict"
    return "event" if plain.endswith("/events") or "/events/" in plain else "status"


class Troubles(ABC):
    """The dice of one process's connections, and what lasts of what fell."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._rng = random.Random(f"{world.seed} network of {process.identity}")
        self._outage_ends = 0.0
        #: Until when a replica lags that lists and watches come from, by how much, and of which path; "" for all.
        self._lags_until = self._lags_by = 0.0
        self._lagging = ""

    @abstractmethod
    def drop_streams(self) -> None:
        """All watches of this process end now, without an error."""

    def credentials_late(self) -> float:
        """Seconds until there are some."""
        if not self.strikes("slow_credentials", 0.3):
            return 0.0
        late = self._rng.choice((0.05, 1.0, 6.0, 20.0)) * self._rng.uniform(0.5, 1.5)
        self._world.plan.lasts(self._world.loop.time() + late)
        self._world.trace(self._process.name, f"has credentials in {late:.3f} s")
        return late

    def strikes(self, name: str, share: float = 1.0) -> bool:
        return self._world.plan.strikes(name, now=self._world.loop.time(), share=share)

    def _cut_off(self) -> bool:
        """Whether no connection can be opened: just now, or for a while, in which the open ones break too."""
        now = self._world.loop.time()
        if now < self._outage_ends or now < self._world.server_back:
            return True
        if not self.strikes("no_connection"):
            return False
        if self._rng.random() < 0.1:
            self._outage_ends = now + self._rng.uniform(0.5, 30.0)
            self._world.plan.lasts(self._outage_ends)
            self._world.trace(self._process.name, f"is cut off until {self._outage_ends:.3f}")
            self.drop_streams()
        return True

    def _fate(self, method: str, verb: str) -> str:
        """What goes wrong with this request, if anything."""
        nemesis = self._world.shard_nemesis
        if nemesis is not None and (
            (verb == "bind" and nemesis.bind_hangs(self._process))
            or (verb == "shard" and nemesis.status_hangs(self._process))
        ):
            return "hangs"
        if verb == "shard" and nemesis is not None and (fate := nemesis.trouble(self._process)):
            return fate
        if verb == "lease" and self._world.plan.enabled("lease"):
            for name in ("failed", "lost_before", "lost_after", "slow"):
                if self.strikes("lease", 12.0):
                    return name
        names = ["throttled", "not_the_server", "failed", "lost_before", "lost_after", "slow"]
        if verb == "bind":
            names = [
                *("bound_elsewhere", "recreated", "gone", "deleting", "gated", "node_vanished", "denied"),
                *names,
            ]
        elif verb == "evict" or (verb == "pod" and self._process.scheduler):
            names = ["recreated", "gone", "deleting", "denied", *names]
        elif verb in ("status", "event", "volume", "pod"):
            names.insert(0, "denied")
        elif verb == "shard":
            names = ["shard_written", "denied", *names]
        elif verb == "group":
            names = ["group_written", "denied", *names]
        elif verb == "claim":
            names = [*(["claim_taken"] if method == "PATCH" else []), "denied", *names]
        share = 3.0 if verb == "evict" or (verb == "pod" and self._process.scheduler) else 1.0
        shares = {"claim_taken": 2.0, "shard_written": 2.0, "group_written": 3.0}
        if verb == "shard":
            # There are few of them.
            share = 3.0
        return next((name for name in names if self.strikes(name, shares.get(name, share))), "")

    def _latencies(self, fate: str, timeout: float) -> tuple[float, float]:
        before, after = self._rng.uniform(0.0002, 0.004), self._rng.uniform(0.0002, 0.004)
        if fate == "hangs":
            before = self._rng.uniform(1.0, LONGEST)
            self._world.plan.lasts(self._world.loop.time() + before)
        if fate == "slow":
            if self._rng.random() < 0.5:
                before = self._rng.uniform(0.1, 1.5) * timeout
            else:
                after = self._rng.uniform(0.1, 1.5) * timeout
            self._world.plan.lasts(self._world.loop.time() + before + after)
        return before, after

    def _is_unlistable(self, verb: str, path: str) -> bool:
        until = self._world.unlistable.get(path.partition("?")[0].rpartition("/")[2], 0.0)
        if verb != "list" or self._world.loop.time() >= until:
            return False
        if self._process.elects and not self._process.leads():
            self._world.states.reached("unlistable for who does not lead")
        return True

    def _lag(self, path: str) -> float:
        """By how many seconds the replica is behind that answers this list or watch; 0 for none that lags."""
        now, kind = self._world.loop.time(), path.partition("?")[0]
        if now < self._lags_until:
            return self._lags_by if self._lagging in ("", kind) else 0.0
        if not self.strikes("lagging", 0.2):
            return 0.0
        self._lags_by, self._lags_until = self._rng.uniform(1.0, 30.0), now + self._rng.uniform(5.0, 40.0)
        self._lagging = self._rng.choice(("", kind))
        self._world.plan.lasts(self._lags_until + 2 * self._lags_by)
        self._world.trace(
            self._process.name,
            f"{self._lagging or 'all'} lags {self._lags_by:.3f} s until {self._lags_until:.3f}",
        )
        return self._lags_by

    def _query(self, verb: str, path: str, query: str) -> str:
        if verb != "list" or "continue=" in query:
            return query
        if behind := self._lag(path):
            past = self._world.version_at(self._world.loop.time() - behind)
        elif self.strikes("stale_list", 3.0):
            past = self._world.store.rv - self._rng.randrange(1, 40)
        else:
            return query
        if past < 2:
            return query
        self._world.trace(self._process.name, f"the list is of version {past}")
        fast_path = self._process.fast_path
        first = fast_path is None or not fast_path.is_synced or (behind and not self._process.leads())
        if self._process.scheduler and first:
            # Nothing in a first list, or in one of a replica that the watch was of, says that it is old, so what it
            # lacks cannot be counted.
            self._world.safety.nobody_owns_nodes()
            if self._world.allocations is not None:
                self._world.allocations.nobody_knows_devices()
        return urlencode([*parse_qsl(query), ("resourceVersion", past), ("resourceVersionMatch", "Exact")])
