"""Credential plugins (`users[].user.exec`, client.authentication.k8s.io v1 and v1beta1), as for EKS, GKE and AKS.

A plugin may take longer than a lease lasts. It is therefore run while its last credentials are still valid, and
requests use those. Only requests without valid credentials wait, up to their own timeout. Abandoned waiting does not
end the plugin, which has its own timeout and is then killed with all its children.

kubernetes_asyncio's exec provider is not used: it runs the plugin again for every certificate, waits forever for a
hung plugin and reads its pipes one after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kube_client.credentials import REFUSED_SECONDS, CredentialsUnavailable, KubeConfigError, Renewal, bearer
from kube_client.logs import get_logger
from kube_client.retry import REAL, Timing
from kube_client.tls import Tls

#: Credentials are renewed this long before they expire, or in the last fifth of a shorter lifetime.
RENEW_SECONDS = 120.0
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

_log = get_logger(__name__)


class ExecPlugin:
    """The credentials of a plugin. Raises KubeConfigError for an invalid specification.

    `where` is the position in the kubeconfig, for errors. A relative command with a slash is resolved from the
    kubeconfig's folder. The plugin runs without a terminal, at most one at a time, and is killed after `timeout`.
    `tls` presents the certificates that it returns.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        *,
        where: str,
        folder: Path,
        tls: Tls | None,
        cluster: Mapping[str, Any] | None = None,
        timeout: float = 60.0,
        timing: Timing = REAL,
    ) -> None:
        self._argv, self._environ = _command(spec, where, folder)
        version = self._version = spec["apiVersion"]
        self._hint = spec.get("installHint") or ""
        self._where = where
        self._tls = tls
        self._timeout = timeout
        self._now = timing.now
        self._clock = timing.clock
        info: dict[str, Any] = {"interactive": False}
        if spec.get("provideClusterInfo") and cluster is not None:
            info["cluster"] = cluster
        self._info = json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": info})
        # Owned by `_renew`. `_headers` is None until the plugin has succeeded once.
        self._headers: Mapping[str, str] | None = None
        self._expires: datetime | None = None
        self._margin = 0.0
        self._refused = False
        self._ran_at = float("-inf")
        self._failure: CredentialsUnavailable | None = None
        self._renewal = Renewal(self._renew)

    def refused(self) -> None:
        self._refused = True

    def _due(self) -> bool:
        if self._clock() - self._ran_at < REFUSED_SECONDS:
            return False
        return self._headers is None or self._refused or self._remaining() <= self._margin

    def _remaining(self) -> float:
        return float("inf") if self._expires is None else (self._expires - self._now()).total_seconds()

    def _good(self) -> bool:
        return self._headers is not None and self._remaining() > 0

    async def headers(self) -> Mapping[str, str]:
        if self._renewal.under_way or self._due():
            self._renewal.begin()
            if not self._good():
                await self._renewal.ended()
        if self._headers is None or self._remaining() <= 0:
            raise self._failure or CredentialsUnavailable(
                f"{self._where}: the credentials have expired and were not renewed"
            )
        return self._headers

    async def _renew(self) -> None:
        self._ran_at, self._refused = self._clock(), False
        try:
            self._accept(await self._run())
            self._failure = None
        except CredentialsUnavailable as error:
            self._failure = error
            if self._good():
                _log.warning("exec plugin failed", error=str(error))

    async def _run(self) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                env={**os.environ, **self._environ, "KUBERNETES_EXEC_INFO": self._info},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # A session of its own, so that its children can be killed with it.
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            hint = f" ({self._hint.strip()})" if self._hint else ""
            raise CredentialsUnavailable(f"{self._where}: cannot run {self._argv[0]}: {error}{hint}") from error
        ended = False
        try:
            async with asyncio.timeout(self._timeout):
                out, err = await process.communicate()
            ended = True
        except TimeoutError:
            raise CredentialsUnavailable(
                f"{self._where}: {self._argv[0]} did not end within {self._timeout:g} s"
            ) from None
        finally:
            # Also reached by cancellation: no plugin outlives the demand for its output.
            if not ended:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                # `wait` would also wait for the end of the pipes, which a process outside of the group may hold open.
                process._transport.close()  # type: ignore[attr-defined]
                await process.wait()
        if process.returncode:
            text = err.decode("utf-8", "replace").strip()[:500]
            raise CredentialsUnavailable(f"{self._where}: {self._argv[0]} ended with {process.returncode}: {text}")
        return out

    def _accept(self, output: bytes) -> None:
        def bad(what: str) -> CredentialsUnavailable:
            return CredentialsUnavailable(f"{self._where}: {self._argv[0]} printed {what}")

        try:
            answer = json.loads(output)
            status = answer["status"]
            if answer["kind"] != "ExecCredential" or answer["apiVersion"] != self._version:
                raise bad(f"{answer['kind']} {answer['apiVersion']}, not ExecCredential {self._version}")
            token, certificate, key = (status.get(name) for name in ("token", "clientCertificateData", "clientKeyData"))
            expiry = status.get("expirationTimestamp")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise bad("no ExecCredential with a status") from None
        if bool(certificate) != bool(key):
            raise bad("only one of clientCertificateData and clientKeyData")
        if not token and not certificate:
            raise bad("neither a token nor a client certificate")
        try:
            expires = datetime.fromisoformat(expiry) if expiry else None
            if expires is not None and expires.tzinfo is None:
                expires = expires.replace(tzinfo=UTC)
        except (TypeError, ValueError):
            raise bad(f"an expirationTimestamp that is no RFC 3339 time: {expiry!r}") from None
        try:
            headers = bearer(token) if token else {}
        except (AttributeError, ValueError) as error:
            raise bad(f"a token that cannot be used: {error}") from None
        if certificate:
            if self._tls is None:
                raise bad("a client certificate for a server without TLS")
            try:
                self._tls.identify(certificate.encode(), key.encode())
            except (OSError, AttributeError) as error:
                raise bad(f"a client certificate that cannot be loaded: {error}") from error
        self._headers, self._expires = headers, expires
        self._margin = min(RENEW_SECONDS, 0.2 * self._remaining())


def _command(spec: Mapping[str, Any], where: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command and the additions to its environment. Raises KubeConfigError."""
    command, version, mode = spec.get("command"), spec.get("apiVersion"), spec.get("interactiveMode")
    if not isinstance(command, str) or not command:
        raise KubeConfigError(f"{where}.command is required and must be a string")
    if version not in _VERSIONS:
        raise KubeConfigError(
            f"{where}.apiVersion must be client.authentication.k8s.io/v1 or .../v1beta1, not {version!r}"
        )
    if mode == "Always":
        raise KubeConfigError(f"{where}.interactiveMode is Always, but this program has no terminal")
    if mode not in (None, "", "Never", "IfAvailable"):
        raise KubeConfigError(f"{where}.interactiveMode must be Never, IfAvailable or Always, not {mode!r}")
    args = spec.get("args") or []
    if not isinstance(args, list) or not all(isinstance(a, str) for a in args):
        raise KubeConfigError(f"{where}.args must be a list of strings")
    if "/" in command and not os.path.isabs(command):
        command = str(folder / command)
    try:
        environ = {item["name"]: item["value"] for item in spec.get("env") or []}
        if not all(isinstance(text, str) for pair in environ.items() for text in pair):
            raise TypeError
    except (TypeError, KeyError):
        raise KubeConfigError(f"{where}.env must be a list of name and value pairs") from None
    return [command, *args], environ
