"""The connections to one API server: how many, which one is used next, and how long one may be idle.

The connection used last is taken first, so that a quiet client keeps few of them warm and the rest go. A request
that finds all of them busy waits its turn, first come, first served. A connection is never taken that was idle for
longer than `keepalive`, or that its peer is known to have closed. However busy, a connection is replaced after about
`max_age`: requests would otherwise stay for ever with the one of several API servers that was there first.

Every connection, whether being opened, busy or idle, has a slot; a slot that becomes free while others wait goes
to the first of them and is never up for grabs in between.
"""

from __future__ import annotations

import asyncio
import math
import random
import ssl
from collections import deque
from contextlib import suppress
from dataclasses import replace

from agent_scheduler.kube.address import Address
from agent_scheduler.kube.connection import Connection, Limits
from agent_scheduler.kube.dial import Dial

#: Of `max_age`, at most so much is taken off at random, so that connections made together do not end together.
_AGE_JITTER = 0.3
#: Seconds that `close` waits for the loop to tell of connections that were aborted.
_CLOSING = 1.0


class NoConnection(Exception):
    """There is no connection to send on, so nothing was sent."""


class ConnectionPool:
    """At most `size` connections. Belongs to the event loop that it was made in.

    Times are in seconds, deadlines in the loop's time. What is taken or acquired has to be released, always.
    """

    def __init__(
        self,
        address: Address,
        *,
        size: int,
        keepalive: float,
        connect_timeout: float,
        max_age: float,
        limits: Limits,
        dial: Dial,
        rng: random.Random,
    ) -> None:
        self._address = address
        self._dial = dial
        self._max_age = max_age
        self._rng = rng
        self._size = size
        self._keepalive = keepalive
        self._connect_timeout = connect_timeout
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        #: Slots taken. Invariant: at most `size`; equal to it while anybody waits.
        self._slots = 0
        #: Connections that no request holds, in the order in which they became idle. Empty while anybody waits.
        self._idle: deque[Connection] = deque()
        #: Requests without a slot. Each is given a connection, or None for a slot to open one in.
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        #: The deadlines of connections being opened, in their order: what `close` cuts short.
        self._opening: dict[asyncio.Timeout, None] = {}
        #: All connections between `connection_made` and `connection_lost`, in their order.
        self._open: dict[Connection, None] = {}
        #: Runs while a connection is idle.
        self._sweeper: asyncio.TimerHandle | None = None
        #: Runs until `alarm_at`. Invariant: that is no later than the deadline of any exchange under way. One timer
        #: for all, because a timer a request would cost a tenth of the request.
        self._alarm: asyncio.TimerHandle | None = None
        self.alarm_at = math.inf
        self._closed = False
        self._emptied = asyncio.Event()

    def take(self) -> Connection | None:
        """The idle connection that was used last, or None if none is fit for use."""
        idle = self._idle
        now = self._loop.time()
        while idle:
            connection = idle.pop()
            if now - connection.idle_since <= self._keepalive and connection.alive():
                return connection
            self._drop(connection)
        return None

    async def acquire(self, deadline: float) -> Connection:
        """A connection, opened or waited for. Raises NoConnection if there is none by then."""
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
        """A connection beside the bounded ones, for whoever keeps it for long. Ended by its `abort`."""
        return await self._opened_by(deadline)

    def use(self, tls: ssl.SSLContext) -> None:
        """From now on connections trust and present what `tls` does. Those of before are given up: idle ones and
        streams at once, others after their exchange."""
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
        """A new connection in the place of one that broke. Raises NoConnection, and then the slot is free."""
        connection.abort()
        return await self._connect(deadline)

    def release(self, connection: Connection) -> None:
        """Gives back a connection after its exchange, however that ended."""
        now = self._loop.time()
        if self._closed or not connection.reusable or connection.retires_at <= now:
            self._drop(connection)
        else:
            self._hand_over(connection, now)

    def watch_deadline(self, deadline: float) -> None:
        """Sees to it that an exchange with this deadline is ended when it is over. Nothing is to be done for one that
        is not before `alarm_at`."""
        if deadline >= self.alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self.alarm_at = deadline
        self._alarm = self._loop.call_at(deadline, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm, self.alarm_at = None, math.inf
        busy = [connection for connection in self._open if connection.busy]
        # A loop may run a timer up to its clock's resolution early.
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
                # Cancelled in the moment between being handed something and taking it: it goes to the next.
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
        """Opens a connection in a slot that is held already, and frees the slot if that fails."""
        try:
            return await self._opened_by(deadline)
        except BaseException:
            self._free_slot()
            raise

    async def _opened_by(self, deadline: float) -> Connection:
        """A new connection. Raises NoConnection."""
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
        # Its slot is freed by whoever holds it: the request that it serves, or `take` and `_sweep` if it is idle.

    def _sweep(self) -> None:
        """Closes what was idle for too long. The idle are in order of age, so the first tells when to look again."""
        self._sweeper = None
        now = self._loop.time()
        # By the sum for which the timer was set: a difference may be rounded to less, and this would run for ever.
        while self._idle and self._idle[0].idle_since + self._keepalive <= now:
            self._drop(self._idle.popleft())
        if self._idle:
            self._sweeper = self._loop.call_at(self._idle[0].idle_since + self._keepalive, self._sweep)

    def _note_emptied(self) -> None:
        if not self._open and not self._opening:
            self._emptied.set()

    async def close(self) -> None:
        """Closes all connections, ends all exchanges and all waiting.

        Returns when the loop has told of the end of each connection, and in any case after a second: what was aborted
        is closed, and a process that is to end must not stay for want of a call.
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
