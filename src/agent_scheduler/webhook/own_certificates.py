"""Keeps the certificates that a webhook makes for itself, the same for all replicas, in a Secret.

What counts is what the Secret says. Each replica looks at it when it is told of a change, and every `PERIOD`, as time
makes certificates due; it renews in it what is due, has its authorities written where they are to be trusted, and
presents the certificate. A write names the version that it was made for, so that of several only one gets through, and
the others take what that has written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.kube.answers import Verb, asked_at
from agent_scheduler.kube.budget import TokenBucket
from agent_scheduler.kube.driver import Send, send_once
from agent_scheduler.kube.errors import Failure, FailureClass
from agent_scheduler.kube.patch import is_conflict, object_of, patch_once
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport, segment
from agent_scheduler.objects.merging import replacement
from agent_scheduler.telemetry.logs import OncePer, get_logger

from .authority import Held, UnusableCertificates, from_data, renewed, to_data

#: Seconds between two looks at the Secret of which nothing is told, and after one that has left something to be done.
PERIOD: Final = 60.0
_AGAIN: Final = 5.0
#: Looks that may follow one another at once, and a second after that: others may write the same objects all the time.
_AT_ONCE: Final = 10
_A_SECOND: Final = 1 / _AGAIN
#: As whom the Secret is made. It is made empty, as the manifest makes it, so that several replicas may do it at once;
#: to apply it is the one way to make it that roles can limit to its name.
_APPLY: Final = "application/apply-patch+yaml"
_AS: Final = "?fieldManager=agent-scheduler-webhook&force=true"
#: Seconds that one look may take, and writes that may be lost to others in it.
_PATIENCE: Final = 30.0
_CONFLICTS: Final = 5
_LOG_SECONDS: Final = 300.0

_encode = msgspec.json.Encoder().encode


class _Found(NamedTuple):
    """The Secret as it is; `uid` is empty if there is none."""

    uid: str = ""
    version: str = ""
    held: Held | None = None
    #: Its keys, also such as others have put there.
    data: Mapping[str, Any] = MappingProxyType({})


class OwnCertificates:
    """Run `run`. Owner of the certificate that is presented, which is one that the Secret has, or had."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        name: str,
        hosts: Sequence[str],
        present: Callable[[Held], None],
        publish: Callable[[bytes], Awaitable[bool]],
        timing: Timing,
    ) -> None:
        """`hosts`: names and addresses of the server. `present` shows a certificate from now on; raises OSError.
        `publish` has a bundle of authorities trusted, says whether it is now, and never raises."""
        self._transport = transport
        self._name = name
        self._namespace = namespace
        #: Where the Secret is.
        self.path: Final = f"/api/v1/namespaces/{segment(namespace)}/secrets/{segment(name)}"
        self._hosts = hosts
        self._present = present
        self._publish = publish
        self._timing = timing
        self._changed = asyncio.Event()
        self._pace = TokenBucket(_A_SECOND, _AT_ONCE, timing=timing)
        self._log = get_logger("webhook")
        self._once = OncePer(_LOG_SECONDS, clock=timing.clock)

    def changed(self) -> None:
        """Something has changed of what is written here."""
        self._changed.set()

    async def run(self) -> None:
        """Keep them until cancelled."""
        while True:
            await self._pace.take()
            self._changed.clear()
            is_done = await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD if is_done else _AGAIN):
                    await self._changed.wait()

    async def look(self) -> bool:
        """Whether there is a certificate that all replicas have, and that is trusted."""
        held = await self._agreed(self._timing.clock() + _PATIENCE)
        if held is None:
            return False
        is_trusted = await self._publish(held.bundle)
        try:
            self._present(held)
        except OSError as error:  # SSLError is one
            self._complain(f"cannot present the certificate: {error}")
            return False
        return is_trusted

    async def _agreed(self, ends: float) -> Held | None:
        for _ in range(_CONFLICTS):
            found = await self._read()
            if found is None:
                return None
            if not found.uid:
                failure = await self._make()
                if failure is not None:
                    self._complain(f"cannot make the Secret: {failure}")
                    return None
                continue
            due = renewed(found.held, self._hosts, self._timing.now())
            if due is None:
                return found.held
            failure = await self._write(found, due, lambda: self._timing.clock() < ends)
            if failure is None:
                self._log.info("certificates renewed", secret=f"{self._namespace}/{self._name}")
                return due
            if not is_conflict(failure):
                self._complain(f"cannot write the Secret: {failure}")
                # It is due, and may be good for a long time yet.
                return found.held
        self._complain("the Secret is written by others all the time")
        return None

    async def _read(self) -> _Found | None:
        """None where it is not known."""
        failure, response = await send_once(
            self._transport, Send("GET", self.path, asked_at(self.path, Verb.GET))
        )
        if response is None:
            if failure is not None and failure.kind is FailureClass.NOT_FOUND:
                return _Found()
            self._complain(f"cannot read the Secret: {failure}")
            return None
        secret = object_of(response)
        data = secret.get("data") or {}
        try:
            held = from_data(data)
        except UnusableCertificates as error:
            self._complain(f"the Secret holds something else, which is replaced: {error}")
            held = None
        metadata = secret["metadata"]
        return _Found(metadata["uid"], metadata["resourceVersion"], held, data)

    async def _write(self, found: _Found, held: Held, wanted: Callable[[], bool]) -> Failure | None:
        metadata = {"uid": found.uid, "resourceVersion": found.version}
        patched = await patch_once(
            self._transport,
            self.path,
            _encode({"metadata": metadata, "data": replacement(found.data, to_data(held))}),
            wanted=wanted,
            timing=self._timing,
        )
        return patched.failure

    async def _make(self) -> Failure | None:
        """Why there may be no Secret yet. Does nothing to one that is there."""
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "type": "Opaque",
        }
        asked = asked_at(self.path, Verb.PATCH)
        made = Send("PATCH", self.path + _AS, asked, _encode(secret), _APPLY)
        return (await send_once(self._transport, made)).failure

    def _complain(self, problem: str) -> None:
        held_back = self._once.admit(problem[:60])
        if held_back is not None:
            self._log.error(
                "certificates not kept",
                secret=f"{self._namespace}/{self._name}",
                problem=problem,
                held_back=held_back,
            )
