"""Makes one object, once, and deletes one: requests that may be sent again, for a name or a UID says what is meant.

An object is made under a name that its maker has chosen. So the API server carries out one such request at most,
however often it is sent; a 409 says that an object of the name is there, and whether it is the one that was to be made
is seen by what it says. A deletion names the UID, so that it is never another object that goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from agent_scheduler.kube.budget import UNLIMITED, Budget
from agent_scheduler.kube.errors import Failure, FailureClass, classify
from agent_scheduler.kube.patch import CALLED_OFF, object_of, says, send
from agent_scheduler.kube.retry import REAL, Attempts, Backoff, Timing
from agent_scheduler.kube.transport import Response, Transport

_BACKOFF = Backoff(initial=0.5, cap=10.0)
#: Of a deletion; whoever gives up on one finds the object again.
_ATTEMPTS = 5

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
) -> Made:
    """Make the object that `body` describes, `name` being in it and standing for itself in paths.

    Returns when it is known whether there is an object of the name, or `wanted`, which is asked before each request,
    says no. If there was one before, `failure` is a conflict. Never raises for what network or server do.
    """
    attempts: Attempts | None = None
    #: Whether a request was sent whose answer is not known, since there was last seen to be no such object; and at all.
    doubt = is_open = False
    conflict: Failure | None = None
    while True:
        async with budget.request():
            if not wanted():
                return Made({}, CALLED_OFF, is_open)
            if conflict is None:
                answer = await send(transport, "POST", collection, body)
            else:
                answer = await send(transport, "GET", f"{collection}/{name}")
        failure = classify(answer) if isinstance(answer, Response) else answer
        if isinstance(answer, Response) and failure is None:
            found = object_of(answer)
            ours = conflict is None or (doubt and says(found, _decode(body), strategic=False))
            return Made(found, None if ours else conflict, is_open)
        assert failure is not None
        if conflict is None and failure.kind is FailureClass.CONFLICT:
            conflict = failure
            continue
        if conflict is not None and failure.kind is FailureClass.NOT_FOUND:
            # It went away meanwhile.
            conflict, doubt = None, False
        elif not failure.retryable:
            return Made({}, failure, is_open)
        elif conflict is None and failure.kind is FailureClass.UNKNOWN:
            doubt = is_open = True
        attempts = attempts or Attempts(_BACKOFF, timing)
        await attempts.wait(failure.retry_after)


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
    body = _encode({"preconditions": {"uid": uid}})
    attempts = Attempts(_BACKOFF, timing)
    while True:
        async with budget.request():
            if not wanted():
                return CALLED_OFF
            answer = await send(transport, "DELETE", path, body)
        failure = classify(answer) if isinstance(answer, Response) else answer
        # 409: the name stands for another object by now.
        if failure is None or failure.kind in (FailureClass.NOT_FOUND, FailureClass.CONFLICT):
            return None
        if not failure.retryable or attempts.made + 1 >= _ATTEMPTS:
            return failure
        await attempts.wait(failure.retry_after)
