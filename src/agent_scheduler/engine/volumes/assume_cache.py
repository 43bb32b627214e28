"""Decisions about volumes and claims that the API server does not have yet: kube-scheduler's assume cache.

    assume ──> written (the API server accepted it) ──> dropped when the watch reports that version or a newer one
       └─────> release (the bind failed before the write), if no other pod needs the same

Pods that share a claim share its assumption: each is a holder, and the last one to release it undoes it. A written
assumption is a fact that the watch has yet to report, so releasing it undoes nothing.

Any newer version of the object from the watch ends an assumption: a write that is still to be sent has the
resourceVersion of the time when it was assumed, so the API server rejects it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Set
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..state.indexes import drop_entry

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True, eq=False)
class AssumedValue(Generic[V]):
    """A value and its holders.

    `written` is the version of the object with it; -1 until the API server has answered.
    """

    value: V
    holders: set[str] = field(default_factory=set)
    written: int = -1


class AssumeCache(Generic[K, V]):
    """Assumed values by the key of their object.

    Invariant: one value per object, with a holder until it is written.
    """

    def __init__(self) -> None:
        self._assumed: dict[K, AssumedValue[V]] = {}
        self._held: dict[str, dict[K, None]] = {}

    def __len__(self) -> int:
        return len(self._assumed)

    def __iter__(self) -> Iterator[K]:
        return iter(self._assumed)

    def get(self, key: K) -> V | None:
        found = self._assumed.get(key)
        return None if found is None else found.value

    def is_written(self, key: K) -> bool:
        found = self._assumed.get(key)
        return found is not None and found.written >= 0

    @property
    def holders(self) -> Set[str]:
        """The holders of any assumption."""
        return self._held.keys()

    def held(self, holder: str) -> frozenset[K]:
        return frozenset(self._held.get(holder, ()))

    def assume(self, key: K, value: V, holder: str) -> bool:
        """Add `holder` to an assumed value. Return whether it is new; it must not contradict an assumed one."""
        found = self._assumed.get(key)
        new = found is None
        if found is None:
            found = self._assumed[key] = AssumedValue(value)
        assert found.value == value, "an object is assumed for one thing at a time"
        found.holders.add(holder)
        self._held.setdefault(holder, {})[key] = None
        return new

    def written(self, key: K, version: int) -> None:
        """Record that the API server has the assumed value, at this version."""
        found = self._assumed.get(key)
        if found is not None:
            found.written = max(found.written, version)

    def release(self, holder: str) -> list[K]:
        """Remove `holder` from all assumptions. Return the keys of those that this undoes."""
        undone = []
        for key in sorted(self._held.pop(holder, ()), key=repr):
            found = self._assumed[key]
            found.holders.discard(holder)
            if not found.holders and found.written < 0:
                del self._assumed[key]
                undone.append(key)
        return undone

    def seen(self, key: K, version: int) -> bool:
        """Handle this version of the object from the watch. Return whether it ends an assumption."""
        found = self._assumed.get(key)
        if found is None or version < found.written:
            return False
        self.drop(key)
        return True

    def drop(self, key: K) -> None:
        """End the assumption: the object is deleted, or its state on the API server replaces it."""
        found = self._assumed.pop(key, None)
        for holder in found.holders if found is not None else ():
            drop_entry(self._held, holder, key)

    def check(self) -> list[str]:
        """Return the contradictions of the invariant."""
        problems = []
        for key, found in self._assumed.items():
            if not found.holders and found.written < 0:
                problems.append(f"{key} is assumed without a holder")
            problems += [
                f"{holder} does not know that it holds {key}"
                for holder in found.holders
                if key not in self._held.get(holder, ())
            ]
        for holder, keys in self._held.items():
            problems += [
                f"{holder} holds {key}, which is not assumed"
                for key in keys
                if key not in self._assumed or holder not in self._assumed[key].holders
            ]
            if not keys:
                problems.append(f"{holder} is kept though it holds nothing")
        return problems
