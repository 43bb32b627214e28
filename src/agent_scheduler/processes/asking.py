"""The supervisor's pages: the children are asked, and what they answer is put together (`pages`)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from agent_scheduler.fastpath.views import PLACES
from agent_scheduler.serving.health import Check
from agent_scheduler.serving.http import DebugPage, DebugQuery, NotReady, Sources

from .pages import CACHE, CHECK, EXPLAIN, METRICS, QUEUE, cache_page, checked, explanation, merged, queue_page
from .wire import Answer, Ask, Order

#: Seconds that a child has for its answer.
_PATIENCE: Final = 5.0
#: And for a self-check, which lists the cluster.
_CHECK_PATIENCE: Final = 120.0

#: What stands in the place of a number for the supervisor itself.
_SUPERVISOR: Final = "supervisor"


class Asking:
    """Owner of the questions that are not answered."""

    def __init__(self, say: Callable[[int, Order], None], *, members: Callable[[], Sequence[int]]) -> None:
        self._say = say
        self._members = members
        self._numbers = itertools.count()
        #: Question and child -> where its answer goes.
        self._open: dict[tuple[int, int], asyncio.Future[Answer]] = {}

    async def ask(
        self, page: str, arguments: Mapping[str, Any] | None = None, *, patience: float = _PATIENCE
    ) -> dict[int, Any]:
        """The answers of all children that give one in time. Raises NotReady if none can tell yet."""
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        waiting = {child: loop.create_future() for child in self._members()}
        self._open |= {(number, child): answer for child, answer in waiting.items()}
        try:
            for child in waiting:
                self._say(child, Ask(number, page, dict(arguments or {})))
            if waiting:
                await asyncio.wait(waiting.values(), timeout=patience)
        finally:
            for child in waiting:
                self._open.pop((number, child), None)
        done = {
            child: answer.result()
            for child, answer in waiting.items()
            if answer.done() and not answer.cancelled()
        }
        found = {child: answer.body for child, answer in done.items() if not answer.problem}
        if not found and page != METRICS:
            problems = [answer.problem for answer in done.values() if answer.problem]
            raise NotReady(problems[0] if problems else "no process answers; ask again soon")
        return found

    def answered(self, child: int, answer: Answer) -> None:
        waiting = self._open.pop((answer.number, child), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def gone(self, child: int) -> None:
        """It answers nothing any more."""
        for key in [key for key in self._open if key[1] == child]:
            self._open.pop(key).cancel()

    async def check(self) -> Mapping[str, Any]:
        """The self-checks of all children, which each compare what they know. Raises NotReady if one does not answer:
        to say nothing of it would pass for nothing found."""
        members = set(self._members())
        found = await self.ask(CHECK, patience=_CHECK_PATIENCE)
        if missing := sorted(members - found.keys()):
            raise NotReady(f"process {', '.join(map(str, missing))} does not answer; ask again soon")
        return checked(found)

    def sources(
        self,
        *,
        own: Callable[[], tuple[bytes, str]],
        configuration: Callable[[], Mapping[str, Any]],
        problem: Callable[[], str | None],
        leases: Callable[[], str | None],
    ) -> Sources:
        """`own`: the supervisor's metrics. `problem`: why it is not ready; `leases`: why it should be restarted."""

        async def metrics() -> tuple[bytes, str]:
            body, content_type = own()
            texts = [(_SUPERVISOR, body.decode())]
            texts += [(str(child), text) for child, text in (await self.ask(METRICS)).items()]
            return merged(texts).encode(), content_type

        async def queue(query: DebugQuery) -> DebugPage:
            return queue_page(await self.ask(QUEUE, asdict(query)))

        async def cache(query: DebugQuery) -> DebugPage:
            return cache_page(await self.ask(CACHE, asdict(query)))

        async def explain(namespace: str, name: str) -> tuple[bool, Mapping[str, Any]]:
            return explanation(await self.ask(EXPLAIN, {"namespace": namespace, "name": name}))

        return Sources(
            metrics=metrics,
            configuration=configuration,
            queue=queue,
            cache=cache,
            explain=explain,
            check=self.check,
            ready=(Check("processes", problem),),
            live=(Check("leaderElection", leases),),
            places=PLACES,
        )
