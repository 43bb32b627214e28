"""Leader election by a coordination.k8s.io/v1 Lease: at most one process leads, however slow or isolated others are.

The guarantee is fencing by time. A leader measures its right to write from the START of its last successful renewal.
A candidate measures the holder's lease from when it OBSERVED that renewal, which is later. With renew_deadline <
lease_duration, the leader stops before another process can lead, and the difference is the time in which its requests
must end. Both use their own monotonic clock. The times in the Lease are informational (UTC), so wall clocks that jump
or differ have no effect.

The protocol is that of client-go's `tools/leaderelection`. kubernetes_asyncio's election (36.1) is not used: it keeps
leading after it lost the API server, has no timeout for renewals, and writes local time as UTC.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from apimachinery.times import micro_time_text
from kube_client.answers import RequestInfo, Verb
from kube_client.driver import Send, send_once
from kube_client.errors import Failure, FailureClass, StoreWentBack
from kube_client.logs import get_logger
from kube_client.recorder import ObjectReference
from kube_client.retry import Timing
from kube_client.transport import Transport
from kube_client.watch_events import is_older

_log = get_logger(__name__)

#: client-go spreads candidates' attempts by up to this share of the retry period.
JITTER = 1.2
#: Seconds that cancelled work has for its clean-up even if the lease has expired already.
_LATE_GRACE = 0.5
#: The verbs of the requests that are made.
_VERBS = {"GET": Verb.GET, "POST": Verb.CREATE, "PUT": Verb.UPDATE}


def boottime() -> float:
    """Return monotonic seconds that include the time of a suspended machine, in which time.monotonic stops on Linux."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class LeadershipOverrun(RuntimeError):
    """The leading work did not stop in time, so another process may lead: this one has to exit immediately."""


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Times in seconds; the defaults are kube-scheduler's. Raises ValueError for unsafe times.

    `identity` must be unique to this process (such as host name and a UUID): two processes with the same one would
    both lead.
    """

    namespace: str
    name: str
    identity: str
    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    request_timeout: float = 5.0
    #: The setting that determined the namespace, for messages.
    namespace_from: str = ""
    #: Whether the namespace is created if it is missing.
    creates_namespace: bool = False

    def __post_init__(self) -> None:
        for name in ("namespace", "name", "identity"):
            if not getattr(self, name):
                raise ValueError(f"leader election: {name} must not be empty")
        if not isinstance(self.lease_duration, int) or self.lease_duration < 1:
            raise ValueError(
                f"leader election: lease_duration must be whole seconds, at least 1, not {self.lease_duration!r}"
            )
        if not 0 < self.renew_deadline < self.lease_duration:
            raise ValueError(
                f"leader election: renew_deadline ({self.renew_deadline} s) must be more than 0 and less than "
                f"lease_duration ({self.lease_duration} s)"
            )
        if not 0 < self.request_timeout < self.renew_deadline:
            raise ValueError(
                f"leader election: request_timeout ({self.request_timeout} s) must be more than 0 and less than "
                f"renew_deadline ({self.renew_deadline} s)"
            )
        if not 0 < self.retry_period * JITTER < self.renew_deadline:
            raise ValueError(
                f"leader election: retry_period ({self.retry_period} s) must be more than 0 and, times {JITTER}, "
                f"less than renew_deadline ({self.renew_deadline} s)"
            )


class LeaderElector:
    """One candidate. `is_leader` may be read before every write; it is exact even after a long suspension.

    `on_new_leader(identity)` is called for every observed holder, including this process; "" means that there is
    none.
    """

    def __init__(
        self, transport: Transport, config: LeaseConfig, *, timing: Timing, on_new_leader: Callable[[str], None]
    ) -> None:
        """Create a candidate; the clock of `timing` continues during suspension, as `boottime`."""
        self._transport = transport
        self._config = config
        self._timing = timing
        self._now = timing.now
        self._on_new_leader = on_new_leader
        collection = f"/apis/coordination.k8s.io/v1/namespaces/{quote(config.namespace, safe='')}/leases"
        self._collection = collection
        self._path = f"{collection}/{quote(config.name, safe='')}"
        # Everything below is owned by the task in `run`.
        self._observed: dict[str, Any] | None = None  # the last known state on the server
        self._observed_time = float("-inf")  # when the lease was last observed to change, on our clock
        self._renewed_at = float("-inf")  # start of the last renewal that succeeded
        self._held = False
        self._observed_leader: str | None = None
        #: The reported reason of the last request's rejection, by verb; absent if it was not rejected.
        self._reported: dict[str, str] = {}

    @property
    def is_leader(self) -> bool:
        """Whether this process may begin a write now."""
        return self._timing.clock() < self.valid_until

    @property
    def valid_until(self) -> float:
        """When the right to write ends unless the lease is renewed, on the clock of the timing."""
        return self._renewed_at + self._config.renew_deadline if self._held else float("-inf")

    @property
    def expired_for(self) -> float:
        """Seconds since the end of our lease; negative while it is valid or not ours."""
        return self._timing.clock() - self._renewed_at - self._config.lease_duration if self._held else float("-inf")

    @property
    def reference(self) -> ObjectReference:
        """The object reference for events about the lease."""
        metadata = (self._observed or {}).get("metadata") or {}
        config = self._config
        return ObjectReference(
            "Lease", config.namespace, config.name, metadata.get("uid") or "", "coordination.k8s.io/v1"
        )

    @property
    def leader(self) -> str:
        """The last observed holder; "" if there is none."""
        return self._observed_leader or ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Wait for the lease, then run `lead()` while it is held.

        Returns true if `lead` ended by itself, false if the lease was lost, after `lead` was cancelled and awaited.
        Exceptions of `lead` are raised here. On cancellation, `lead` is stopped first, and then the lease is
        released. Raises LeadershipOverrun if `lead` could not be stopped before another process may take the lease,
        and StoreWentBack.
        """
        # `is_leader` as well: the response may have arrived after a suspension that outlasted the lease.
        while not (await self._try_acquire_or_renew() and self.is_leader):
            self._held = False
            await self._pause(jitter=True)
        _log.info("lease acquired", lease=self._path, identity=self._config.identity)
        return await self._lead(lead)

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> bool:
        async def led() -> None:
            await lead()

        work = asyncio.create_task(led(), name="leading")
        renewing = asyncio.create_task(self._renew_loop(), name="renewing the lease")
        try:
            await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
            ended = work.done()
            if renewing.done():
                renewing.result()
            if not ended:
                _log.warning("lease lost", lease=self._path, holder=self.leader)
        finally:
            # Also reached by cancellation. The work stops first, while the lease is still renewed if possible.
            try:
                await self._stop(work)
            finally:
                renewing.cancel()
                await asyncio.wait({renewing})
                if not renewing.cancelled():
                    # Its failure is raised above, or comes too late to matter.
                    renewing.exception()
            if self._held:
                await self._release()
            self._held = False
        if ended:
            work.result()
        elif not work.cancelled():
            # It may have failed while it was being stopped, which must not be mistaken for a loss of the lease.
            work.result()
        return ended

    async def _stop(self, work: asyncio.Task[None]) -> None:
        """Cancel the work; wait for its end as long as no other process may lead."""
        work.cancel()
        while True:
            left = self._renewed_at + self._config.lease_duration - self._timing.clock()
            # After a long suspension no time is left. The work's clean-up still gets its grace, because `is_leader`,
            # not the work's end, prevented writes in between.
            await asyncio.wait({work}, timeout=max(left, _LATE_GRACE))
            if work.done():
                break
            if self._timing.clock() >= self._renewed_at + self._config.lease_duration:
                self._held = False
                raise LeadershipOverrun(
                    f"{self._path}: the work of leader {self._config.identity} continues although its lease has ended"
                )
        if not work.cancelled() and (error := work.exception()) is not None:
            _log.error("leading failed", lease=self._path, error=repr(error))

    async def _renew_loop(self) -> None:
        """Renew the lease; return when the right to write has ended and `_held` is false."""
        while True:
            await self._pause(jitter=False)
            while True:
                # After a long suspension the clock must be checked before anything is written.
                if not self.is_leader:
                    self._held = False
                    return
                if await self._try_acquire_or_renew():
                    break
                if self._observed_leader != self._config.identity:
                    self._held = False
                    return
                await self._pause(jitter=False)

    async def _pause(self, *, jitter: bool) -> None:
        period = self._config.retry_period
        if jitter:
            period *= 1 + (JITTER - 1) * self._timing.rng()
        if self._held:
            # Never sleep past the deadline, because the work has to be stopped then, not at the next attempt.
            period = min(period, max(0.0, self.valid_until - self._timing.clock()))
        await self._timing.sleep(period)

    # -- one attempt

    async def _try_acquire_or_renew(self) -> bool:
        """Acquire or renew the lease. Returns true only if this attempt got a success response."""
        if self._held and self._observed is not None:
            # The common case: our own record, unchanged since it was written, need not be read first.
            failure = await self._write(self._ours(self._observed))
            if failure is None:
                return True
            if failure.kind is not FailureClass.CONFLICT and failure.kind is not FailureClass.NOT_FOUND:
                return False
        answer = await self._request("GET", self._path)
        if isinstance(answer, Failure):
            if answer.kind is not FailureClass.NOT_FOUND:
                return False
            failure = await self._write(self._ours(self._new()))
            if self._lacks_namespace(failure) and await self._create_namespace():
                failure = await self._write(self._ours(self._new()))
            return failure is None
        self._observe(answer, at=self._timing.clock())
        holder = _holder(answer)
        if holder and holder != self._config.identity and self._timing.clock() < self._expires_at(answer):
            return False
        if self._held and holder != self._config.identity:
            # Another process took it, or it was released in our name: the lease is lost even if it looks free.
            return False
        return await self._write(self._ours(answer)) is None

    def _expires_at(self, lease: dict[str, Any]) -> float:
        """Return when the holder's lease ends unless it is observed to change before."""
        stated = (lease.get("spec") or {}).get("leaseDurationSeconds")
        duration = stated if isinstance(stated, int) else 0
        return self._observed_time + max(duration, self._config.lease_duration)

    def _observe(self, lease: dict[str, Any], *, at: float) -> None:
        """Record a lease that was read. Any difference restarts the holder's time.

        Raises StoreWentBack, after which the lease is not held.
        """
        listed, known = _version(lease), _version(self._observed or {})
        if is_older(listed, known):
            # A lagging replica is excluded: each response is to a write, or to a read of one object.
            self._held = False
            raise StoreWentBack(f"lease {self._path}", listed=listed, known=known)
        if self._observed is None or self._observed != lease:
            self._observed_time = at
        self._observed = lease
        holder = _holder(lease)
        if holder != self._observed_leader:
            self._observed_leader = holder
            self._on_new_leader(holder)

    def _new(self) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._config.name, "namespace": self._config.namespace},
        }

    def _ours(self, lease: dict[str, Any]) -> dict[str, Any]:
        """Return the lease with this process as holder. Labels and unknown fields are kept."""
        spec = dict(lease.get("spec") or {})
        moment = micro_time_text(self._now())
        if _holder(lease) != self._config.identity:
            spec["acquireTime"] = moment
            spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + 1 if _version(lease) else 0
            spec["holderIdentity"] = self._config.identity
        spec["leaseDurationSeconds"] = self._config.lease_duration
        spec["renewTime"] = moment
        return {**lease, "spec": spec}

    def _lacks_namespace(self, failure: Failure | None) -> bool:
        """Return whether a request failed for lack of a namespace that this process creates."""
        missing = None if failure is None else failure.missing
        return self._config.creates_namespace and missing is not None and missing.resource == "namespaces"

    async def _create_namespace(self) -> bool:
        """Return whether the namespace was created now; another candidate may have been faster."""
        name = self._config.namespace
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        asked = RequestInfo(Verb.CREATE, "namespaces", name)
        send = Send("POST", "/api/v1/namespaces", asked, msgspec.json.encode(body))
        failure, _ = await send_once(self._transport, send, timeout=self._config.request_timeout)
        self._report("create namespace", failure)
        if failure is None:
            _log.info("namespace created", namespace=name, namespace_from=self._config.namespace_from)
        return failure is None

    async def _write(self, lease: dict[str, Any]) -> Failure | None:
        """Create the lease if it has no resourceVersion; otherwise update it, which fails if it was changed since."""
        started = self._timing.clock()
        method, path = ("PUT", self._path) if _version(lease) else ("POST", self._collection)
        answer = await self._request(method, path, lease)
        if isinstance(answer, Failure):
            return answer
        self._observe(answer, at=self._timing.clock())
        self._renewed_at = started
        self._held = True
        return None

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any] | Failure:
        limit = self._config.request_timeout
        if self._held:
            # A response after the deadline would be useless, and waiting for it would delay the stop.
            limit = min(limit, max(0.001, self.valid_until - self._timing.clock()))
        verb = _VERBS[method]
        content = None if body is None else msgspec.json.encode(body)
        send = Send(method, path, RequestInfo(verb, "leases", self._config.name), content)
        failure, response = await send_once(self._transport, send, timeout=limit)
        self._report(verb.value, failure)
        if failure is not None:
            return failure
        assert response is not None, "neither an answer nor a failure"
        return msgspec.json.decode(response.body, type=dict[str, Any])

    def _report(self, verb: str, failure: Failure | None) -> None:
        """Warn of a rejection once, not at every retry: without the right role a replica looks like a standby."""
        if failure is not None and (failure.kind is FailureClass.CONFLICT or self._lacks_namespace(failure)):
            failure = None
        if failure is None or (verb == "get" and failure.kind is FailureClass.NOT_FOUND):
            self._reported.pop(verb, None)
            return
        # Without the message, which may contain times and numbers.
        what = f"{failure.kind} {failure.status} {failure.reason}"
        if self._reported.get(verb) == what:
            return
        self._reported[verb] = what
        _log.warning(
            "lease request failed",
            verb=verb,
            namespace=self._config.namespace,
            name=self._config.name,
            namespace_from=self._config.namespace_from,
            error=str(failure),
        )

    async def _release(self) -> None:
        """Release the lease, so that another process can lead immediately. If this fails, the lease expires."""
        while self.is_leader and self._observed and _holder(self._observed) == self._config.identity:
            moment = micro_time_text(self._now())
            spec = dict(self._observed.get("spec") or {})
            # One second, as in client-go: a candidate that uses the duration in the record need not wait.
            spec.update(holderIdentity="", leaseDurationSeconds=1, acquireTime=moment, renewTime=moment)
            answer = await self._request("PUT", self._path, {**self._observed, "spec": spec})
            if not isinstance(answer, Failure):
                self._held = False
                self._observe(answer, at=self._timing.clock())
                _log.info("lease released", lease=self._path)
                return
            if answer.kind is FailureClass.CONFLICT:
                # The renewal that was just cancelled may have been carried out.
                answer = await self._request("GET", self._path)
            if isinstance(answer, Failure):
                return
            self._observe(answer, at=self._timing.clock())


def _version(lease: Mapping[str, Any]) -> str:
    return (lease.get("metadata") or {}).get("resourceVersion") or ""


def _holder(lease: Mapping[str, Any]) -> str:
    return (lease.get("spec") or {}).get("holderIdentity") or ""
