"""A child: one of the scheduler processes that a supervisor runs, and what it does when it is told something.

It is a `Runtime` like that of a scheduler which is alone, but for what `runtime.Part` leaves to the supervisor. It
writes only until the time that it was last told, so that a child whose supervisor has stopped stops by itself; it ends
at once when the way to the supervisor does.

Guarantees: it uses a node only between `Hold` and `Leave`; it says that it has left one when no decision of its own can
still be bound there and nothing that it sent is without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import structlog

from agent_scheduler.config import load_text
from agent_scheduler.engine.shards.claims import Names
from agent_scheduler.fastpath.neighbours import Ending
from agent_scheduler.fastpath.scheduler import FastPath
from agent_scheduler.kube.lease import boottime
from agent_scheduler.kube.retry import REAL, Timing
from agent_scheduler.runtime import Runtime
from agent_scheduler.serving.http import NotReady, Sources

from .channel import Channel
from .pages import CHECK, answer
from .wire import (
    Alive,
    Answer,
    Ask,
    Begin,
    Claims,
    Configure,
    End,
    Given,
    Hello,
    Hold,
    Lead,
    Leave,
    Left,
    Lend,
    Lent,
    Order,
    Ready,
    Report,
    Returned,
    Share,
    Split,
    Synced,
)

_log = structlog.get_logger(__name__)

#: Seconds between two looks at what is under way to nodes that were asked for.
_DRAIN: Final = 0.05


class Child:
    """Owner of what this process was told: until when it may write, its nodes, and whose the guests are."""

    def __init__(self, channel: Channel[Order], hello: Hello, *, timing: Timing | None = None) -> None:
        self._channel = channel
        self._number = hello.number
        self._clock = boottime if timing is None else timing.clock
        self._sleep = (timing or REAL).sleep
        self.runtime: Runtime | None = None
        self._fast_path: FastPath | None = None
        self._until = float("-inf")
        self._begun: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
        #: Set once it is known which pods are ours.
        self._split = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._catching_up: set[asyncio.Task[None]] = set()
        #: Self-checks that were asked for.
        self._checking: set[asyncio.Task[None]] = set()
        #: Nodes that were given and are not used before all is known of them -> which order gave them.
        self._coming: dict[str, Hold] = {}
        #: Nodes that were asked for and are not left.
        self._leaving: set[str] = set()
        #: Nodes to which the NodeShard has a claim.
        self._claims: Names = frozenset()
        self._asked = asyncio.Event()
        #: UIDs of guests -> their homes.
        self._guests: dict[str, int] = {}

    # ---- runtime.Part

    def may_write(self) -> bool:
        return self._clock() < self._until

    def lend(self, uid: str, node_name: str) -> None:
        self._say(Lend(uid, node_name))

    def give_back(self, uid: str, ending: Ending, message: str) -> None:
        self._say(Given(uid, self._guests.pop(uid), ending, message))

    async def work(self, fast_path: FastPath, schedule: Callable[[], Awaitable[None]]) -> None:
        self._fast_path = fast_path
        self._say(Synced())
        if (await self._begun).renew:
            await fast_path.renew()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            leaving = tasks.create_task(self._leave())
            self._say(Ready())
            # Until then it would take all pods for its own, as others that begin would.
            await self._split.wait()
            await schedule()
            self._tasks = None
            # An API server that does not answer is waited for no longer.
            for task in (leaving, *self._catching_up):
                task.cancel()
            # What is asked for and still not left has binds of which nobody can tell what became of them.
            self._say_what_is_left()

    # ---- orders

    def told(self, order: Order) -> None:
        """Carry it out, or begin to."""
        match order:
            case Lead(until):
                self._until = until
                self._say(Alive("" if self.runtime is None else self.runtime.problem))
            case End():
                self._end()
            case Begin():
                if not self._begun.done():
                    self._begun.set_result(order)
            case Configure(text):
                assert self.runtime is not None, "made before anything is told"
                self.runtime.apply(load_text(text, source="the supervisor's configuration"))
            case Ask(number, page, arguments):
                self._answer(number, page, arguments)
            case _:
                assert self._fast_path is not None, "told of nodes and pods only after it was synced"
                self._share(self._fast_path, order)

    def _share(self, fast_path: FastPath, order: Order) -> None:
        assert fast_path.part is not None and fast_path.guests is not None and fast_path.lending is not None
        part = fast_path.part
        match order:
            case Split():
                fast_path.cluster.settle(order.homes(), self._number)
                self._split.set()
            case Share(joined, left, unready):
                assert fast_path.shard is not None, "the configuration is the supervisor's"
                shard = fast_path.shard
                shard.use((shard.membership.nodes | frozenset(joined)) - frozenset(left), unready)
            case Claims(gained, lost):
                assert fast_path.shard is not None, "the configuration is the supervisor's"
                self._claims = (self._claims | frozenset(gained)) - frozenset(lost)
                fast_path.shard.hold(self._claims)
            case Hold(nodes, catch_up):
                if catch_up:
                    self._coming |= dict.fromkeys(nodes, order)
                    self._begin_to_catch_up(order)
                else:
                    self._use(nodes)
            case Leave(nodes):
                for name in nodes:
                    self._coming.pop(name, None)
                part.use(part.membership.nodes - frozenset(nodes), "")
                self._leaving.update(nodes)
                self._say_what_is_left()
                self._asked.set()
            case Lent(uid, node, home):
                if uid in self._guests:
                    # Two take it for theirs, while homes change. One is enough.
                    self._say(Given(uid, home, Ending.REFUSED, ""))
                else:
                    self._guests[uid] = home
                    fast_path.guests.take_in(uid, node)
            case Returned(uid, ending, message):
                fast_path.lending.ended(uid, ending, message)
            case _:
                raise AssertionError(f"not an order: {order!r}")

    def _use(self, nodes: Iterable[str]) -> None:
        assert self._fast_path is not None and self._fast_path.part is not None
        part = self._fast_path.part
        part.use(part.membership.nodes | frozenset(nodes), "")

    def _begin_to_catch_up(self, order: Hold) -> None:
        """Beside everything else; while the process ends nothing is begun."""
        if self._tasks is not None:
            task = self._tasks.create_task(self._catch_up(order))
            self._catching_up.add(task)
            task.add_done_callback(self._catching_up.discard)

    async def _catch_up(self, order: Hold) -> None:
        assert self._fast_path is not None and self._fast_path.part is not None
        await self._fast_path.part.catch_up(order.version)
        gained = [name for name in order.nodes if self._coming.get(name) is order]
        for name in gained:
            del self._coming[name]
        self._use(gained)

    async def _leave(self) -> None:
        while True:
            await self._asked.wait()
            self._say_what_is_left()
            if not self._leaving:
                self._asked.clear()
            await self._sleep(_DRAIN)

    def _say_what_is_left(self) -> None:
        assert self._fast_path is not None and self._fast_path.part is not None
        left = self._leaving - self._fast_path.part.in_flight(frozenset(self._leaving))
        if left:
            self._leaving -= left
            self._say(Left(tuple(sorted(left))))

    def _answer(self, number: int, page: str, arguments: dict[str, Any]) -> None:
        assert self.runtime is not None, "made before anything is told"
        if self.runtime.fast_path is None:
            self._say(Answer(number, None, "the process is just starting; ask again soon"))
            return
        if page == CHECK:
            task = asyncio.create_task(self._answer_check(number, self.runtime.sources()))
            self._checking.add(task)
            task.add_done_callback(self._checking.discard)
            return
        try:
            body, problem = answer(self.runtime.sources(), page, arguments)
            self._say(Answer(number, body, problem))
        except Exception as error:
            # What is raised here would end the process, and pods with it that have nothing to do with a page.
            _log.exception("a page failed", page=page)
            self._say(Answer(number, None, f"{type(error).__name__}: {error}"))

    async def _answer_check(self, number: int, sources: Sources) -> None:
        assert sources.check is not None, "a scheduler has all pages"
        try:
            self._say(Answer(number, await sources.check(), ""))
        except NotReady as error:
            self._say(Answer(number, None, str(error)))
        except Exception as error:
            _log.exception("a page failed", page=CHECK)
            self._say(Answer(number, None, f"{type(error).__name__}: {error}"))

    def _end(self) -> None:
        assert self.runtime is not None, "made before anything is told"
        self.runtime.stop()

    def _say(self, report: Report) -> None:
        self._channel.say(report)
