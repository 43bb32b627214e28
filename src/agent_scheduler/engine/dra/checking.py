"""What contradicts the books of the catalogue; for tests and simulations, after every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..state.podclaims import ClaimKey
from .allocation import Use
from .devices import PoolId
from .pools import Pool


def contradictions(
    pools: Mapping[PoolId, Pool],
    booked: Mapping[ClaimKey, tuple[Use, ...]],
    effective: Callable[[ClaimKey], tuple[Use, ...]],
    claims: Iterable[ClaimKey],
) -> list[str]:
    """Devices had twice, capacities and counters over, and books that are not what the claims say."""
    problems = [
        f"the books have {uses} for {key}, which has {effective(key)}"
        for key in {*booked, *claims}
        if (uses := booked.get(key, ())) != effective(key)
    ]
    fresh: dict[PoolId, Pool] = {}
    for uses in booked.values():
        for use in uses:
            key = PoolId(use.id.driver, use.id.pool)
            fresh.setdefault(key, Pool(key)).take(use)
    for key in {*pools, *fresh}:
        pool, counted = pools.get(key, Pool(key)), fresh.get(key, Pool(key))
        if (pool.exclusive, pool.shares) != (counted.exclusive, counted.shares):
            problems.append(f"{key}: {pool.exclusive} and {pool.shares} are not what the claims have")
        if pool.consumed != counted.consumed:
            problems.append(f"{key}: {pool.consumed} of shared devices is not what the claims have")
        problems += _over(pool)
    return problems


def _over(pool: Pool) -> Iterable[str]:
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
