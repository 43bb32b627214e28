"""The client-side limit of one kind of request: a rate and a number of concurrent requests.

Binds, status writes and events have separate budgets, so that a flood of FailedScheduling events never delays a bind
(a shared client-side limit did that to kube-scheduler, kubernetes#135900). The rate is client-go's token bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from kube_client.retry import REAL, Timing

#: Seconds after which a bucket without a token is asked again.
_TOGETHER: Final = 0.02
#: Seconds by which the sum of two times may be rounded down.
_ROUNDING: Final = 1e-6


class _AtOnce:
    """An awaitable that completes immediately. It avoids a coroutine per request."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


_AT_ONCE = _AtOnce()


class TokenBucket:
    """A token bucket: `qps` tokens per second, at most `burst` saved up; `qps` 0 or None means no limit.

    Waiters are served in order of arrival: each takes its token immediately, going into debt, and sleeps the debt
    off. `_tokens` is owned by this class, on one event loop. Invariant: `_tokens` <= burst.
    """

    def __init__(self, qps: float | None, burst: int | None = None, *, timing: Timing = REAL) -> None:
        self._timing = timing
        self._at = timing.clock()
        self._qps, self._burst = _rate(qps, burst)
        self._tokens = self._burst

    def set_rate(self, qps: float | None, burst: int | None = None) -> None:
        """Change the rate from now on. Raises ValueError without changing anything.

        No tokens are added, and current waiters keep their waiting time.
        """
        rate = _rate(qps, burst)
        self._gain()
        if not self._qps:
            # Without a limit no tokens were counted.
            self._tokens = rate[1]
        self._qps, self._burst = rate

    def _gain(self) -> None:
        now = self._timing.clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps)
        self._at = now

    def take(self) -> Awaitable[None]:
        """Take one token; the caller awaits the result immediately. A cancelled waiter returns its token."""
        if not self._qps:
            return _AT_ONCE
        self._gain()
        self._tokens -= 1
        return _AT_ONCE if self._tokens >= 0 else self._pay(-self._tokens / self._qps)

    def wait(self) -> float:
        """Return 0 if a token is available, otherwise the seconds after which to ask again.

        That is up to `_TOGETHER`, if no token is lost by then.
        """
        if not self._qps:
            return 0.0
        self._gain()
        if self._tokens >= 1:
            return 0.0
        until_full = (self._burst - self._tokens) / self._qps
        return max((1 - self._tokens) / self._qps, min(_TOGETHER, until_full)) + _ROUNDING

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
    """A token bucket and a limit of concurrent requests. `concurrency` None means no limit."""

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
        self._place = _Slot(self._bucket, self._slots)
        #: Whether requests need not use the budget.
        self.is_unlimited = not qps and self._slots is None

    def set_rate(self, qps: float | None, burst: int | None = None) -> None:
        """Change the rate as `TokenBucket.set_rate` does. The concurrency limit is unchanged."""
        self._bucket.set_rate(qps, burst)
        self.is_unlimited = not qps and self._slots is None

    def wait(self) -> float:
        """Return 0 if the rate allows another request, otherwise the seconds after which to ask again.

        It may allow several requests by then, which so share a turn of the event loop.
        """
        return self._bucket.wait()

    def at_once(self, start: Callable[[], bool]) -> bool:
        """Send a request by `start` if it need not wait; return whether it was sent.

        `start` is not called otherwise. With `concurrency` the result is always false, because the end of the request
        would have to be observed.
        """
        if self._slots is not None or self._bucket.wait() > 0 or not start():
            return False
        self._bucket.take()
        return True

    def request(self) -> _Slot:
        """Return a context that holds a place for one request. Await the response inside, but never a backoff."""
        return self._place


class _Slot:
    """A slot and a token for the duration of the block. It has no state, so one instance serves all requests."""

    __slots__ = ("_bucket", "_slots")

    def __init__(self, bucket: TokenBucket, slots: asyncio.Semaphore | None) -> None:
        self._bucket = bucket
        self._slots = slots

    def __aenter__(self) -> Awaitable[None]:
        return self._bucket.take() if self._slots is None else self._enter(self._slots)

    async def _enter(self, slots: asyncio.Semaphore) -> None:
        # The slot comes first: a token taken before a slot is free would be used up by waiting.
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


#: For callers without a budget.
UNLIMITED = Budget()
