"""Makes one object, once, and deletes one: requests that may be sent again, for a name or a UID says what is meant.

An object is made under a name that its maker has chosen. So the API server carries out one such request at most,
however often it is sent; a 409 says that an object of the name is there, and whether it is the one that was to be made
is seen by what it says. A deletion names the UID, so that it is never another object that goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.kube.answers import Verb, asked_at
from agent_scheduler.kube.budget import UNLIMITED, Budget
from agent_scheduler.kube.discovery import explained
from agent_scheduler.kube.driver import Driver, Operation, Send, ask, pause, repeat
from agent_scheduler.kube.errors import Failure, FailureClass
from agent_scheduler.kube.patch import CALLED_OFF, called_off, object_of, says
from agent_scheduler.kube.retry import REAL, Timing
from agent_scheduler.kube.transport import Transport

#: Of a deletion; whoever gives up on one finds the object again.
DELETE_ATTEMPTS: Final = 5

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class Made(NamedTuple):
    """The object of the name, if there is one; or why that is not known. With `failure` None it was made just now, or
    by an earlier request of the same call."""

    found: dict[str, Any]
    failure: Failure | None = None
    #: Whether a request got no answer, which may still be carried out where there is no object of the name.
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
) -> Made:
    """Make the object that `body` describes, `name` being in it and standing for itself in paths.

    Returns when it is known whether there is an object of the name, or `wanted`, which is asked before each request,
    says no, or after so many attempts. If there was one before, `failure` is a conflict. Never raises for what network
    or server do.
    """
    driver = Driver(transport=transport, budget=budget, timing=timing, attempts=attempts)
    return await driver.run(_creation(collection, name, body), refuse=called_off(wanted))


def _creation(collection: str, name: str, body: bytes) -> Operation[Made]:
    path = f"{collection}/{name}"
    post = Send("POST", collection, asked_at(path, Verb.CREATE), body)
    get = Send("GET", path, asked_at(path, Verb.GET))
    #: Whether a request was sent whose answer is not known, since there was last seen to be no such object; and at all.
    unknown = is_open = False
    conflict: Failure | None = None
    while True:
        failure, response = yield from ask(post if conflict is None else get)
        if response is not None:
            found = object_of(response)
            ours = conflict is None or (unknown and says(found, _decode(body), strategic=False))
            return Made(found, None if ours else conflict, is_open)
        assert failure is not None, "neither an answer nor a failure"
        failure = yield from explained(failure, collection)
        if conflict is None and failure.kind is FailureClass.CONFLICT:
            conflict = failure
            continue
        if conflict is not None and failure.kind is FailureClass.NOT_FOUND:
            # It went away meanwhile.
            conflict, unknown = None, False
        elif failure is CALLED_OFF or not failure.retryable:
            return Made({}, failure, is_open)
        elif conflict is None and failure.kind is FailureClass.UNKNOWN:
            unknown = is_open = True
        if not (yield from pause(failure)):
            return Made({}, failure, is_open)


def deletion(path: str, uid: str, **preconditions: str) -> Send:
    """Of the object of this UID alone."""
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
    """Delete the object of this UID. None once the API server has taken that, or there is none; else why it is not
    known. `wanted` is asked before each request. Never raises for what network or server do."""
    driver = Driver(transport=transport, budget=budget, timing=timing, attempts=DELETE_ATTEMPTS)
    failure = await driver.run(repeat(deletion(path, uid)), refuse=called_off(wanted))
    return None if failure is not None and is_gone(failure) else failure


def is_gone(failure: Failure) -> bool:
    """Whether an object that was to be deleted is not there any more; 409: its name stands for another one by now."""
    return failure.kind in (FailureClass.NOT_FOUND, FailureClass.CONFLICT)
