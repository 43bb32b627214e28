"""How much one kind of request may take of the API server: a rate and a number at a time.

Binds, status writes and events each have a budget of their own, so a flood of FailedScheduling never delays a bind
(one shared client-side limit did that to kube-scheduler, kubernetes#135900). The rate is client-go's token bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from agent_scheduler.kube.retry import REAL, Timing


class _AtOnce:
    """What there is nothing to wait for. Every request asks, and a coroutine each would cost more than the rest."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


_AT_ONCE = _AtOnce()


class TokenBucket:
    """`qps` tokens a second, at most `burst` saved up; `qps` 0 or None means without limit.

    Waiters are served in the order of their coming: each takes its token at once, going into debt, and sleeps the
    debt off. Owner of `_tokens`: this class, on one event loop. Invariant: `_tokens` <= burst.
    """

    def __init__(self, qps: float | None, burst: int | None = None, *, timing: Timing = REAL) -> None:
        self._timing = timing
        self._at = timing.clock()
        self._qps, self._burst = _rate(qps, burst)
        self._tokens = self._burst

    def set_rate(self, qps: float | None, burst: int | None = None) -> None:
        """Another rate from now on. Nothing is saved up by it, and those who wait already wait as long as they were
        told. Raises ValueError, having changed nothing."""
        rate = _rate(qps, burst)
        self._gain()
        if not self._qps:
            # Nobody was counted.
            self._tokens = rate[1]
        self._qps, self._burst = rate

    def _gain(self) -> None:
        now = self._timing.clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps)
        self._at = now

    def take(self) -> Awaitable[None]:
        """Takes one token; the answer is to be awaited at once. A waiter that is cancelled gives its token back."""
        if not self._qps:
            return _AT_ONCE
        self._gain()
        self._tokens -= 1
        return _AT_ONCE if self._tokens >= 0 else self._pay(-self._tokens / self._qps)

    def has_one(self) -> bool:
        """Whether a token may be had without waiting."""
        if not self._qps:
            return True
        self._gain()
        return self._tokens >= 1

    async def _pay(self, seconds: float) -> None:
        try:
            await self._timing.sleep(seconds)
        except asyncio.CancelledError:
            self._tokens += 1
            raise


def _rate(qps: float | None, burst: int | None) -> tuple[float, float]:
    if qps is not None and qps < 0:
        raise ValueError(f"qps must be 0 (no limit) or more, not {qps}")
    if qps and burst is not None and burst < 1:
        raise ValueError(f"burst must be at least 1, not {burst}")
    return qps or 0.0, float(burst if burst is not None else max(1, int(qps or 0.0)))


class Budget:
    """A token bucket and a bound on requests under way. `concurrency` None means without bound."""

    def __init__(
        self,
        *,
        qps: float | None = None,
        burst: int | None = None,
        concurrency: int | None = None,
        timing: Timing = REAL,
    ) -> None:
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self._bucket = TokenBucket(qps, burst, timing=timing)
        self._slots = asyncio.Semaphore(concurrency) if concurrency else None
        self._place = _Place(self._bucket, self._slots)
        #: Whether a request need not ask.
        self.is_unlimited = not qps and self._slots is None

    def set_rate(self, qps: float | None, burst: int | None = None) -> None:
        """As `TokenBucket.set_rate`. How many may be under way stays as it is."""
        self._bucket.set_rate(qps, burst)
        self.is_unlimited = not qps and self._slots is None

    def at_once(self, start: Callable[[], bool]) -> bool:
        """Whether a request was sent: by `start`, which is asked only if the request need not wait for its place.

        Who bounds the requests under way has to see them end, so with `concurrency` it is always False."""
        if self._slots is not None or not self._bucket.has_one() or not start():
            return False
        self._bucket.take()
        return True

    def request(self) -> _Place:
        """Holds a place for one request. Wait for an answer inside, never for a backoff."""
        return self._place


class _Place:
    """A slot and a token, for as long as the block lasts. It remembers nothing, so one serves all requests."""

    __slots__ = ("_bucket", "_slots")

    def __init__(self, bucket: TokenBucket, slots: asyncio.Semaphore | None) -> None:
        self._bucket = bucket
        self._slots = slots

    def __aenter__(self) -> Awaitable[None]:
        return self._bucket.take() if self._slots is None else self._enter(self._slots)

    async def _enter(self, slots: asyncio.Semaphore) -> None:
        # The slot comes first: a token taken before a slot is free would be spent on waiting.
        await slots.acquire()
        try:
            await self._bucket.take()
        except BaseException:
            slots.release()
            raise

    def __aexit__(self, *exc: object) -> Awaitable[None]:
        if self._slots is not None:
            self._slots.release()
        return _AT_ONCE


#: For callers that were given none.
UNLIMITED = Budget()
