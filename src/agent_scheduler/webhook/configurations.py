"""Writes the trusted authorities into the webhook's own configurations, as the `caBundle` of each of their webhooks."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import msgspec

from agent_scheduler.telemetry.logs import LimitedLog, get_logger
from kube_client.answers import Verb, asked_at
from kube_client.driver import Send, send_once
from kube_client.errors import Failure
from kube_client.patch import is_conflict, object_of, patch_once
from kube_client.retry import Timing
from kube_client.transport import Transport, segment

_API: Final = "/apis/admissionregistration.k8s.io/v1"
MUTATING: Final = f"{_API}/mutatingwebhookconfigurations"
VALIDATING: Final = f"{_API}/validatingwebhookconfigurations"

#: The time limit of a write in seconds.
_PATIENCE: Final = 10.0
_LOG_SECONDS: Final = 300.0

_encode = msgspec.json.Encoder().encode


class Configurations:
    """Writes the configurations at `paths`. All replicas write the same content, taken from one Secret."""

    def __init__(self, transport: Transport, *, paths: Sequence[str], timing: Timing) -> None:
        self._transport = transport
        self._paths = paths
        self._timing = timing
        self._log = get_logger("webhook")
        self._limited_log = LimitedLog(self._log, clock=timing.clock, seconds=_LOG_SECONDS)

    async def publish(self, bundle: bytes) -> bool:
        """Make every existing configuration trust `bundle` (PEM). Return false if another call may achieve more."""
        text, is_done = b64encode(bundle).decode(), True
        for path in self._paths:
            failure = await self._write(path, text)
            # Another call does not help if the configuration is missing, whose creation the watch reports, or a
            # permission is.
            is_done &= failure is None or not (failure.retryable or is_conflict(failure))
            # Another client has changed it, possibly to the same content.
            problem = "" if failure is None or is_conflict(failure) else str(failure)
            if problem:
                self._limited_log.error("authority not written", path, configuration=path, problem=problem)
        return is_done

    async def _write(self, path: str, bundle: str) -> Failure | None:
        """Write the bundle if it differs. Return the failure, if any."""
        failure, response = await send_once(self._transport, Send("GET", path, asked_at(path, Verb.GET)))
        if response is None:
            return failure
        found = object_of(response)
        webhooks = found.get("webhooks") or []
        if all(each["clientConfig"].get("caBundle") == bundle for each in webhooks):
            return None
        metadata = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
        trusting = [{**each, "clientConfig": {**each["clientConfig"], "caBundle": bundle}} for each in webhooks]
        ends = self._timing.clock() + _PATIENCE
        patched = await patch_once(
            self._transport,
            path,
            _encode({"metadata": metadata, "webhooks": trusting}),
            wanted=lambda: self._timing.clock() < ends,
            timing=self._timing,
        )
        if patched.failure is None:
            self._log.info("authority written", configuration=path)
        return patched.failure


def configuration_paths(*, mutating: str, validating: str) -> tuple[str, ...]:
    """Return the paths of the configurations with these names; an empty name means none."""
    named = ((MUTATING, mutating), (VALIDATING, validating))
    return tuple(f"{collection}/{segment(name)}" for collection, name in named if name)
