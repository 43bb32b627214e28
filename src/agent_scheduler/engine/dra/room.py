"""Whether what an allocation takes can be taken: the last question before a device is anybody's."""

from __future__ import annotations

from collections.abc import Mapping

from .allocation import Holding
from .devices import DeviceId, PoolId
from .pools import Pool


def has_room(holding: Holding, pools: Mapping[PoolId, Pool]) -> bool:
    """Devices that are there and nobody's, or shared with enough left, and counters that suffice for all of them."""
    wanted: dict[DeviceId, dict[str, int]] = {}
    alone: set[DeviceId] = set()
    for use in holding.uses:
        pool = pools.get(PoolId(use.id.driver, use.id.pool))
        found = pool.devices.get(use.id.device) if pool is not None else None
        if pool is None or found is None or use.id.device in pool.exclusive or use.id in alone:
            return False
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
    return _counters_suffice(holding, pools)


def _counters_suffice(holding: Holding, pools: Mapping[PoolId, Pool]) -> bool:
    for key in {PoolId(use.id.driver, use.id.pool) for use in holding.uses}:
        pool = pools[key]
        if not pool.counters:
            continue
        used = dict(pool.counters_used)
        for name in {use.id.device for use in holding.uses if use.id[:2] == key}:
            if name in pool.shares:
                continue
            for counter, size in pool.devices[name][0].consumes:
                used[counter] = used.get(counter, 0) + size
                if used[counter] > pool.counters.get(counter, 0):
                    return False
    return True
