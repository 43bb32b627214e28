"""Credentials that change while we run: token files, exec plugins, client certificates on disk.

A scheduler outlives its tokens. Each source here answers "what goes on the next request" and renews itself: on its
own schedule, and at once after the server refused what it gave (401). While a renewal fails the last good
credentials stay in use until they have truly expired, because an API server that still accepts them is better than
a scheduler that stands still.

kubernetes_asyncio's counterparts were not used: its exec provider runs the plugin anew for every certificate, waits
for a hung plugin for ever, reads its pipes one after the other, and its token files are read once.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import structlog

from agent_scheduler.kube.retry import REAL, Clock
from agent_scheduler.kube.transport import NotSent

#: Bound tokens and certificates on disk are looked at this often (client-go: once a minute).
RELOAD_SECONDS = 60.0
#: A refused credential is renewed early, but not more often than this, or a 401 storm would run a plugin each time.
REFUSED_SECONDS = 5.0
#: Renew this long before the expiry that a plugin stated.
EXPIRY_MARGIN_SECONDS = 30.0

_log = structlog.get_logger(__name__)


class KubeConfigError(ValueError):
    """A configuration that cannot be used. The message names the file and the key."""


class CredentialsUnavailable(NotSent):
    """No valid credentials for the next request, so it was not sent."""


class Source(Protocol):
    """Where the credentials of a request come from."""

    async def headers(self) -> Mapping[str, str]:
        """Headers for the next request. Raises CredentialsUnavailable."""
        ...

    def refused(self) -> None:
        """The server answered 401 to what `headers` gave last."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Credentials that never change: a literal token, user and password, or none."""

    value: Mapping[str, str]

    async def headers(self) -> Mapping[str, str]:
        return self.value

    def refused(self) -> None:
        return


@dataclass(slots=True)
class TokenFile:
    """A bearer token in a file that something else rotates. Reading it is a memory copy, so the loop may do it."""

    path: Path
    clock: Clock = REAL.clock
    _headers: Mapping[str, str] | None = field(default=None, init=False)
    _read_at: float = field(default=0.0, init=False)
    _stale: bool = field(default=False, init=False)

    async def headers(self) -> Mapping[str, str]:
        age = self.clock() - self._read_at
        if self._headers is not None and age < (REFUSED_SECONDS if self._stale else RELOAD_SECONDS):
            return self._headers
        try:
            token = self.path.read_text().strip()
            if not token:
                raise ValueError("the file is empty")
        except (OSError, ValueError) as error:
            if self._headers is None:
                raise CredentialsUnavailable(f"token file {self.path}: {error}") from error
            _log.warning("token_file_unreadable", path=str(self.path), error=str(error))
        else:
            self._headers = {"Authorization": f"Bearer {token}"}
        self._read_at = self.clock()
        self._stale = False
        return self._headers

    def refused(self) -> None:
        self._stale = True


@dataclass(slots=True)
class CertificateFiles:
    """A client certificate on disk, loaded again into the same TLS context when the file changes.

    Connections made from then on present the new certificate; those that exist keep the old one.
    """

    certificate: Path
    key: Path
    context: ssl.SSLContext
    inner: Source
    clock: Clock = REAL.clock
    _seen: tuple[int, int] = field(default=(0, 0), init=False)
    _looked_at: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._load()

    def _load(self) -> None:
        self._looked_at = self.clock()
        seen = (self.certificate.stat().st_mtime_ns, self.key.stat().st_mtime_ns)
        if seen != self._seen:
            self.context.load_cert_chain(self.certificate, self.key)
            self._seen = seen

    async def headers(self) -> Mapping[str, str]:
        if self.clock() - self._looked_at >= RELOAD_SECONDS:
            try:
                self._load()
            except (OSError, ssl.SSLError) as error:
                _log.warning("client_certificate_unreadable", path=str(self.certificate), error=str(error))
        return await self.inner.headers()

    def refused(self) -> None:
        self.inner.refused()


class ExecPlugin:
    """A `users[].user.exec` credential plugin (client.authentication.k8s.io v1 and v1beta1).

    `where` names the place in the kubeconfig, for errors. A relative command with a slash is looked up from the
    kubeconfig's folder. The plugin runs without a terminal, at most one at a time, and is killed after `timeout`.
    Certificates that it returns go into `context`.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        *,
        where: str,
        folder: Path,
        context: ssl.SSLContext | None,
        cluster: Mapping[str, Any] | None = None,
        timeout: float = 60.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Clock = REAL.clock,
    ) -> None:
        command, version = spec.get("command"), spec.get("apiVersion")
        if not isinstance(command, str) or not command:
            raise KubeConfigError(f"{where}.command is required and must be a string")
        if version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
            raise KubeConfigError(
                f"{where}.apiVersion must be client.authentication.k8s.io/v1 or .../v1beta1, not {version!r}"
            )
        if spec.get("interactiveMode") == "Always":
            raise KubeConfigError(f"{where}.interactiveMode is Always, but a scheduler has no terminal")
        args = spec.get("args") or []
        if not isinstance(args, list) or not all(isinstance(a, str) for a in args):
            raise KubeConfigError(f"{where}.args must be a list of strings")
        if "/" in command and not os.path.isabs(command):
            command = str(folder / command)
        env = spec.get("env") or []
        try:
            self._environ = {item["name"]: item["value"] for item in env}
        except (TypeError, KeyError):
            raise KubeConfigError(f"{where}.env must be a list of name and value pairs") from None
        self._argv = [command, *args]
        self._version = version
        self._hint = spec.get("installHint") or ""
        self._where = where
        self._context = context
        self._timeout = timeout
        self._now = now
        self._clock = clock
        info: dict[str, Any] = {"interactive": False}
        if spec.get("provideClusterInfo") and cluster is not None:
            info["cluster"] = cluster
        self._info = json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": info})
        # Owner: `_renew`, under `_lock`. `_headers` is None until the plugin has succeeded once.
        self._headers: Mapping[str, str] | None = None
        self._expires: datetime | None = None
        self._stale = False
        self._ran_at = float("-inf")
        self._lock = asyncio.Lock()

    def refused(self) -> None:
        self._stale = True

    def _due(self) -> bool:
        if self._headers is None:
            return True
        if self._clock() - self._ran_at < REFUSED_SECONDS:
            return False
        return self._stale or (self._expires is not None and self._remaining() <= EXPIRY_MARGIN_SECONDS)

    def _remaining(self) -> float:
        return float("inf") if self._expires is None else (self._expires - self._now()).total_seconds()

    async def headers(self) -> Mapping[str, str]:
        if self._due():
            async with self._lock:
                if self._due():
                    await self._renew()
        if self._headers is None or self._remaining() <= 0:
            raise CredentialsUnavailable(f"{self._where}: the credentials have expired and were not renewed")
        return self._headers

    async def _renew(self) -> None:
        self._ran_at = self._clock()
        try:
            self._accept(await self._run())
        except CredentialsUnavailable as error:
            if self._headers is None or self._remaining() <= 0:
                raise
            _log.warning("exec_plugin_failed", error=str(error))
        self._stale = False

    async def _run(self) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                env={**os.environ, **self._environ, "KUBERNETES_EXEC_INFO": self._info},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f" ({self._hint.strip()})" if self._hint else ""
            raise CredentialsUnavailable(
                f"{self._where}: cannot run {self._argv[0]}: {error}{hint}"
            ) from error
        try:
            async with asyncio.timeout(self._timeout):
                out, err = await process.communicate()
        except TimeoutError:
            raise CredentialsUnavailable(
                f"{self._where}: {self._argv[0]} did not end within {self._timeout:g} s"
            ) from None
        finally:
            # Reached by cancellation too: a plugin never outlives the wish for its answer.
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            text = err.decode("utf-8", "replace").strip()[:500]
            raise CredentialsUnavailable(
                f"{self._where}: {self._argv[0]} ended with {process.returncode}: {text}"
            )
        return out

    def _accept(self, output: bytes) -> None:
        def bad(what: str) -> CredentialsUnavailable:
            return CredentialsUnavailable(f"{self._where}: {self._argv[0]} printed {what}")

        try:
            answer = json.loads(output)
            status = answer["status"]
            if answer["kind"] != "ExecCredential" or answer["apiVersion"] != self._version:
                raise bad(f"{answer['kind']} {answer['apiVersion']}, not ExecCredential {self._version}")
            token, certificate, key = (
                status.get(name) for name in ("token", "clientCertificateData", "clientKeyData")
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise bad("no ExecCredential with a status") from None
        if bool(certificate) != bool(key):
            raise bad("only one of clientCertificateData and clientKeyData")
        if not token and not certificate:
            raise bad("neither a token nor a client certificate")
        try:
            expiry = status.get("expirationTimestamp")
            expires = datetime.fromisoformat(expiry) if expiry else None
            if expires is not None and expires.tzinfo is None:
                expires = expires.replace(tzinfo=UTC)
        except (TypeError, ValueError):
            raise bad(f"an expirationTimestamp that is no RFC 3339 time: {expiry!r}") from None
        if certificate:
            if self._context is None:
                raise bad("a client certificate for a server without TLS")
            try:
                load_certificate(self._context, certificate.encode(), key.encode())
            except (ssl.SSLError, OSError, AttributeError) as error:
                raise bad(f"a client certificate that cannot be loaded: {error}") from error
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._expires = expires


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Loads PEM bytes; ssl can read them only from files, which exist (mode 0600) for no longer than this call."""
    with tempfile.TemporaryDirectory(prefix="agent-scheduler-") as folder:
        files = [os.path.join(folder, name) for name in ("cert.pem", "key.pem")]
        for file, content in zip(files, (certificate, key), strict=True):
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
                out.write(content)
        context.load_cert_chain(*files)


def basic(username: str, password: str) -> Mapping[str, str]:
    pair = base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
    return {"Authorization": f"Basic {pair}"}
