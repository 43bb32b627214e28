"""From a kubeconfig, or the service account of a pod, to an `Endpoint`.

The only file that imports kubernetes_asyncio: its kubeconfig merging and its legacy auth providers (OIDC, GCP) are
used, nothing of its client. The import is made when a kubeconfig is read, because it takes 0.4 s and 60 MB that a
scheduler inside a cluster has no use for.

Looked at in this order, as kubectl and client-go do: an explicit file, $KUBECONFIG, the pod's service account,
~/.kube/config. Whatever is wrong there becomes one `KubeConfigError` that names the file and the key.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from agent_scheduler.kube.credentials import (
    CertificateFiles,
    CredentialsUnavailable,
    ExecPlugin,
    Fixed,
    KubeConfigError,
    Source,
    TokenFile,
    basic,
    load_certificate,
)
from agent_scheduler.kube.retry import REAL, Clock
from agent_scheduler.kube.transport import Endpoint

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: How often a legacy auth provider is asked whether its token is still good.
_PROVIDER_SECONDS = 60.0


def load_endpoint(
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    home: Path | None = None,
) -> Endpoint:
    """Finds the API server. `context` None means the kubeconfig's current one. Raises KubeConfigError."""
    if kubeconfig is not None:
        if not kubeconfig.exists():
            raise KubeConfigError(f"{kubeconfig}: no such kubeconfig")
        return _from_kubeconfig([kubeconfig], context)
    listed = [Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        files = [file for file in listed if file.exists()]
        if not files:
            raise KubeConfigError(f"KUBECONFIG names no file that exists: {environ['KUBECONFIG']}")
        return _from_kubeconfig(files, context)
    if context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return from_service_account(environ, service_account)
    default = (home or Path.home()) / ".kube" / "config"
    if default.exists():
        return _from_kubeconfig([default], context)
    raise KubeConfigError(
        f"no cluster is configured: no kubeconfig was given, KUBECONFIG is not set, this is no pod "
        f"(KUBERNETES_SERVICE_HOST is not set) and {default} does not exist"
    )


def from_service_account(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Endpoint:
    """The API server of the cluster that this process runs in. Raises KubeConfigError."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise KubeConfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must both be set in a pod")
    ca, token = folder / "ca.crt", folder / "token"
    for file in (ca, token):
        if not file.is_file():
            raise KubeConfigError(
                f"{file} is missing: does the pod mount its service account token (automountServiceAccountToken)?"
            )
    try:
        tls = _tls_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise KubeConfigError(f"{ca}: not a certificate bundle: {error}") from error
    namespace = folder / "namespace"
    source = TokenFile(token)
    return Endpoint(
        base_url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ssl_context=tls,
        headers=source.headers,
        refused=source.refused,
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        source=f"service account in {folder}",
    )


def _tls_context(*, cafile: Path | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """Trusts the given authority alone, or the system's without one."""
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    # Python 3.13 turned RFC 5280 strictness on; cluster authorities made by older tools (no key identifiers) would
    # be refused, which client-go does not do.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


@dataclass(frozen=True, slots=True)
class _Section:
    """One mapping of a kubeconfig, and where it stands."""

    where: str
    folder: Path
    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        """A string, or "" if the key is absent or null. Raises KubeConfigError for another type."""
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise KubeConfigError(f"{self.where}.{key} must be a string, not {type(value).__name__}")
        return value

    def data(self, key: str) -> bytes | None:
        """The base64 content of `key`-data. Raises KubeConfigError."""
        text = self.text(f"{key}-data")
        if not text:
            return None
        try:
            return base64.b64decode(text, validate=False)
        except (binascii.Error, ValueError) as error:
            raise KubeConfigError(f"{self.where}.{key}-data is not base64: {error}") from None

    def file(self, key: str) -> Path | None:
        """The file that `key` names, relative to the kubeconfig. Raises KubeConfigError if it is missing."""
        text = self.text(key)
        if not text:
            return None
        path = self.folder / text
        if not path.is_file():
            raise KubeConfigError(f"{self.where}.{key}: no such file: {path}")
        return path


def _check_file(file: Path) -> str:
    """Makes sure that the merging below cannot trip over a shape; gives the file's current-context."""
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise KubeConfigError(f"{file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise KubeConfigError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise KubeConfigError(f"{file}: not a kubeconfig: the file must hold a mapping")
    for key, inner in (("clusters", "cluster"), ("contexts", "context"), ("users", "user")):
        entries = content.get(key)
        if entries is not None and not isinstance(entries, list):
            raise KubeConfigError(f"{file}: {key} must be a list")
        for number, entry in enumerate(entries or []):
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise KubeConfigError(f"{file}: {key}[{number}].name is required and must be a string")
            if entry.get(inner) is not None and not isinstance(entry[inner], dict):
                raise KubeConfigError(f"{file}: {key}[{number}].{inner} must be a mapping")
    current = content.get("current-context") or ""
    if not isinstance(current, str):
        raise KubeConfigError(f"{file}: current-context must be a string")
    return current


def _entry(merged: Any, key: str, name: str, *, inner: str, used_by: str) -> _Section:
    """The entry `name` of a merged list, with the file that it came from."""
    for node in merged[key].value:
        if node.value["name"] == name:
            file = Path(node.path)
            values = node.value.get(inner) or {}
            return _Section(f"{file}: {key}[{name}].{inner}", file.absolute().parent, values)
    names = ", ".join(sorted(node.value["name"] for node in merged[key].value)) or "none"
    raise KubeConfigError(f"{used_by} names {name!r}, but {key} has: {names}")


def _from_kubeconfig(files: list[Path], context: str | None) -> Endpoint:
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger

    # kubectl takes current-context from the first file that has one; the library from the last.
    currents = [_check_file(file) for file in files]
    origin = ", ".join(str(file) for file in files)
    name = context or next(filter(None, currents), "")
    if not name:
        raise KubeConfigError(f"{origin}: current-context is not set and no context was given")
    merger = KubeConfigMerger(os.pathsep.join(str(file) for file in files))
    merged = merger.config
    asked = "the given context" if context else f"{origin}: current-context"
    ctx = _entry(merged, "contexts", name, inner="context", used_by=asked)
    cluster_name, user_name = ctx.text("cluster"), ctx.text("user")
    if not cluster_name:
        raise KubeConfigError(f"{ctx.where}.cluster is required")
    cluster = _entry(merged, "clusters", cluster_name, inner="cluster", used_by=f"{ctx.where}.cluster")
    user = (
        _entry(merged, "users", user_name, inner="user", used_by=f"{ctx.where}.user")
        if user_name
        else _Section(f"{ctx.where}.user", ctx.folder, {})
    )
    server, proxy = cluster.text("server").rstrip("/"), cluster.text("proxy-url")
    if urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).hostname:
        raise KubeConfigError(f"{cluster.where}.server must be an http:// or https:// URL, not {server!r}")
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise KubeConfigError(f"{cluster.where}.proxy-url must be an http:// or https:// URL, not {proxy!r}")
    tls = _cluster_tls(cluster) if server.startswith("https://") else None
    source = _with_certificate(user, tls, _source(user, cluster, tls=tls, name=name, merger=merger))
    return Endpoint(
        base_url=server,
        ssl_context=tls,
        headers=source.headers,
        refused=source.refused,
        server_hostname=cluster.text("tls-server-name") or None,
        proxy=proxy or None,
        namespace=ctx.text("namespace") or "default",
        source=f"context {name} of {origin}",
    )


def _cluster_tls(cluster: _Section) -> ssl.SSLContext:
    insecure = cluster.values.get("insecure-skip-tls-verify")
    data, file = cluster.data("certificate-authority"), cluster.file("certificate-authority")
    key = "certificate-authority-data" if data else "certificate-authority"
    if insecure and (data or file):
        raise KubeConfigError(f"{cluster.where}: insecure-skip-tls-verify and {key} exclude each other")
    try:
        context = _tls_context(cafile=None if data else file, cadata=data.decode("ascii") if data else None)
    except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
        raise KubeConfigError(f"{cluster.where}.{key} holds no PEM certificates: {error}") from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _with_certificate(user: _Section, tls: ssl.SSLContext | None, source: Source) -> Source:
    """Loads the user's client certificate, if it has one and the server speaks TLS."""
    if tls is None:
        return source
    data, key_data = user.data("client-certificate"), user.data("client-key")
    file, key_file = user.file("client-certificate"), user.file("client-key")
    if not (data or file) and not (key_data or key_file):
        return source
    if not (data or file):
        raise KubeConfigError(f"{user.where}.client-certificate is required beside client-key")
    if not (key_data or key_file):
        raise KubeConfigError(f"{user.where}.client-key is required beside client-certificate")
    try:
        if not data and not key_data and file and key_file:
            return CertificateFiles(file, key_file, tls, source)
        certificate = data or (file.read_bytes() if file else b"")
        load_certificate(tls, certificate, key_data or (key_file.read_bytes() if key_file else b""))
    except (OSError, ssl.SSLError) as error:
        raise KubeConfigError(
            f"{user.where}.client-certificate and client-key cannot be loaded: {error}"
        ) from error
    return source


def _source(
    user: _Section, cluster: _Section, *, tls: ssl.SSLContext | None, name: str, merger: Any
) -> Source:
    """The user's credentials other than a certificate."""
    for key in ("as", "as-uid", "as-groups", "as-user-extra"):
        if user.values.get(key):
            # Ignoring it would act with more rights than the user meant to give.
            raise KubeConfigError(f"{user.where}.{key}: impersonation is not supported")
    spec = user.values.get("exec")
    if spec is not None:
        if not isinstance(spec, dict):
            raise KubeConfigError(f"{user.where}.exec must be a mapping")
        return ExecPlugin(
            spec,
            where=f"{user.where}.exec",
            folder=user.folder,
            context=tls,
            cluster=_cluster_info(cluster),
        )
    if user.values.get("auth-provider"):
        return _AuthProvider(user.where, merger, name)
    # client-go prefers the file where both are given, because the file is what gets rotated.
    token_file = user.text("tokenFile")
    if token_file:
        return TokenFile(user.folder / token_file)
    token = user.text("token")
    if token:
        return Fixed({"Authorization": f"Bearer {token.strip()}"})
    if user.text("username"):
        return Fixed(basic(user.text("username"), user.text("password")))
    return Fixed({})


def _cluster_info(cluster: _Section) -> dict[str, Any]:
    """The `spec.cluster` that a plugin with provideClusterInfo gets."""
    authority = cluster.data("certificate-authority")
    file = cluster.file("certificate-authority")
    if authority is None and file is not None:
        authority = file.read_bytes()
    info: dict[str, Any] = {"server": cluster.text("server")}
    for key in ("tls-server-name", "insecure-skip-tls-verify", "proxy-url"):
        if cluster.values.get(key):
            info[key] = cluster.values[key]
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority).decode("ascii")
    return info


@dataclass(slots=True)
class _AuthProvider:
    """A legacy `auth-provider` user. The library gets and renews the token, and writes it back as kubectl does."""

    where: str
    merger: Any
    context: str
    clock: Clock = REAL.clock
    _headers: Mapping[str, str] | None = field(default=None, init=False)
    _asked_at: float = field(default=0.0, init=False)

    async def headers(self) -> Mapping[str, str]:
        if self._headers is not None and self.clock() - self._asked_at < _PROVIDER_SECONDS:
            return self._headers
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader

        def persist(_config: object) -> None:
            self.merger.save_changes()

        try:
            loader = KubeConfigLoader(
                self.merger.config,
                active_context=self.context,
                config_base_path=None,
                config_persister=persist,
            )
            configuration = Configuration()
            await loader.load_and_set(configuration)
            token = configuration.api_key["BearerToken"]
        except Exception as error:
            # The library lets through whatever its HTTP client and its parsers raise.
            raise CredentialsUnavailable(
                f"{self.where}.auth-provider: {type(error).__name__}: {error}"
            ) from error
        self._headers = {"Authorization": token}
        self._asked_at = self.clock()
        return self._headers

    def refused(self) -> None:
        self._headers = None
