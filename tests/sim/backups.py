"""Backups of the API server's store, and their restore while all processes work.

A restore resets objects, versions, and the number of the last write, from which the store continues to count; the
history is empty, and all connections and requests in flight end. A gap of numbers follows each backup, as in a cluster
where other clients write, too: so no version has two meanings for one object, and the numbers before the gap do not
reach those that a process has observed by its next request. In half of the cases the restore has higher revisions than
all before (`etcdutl snapshot restore --bump-revision --mark-compacted`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from embedded_kubernetes.store import Event, Record, Table

from .api import LEASES, PODS
from .kinds import Process, World

Name = tuple[str, str]
#: Seconds between two backups, and the minimum age of one that is restored.
_EVERY, _AGE = 2.0, 3.0
#: Maximum number of restores.
_MOST = 2
#: Revisions skipped after a backup, and revisions that a restore adds if it raises them.
_GAP, _BUMP = 100_000, 1_000_000_000
#: Seconds within which every process must notice: a lease expires, and failed lists are retried.
_NOTICED_WITHIN = 75.0


@dataclass(frozen=True, slots=True)
class _Backup:
    at: float
    rv: int
    tables: dict[Name, dict[str, Record]]


class Backups:
    """Owner of the backups of a world, and of which processes still use an invalid history."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed} backups")
        self._kept: list[_Backup] = []
        self._highest = 0
        #: Number of restores: what was sent before one does not arrive after it.
        self.restored = 0
        #: Whether the events that are delivered now come from a restore and not from a write.
        self.restoring = False
        #: Identity of a process that has observed what was undone -> until when it uses that; forever, unless it must
        #: notice. `_led`: for processes that held their leases, until when they may act on these.
        self._unaware: dict[str, float] = {}
        #: Identity of a process that must notice, and has had no response yet -> the newest version that it has
        #: observed of what it lists and watches.
        self._seen: dict[str, int] = {}
        self._led: dict[str, float] = {}

    def take(self) -> None:
        """Take a backup if the last one is old enough."""
        world, now = self._world, self._world.loop.time()
        early = self._kept and now < self._kept[-1].at + _EVERY
        # A process that must notice that the store counts from an earlier number is given the time.
        if self.restored or early or (world.shards is not None and not world.shards.is_known):
            return
        store = world.store
        tables = {name: dict(table.records) for name, table in store.tables.items()}
        self._kept.append(_Backup(now, store.rv, tables))
        self._highest = max(self._highest, store.rv) + _GAP
        store.rv = self._highest

    def restore(self) -> bool:
        """Restore a backup that is old enough; return whether there was one."""
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
            # It lists the current state then, unless that reveals the restore; also for a process that has not noticed
            # an earlier restore yet.
            self._unaware[name] = self._world.server_back + _NOTICED_WITHIN

    def answered(self, process: Process) -> None:
        """Handle a response with a version.

        A process that was stopped until the store had counted beyond all versions that it knew cannot notice the
        restore, and need not: it has no history from there, so it lists everything again.
        """
        seen = self._seen.pop(process.identity, None)
        if seen is not None and self._world.store.rv >= seen:
            self._unaware[process.identity] = self._world.loop.time() + _NOTICED_WITHIN

    def _has_taken_in(self, process: Process) -> float:
        """Return the newest version that the process has certainly applied; the others may have been mangled."""
        fast_path = process.fast_path
        if fast_path is None or not self._world.plan.enabled("mangled"):
            return float("inf")
        return max((int(each.view.version or 0) for _, each in fast_path._informers.watched), default=0)

    def _is_renewed(self, process: Process, backup: _Backup) -> bool:
        """Return whether a lease of the process differs from the backup's; a missing lease is created again."""
        then, now = backup.tables[LEASES], self._world.store.tables[LEASES]
        leases = [(then.get("/".join(each)), now.get(*each)) for each in process.leases]
        return any(was is not None and was is not is_ for was, is_ in leases)

    def is_unaware(self, process: Process | None) -> bool:
        """Return whether a process uses an invalid history."""
        return process is not None and self._world.loop.time() < self._unaware.get(process.identity, 0.0)

    def must_start_over(self, process: Process) -> bool:
        return self._unaware.get(process.identity) == float("inf")

    def may_start_over(self, process: Process) -> bool:
        """Return whether a process may notice that its own write was undone, such as that of a claim."""
        return process.identity in self._unaware

    def leads_by_what_was(self, process: Process) -> bool:
        """Return whether a process acts on a lease that it held when the store went back, and still may."""
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
        # Pods that node agents observe again have not ended, and none of their objects must be collected.
        jobs = self._world.api.collector._jobs
        there = {record.uid for record in store.tables[PODS].scan("")}
        for job in [each for each in jobs if each[0] == "gone" and each[2] in there]:
            del jobs[job]

    def _differences(self, name: Name, table: Table, then: dict[str, Record]) -> list[tuple[Table, Event]]:
        """Set the table to the backup's records; return the events for subscribers that follow it themselves."""
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
            # A node agent that starts over observes each pod again.
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
