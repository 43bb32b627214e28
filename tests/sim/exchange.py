"""The server's side of a request: what happens to it there, whether or not the client waits for the response.

`Troubles` decides which fault affects which requests and watches of one process, and for how long.
"""

from __future__ import annotations

import asyncio
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from embedded_kubernetes import requests
from embedded_kubernetes.faults import MIDDLEBOX
from kube_client.transport import Headers, OutcomeUnknown, Response

from .kinds import Process, SimTransport, World
from .nemesis import KINDS_WATCHED, LIST_TIMEOUT
from .shard_map import SHARDS_PATH
from .shard_safety import Sent, is_list, is_version_asked

#: Maximum seconds that the server works on a request.
LONGEST = 40.0


@dataclass(eq=False, slots=True)
class Exchange:
    """One request on the server's side, independent of the client.

    `verb` and `fate` as in `network`; `after`: seconds until the response arrives; `sent`: the record of a bind until
    it can no longer be carried out.
    """

    _world: World
    _process: Process
    _way: SimTransport
    _reply: asyncio.Future[Response]
    _asked: requests.Request
    _verb: str
    _fate: str
    _after: float
    _sent: Sent | None
    _sent_at: float = field(init=False)
    #: How often the store had gone back when the request was sent.
    _restored: int = field(init=False)
    #: Whether it was answered before it is carried out.
    _goes_on: bool = False
    #: How often the process's shard had been deleted when the request was carried out.
    _shards_deleted: int = 0

    def __post_init__(self) -> None:
        self._sent_at, self._restored = self._world.loop.time(), self._world.backups.restored

    def arrive(self) -> None:
        world = self._world
        process, asked, fate = self._process, self._asked, self._fate
        refused: Response | None = None
        is_gone = world.loop.time() < world.server_back or self._is_of_before()
        if is_gone or fate == "lost_before":
            self._over()
            self._lose(is_gone or world.rng.random() < 0.5)
            return
        if fate == "throttled":
            refused = Response(
                429,
                b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}',
                Headers([(b"Content-Type", b"application/json"), (b"Retry-After", b"1")]),
            )
        elif fate == "failed":
            world.nemesis.after_failure(process)
            refused = self._fail()
        elif fate == "unlistable":
            why = {"status": "Failure", "reason": "Forbidden", "code": 403}
            refused = refusal(403, {"kind": "Status", **why})
        elif fate == "not_the_server":
            refused = self._of_another()
        elif fate == "denied":
            if "/resourceclaims/" in asked.path and world.allocations is not None:
                world.allocations.refused(asked.body or b"{}")
            refused = refusal(world.rng.choice((403, 422)), {"kind": "Status", "reason": "Forbidden"})
            if self._verb == "status":
                world.rejected_statuses.add(asked.path)
        elif fate == "claim_taken" and world.device_nemesis:
            world.device_nemesis.claim_taken(asked)
        elif fate == "shard_written" and world.shard_nemesis:
            world.shard_nemesis.shard_written(asked)
        elif fate == "group_written" and world.gang_nemesis:
            world.gang_nemesis.group_written(asked)
        elif fate and fate not in ("lost_after", "slow", "hangs"):
            world.nemesis.before_write(fate, asked)
        response = refused or self._carry_out()
        if not self._goes_on:
            self._over()
        if fate == "lost_after":
            self._lose(world.rng.random() < 0.5)
            return
        world.loop.call_later(self._after, self._deliver, response)

    def _carry_out(self) -> Response:
        world, process, asked = self._world, self._process, self._asked
        if world.shard_safety is not None:
            self._shards_deleted = world.shard_safety.deleted(process)
            if self._verb == "shard" and process.scheduler and (self._way.closed or not process.leads()):
                world.states.reached("late status write")
        with world.safety.acting(process, self._way, self._sent_at):
            result = world.api.handle(asked)
        assert isinstance(result, requests.Response)
        world.trace(process.name, f"{asked.method} {asked.path} -> {result.status}")
        if result.status == 200 and self._verb == "status":
            world.rejected_statuses.discard(asked.path)
        if asked.path.endswith("/binding") and result.status == 201:
            world.nemesis.after_bind(process)
        if self._verb == "group" and world.gang_nemesis is not None:
            if result.status == 409:
                world.states.reached("status of a group refused")
            elif result.status == 200:
                world.gang_nemesis.status_written(process)
        if self._verb == "pod" and result.status == 200 and world.gates is not None and process.scheduler:
            world.gates.gate_removed(process)
        if world.job_nemesis is not None and asked.method != "GET" and not process.scheduler:
            world.job_nemesis.written(process)
        if "/resourceclaims/" in asked.path and asked.method == "PATCH" and world.device_nemesis is not None:
            if result.status == 409:
                world.states.reached("claim written after another")
            elif result.status == 200:
                world.device_nemesis.after_claim_write(process)
        return _sent(result)

    def _is_of_before(self) -> bool:
        """Return whether the request was sent to the server before a restore."""
        return self._restored != self._world.backups.restored

    def _go_on(self) -> None:
        """Answer the request now, and carry it out late."""
        late, world = self._world.rng.uniform(0.01, LONGEST), self._world
        world.plan.lasts(world.loop.time() + late)
        self._goes_on = True
        world.loop.call_later(late, self._carry_out_late, context=world.context)

    def _carry_out_late(self) -> None:
        if not self._is_of_before():
            self._carry_out()
        self._over()

    def _over(self) -> None:
        """Record that the request can no longer be carried out."""
        if self._sent is not None:
            assert self._world.shard_safety is not None, "it was noted there"
            self._world.shard_safety.over(self._sent)

    def _fail(self) -> Response:
        """Return a response that does not reveal the outcome: carried out, not carried out, or still in progress."""
        world = self._world
        chance = world.rng.random()
        if chance < 0.2:
            self._go_on()
            return refusal(504, {"kind": "Status", "reason": "Timeout"})
        if chance < 0.4:
            self._carry_out()
        return refusal(world.rng.choice((500, 503)), {"kind": "Status", "reason": "InternalError"})

    def _of_another(self) -> Response:
        """Return the response of a proxy; the request is lost, was carried out, or is carried out later."""
        world = self._world
        says = world.rng.choice((*IN_ITS_PLACE, *ON_ITS_WAY, "cut"))
        world.trace(self._process.name, f"is answered by another: {says}")
        if says == "cut":
            whole = self._carry_out()
            return Response(whole.status, whole.body[: len(whole.body) // 2], whole.headers)
        if says in ON_ITS_WAY and world.rng.random() < 0.6:
            if world.rng.random() < 0.5:
                self._carry_out()
            else:
                self._go_on()
        return strange(says)

    def _deliver(self, response: Response) -> None:
        if not self._reply.done():
            if self._is_of_before():
                self._reply.set_exception(OutcomeUnknown("the connection was reset"))
            elif self._way.closed:
                self._reply.set_exception(OutcomeUnknown("the connection was closed"))
            else:
                self._reply.set_result(response)
                self._note_version(response)
                shards = self._world.shard_safety
                asked = self._asked
                if shards is not None and is_list(asked.method, asked.path, asked.query):
                    shards.listed(self._process, self._shards_deleted)

    def _note_version(self, response: Response) -> None:
        """Record the version that the process uses from now on: of a list, and of its own leases.

        Leases of others only show whether their holders live.
        """
        asked = self._asked
        if asked.method == "GET" and response.status == 200:
            self._world.backups.answered(self._process)
        kept = self._verb == "lease" or (asked.method == "GET" and not is_version_asked(asked.query))
        if kept and response.status in (200, 201) and self._world.plan.enabled("rolled_back"):
            version = _kept_version(response.body, self._process.leases)
            self._way.newest = max(self._way.newest, version)
            if self._verb != "lease":
                self._way.newest_listed = max(self._way.newest_listed, version)

    def _lose(self, reset: bool) -> None:
        """Reset the client's connection, or send nothing until its timeout."""
        if reset and not self._reply.done():
            self._reply.set_exception(OutcomeUnknown("the connection was reset"))
        elif self._verb == "list":
            self._process.waits_for_list(f"{self._asked.path}?{self._asked.query}", LIST_TIMEOUT)


def _kept_version(body: bytes, leases: Container[tuple[str, str]]) -> int:
    """Return the version of a list, or of one of `leases`; 0 for anything else."""
    try:
        found = json.loads(body)
        metadata = found["metadata"]
        is_lease = found["kind"] == "Lease" and (metadata["namespace"], metadata["name"]) in leases
        return int(metadata["resourceVersion"]) if is_lease or found["kind"].endswith("List") else 0
    except (ValueError, KeyError, TypeError):
        return 0


#: Responses of a proxy that has not sent the request on, and of one that may have.
IN_ITS_PLACE = ("notFound", "forbidden", "loginPage", "redirect", "unauthorized", "serviceUnavailable")
ON_ITS_WAY = ("badGateway", "gatewayTimeout")


def strange(says: str) -> Response:
    """Return a response that is not the server's."""
    return _sent(MIDDLEBOX[says])


def _sent(answer: requests.Response) -> Response:
    """Return the response as it arrives from the server."""
    headers = (("Content-Type", answer.content_type), *answer.headers)
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    return Response(answer.status, answer.body, Headers(encoded))


def refusal(status: int, body: dict[str, Any]) -> Response:
    return _sent(requests.Response(status, json.dumps({"apiVersion": "v1", **body}).encode()))


def verb_of(method: str, path: str) -> str:
    """Return the kind of a request by which faults distinguish requests."""
    plain = path.partition("?")[0]
    if plain.endswith("/binding"):
        return "bind"
    if "/leases" in plain:
        return "lease"
    if "/persistentvolume" in plain and method == "PATCH":
        return "volume"
    if "/resourceclaims" in plain and method != "GET":
        return "claim"
    if plain.startswith(SHARDS_PATH) and method != "GET":
        return "shard"
    if "/podgroups/" in plain and method == "PATCH":
        return "group"
    if "/pods/" in plain and method == "PATCH" and not plain.endswith("/status"):
        return "pod"
    if method == "GET":
        return "list" if plain.rpartition("/")[2] in KINDS_WATCHED else "get"
    if method == "DELETE":
        return "evict"
    return "event" if plain.endswith("/events") or "/events/" in plain else "status"


class Troubles(ABC):
    """The random faults of one process's connections, and their lasting effects."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._rng = random.Random(f"{world.seed} network of {process.identity}")
        self.closed = False
        self._outage_ends = 0.0
        #: Until when a replica that serves lists and watches lags, by how much, and for which path; "" for all.
        self._lags_until = self._lags_by = 0.0
        self._lagging = ""

    @abstractmethod
    def drop_streams(self) -> None:
        """End all watches of this process now, without an error."""

    def credentials_late(self) -> float:
        """Return the seconds until credentials are available."""
        if not self.strikes("slow_credentials", 0.3):
            return 0.0
        late = self._rng.choice((0.05, 1.0, 6.0, 20.0)) * self._rng.uniform(0.5, 1.5)
        self._world.plan.lasts(self._now + late)
        self._world.trace(self._process.name, f"has credentials in {late:.3f} s")
        return late

    @property
    def _now(self) -> float:
        return self._world.loop.time()

    def strikes(self, name: str, share: float = 1.0) -> bool:
        return self._world.plan.strikes(name, now=self._now, share=share)

    def cannot_connect(self) -> bool:
        """Return whether no connection can be opened: just now, or for a while in which open ones break, too."""
        now = self._now
        if self.closed or now < self._outage_ends or now < self._world.server_back:
            return True
        if not self.strikes("no_connection"):
            return False
        if self._rng.random() < 0.1:
            self._outage_ends = now + self._rng.uniform(0.5, 30.0)
            self._world.plan.lasts(self._outage_ends)
            self._world.trace(self._process.name, f"is cut off until {self._outage_ends:.3f}")
            self.drop_streams()
        return True

    def _fate(self, method: str, verb: str) -> str:
        """Return the fault that affects this request; empty for none."""
        nemesis = self._world.shard_nemesis
        if nemesis is not None and (
            (verb == "bind" and nemesis.bind_hangs(self._process))
            or (verb == "shard" and nemesis.status_hangs(self._process))
        ):
            return "hangs"
        if verb == "shard" and nemesis is not None and (fate := nemesis.trouble(self._process)):
            return fate
        if verb == "lease" and self._world.plan.enabled("lease"):
            for name in ("failed", "lost_before", "lost_after", "slow"):
                if self.strikes("lease", 12.0):
                    return name
        names = "throttled", "not_the_server", "failed", "lost_before", "lost_after", "slow"
        # There are few of these requests.
        share = 3.0 if verb in ("evict", "shard") or (verb == "pod" and self._process.scheduler) else 1.0
        first: tuple[str, ...] = ()
        if verb == "bind":
            first = "bound_elsewhere", "recreated", "gone", "deleting", "gated", "node_vanished", "denied"
        elif verb in ("evict", "pod") and share > 1:
            first = "recreated", "gone", "deleting", "denied"
        elif verb in ("status", "event", "volume", "pod"):
            first = ("denied",)
        elif verb in ("shard", "group"):
            first = f"{verb}_written", "denied"
        elif verb == "claim":
            first = ("claim_taken", "denied") if method == "PATCH" else ("denied",)
        shares = {"claim_taken": 2.0, "shard_written": 2.0, "group_written": 3.0}
        return next((name for name in (*first, *names) if self.strikes(name, shares.get(name, share))), "")

    def _latencies(self, fate: str, timeout: float) -> tuple[float, float]:
        before, after = self._rng.uniform(0.0002, 0.004), self._rng.uniform(0.0002, 0.004)
        if fate == "hangs":
            before = self._rng.uniform(1.0, LONGEST)
            self._world.plan.lasts(self._now + before)
        if fate == "slow":
            if self._rng.random() < 0.5:
                before = self._rng.uniform(0.1, 1.5) * timeout
            else:
                after = self._rng.uniform(0.1, 1.5) * timeout
            self._world.plan.lasts(self._now + before + after)
        return before, after

    def _is_unlistable(self, verb: str, path: str) -> bool:
        until = self._world.unlistable.get(path.partition("?")[0].rpartition("/")[2], 0.0)
        if verb != "list" or self._now >= until:
            return False
        if self._process.elects and not self._process.leads():
            self._world.states.reached("unlistable for who does not lead")
        return True

    def _lag(self, path: str) -> float:
        """Return by how many seconds the replica lags that answers this list or watch; 0 if it does not lag."""
        now, kind = self._now, path.partition("?")[0]
        if now < self._lags_until:
            return self._lags_by if self._lagging in ("", kind) else 0.0
        if not self.strikes("lagging", 0.2):
            return 0.0
        self._lags_by, self._lags_until = self._rng.uniform(1.0, 30.0), now + self._rng.uniform(5.0, 40.0)
        self._lagging = self._rng.choice(("", kind))
        self._world.plan.lasts(self._lags_until + 2 * self._lags_by)
        what = f"{self._lagging or 'all'} lags {self._lags_by:.3f} s until {self._lags_until:.3f}"
        self._world.trace(self._process.name, what)
        return self._lags_by

    def _query(self, verb: str, path: str, query: str) -> str:
        if verb != "list" or "continue=" in query:
            return query
        if behind := self._lag(path):
            past = self._world.version_at(self._now - behind)
        elif self.strikes("stale_list", 3.0):
            past = self._world.store.rv - self._rng.randrange(1, 40)
        else:
            return query
        if past < 2:
            return query
        self._world.trace(self._process.name, f"the list is of version {past}")
        fast_path = self._process.fast_path
        first = fast_path is None or not fast_path.is_synced or (behind and not self._process.leads())
        if self._process.scheduler and first:
            # Nothing in a first list, or in one of the replica that served the watch, reveals that it is old, so what
            # it lacks does not count.
            self._world.safety.nobody_owns_nodes()
            if self._world.allocations is not None:
                self._world.allocations.nobody_knows_devices()
        return urlencode([*parse_qsl(query), ("resourceVersion", past), ("resourceVersionMatch", "Exact")])
