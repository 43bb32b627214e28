"""Creates or deletes one object, exactly once, with requests that may be repeated.

The creator chooses the name. The API server therefore carries out at most one such request, however often it is sent.
A 409 means that an object with the name exists, and its content shows whether it is the intended one. A deletion has
the UID as precondition, so that it never deletes another object.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from kube_client.answers import RequestInfo, Verb, asked_at, read
from kube_client.budget import UNLIMITED, Budget
from kube_client.discovery import explained
from kube_client.driver import REQUEST_TIMEOUT, AlreadySent, Driver, Operation, Send, ask, pause, repeat
from kube_client.errors import Failure, FailureClass
from kube_client.patch import CALLED_OFF, called_off, object_of, says
from kube_client.retry import REAL, Timing
from kube_client.transport import Response, Transport, TransportError, collection_at, start_of

#: The limit of attempts of a deletion; a caller that gives up finds the object again.
DELETE_ATTEMPTS: Final = 5
#: The query with which the API server rejects unknown and duplicate fields of a body.
STRICT: Final = "?fieldValidation=Strict"

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class CreateResult(NamedTuple):
    """The object with the name as the API server sent it, empty if there is none, or why that is unknown.

    If `failure` is None, it was created now or by an earlier request of the same call.
    """

    found: bytes
    failure: Failure | None = None
    #: Whether a request without response may still create the object.
    is_open: bool = False


async def create_once(
    transport: Transport,
    collection: str,
    name: str,
    body: bytes,
    *,
    wanted: Callable[[], bool],
    budget: Budget = UNLIMITED,
    timing: Timing = REAL,
    attempts: int | None = None,
    strict: bool = False,
    already_sent: AlreadySent | None = None,
) -> CreateResult:
    """Create the object that `body` describes. `name` is its name, which needs no escaping in paths.

    With `strict` the API server rejects fields that it does not know, as for kubectl, instead of dropping them.
    `already_sent` is the failure of the first request, which was sent before.

    Returns when it is known whether an object with the name exists, when `wanted`, called before each request,
    returns false, or after `attempts`. If the object existed before, `failure` is a conflict. Never raises for errors
    of network or server.
    """
    driver = Driver(transport=transport, budget=budget, timing=timing, attempts=attempts)
    query = STRICT if strict else ""
    creation = _creation(collection, name, body, query)
    return await driver.run(creation, refuse=called_off(wanted), already_sent=already_sent)


async def create_each(
    transport: Transport,
    collection: str,
    objects: Iterable[tuple[str, bytes]],
    *,
    most: int,
    wanted: Callable[[], bool],
    ended: Callable[[int, CreateResult], None],
    timing: Timing = REAL,
) -> None:
    """Create objects of one collection, given by name and body, as `create_once` does; at most `most` concurrently.

    An object is requested when its turn comes. A request whose first response settles it needs no task. `ended`
    receives the index and the result of each.
    """
    creations = _Creations(transport, collection, wanted, timing)
    try:
        await creations.run(objects, most, ended)
    finally:
        creations.close()


class _Creations:
    """One call of `create_each`. Owner of the tasks of requests that are not settled by a first response."""

    def __init__(self, transport: Transport, collection: str, wanted: Callable[[], bool], timing: Timing) -> None:
        self._transport = transport
        self._start = start_of(transport)
        self._collection = collection
        self._resource = collection_at(collection)[1]
        self._wanted = wanted
        self._timing = timing
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        #: Results that `run` has not handled yet.
        self._results: deque[tuple[int, CreateResult]] = deque()
        self._changed = asyncio.Event()

    async def run(
        self, objects: Iterable[tuple[str, bytes]], most: int, ended: Callable[[int, CreateResult], None]
    ) -> None:
        left, under_way = enumerate(objects), 0
        while True:
            while under_way < most and (following := next(left, None)) is not None:
                under_way += 1
                index, (name, body) = following
                if not self._sent(index, name, body):
                    self._resume(index, name, body, None)
            if not under_way:
                return
            await self._changed.wait()
            self._changed.clear()
            while self._results:
                under_way -= 1
                ended(*self._results.popleft())
            for task in [each for each in self._tasks if each.done()]:
                self._tasks.discard(task)
                task.result()

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        for each in self._tasks:
            each.cancel()

    def _sent(self, index: int, name: str, body: bytes) -> bool:
        if not self._wanted():
            return False
        began, asked = self._timing.clock(), RequestInfo(Verb.CREATE, self._resource, name)

        def answered(answer: Response | TransportError) -> None:
            failure = read(answer, asked)
            if self._is_closed:
                return
            if failure is not None:
                self._resume(index, name, body, AlreadySent(began, failure))
            else:
                assert isinstance(answer, Response), "a success is a response"
                self._ended(index, CreateResult(answer.body))

        return self._start("POST", self._collection, body=body, timeout=REQUEST_TIMEOUT, answered=answered)

    def _resume(self, index: int, name: str, body: bytes, already_sent: AlreadySent | None) -> None:
        task = asyncio.get_running_loop().create_task(self._create(index, name, body, already_sent))
        self._tasks.add(task)
        task.add_done_callback(self._wake)

    async def _create(self, index: int, name: str, body: bytes, already_sent: AlreadySent | None) -> None:
        made = await create_once(
            *(self._transport, self._collection, name, body),
            wanted=self._wanted,
            timing=self._timing,
            already_sent=already_sent,
        )
        self._ended(index, made)

    def _ended(self, index: int, made: CreateResult) -> None:
        self._results.append((index, made))
        self._changed.set()

    def _wake(self, _task: asyncio.Task[None]) -> None:
        self._changed.set()


def _creation(collection: str, name: str, body: bytes, query: str) -> Operation[CreateResult]:
    path = f"{collection}/{name}"
    post = Send("POST", collection + query, asked_at(path, Verb.CREATE), body)
    get = Send("GET", path, asked_at(path, Verb.GET))
    #: Whether a request without response was sent: since the object was last observed missing, and at all.
    unknown = is_open = False
    conflict: Failure | None = None
    while True:
        failure, response = yield from ask(post if conflict is None else get)
        if response is not None:
            ours = conflict is None or (unknown and says(object_of(response), _decode(body), strategic=False))
            return CreateResult(response.body, None if ours else conflict, is_open)
        assert failure is not None, "neither an answer nor a failure"
        failure = yield from explained(failure, collection)
        if conflict is None and failure.kind is FailureClass.CONFLICT:
            conflict = failure
            continue
        if conflict is not None and failure.kind is FailureClass.NOT_FOUND:
            # It was deleted in the meantime.
            conflict, unknown = None, False
        elif failure is CALLED_OFF or not failure.retryable:
            return CreateResult(b"", failure, is_open)
        elif conflict is None and failure.kind is FailureClass.UNKNOWN:
            unknown = is_open = True
        if not (yield from pause(failure)):
            return CreateResult(b"", failure, is_open)


def deletion(path: str, uid: str, **preconditions: str) -> Send:
    """Return the request that deletes the object with this UID only."""
    body = _encode({"preconditions": {"uid": uid, **preconditions}})
    return Send("DELETE", path, asked_at(path, Verb.DELETE, uid), body)


async def delete_once(
    transport: Transport,
    path: str,
    uid: str,
    *,
    wanted: Callable[[], bool],
    budget: Budget = UNLIMITED,
    timing: Timing = REAL,
) -> Failure | None:
    """Delete the object with this UID. Returns None if the API server accepted that or it is missing, else the failure.

    `wanted` is called before each request. Never raises for errors of network or server.
    """
    driver = Driver(transport=transport, budget=budget, timing=timing, attempts=DELETE_ATTEMPTS)
    failure = await driver.run(repeat(deletion(path, uid)), refuse=called_off(wanted))
    return None if failure is not None and is_gone(failure) else failure


def is_gone(failure: Failure) -> bool:
    """Return whether the object to delete is gone; a 409 means that its name belongs to another one now."""
    return failure.kind in (FailureClass.NOT_FOUND, FailureClass.CONFLICT)
