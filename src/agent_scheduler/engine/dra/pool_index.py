"""All pools, the nodes that reach each of them, and the uses of their devices by allocated claims.

`changed` is called for a change of a pool, with the names of the nodes whose answers may change; None means all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from ..state.indexes import drop_entry
from ..state.podclaims import ClaimKey
from ..state.records import same
from .allocation import Use
from .devices import DeviceId, PoolId
from .pools import Pool
from .records import SliceInfo

_NO_USES: Final[tuple[Use, ...]] = ()

#: Counts of all changes, of those that may have freed or published devices, and of those of published slices.
_Stamp = tuple[int, int, int]
_NEVER: Final[_Stamp] = (0, 0, 0)


def _later(stamp: _Stamp, freed: bool, slices: bool) -> _Stamp:
    return stamp[0] + 1, stamp[1] + freed, stamp[2] + slices


class PoolIndex:
    """The pools of all drivers. Owned by `Devices`. Invariants: see `check`."""

    def __init__(self, changed: Callable[[Collection[str] | None], None]) -> None:
        self._changed = changed
        #: The slices by name.
        self.slices: dict[str, SliceInfo] = {}
        self._pools: dict[PoolId, Pool] = {}
        #: Node -> pools that name it; and pools that other nodes than the named ones can reach.
        self._local: dict[str, dict[PoolId, Pool]] = {}
        self._common: dict[PoolId, Pool] = {}
        #: Node -> counts of the changes of its pools; and the counts of pools that many nodes reach.
        self._stamps: dict[str, _Stamp] = {}
        self._common_stamp = _NEVER
        #: Claim -> its uses.
        self._taken: dict[ClaimKey, tuple[Use, ...]] = {}
        #: Device slots of nodes without pools of their own, until published slices change. Owned by `node_devices`.
        self.shared_node_devices: dict[Any, Any] = {}

    # ---- queries

    def get(self, key: PoolId) -> Pool | None:
        return self._pools.get(key)

    def of(self, node_name: str) -> Iterable[Pool]:
        """Return the pools from which the node may have devices, by driver and name."""
        local = self._local.get(node_name)
        if not local:
            return (self._common[key] for key in sorted(self._common))
        if not self._common:
            return (local[key] for key in sorted(local))
        both = {**self._common, **local}
        return (both[key] for key in sorted(both))

    def has_own(self, node_name: str) -> bool:
        """Return whether a pool names the node."""
        return node_name in self._local

    def stamp(self, node_name: str) -> tuple[int, int]:
        """Return a stamp that differs whenever an answer about the node may have changed."""
        return self._stamps.get(node_name, _NEVER)[0], self._common_stamp[0]

    def freed_stamp(self, node_name: str) -> tuple[int, int]:
        """Return a stamp that is unchanged while devices are only taken: no device was freed or published."""
        return self._stamps.get(node_name, _NEVER)[1], self._common_stamp[1]

    def slice_stamp(self, node_name: str) -> tuple[int, int]:
        """Return a stamp of published slices, independent of the uses of devices."""
        return self._stamps.get(node_name, _NEVER)[2], self._common_stamp[2]

    def are_free(self, uses: Iterable[Use]) -> bool:
        """Return whether all uses can be taken together.

        Devices must be published and free, or shared with enough remaining capacity, and counters must suffice for all
        of them.
        """
        wanted: dict[DeviceId, dict[str, int]] = {}
        alone: set[DeviceId] = set()
        concerned: dict[PoolId, set[str]] = {}
        for use in uses:
            pool = self._pools.get(use.id.pool_id)
            found = pool.devices.get(use.id.device) if pool is not None else None
            if pool is None or found is None or use.id.device in pool.exclusive or use.id in alone:
                return False
            concerned.setdefault(pool.id, set()).add(use.id.device)
            if not use.shared:
                if use.id.device in pool.shares:
                    return False
                alone.add(use.id)
                continue
            total = wanted.setdefault(use.id, dict(pool.consumed.get(use.id.device, {})))
            for name, size in use.consumed:
                total[name] = total.get(name, 0) + size
            published = found[0].facts.capacity
            if any(name not in published or total[name] > published[name].value.nano for name, _ in use.consumed):
                return False
        return all(self._pools[key].counters_suffice(names) for key, names in concerned.items())

    def are_free_but_for(self, uses: Iterable[Use]) -> bool:
        """Return `are_free` for uses that are counted here, as if they were not."""
        mine = [(self._pools[use.id.pool_id], use) for use in uses]
        if all(pool.is_mine_alone(use) for pool, use in mine):
            return True
        for pool, use in mine:
            pool.give_back(use)
        free = self.are_free(use for _, use in mine)
        for pool, use in mine:
            pool.take(use)
        return free

    # ---- changes

    def set_slice(self, each: SliceInfo) -> bool:
        """Store a slice. Return false if it is unchanged."""
        old = self.slices.get(each.name)
        if old is not None and same(each, old):
            # The old object stays because others hold its parts, which are equal.
            return False
        if old is not None and old.pool != each.pool:
            self.delete_slice(each.name)
        self.slices[each.name] = each
        pool = self._pool(each.pool)
        before = pool.node_names
        pool.put(each)
        self._place(pool, before)
        return True

    def delete_slice(self, name: str) -> bool:
        """Delete a slice. Return false if it is unknown."""
        old = self.slices.pop(name, None)
        if old is None:
            return False
        pool = self._pools[old.pool]
        before = pool.node_names
        pool.drop(name)
        self._place(pool, before)
        return True

    def take(self, key: ClaimKey, new: tuple[Use, ...]) -> None:
        """Replace the uses of the claim."""
        old = self._taken.get(key, _NO_USES)
        if new == old:
            return
        names: set[str] = set()
        everywhere = False
        for use, taken in [(use, False) for use in old] + [(use, True) for use in new]:
            pool = self._pool(use.id.pool_id)
            if taken:
                pool.take(use)
            else:
                pool.give_back(use)
            concerned = pool.concerned(use.id.device)
            everywhere = everywhere or concerned is None
            names |= concerned or frozenset()
            self._tidy(pool)
        if new:
            self._taken[key] = new
        else:
            del self._taken[key]
        self._tell(None if everywhere else frozenset(names), freed=bool(old))

    # ---- inside

    def _pool(self, key: PoolId) -> Pool:
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = Pool(key)
        return found

    def _tidy(self, pool: Pool) -> None:
        if not pool:
            self._pools.pop(pool.id, None)

    def _place(self, pool: Pool, before: frozenset[str] | None) -> None:
        """Index a pool by its nodes, and report the nodes that reach it now or did `before`."""
        after = pool.node_names
        for name in before or ():
            if after is None or name not in after:
                drop_entry(self._local, name, pool.id)
        if after is None:
            self._common[pool.id] = pool
        else:
            self._common.pop(pool.id, None)
            for name in after:
                self._local.setdefault(name, {})[pool.id] = pool
        self.shared_node_devices.clear()
        self._tell(None if before is None or after is None else before | after, slices=True)
        self._tidy(pool)

    def _tell(self, names: frozenset[str] | None, *, freed: bool = True, slices: bool = False) -> None:
        if names is None:
            self._common_stamp = _later(self._common_stamp, freed, slices)
            self._changed(None)
        elif names:
            for name in names:
                self._stamps[name] = _later(self._stamps.get(name, _NEVER), freed, slices)
            self._changed(names)

    def check(self, allocated: Mapping[ClaimKey, tuple[Use, ...]]) -> list[str]:
        """Return the contradictions of the invariants. Costs a pass over everything.

        These are devices allocated twice, exceeded capacities and counters, and uses other than those of the claims,
        `allocated`.
        """
        problems = [
            f"the books have {uses} for {key}, which has {allocated.get(key, _NO_USES)}"
            for key in {*self._taken, *allocated}
            if (uses := self._taken.get(key, _NO_USES)) != allocated.get(key, _NO_USES)
        ]
        fresh: dict[PoolId, Pool] = {}
        for uses in self._taken.values():
            for use in uses:
                fresh.setdefault(use.id.pool_id, Pool(use.id.pool_id)).take(use)
        for key in {*self._pools, *fresh}:
            pool, counted = self._pools.get(key, Pool(key)), fresh.get(key, Pool(key))
            if (pool.exclusive, pool.shares) != (counted.exclusive, counted.shares):
                problems.append(f"{key}: {pool.exclusive} and {pool.shares} are not what the claims have")
            if pool.consumed != counted.consumed:
                problems.append(f"{key}: {pool.consumed} of shared devices is not what the claims have")
            problems += _over(pool)
        problems += [f"pool {key} is kept for nothing" for key, pool in self._pools.items() if not pool]
        return problems


def _over(pool: Pool) -> Iterator[str]:
    for name, count in pool.exclusive.items():
        if count > 1 or name in pool.shares:
            yield f"{pool.id}/{name} is had {count + pool.shares.get(name, 0)} times"
    for name, consumed in pool.consumed.items():
        if name in pool.devices:
            published = pool.devices[name][0].facts.capacity
            for capacity, size in consumed.items():
                if capacity in published and size > published[capacity].value.nano:
                    yield f"{pool.id}/{name}: {size} of {published[capacity].value.text} {capacity} in use"
    for counter, used in pool.counters_used.items():
        if used > pool.counters.get(counter, used):
            yield f"{pool.id}: {used} of {pool.counters[counter]} of counter {counter} in use"
