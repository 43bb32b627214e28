"""Changes one object, once: a patch that names the UID and the resourceVersion it was made for.

Because of these the API server carries out one such patch at most, however often it is sent, and none after anybody
else has changed the object. So a patch whose answer was lost is looked for in the object and else sent again, and a 409
may mean that an earlier one has been carried out. A patch that does the same however often it is carried out needs no
resourceVersion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.kube.answers import Verb, asked_at, read
from agent_scheduler.kube.budget import UNLIMITED, Budget
from agent_scheduler.kube.discovery import explained
from agent_scheduler.kube.driver import REQUEST_TIMEOUT, AlreadySent, Driver, Operation, Send, ask, pause
from agent_scheduler.kube.errors import Failure, FailureClass
from agent_scheduler.kube.retry import REAL, Timing
from agent_scheduler.kube.transport import Response, Transport, TransportError, start_of

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    uid: str = ""


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


_decode_version = msgspec.json.Decoder(_Versioned).decode

#: In the place of a failure: it was called off before the object was known to be changed.
CALLED_OFF: Final = Failure(FailureClass.GONE, message="no longer wanted")


class Patched(NamedTuple):
    """The version of the object that holds the change; or why it was not made."""

    resource_version: str
    failure: Failure | None = None
    #: Whether it may still be made: a request for it got no answer, and nothing is asked any more.
    is_open: bool = False
    #: The object, where it was read to see that it holds the change: others may have changed more of it by then.
    found: bytes = b""


async def patch_once(
    transport: Transport,
    path: str,
    body: bytes,
    *,
    wanted: Callable[[], bool],
    strategic: bool = False,
    repeats: bool = True,
    budget: Budget = UNLIMITED,
    already_sent: AlreadySent | None = None,
    timing: Timing = REAL,
) -> Patched:
    """Sends a JSON merge patch, or a `strategic` one, whose lists add to those that are there.

    Returns when it is known whether the object holds the change, or `wanted`, which is asked at the sending of each
    request, says no; without `repeats` after one request. `already_sent`: what `start_patch` has told of the first one.
    Never raises for what network or server do."""
    driver = Driver(transport=transport, budget=budget, timing=timing)
    return await driver.run(
        _patching(path, body, strategic=strategic, repeats=repeats),
        refuse=called_off(wanted),
        already_sent=already_sent,
    )


def start_patch(
    transport: Transport,
    path: str,
    body: bytes,
    *,
    uid: str,
    strategic: bool = False,
    ended: Callable[[AlreadySent | None], None],
    timing: Timing = REAL,
) -> bool:
    """Sends the first request at once and without a task, where the transport can; else nothing is sent, and it is
    False. `uid` is the one that `body` names. `ended` is told later, of a failure that `patch_once` goes on with."""
    began, send = timing.clock(), _send(path, body, uid, strategic=strategic)

    def answered(answer: Response | TransportError) -> None:
        failure = read(answer, send.asked)
        ended(None if failure is None else AlreadySent(began, failure))

    return start_of(transport)(
        send.method,
        path,
        body=body,
        content_type=send.content_type,
        timeout=REQUEST_TIMEOUT,
        answered=answered,
    )


def _send(path: str, body: bytes, uid: str, *, strategic: bool) -> Send:
    return Send("PATCH", path, asked_at(path, Verb.PATCH, uid), body, STRATEGIC if strategic else MERGE)


def _patching(path: str, body: bytes, *, strategic: bool, repeats: bool) -> Operation[Patched]:
    patch = _send(path, body, _uid_in(body), strategic=strategic)
    get = Send("GET", path, msgspec.structs.replace(patch.asked, verb=Verb.GET))
    #: The last answer to the patch, if that leaves open whether it has been carried out.
    unknown: Failure | None = None
    #: Whether a request may be carried out after all others.
    is_open = False
    while True:
        failure, response = yield from ask(patch if unknown is None else get)
        if failure is CALLED_OFF:
            return Patched("", CALLED_OFF, is_open)
        if failure is not None and not repeats:
            return Patched("", failure, failure.kind is FailureClass.UNKNOWN)
        if response is not None:
            if unknown is None or says(object_of(response), _decode(body), strategic=strategic):
                return Patched(version_in(response), found=b"" if unknown is None else response.body)
            if unknown.kind is FailureClass.CONFLICT:
                return Patched("", unknown)
            if patch.asked.uid and _uid_in(response.body) not in ("", patch.asked.uid):
                # For a subresource the API server may carry it out on a namesake, each time that it is sent.
                return Patched(
                    "", Failure(FailureClass.NOT_FOUND, message=f"{path} is another object by now")
                )
            # Not yet, and if it still comes, the next one is refused for it.
            unknown = None
        elif (
            failure is not None
            and (failure := (yield from explained(failure, path))).kind is FailureClass.NOT_SERVED
        ):
            return Patched("", failure, is_open)
        elif failure is not None and unknown is None:
            if failure.kind is FailureClass.CONFLICT:
                unknown = failure
                continue
            if not failure.retryable:
                return Patched("", failure, is_open)
            if failure.kind is FailureClass.UNKNOWN:
                unknown = failure
                is_open = True
        elif failure is not None and unknown is not None and not failure.retryable:
            if failure.kind is FailureClass.NOT_FOUND or unknown.kind is FailureClass.CONFLICT:
                return Patched("", unknown if unknown.kind is FailureClass.CONFLICT else failure)
            # Who may not read the object sees it in the next answer to the patch.
            unknown = None
        yield from pause(failure)


def called_off(wanted: Callable[[], bool]) -> Callable[[Send], Failure | None]:
    """Refuses requests, as a driver asks, from when `wanted` says no."""
    return lambda _send: None if wanted() else CALLED_OFF


def is_conflict(failure: Failure) -> bool:
    return failure.kind is FailureClass.CONFLICT


def is_about_another_pod(failure: Failure) -> bool:
    """Of a patch that names a pod's UID: the pod is not there, or, as kube-apiserver 1.36 says by a 422 for changing
    metadata.uid, its name stands for another one."""
    return failure.kind is FailureClass.NOT_FOUND or (
        failure.status == 422 and "metadata.uid" in failure.fields
    )


def object_of(response: Response) -> dict[str, Any]:
    """The object in an answer; empty where there is none."""
    try:
        return _decode(response.body)
    except msgspec.MsgspecError:
        return {}


def version_in(response: Response) -> str:
    """Of the object in an answer; empty where there is none."""
    try:
        return _decode_version(response.body).metadata.resource_version
    except msgspec.MsgspecError:
        return ""


def _uid_in(patch: bytes) -> str:
    return _decode_version(patch).metadata.uid


def says(found: Any, patch: Any, *, strategic: bool) -> bool:
    """Whether an object says all that the patch does, versions aside; it may say more than was written."""
    if isinstance(patch, dict):
        return isinstance(found, dict) and all(
            says(found.get(key), wanted, strategic=strategic)
            for key, wanted in patch.items()
            if key != "resourceVersion"
        )
    if not isinstance(patch, list):
        return bool(found == patch)
    found = found or []
    if not isinstance(found, list):
        return False
    if strategic:
        return all(_added(found, wanted) for wanted in patch)
    return len(found) == len(patch) and all(
        says(each, wanted, strategic=False) for each, wanted in zip(found, patch, strict=True)
    )


def _added(found: list[Any], wanted: Any) -> bool:
    """Whether an item of a strategic patch's list is there, or no longer there if the patch takes it out."""
    gone = isinstance(wanted, dict) and wanted.get("$patch") == "delete"
    if gone:
        wanted = {key: value for key, value in wanted.items() if key != "$patch"}
    return gone != any(says(each, wanted, strategic=True) for each in found)
