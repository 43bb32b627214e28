"""The network between a simulated process and the API: a `Transport` that delays, loses and falsifies messages.

The server's side of an exchange continues when the client gives up, is stopped or dies: a request that was sent is
carried out when it arrives, and only its response may be lost. Watches pass through the product's own line splitting,
in pieces of any size.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from embedded_kubernetes import requests
from embedded_kubernetes.pacing import StreamTimers
from embedded_kubernetes.requests import Stream
from kube_client.bind import DEFAULT_POLICY
from kube_client.streamed import split_lines
from kube_client.transport import Answered, Headers, NotSent, OutcomeUnknown, Response, StreamRefused, TransportError

from .exchange import IN_ITS_PLACE, ON_ITS_WAY, Exchange, Troubles, refusal, strange, verb_of
from .kinds import Process, Wire, World
from .legality import Deliveries, version_of

_EXPIRED = {"reason": "Expired", "code": 410, "message": "too old resource version"}
_GONE = {"kind": "Status", "apiVersion": "v1", "status": "Failure", **_EXPIRED}
_GARBAGE = (
    b'{"type":"MODIFIED","object":{"metadata":\n',
    b"\x00\xff\xfe not json at all\n",
    b'{"type":"EXPLODED","object":{"metadata":{"uid":"u","resourceVersion":"1"}}}\n',
    b'{"kind":"Status"}\n',
    b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"","unknown":[1,{"x":null}]}}}\n',
    b"\n\n",
)
#: Fates of a bind that may or may not be carried out.
IN_DOUBT = frozenset({"lost_before", "lost_after", "slow", "hangs", "failed", "not_the_server"})
#: Endings of the paths of watches that sessions use in addition to pods and nodes.
_OF_GANGS = ("/podgroups", "/queues")


Answer = asyncio.Future[Response]


async def _once(piece: bytes) -> AsyncGenerator[bytes, None]:
    yield piece


class SimTransport(Troubles):
    """A process's connections. `streams` are those that are open now."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world, process)
        #: Incremented by `drop_streams`: streams of a lower number have ended.
        self._generation = 0
        self._wakes: list[asyncio.Event] = []
        #: The connections in memory, if the process speaks HTTP.
        self.wire: Wire | None = None
        #: The deliveries of the watches.
        self.deliveries = Deliveries()
        #: The newest version that the process may have observed.
        self.newest = 0
        #: The same, only for what it lists and watches.
        self.newest_listed = 0
        self.streams = 0
        self.under_way = 0
        #: Requests in flight that no task waits for.
        self._started: dict[Answer, tuple[Callable[[Answer], None], asyncio.TimerHandle]] = {}

    @property
    def name(self) -> str:
        return self._process.name

    @property
    def watches(self) -> int:
        """Return the number of watches that the process has open."""
        return self.streams if self.wire is None else len(self.wire.open)

    # -- requests

    async def request(self, method: str, path: str, **more: Any) -> Response:
        return await self.request_if(lambda: True, method, path, **more)

    async def request_if(
        self,
        allowed: Callable[[], bool],
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,  # noqa: ASYNC109
    ) -> Response:
        """Send a request unless it is no longer allowed when the credentials are available."""
        self.under_way += 1
        sent = False
        try:
            async with asyncio.timeout(timeout):
                if late := self.credentials_late():
                    if method == "GET":
                        self._process.waits_for_list(path, late)
                    await asyncio.sleep(late)
                if not allowed():
                    raise NotSent(f"{method} {path}: it is no longer allowed")
                answer = self.send(method, path, body, content_type, timeout)
                sent = True
                return await answer
        except TimeoutError:
            if not sent:
                raise NotSent(f"{method} {path}: no credentials in {timeout:g} s") from None
            raise OutcomeUnknown(f"{method} {path}: no answer in {timeout:g} s") from None
        finally:
            self.under_way -= 1

    def start(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float,
        answered: Answered,
    ) -> bool:
        """Send a request without a task, as on an open connection; return False if none is open, by chance."""
        if self._rng.random() < 0.4:
            return False
        try:
            answer = self.send(method, path, body, content_type, timeout)
        except NotSent:
            return False
        self.under_way += 1

        def expire() -> None:
            if not answer.done():
                answer.set_exception(OutcomeUnknown(f"{method} {path}: no answer in {timeout:g} s"))

        def over(_: Answer) -> None:
            self.under_way -= 1
            patience.cancel()
            del self._started[answer]
            error = answer.exception()
            # A dead process is not notified.
            if not self.closed:
                answered(error if isinstance(error, TransportError) else answer.result())

        patience = asyncio.get_running_loop().call_later(timeout, expire)
        answer.add_done_callback(over)
        self._started[answer] = over, patience
        return True

    def send(self, method: str, path: str, body: bytes | None, content_type: str, timeout: float) -> Answer:
        """Send the request. Raises NotSent."""
        world, verb = self._world, verb_of(method, path)
        self._watch_states()
        if self.cannot_connect():
            world.trace(self._process.name, f"{verb} {path} cannot connect")
            raise NotSent(f"{method} {path}: no connection")
        if verb != "lease":
            world.requests += 1
            if method != "GET":
                world.writes.append(f"{self._process.name} {method} {path}")
        world.safety.sending(self._process, method, verb, path)
        if verb == "evict" and self._process.scheduler:
            world.evictions.sending(self._process, path, body or b"{}")
        if verb == "bind" and world.gang_safety is not None:
            world.gang_safety.sending_bind(self._process, body or b"")
        if verb == "pod" and world.gate_safety is not None:
            world.gate_safety.sending(self._process, body or b"")
        if verb == "shard" and world.plan_safety is not None and not self._process.scheduler:
            world.plan_safety.sent(self._process, method, path)
        loop = asyncio.get_running_loop()
        answer: Answer = loop.create_future()
        fate = "unlistable" if self._is_unlistable(verb, path) else self._fate(method, verb)
        if world.gates is not None and world.gates.hides(verb, path):
            fate = "lost_before"
        world.trace(self._process.name, f"{verb} {path} {fate or ''}")
        plain, _, query = path.partition("?")
        kind = content_type if body is not None else ""
        asked = requests.Request(method, plain, self._query(verb, path, query), body=body or b"", content_type=kind)
        before, after = self._latencies(fate, timeout)
        if verb == "list":
            self._process.waits_for_list(path, before + after)
        if fate in ("lost_before", "lost_after"):
            world.plan.lasts(loop.time() + timeout)
        if fate in IN_DOUBT and verb == "bind":
            world.plan.lasts(loop.time() + timeout + DEFAULT_POLICY.settles)
        sent = None
        if verb == "bind" and world.shard_safety is not None:
            sent = world.shard_safety.sent(self._process, path, body or b"")
        exchange = Exchange(world, self._process, self, answer, asked, verb, fate, after, sent)
        loop.call_later(before, exchange.arrive, context=world.context)
        return answer

    def _watch_states(self) -> None:
        """Attach observers before the first list is answered, because rare states occur early, too."""
        if self._process.fast_path is not None:
            self._world.states.watch(self._process.fast_path, self._world.nemesis)
            for judge in self._world.judges:
                judge.watch(self._process, self._process.fast_path)
        if self._world.job_safety is not None:
            self._world.job_safety.watch_controllers(self._process)

    # -- watches

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        world, name = self._world, self._process.name
        self._watch_states()
        if self.cannot_connect():
            raise NotSent(f"watch {path}: no connection")
        world.requests += 1
        await asyncio.sleep(self._rng.uniform(0.0005, 0.01))
        if self.strikes("failed"):
            raise StreamRefused(refusal(503, {"kind": "Status", "code": 503, "reason": "ServiceUnavailable"}))
        if self.strikes("gone_on_connect", 3.0):
            world.trace(name, f"watch {path} is answered 410")
            raise StreamRefused(refusal(410, _GONE))
        if self.strikes("not_the_server", 0.3):
            says = self._rng.choice((*IN_ITS_PLACE, *ON_ITS_WAY))
            world.trace(name, f"watch {path} is answered by another: {says}")
            if (answer := strange(says)).status != 200:
                raise StreamRefused(answer)
            async with aclosing(split_lines(_once(answer.body))) as lines:
                yield lines
            return
        target, _, query = path.partition("?")
        result = world.context.copy().run(world.api.handle, requests.Request("GET", target, query))
        if not isinstance(result, Stream):
            raise StreamRefused(Response(result.status, result.body, Headers([])))
        world.trace(name, f"watch {path}")
        timers = world.context.copy().run(StreamTimers, world.loop, result)
        self.streams += 1
        try:
            chunks = self._chunks(result, target, read_timeout)
            async with aclosing(chunks) as pieces, aclosing(split_lines(pieces)) as lines:
                yield lines
        finally:
            self.streams -= 1
            timers.cancel()
            result.watcher.close()

    async def _chunks(self, stream: Stream, target: str, read_timeout: float) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a watch as they arrive. Ends, stalls or raises according to the faults."""
        watcher, more, rng = stream.watcher, asyncio.Event(), self._rng
        watcher.wake = more.set
        generation = self._generation
        self._wakes = [*self._wakes[-8:], more]
        past: list[bytes] = []
        late = 0.0
        while True:
            if self.closed:
                raise OutcomeUnknown(f"watch {target}: the connection broke")
            if generation != self._generation:
                return
            more.clear()
            lines = watcher.take(4096 if rng.random() < 0.3 else 1 << 20)
            if not lines:
                if watcher.drained:
                    return
                try:
                    async with asyncio.timeout(read_timeout):
                        await more.wait()
                except TimeoutError:
                    raise OutcomeUnknown(f"watch {target}: nothing came for {read_timeout:g} s") from None
                await asyncio.sleep(rng.uniform(0.0001, 0.003) + max(late, self._lag(target)))
                if self.strikes("storm", 2.0):
                    return
                continue
            data = b"".join(lines)
            if self.strikes("held_back", 0.5):
                late = self._is_late(target, 0.05, 4.0)
            elif target.endswith(_OF_GANGS) and self.strikes("groups_late", 3.0):
                late = self._is_late(target, 0.5, 8.0)
                if past and rng.random() < 0.3:
                    data = b"".join(rng.choices(past, k=2)) + data
            elif late and self._now >= self._world.plan.ends:
                late = 0.0
            if self.strikes("duplicate"):
                data += b"".join(rng.choices(past, k=3)) if past and rng.random() < 0.5 else data
            if spoilt := self.strikes("garbage"):
                data = rng.choice(_GARBAGE) + data if rng.random() < 0.5 else data + rng.choice(_GARBAGE)
            past = (past + lines)[-20:]
            if self.strikes("cut"):
                self._world.trace(self._process.name, f"watch {target} is cut")
                yield data[: rng.randrange(len(data) + 1)]
                if rng.random() < 0.5:
                    raise OutcomeUnknown(f"watch {target}: the connection was reset")
                return
            if self.strikes("gone_in_stream", 0.5):
                yield json.dumps({"type": "ERROR", "object": _GONE}).encode() + b"\n"
                return
            if self.strikes("stall", 0.3):
                self._world.trace(self._process.name, f"watch {target} stalls")
                self._world.plan.lasts(self._now + read_timeout)
                await asyncio.sleep(read_timeout)
                raise OutcomeUnknown(f"watch {target}: nothing came for {read_timeout:g} s")
            if rng.random() < 0.2:
                middle = rng.randrange(len(data) + 1)
                yield data[:middle]
                await asyncio.sleep(rng.uniform(0, 0.002))
                data = data[middle:]
            yield data
            self.newest_listed = max(self.newest_listed, version_of(lines[-1]))
            self.newest = max(self.newest, self.newest_listed)
            # Lines after garbage are not read, and are delivered again.
            if not spoilt:
                self.deliveries.note(target, lines[-1], self._now)

    def _is_late(self, target: str, least: float, most: float) -> float:
        """Return by how many seconds a watch is late."""
        late = self._rng.uniform(least, most)
        self._world.plan.lasts(self._now + 2 * late)
        self._world.trace(self._process.name, f"watch {target} is {late:.3f} s late")
        return late

    def drop_streams(self) -> None:
        """End all watches of this process now, without an error."""
        self._generation += 1
        for wake in self._wakes:
            wake.set()

    def went_back(self) -> None:
        """Handle a restore of the store: end all connections to the former server."""
        self._lags_until = 0.0
        self.drop_streams()
        if self.wire is not None:
            self.wire.reset()

    async def close(self) -> None:
        self.closed = True
        # Answered requests are about to be notified.
        waiting = [answer for answer in self._started if not answer.done()]
        for answer in waiting:
            over, patience = self._started.pop(answer)
            answer.remove_done_callback(over)
            answer.cancel()
            patience.cancel()
            self.under_way -= 1
