"""The pool of connections to one API server.

The connection used last is taken first, so that a quiet client keeps few connections open. If all are busy, requests
wait in order of arrival. A connection is not reused after it was idle for `keepalive`, or if its peer is known to
have closed it. Even a busy connection is replaced after about `max_age`: otherwise requests would stay with the API
server that was there first.

Every connection, whether being opened, busy or idle, has a slot. A slot that becomes free while requests wait goes to
the first of them directly.
"""

from __future__ import annotations

import asyncio
import math
import random
import ssl
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace

from kube_client.address import Address
from kube_client.connection import Connection, ResponseLimits
from kube_client.dial import Dial

#: The share of `max_age` by which it is shortened at random, so that connections do not all end together.
_AGE_JITTER = 0.3
#: Seconds that `close` waits for the loop to report the end of aborted connections.
_CLOSING = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionTimes:
    """The times of connections, in seconds."""

    #: How long a connection may be idle: less than the 90 s after which kube-apiserver closes it, so that no write
    #: begins on a connection that is being closed.
    keepalive: float = 30.0
    #: After this age even a busy connection is replaced, so that requests reach API servers that were added or
    #: recovered.
    max_age: float = 300.0
    connect_timeout: float = 10.0
    #: The limit of the wait for the head of a watch, which kube-apiserver sends immediately.
    head_timeout: float = 30.0


class NoConnection(Exception):
    """There is no connection for the request, so nothing was sent."""


class ConnectionPool:
    """At most `size` connections. It belongs to the event loop in which it was created.

    Times are in seconds, deadlines in loop time. Every connection that is taken or acquired must be released.
    """

    def __init__(self, address: Address, *, size: int, times: ConnectionTimes, dial: Dial, rng: random.Random) -> None:
        self._address = address
        self._dial = dial
        self._max_age = times.max_age
        self._rng = rng
        self._size = size
        self._keepalive = times.keepalive
        self._connect_timeout = times.connect_timeout
        self._limits = ResponseLimits()
        self._loop = asyncio.get_running_loop()
        #: The number of used slots. Invariant: at most `size`; equal to it while requests wait.
        self._slots = 0
        #: Idle connections in order of becoming idle. Empty while requests wait.
        self._idle: deque[Connection] = deque()
        #: Requests without a slot. Each receives a connection, or None for a slot in which to open one.
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        #: Deadlines of connections that are being opened, in order; `close` ends them early.
        self._opening: dict[asyncio.Timeout, None] = {}
        #: All connections between `connection_made` and `connection_lost`, in order.
        self._open: dict[Connection, None] = {}
        #: Runs while a connection is idle.
        self._sweeper: asyncio.TimerHandle | None = None
        #: Fires at `alarm_at`. Invariant: that is not later than the deadline of any exchange. One timer for all,
        #: because a timer per request would cost a tenth of the request.
        self._alarm: asyncio.TimerHandle | None = None
        self.alarm_at = math.inf
        self._closed = False
        self._emptied = asyncio.Event()

    def take(self) -> Connection | None:
        """Return the usable idle connection that was used last; None if there is none."""
        idle = self._idle
        now = self._loop.time()
        while idle:
            connection = idle.pop()
            if now - connection.idle_since <= self._keepalive and connection.alive():
                return connection
            self._drop(connection)
        return None

    async def acquire(self, deadline: float) -> Connection:
        """Open a connection or wait for one. Raises NoConnection after the deadline."""
        if self._closed:
            raise NoConnection(f"the connections to {self._address} are closed")
        if self._slots < self._size:
            self._slots += 1
            return await self._connect(deadline)
        connection = await self._wait(deadline)
        if connection is not None and connection.alive():
            return connection
        if connection is not None:
            connection.abort()
        return await self._connect(deadline)

    async def open(self, deadline: float) -> Connection:
        """Open a connection outside the limit, for long use. The caller ends it by `abort`."""
        return await self._opened_by(deadline)

    def use(self, tls: ssl.SSLContext) -> None:
        """Use another TLS context from now on.

        Existing connections are given up: idle ones and streams immediately, others after their exchange.
        """
        if tls is self._address.tls:
            return
        self._address = replace(self._address, tls=tls)
        while self._idle:
            self._drop(self._idle.pop())
        for connection in list(self._open):
            if connection.streaming:
                connection.fail("its certificates were replaced")
            else:
                connection.retire()

    async def renew(self, connection: Connection, deadline: float) -> Connection:
        """Replace a broken connection by a new one. Raises NoConnection, and then the slot is free."""
        connection.abort()
        return await self._connect(deadline)

    def release(self, connection: Connection) -> None:
        """Return a connection after its exchange, however that ended."""
        now = self._loop.time()
        if self._closed or not connection.reusable or connection.retires_at <= now:
            self._drop(connection)
        else:
            self._hand_over(connection, now)

    def watch_deadline(self, deadline: float) -> None:
        """Ensure that an exchange ends at its deadline. Not needed for a deadline after `alarm_at`."""
        if deadline >= self.alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self.alarm_at = deadline
        self._alarm = self._loop.call_at(deadline, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm, self.alarm_at = None, math.inf
        busy = [connection for connection in self._open if connection.busy]
        # A loop may run a timer early by up to its clock's resolution.
        now = self._loop.time() + 0.001
        for connection in busy:
            if connection.deadline <= now:
                connection.fail("no answer came in time")
        following = min((connection.deadline for connection in busy if connection.busy), default=math.inf)
        if following < math.inf:
            self.watch_deadline(following)

    def _drop(self, connection: Connection) -> None:
        connection.abort()
        self._free_slot()

    def _next_waiter(self) -> asyncio.Future[Connection | None] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _hand_over(self, connection: Connection, now: float) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(connection)
            return
        connection.idle_since = now
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._keepalive, self._sweep)

    def _free_slot(self) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(None)
        else:
            self._slots -= 1

    async def _wait(self, deadline: float) -> Connection | None:
        waiter: asyncio.Future[Connection | None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # Cancelled after the connection or slot was assigned: it goes to the next waiter.
                given = waiter.result()
                if given is None:
                    self._free_slot()
                else:
                    self.release(given)
            else:
                with suppress(ValueError):
                    self._waiters.remove(waiter)
            if isinstance(error, TimeoutError):
                raise NoConnection(f"all {self._size} connections to {self._address} were busy") from None
            raise

    async def _connect(self, deadline: float) -> Connection:
        """Open a connection in a slot that is held already; free the slot on failure."""
        try:
            return await self._opened_by(deadline)
        except BaseException:
            self._free_slot()
            raise

    async def _opened_by(self, deadline: float) -> Connection:
        """Open a connection. Raises NoConnection."""
        address = self._address
        connection = Connection(self._limits, opened=self._on_opened, lost=self._on_lost)
        limit = min(deadline, self._loop.time() + self._connect_timeout)
        try:
            if self._closed:
                raise NoConnection(f"the connections to {address} are closed")
            async with asyncio.timeout_at(limit) as scope:
                self._opening[scope] = None
                try:
                    await self._dial(address, connection)
                finally:
                    del self._opening[scope]
                    self._note_emptied()
            if self._closed or not connection.alive():
                raise NoConnection(f"the connection to {address} was closed at once")
        except BaseException as error:
            connection.abort()
            if isinstance(error, TimeoutError) and scope.expired():
                why = "the client is closing" if self._closed else "timed out"
                raise NoConnection(f"no connection to {address}: {why}") from None
            if isinstance(error, OSError | UnicodeError):
                raise NoConnection(f"no connection to {address}: {type(error).__name__}: {error}") from error
            raise
        connection.retires_at = self._loop.time() + self._max_age * (1 - _AGE_JITTER * self._rng.random())
        if address is not self._address:
            connection.retire()
        return connection

    def _on_opened(self, connection: Connection) -> None:
        self._open[connection] = None

    def _on_lost(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self._note_emptied()
        # The slot is freed by its holder: the request, or `take` and `_sweep` for an idle connection.

    def _sweep(self) -> None:
        """Close connections that were idle for too long. They are in order of age, so the first one sets the timer."""
        self._sweeper = None
        now = self._loop.time()
        # Compares the sum for which the timer was set: a difference could be rounded down, and this would loop
        # forever.
        while self._idle and self._idle[0].idle_since + self._keepalive <= now:
            self._drop(self._idle.popleft())
        if self._idle:
            self._sweeper = self._loop.call_at(self._idle[0].idle_since + self._keepalive, self._sweep)

    def _note_emptied(self) -> None:
        if not self._open and not self._opening:
            self._emptied.set()

    async def close(self) -> None:
        """Close all connections; end all exchanges and all waiting.

        Returns when the loop has reported the end of each connection, or after a second: aborted connections are
        closed, and a missing callback must not keep the process running.
        """
        self._closed = True
        for timer in (self._sweeper, self._alarm):
            if timer is not None:
                timer.cancel()
        self._sweeper, self._alarm, self.alarm_at = None, None, math.inf
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(NoConnection(f"the connections to {self._address} are closed"))
        for scope in list(self._opening):
            scope.reschedule(self._loop.time())
        while self._idle:
            self._drop(self._idle.pop())
        for connection in list(self._open):
            connection.fail("the client is closing")
        self._emptied.clear()
        self._note_emptied()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await self._emptied.wait()
