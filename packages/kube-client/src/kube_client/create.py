"""Creates or deletes one object, exactly once, with requests that may be repeated.

The creator chooses the name. The API server therefore carries out at most one such request, however often it is sent.
A 409 means that an object with the name exists, and its content shows whether it is the intended one. A deletion has
the UID as precondition, so that it never deletes another object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from kube_client.answers import Verb, asked_at
from kube_client.budget import UNLIMITED, Budget
from kube_client.discovery import explained
from kube_client.driver import Driver, Operation, Send, ask, pause, repeat
from kube_client.errors import Failure, FailureClass
from kube_client.patch import CALLED_OFF, called_off, object_of, says
from kube_client.retry import REAL, Timing
from kube_client.transport import Transport

#: The limit of attempts of a deletion; a caller that gives up finds the object again.
DELETE_ATTEMPTS: Final = 5
#: The query with which the API server rejects unknown and duplicate fields of a body.
STRICT: Final = "?fieldValidation=Strict"

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class CreateResult(NamedTuple):
    """The object with the name, if it exists, or why that is unknown.

    If `failure` is None, it was created now or by an earlier request of the same call.
    """

    found: dict[str, Any]
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
) -> CreateResult:
    """Create the object that `body` describes. `name` is its name, which needs no escaping in paths.

    With `strict` the API server rejects fields that it does not know, as for kubectl, instead of dropping them.

    Returns when it is known whether an object with the name exists, when `wanted`, called before each request,
    returns false, or after `attempts`. If the object existed before, `failure` is a conflict. Never raises for errors
    of network or server.
    """
    driver = Driver(transport=transport, budget=budget, timing=timing, attempts=attempts)
    query = STRICT if strict else ""
    return await driver.run(_creation(collection, name, body, query), refuse=called_off(wanted))


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
            found = object_of(response)
            ours = conflict is None or (unknown and says(found, _decode(body), strategic=False))
            return CreateResult(found, None if ours else conflict, is_open)
        assert failure is not None, "neither an answer nor a failure"
        failure = yield from explained(failure, collection)
        if conflict is None and failure.kind is FailureClass.CONFLICT:
            conflict = failure
            continue
        if conflict is not None and failure.kind is FailureClass.NOT_FOUND:
            # It was deleted in the meantime.
            conflict, unknown = None, False
        elif failure is CALLED_OFF or not failure.retryable:
            return CreateResult({}, failure, is_open)
        elif conflict is None and failure.kind is FailureClass.UNKNOWN:
            unknown = is_open = True
        if not (yield from pause(failure)):
            return CreateResult({}, failure, is_open)


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
