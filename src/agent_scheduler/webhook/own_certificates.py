"""Keeps a webhook's own certificates, shared by all replicas, in a Secret.

The Secret is authoritative. Each replica checks it after every change, and every `PERIOD`, since certificates become
due over time. A check renews in it what is due, publishes its authorities, and presents the certificate. A write
names the version it is based on, so only one of several simultaneous writes succeeds, and the other replicas use its
result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.telemetry.logs import LimitedLog, get_logger
from kube_client.answers import Verb, asked_at
from kube_client.budget import TokenBucket
from kube_client.driver import Send, send_once
from kube_client.errors import Failure, FailureClass
from kube_client.merging import replacement
from kube_client.patch import is_conflict, object_of, patch_once
from kube_client.retry import Timing
from kube_client.transport import Transport, segment

from .authority import CertificateBundle, UnusableCertificates, from_data, renewed, to_data

#: Seconds between two checks without a change, and after an incomplete check.
PERIOD: Final = 60.0
_AGAIN: Final = 5.0
#: Checks allowed in a burst, and per second after it, because other clients may write the same objects all the time.
_AT_ONCE: Final = 10
_A_SECOND: Final = 1 / _AGAIN
#: The field manager. The Secret is created empty, as by the manifest, so several replicas may do it simultaneously.
#: Server-side apply is the only way of creating it that a role can limit to its name.
_APPLY: Final = "application/apply-patch+yaml"
_AS: Final = "?fieldManager=agent-scheduler-webhook&force=true"
#: The time limit of a check in seconds, and its limit of conflicts with other writers.
_PATIENCE: Final = 30.0
_CONFLICTS: Final = 5
_LOG_SECONDS: Final = 300.0

_encode = msgspec.json.Encoder().encode


class _Found(NamedTuple):
    """The current Secret; `uid` is empty if there is none."""

    uid: str = ""
    version: str = ""
    held: CertificateBundle | None = None
    #: Its data, including keys written by other clients.
    data: Mapping[str, Any] = MappingProxyType({})


class OwnCertificates:
    """Keeps the certificates. Run `run` as a task.

    The presented certificate is from the current or an earlier Secret.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        name: str,
        hosts: Sequence[str],
        present: Callable[[CertificateBundle], None],
        publish: Callable[[bytes], Awaitable[bool]],
        timing: Timing,
    ) -> None:
        """`hosts` are names and addresses of the server. `present` starts to present a certificate; it raises OSError.

        `publish` makes clients trust a bundle, returns whether they do, and never raises.
        """
        self._transport = transport
        self._name = name
        self._namespace = namespace
        #: The path of the Secret.
        self.path: Final = f"/api/v1/namespaces/{segment(namespace)}/secrets/{segment(name)}"
        self._hosts = hosts
        self._present = present
        self._publish = publish
        self._timing = timing
        self._changed = asyncio.Event()
        self._pace = TokenBucket(_A_SECOND, _AT_ONCE, timing=timing)
        self._log = get_logger("webhook")
        self._limited_log = LimitedLog(self._log, clock=timing.clock, seconds=_LOG_SECONDS)

    def changed(self) -> None:
        """Handle a change of an object that is written here."""
        self._changed.set()

    async def run(self) -> None:
        """Keep the certificates until cancelled."""
        while True:
            await self._pace.take()
            self._changed.clear()
            is_done = await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD if is_done else _AGAIN):
                    await self._changed.wait()

    async def look(self) -> bool:
        """Check once. Return whether all replicas have a common certificate that is trusted."""
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

    async def _agreed(self, ends: float) -> CertificateBundle | None:
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
                # The old certificate is due, but may still be valid for long.
                return found.held
        self._complain("other clients keep writing the Secret")
        return None

    async def _read(self) -> _Found | None:
        """Read the Secret; None if that fails."""
        failure, response = await send_once(self._transport, Send("GET", self.path, asked_at(self.path, Verb.GET)))
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
            self._complain(f"the Secret has unusable data, which is replaced: {error}")
            held = None
        metadata = secret["metadata"]
        return _Found(metadata["uid"], metadata["resourceVersion"], held, data)

    async def _write(self, found: _Found, held: CertificateBundle, wanted: Callable[[], bool]) -> Failure | None:
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
        """Create the Secret unless it exists. Return the failure, if any."""
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
        self._limited_log.error(
            "certificates not kept", problem[:60], secret=f"{self._namespace}/{self._name}", problem=problem
        )
