"""The base of judges: their world, and how they observe what a process does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from agent_scheduler.fastpath.scheduler import FastPath
from embedded_kubernetes.store import Event

from .api import Json
from .kinds import Process, World


class Judge:
    """A judge, created with its world. A method calls `_violated` where a fact that breaks a promise is recorded."""

    def __init__(self, world: World) -> None:
        self.world = world

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Observe what the process does. Idempotent."""

    def went_back(self) -> None:
        """Handle a restore of the store."""

    def _violated(self, code: str, text: str) -> None:
        self.world.safety.violated(code, text)

    def _wrong(self, code: str, process: Process, what: str) -> None:
        self._violated(code, f"{process.identity} {what}")

    def _look(self, code: str) -> None:
        """Count that a promise was checked."""
        self.world.safety.look(code)

    def _reached(self, state: str) -> None:
        self.world.states.reached(state)

    def _is_unaware(self, process: Process | None) -> bool:
        """Return whether the process uses an undone history, so that it is not judged."""
        return self.world.backups.is_unaware(process)


class History:
    """All versions of objects of these kinds, converted by `read`; not to be changed. Subscribes to the store."""

    def __init__(self, world: World, kinds: Iterable[tuple[str, str]], read: Any = None) -> None:
        self._versions: dict[tuple[str, str], bytes] = {}
        self._found: dict[tuple[str, str], Json] = {}
        self._read = read or (lambda found: found)
        for kind in kinds:
            if kind in world.store.tables:
                world.store.tables[kind].subscribers.append(self._note)

    def _note(self, event: Event) -> None:
        self._versions[event.record.uid, str(event.record.rv)] = event.record.data

    def object(self, uid: str, version: str) -> Json:
        key = uid, version
        if key not in self._found:
            self._found[key] = self._read(orjson.loads(self._versions[key]))
        return self._found[key]

    def known(self, found: Any) -> Json:
        """Return the API's version of an object of a process: of an API object, or of what was decoded from one."""
        metadata = getattr(found, "metadata", found)
        return self.object(metadata.uid, metadata.resource_version)


def hear_before(owner: Any, name: str, hear: Callable[..., object]) -> None:
    """Make each call of `owner.name` call `hear` with the same arguments first."""
    act = getattr(owner, name)

    def heard(*about: Any, **more: Any) -> Any:
        hear(*about, **more)
        return act(*about, **more)

    setattr(owner, name, heard)


def hear_after(owner: Any, name: str, hear: Callable[..., object]) -> None:
    """Make each call of `owner.name` call `hear` afterwards."""
    act = getattr(owner, name)

    def heard(*about: Any, **more: Any) -> Any:
        answer = act(*about, **more)
        hear(*about, **more)
        return answer

    setattr(owner, name, heard)


def is_first(owner: Any, judge: str) -> bool:
    """Return whether this judge observes the object for the first time, and record that."""
    asked: set[str] = vars(owner).setdefault("judges", set())
    return judge not in asked and not asked.add(judge)
