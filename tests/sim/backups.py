"""Backups of the API server's store, and what it is to restore one while everybody is at work.

The store is then as it was: objects, versions, and the number of the last write, from which it counts on; it remembers
no history, and all connections and requests under way have ended. Between a backup and what follows many numbers are
left out, as in a cluster where others write, too: no number has two meanings for one object, and what was written
before does not come to the numbers that somebody has seen by the time that he asks again. In half of the cases the
backup comes under higher revisions than all before (`etcdutl snapshot restore --bump-revision --mark-compacted`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from embedded_kubernetes.store import Event, Record, Table

from .api import LEASES, PODS
from .kinds import Process, World

Name = tuple[str, str]
#: Seconds between two backups, and how old one is at least that is restored.
_EVERY, _AGE = 2.0, 3.0
#: How many are restored at most.
_MOST = 2
#: Revisions left out after a backup, and those that a restore adds which adds some.
_GAP, _BUMP = 100_000, 1_000_000_000
#: Seconds in which everybody has to know: a lease runs out, and lists that failed are tried again.
_NOTICED_WITHIN = 75.0


@dataclass(frozen=True, slots=True)
class _Backup:
    at: float
    rv: int
    tables: dict[Name, dict[str, Record]]


class Backups:
    """Owner of the backups of a world, and of what is known of who goes by a history that is none any more."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed} backups")
        self._kept: list[_Backup] = []
        self._highest = 0
        #: How often one was restored: what was sent before does not arrive after.
        self.restored = 0
        #: Whether events are told of now that nobody has written.
        self.restoring = False
        #: Identity of a process that has seen what was undone -> until when it goes by that; for ever, unless it has to
        #: notice. And of those that held their leases, until when they may go by these.
        self._unaware: dict[str, float] = {}
        #: Identity of a process that has to notice, and has had no answer yet -> the newest version that it has
        #: seen of what it lists and watches.
        self._seen: dict[str, int] = {}
        self._led: dict[str, float] = {}

    def take(self) -> None:
        """Now and then."""
        world, now = self._world, self._world.loop.time()
        early = self._kept and now < self._kept[-1].at + _EVERY
        # Whoever is to see that the store counts from an earlier number is given the time.
        if self.restored or early or (world.shards is not None and not world.shards.is_known):
            return
        store = world.store
        tables = {name: dict(table.records) for name, table in store.tables.items()}
        self._kept.append(_Backup(now, store.rv, tables))
        self._highest = max(self._highest, store.rv) + _GAP
        store.rv = self._highest

    def restore(self) -> bool:
        """One that is old enough, if there is any."""
        world, now = self._world, self._world.loop.time()
        old = [each for each in self._kept if each.at <= now - _AGE]
        if not old or self.restored == _MOST:
            return False
        backup = self._rng.choice(old)
        bumped = self._rng.random() < 0.5
        self._kept = [each for each in self._kept if each.at < backup.at]
        self._highest = max(self._highest, world.store.rv)
        world.trace("", f"the store is as of {backup.at:.3f}, version {backup.rv}, bumped: {bumped}")
        self.restored += 1
        for process in world.processes:
            self._note(process, backup, bumped=bumped)
        self._put(backup, self._highest + _BUMP if bumped else backup.rv)
        self._highest = max(self._highest, world.store.rv)
        world.went_back()
        world.plan.lasts(world.server_back + _NOTICED_WITHIN)
        return True

    def _note(self, process: Process, backup: _Backup, *, bumped: bool) -> None:
        transport, name = process.transport, process.identity
        if transport is None or transport.closed or transport.newest <= backup.rv:
            return
        leads = process.elects and process.leads()
        if leads:
            self._led[name] = self._world.server_back + process.renew_deadline
        has_to_notice = not bumped or (leads and self._is_renewed(process, backup))
        if has_to_notice and self._has_taken_in(process) > backup.rv:
            self._unaware[name] = float("inf")
            self._seen[name] = transport.newest_listed
        else:
            # What it lists then is what there is, unless that shows it what has been; also for who has not noticed yet
            # that the store went back before.
            self._unaware[name] = self._world.server_back + _NOTICED_WITHIN

    def answered(self, process: Process) -> None:
        """A process is told a version. Who stood still until the store had counted beyond all that he knew cannot see
        that it went back, and needs not: it has no history from there, so that he lists all anew."""
        seen = self._seen.pop(process.identity, None)
        if seen is not None and self._world.store.rv >= seen:
            self._unaware[process.identity] = self._world.loop.time() + _NOTICED_WITHIN

    def _has_taken_in(self, process: Process) -> float:
        """The newest version that a process has surely seen: of what it was sent, some may have been mangled."""
        fast_path = process.fast_path
        if fast_path is None or not self._world.plan.enabled("mangled"):
            return float("inf")
        return max((int(each.view.version or 0) for _, each in fast_path._informers.watched), default=0)

    def _is_renewed(self, process: Process, backup: _Backup) -> bool:
        """Whether the backup has a lease of a process that leads as it was before: one that is gone is made again."""
        then, now = backup.tables[LEASES], self._world.store.tables[LEASES]
        leases = [(then.get("/".join(each)), now.get(*each)) for each in process.leases]
        return any(was is not None and was is not is_ for was, is_ in leases)

    def is_unaware(self, process: Process | None) -> bool:
        """Whether a process goes by a history that is none any more."""
        return process is not None and self._world.loop.time() < self._unaware.get(process.identity, 0.0)

    def must_start_over(self, process: Process) -> bool:
        return self._unaware.get(process.identity) == float("inf")

    def may_start_over(self, process: Process) -> bool:
        """Whether a process may find that a write of its own was undone, as one of a claim."""
        return process.identity in self._unaware

    def leads_by_what_was(self, process: Process) -> bool:
        """Whether a process goes by a lease that it held when the store went back, and may do so for now."""
        until = self._led.get(process.identity, 0.0) + self._world.stopped_for(process.name)
        return process.identity in self._led and self._world.loop.time() <= until

    # -- the store

    def _put(self, backup: _Backup, rv: int) -> None:
        store = self._world.store
        events: list[tuple[Table, Event]] = []
        for hub in (served.hub for served in self._world.api.registry.tables()):
            for watcher in hub.watchers():
                watcher.end()
        for name, table in store.tables.items():
            events += self._differences(name, table, backup.tables.get(name, {}))
            table.history.clear()
            table.compacted = rv
        store.rv = rv
        self.restoring = True
        try:
            for table, event in events:
                for subscriber in table.subscribers:
                    subscriber(event)
        finally:
            self.restoring = False
        # Pods that node agents look at anew have not ended, and nothing that belongs to them has to go.
        jobs = self._world.api.collector._jobs
        there = {record.uid for record in store.tables[PODS].scan("")}
        for job in [each for each in jobs if each[0] == "gone" and each[2] in there]:
            del jobs[job]

    def _differences(self, name: Name, table: Table, then: dict[str, Record]) -> list[tuple[Table, Event]]:
        """Make the table what it was; gives what those see who follow it by themselves."""
        store = self._world.store
        now, found = dict(table.records), []
        for key in sorted(now.keys() | then.keys()):
            is_, was = now.get(key), then.get(key)
            if is_ is was:
                continue
            if was is None:
                del table.records[key]
                table.keys.remove(key)
            else:
                table.records[key] = was
                if is_ is None:
                    table.keys.add(key)
            if table.by_field:
                table.index(was, is_)
            store._own(name, key, owned=getattr(is_, "owners", ()), owners=getattr(was, "owners", ()))
            # A node agent that starts over looks at each pod anew.
            again = name == PODS or is_ is None or was is None or is_.uid != was.uid
            if is_ is not None and again:
                found.append((table, Event(is_.rv, "DELETED", is_, is_)))
            if was is not None:
                kind = "ADDED" if again else "MODIFIED"
                found.append((table, Event(was.rv, kind, was, None if again else is_)))
            if name == PODS and is_ is not None and was is not None:
                node = table.field_names.index("spec.nodeName")
                if is_.fields[node] and not was.fields[node]:
                    self._world.states.reached("bind undone with the store")
        return found
