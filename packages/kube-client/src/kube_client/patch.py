"""Changes one object, exactly once, by a patch with the UID and the resourceVersion that it is based on.

Because of these the API server carries out at most one such patch, however often it is sent, and none after another
change of the object. After a lost response the object is checked for the change, and otherwise the patch is sent
again; a 409 may mean that an earlier one was carried out. An idempotent patch needs no resourceVersion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from kube_client.answers import RequestInfo, Verb, asked_at, read
from kube_client.budget import UNLIMITED, Budget
from kube_client.discovery import explained
from kube_client.driver import REQUEST_TIMEOUT, AlreadySent, Driver, Operation, Send, ask, pause
from kube_client.errors import UNREADABLE, Failure, FailureClass
from kube_client.retry import REAL, Timing
from kube_client.transport import Response, Transport, TransportError, start_of

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _PatchedMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    uid: str = ""


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _PatchedMeta = _PatchedMeta()


_decode_version = msgspec.json.Decoder(_Versioned).decode

#: Replaces a failure: the patch was called off before the object was known to be changed.
CALLED_OFF: Final = Failure(FailureClass.GONE, message="no longer wanted")


class Patched(NamedTuple):
    """The version of the object with the change, or why it was not changed."""

    resource_version: str
    failure: Failure | None = None
    #: Whether it may still be carried out: a request got no response, and no further one is made.
    is_open: bool = False
    #: The object, if it was read to verify the change; it may have further changes.
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
    """Send a JSON merge patch, or a `strategic` one, whose lists are merged.

    Returns when it is known whether the object has the change, or when `wanted`, called before each request, returns
    false; without `repeats`, after one request. `already_sent` is the result of `start_patch` for the first request.
    Never raises for errors of network or server.
    """
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
    asked: RequestInfo,
    strategic: bool = False,
    ended: Callable[[AlreadySent | bytes], None],
    timing: Timing = REAL,
) -> bool:
    """Send the first request immediately and without a task, if the transport can; otherwise return false.

    `asked` has the UID in `body`. `ended` is called later, with the changed object as the API server sent it, or with a
    failure from which `patch_once` resumes.
    """
    began = timing.clock()

    def answered(answer: Response | TransportError) -> None:
        failure = read(answer, asked)
        if failure is None and isinstance(answer, Response):
            ended(answer.body)
        elif failure is not None:
            ended(AlreadySent(began, failure))

    return start_of(transport)(
        "PATCH",
        path,
        body=body,
        content_type=STRATEGIC if strategic else MERGE,
        timeout=REQUEST_TIMEOUT,
        answered=answered,
    )


def _patching(path: str, body: bytes, *, strategic: bool, repeats: bool) -> Operation[Patched]:
    asked = asked_at(path, Verb.PATCH, _uid_in(body))
    patch = Send("PATCH", path, asked, body, STRATEGIC if strategic else MERGE)
    get = Send("GET", path, msgspec.structs.replace(patch.asked, verb=Verb.GET))
    #: The last response to the patch, if it leaves open whether the patch was carried out.
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
                # For a subresource the API server may apply it to another object of the same name, each time that it
                # is sent.
                return Patched("", Failure(FailureClass.NOT_FOUND, message=f"{path} is another object by now"))
            # Not yet carried out. If it still is, the next one is rejected because of it.
            unknown = None
        elif failure is not None and (failure := (yield from explained(failure, path))).kind is FailureClass.NOT_SERVED:
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
            # Without permission to read the object, the next response to the patch shows its state.
            unknown = None
        yield from pause(failure)


def called_off(wanted: Callable[[], bool]) -> Callable[[Send], Failure | None]:
    """Return a `Refuse` that rejects requests once `wanted` returns false."""
    return lambda _send: None if wanted() else CALLED_OFF


def is_conflict(failure: Failure) -> bool:
    return failure.kind is FailureClass.CONFLICT


def is_about_another_pod(failure: Failure) -> bool:
    """Return whether a patch with a pod's UID failed because that pod is gone.

    The pod is missing, or its name belongs to another one, which kube-apiserver 1.36 reports by a 422 for
    metadata.uid.
    """
    return failure.kind is FailureClass.NOT_FOUND or (failure.status == 422 and "metadata.uid" in failure.fields)


def object_of(response: Response) -> dict[str, Any]:
    """Return the object in a response; empty if there is none."""
    try:
        return _decode(response.body)
    except UNREADABLE:
        return {}


def version_in(response: Response) -> str:
    """Return the version of the object in a response; empty if there is none."""
    try:
        return _decode_version(response.body).metadata.resource_version
    except UNREADABLE:
        return ""


def _uid_in(patch: bytes) -> str:
    return _decode_version(patch).metadata.uid


def says(found: Any, patch: Any, *, strategic: bool) -> bool:
    """Return whether an object has all values of the patch, except versions; it may have more."""
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
    """Return whether an item of a strategic patch's list is present, or absent if the patch deletes it."""
    gone = isinstance(wanted, dict) and wanted.get("$patch") == "delete"
    if gone:
        wanted = {key: value for key, value in wanted.items() if key != "$patch"}
    return gone != any(says(each, wanted, strategic=True) for each in found)
