"""Loads an `Endpoint` from a kubeconfig or from a pod's service account.

This is the only file that imports kubernetes_asyncio, for its legacy auth providers (OIDC, GCP). The import takes 0.4
s and 60 MB, so it is deferred until a user has such a provider.

The search order is that of kubectl and client-go: an explicit file, $KUBECONFIG, the pod's service account,
~/.kube/config. Every error is a `KubeConfigError` that names the file and the key.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kube_client.address import basic, parse_proxy, without_user
from kube_client.credentials import (
    REFUSED_SECONDS,
    CredentialsSource,
    CredentialsUnavailable,
    Fixed,
    KubeConfigError,
    Renewal,
    TokenFile,
    bearer,
)
from kube_client.kubeconfig import Kubeconfig, Section
from kube_client.proxies import proxy_for
from kube_client.retry import REAL, Clock
from kube_client.tls import Tls
from kube_client.transport import Endpoint, no_credentials, nothing_to_renew

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: The cluster's extension that is passed to a plugin unchanged.
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
#: The interval in seconds at which a legacy auth provider's token is checked.
_PROVIDER_SECONDS = 60.0


def load_endpoint(
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    home: Path | None = None,
) -> Endpoint:
    """Find the API server. `context` is None for the kubeconfig's current one. Raises KubeConfigError."""
    if kubeconfig is not None:
        if not kubeconfig.exists():
            raise KubeConfigError(f"{kubeconfig}: no such kubeconfig")
        return _from_kubeconfig([kubeconfig], context, environ)
    listed = [Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        files = [file for file in listed if file.exists()]
        if not files:
            raise KubeConfigError(f"KUBECONFIG names no file that exists: {environ['KUBECONFIG']}")
        return _from_kubeconfig(files, context, environ)
    if context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return from_service_account(environ, service_account)
    default = (home or Path.home()) / ".kube" / "config"
    if default.exists():
        return _from_kubeconfig([default], context, environ)
    raise KubeConfigError(
        f"no cluster is configured: no kubeconfig was given, KUBECONFIG is not set, this is no pod "
        f"(KUBERNETES_SERVICE_HOST is not set) and {default} does not exist"
    )


def from_service_account(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Endpoint:
    """Return the endpoint of the cluster in which this process runs. Raises KubeConfigError."""
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
        tls = Tls(authority=ca)
    except OSError as error:
        raise KubeConfigError(f"{ca}: not a certificate bundle: {error}") from error
    namespace = folder / "namespace"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    source = _token_file(token)
    return Endpoint(
        base_url=server,
        ssl_context=tls.context,
        headers=_given_by(source),
        refused=_both(source, tls),
        unverified=tls.refused,
        proxy=_proxy_of_environment(server, environ),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        source=f"service account in {folder}",
    )


def _given_by(source: CredentialsSource) -> Callable[[], Awaitable[Mapping[str, str]]]:
    return no_credentials if source == Fixed({}) else source.headers


def _token_file(path: Path) -> TokenFile:
    """Return the source for a token file. Raises KubeConfigError if the file has no token now."""
    source = TokenFile(path)
    try:
        source.read()
    except CredentialsUnavailable as error:
        raise KubeConfigError(str(error)) from None
    return source


def _both(source: CredentialsSource, tls: Tls | None) -> Callable[[], None]:
    """Return the callback for a 401."""

    def refused() -> None:
        source.refused()
        if tls is not None:
            tls.refused()

    return refused


def _proxy_of_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment selects for the server. Raises KubeConfigError."""
    proxy, variable = proxy_for(server, environ)
    return _checked_proxy(proxy, variable) if proxy else None


def _checked_proxy(proxy: str, where: str) -> str:
    try:
        parse_proxy(proxy, what=where)
    except ValueError as error:
        raise KubeConfigError(str(error)) from None
    return proxy


def _from_kubeconfig(files: list[Path], context: str | None, environ: Mapping[str, str]) -> Endpoint:
    merged = Kubeconfig(files)
    origin = ", ".join(str(file) for file in files)
    name = context or merged.current
    if not name:
        raise KubeConfigError(f"{origin}: current-context is not set and no context was given")
    asked = "the given context" if context else f"{origin}: current-context"
    ctx = merged.entry("contexts", name, used_by=asked)
    cluster_name, user_name = ctx.text("cluster"), ctx.text("user")
    if not cluster_name:
        raise KubeConfigError(f"{ctx.where}.cluster is required")
    cluster = merged.entry("clusters", cluster_name, used_by=f"{ctx.where}.cluster")
    user = (
        merged.entry("users", user_name, used_by=f"{ctx.where}.user")
        if user_name
        else Section(f"{ctx.where}.user", ctx.folder, {})
    )
    server, user_info = _server(cluster)
    tls = _cluster_tls(cluster) if server.startswith("https://") else None
    source = _source(user, cluster, tls=tls, files=files, context=name)
    _present_certificate(user, tls)
    if user_info is not None:
        # Go's HTTP client sets this header first, and client-go's own credentials then do not replace it.
        source = Fixed({"Authorization": user_info})
    proxy = cluster.text("proxy-url")
    return Endpoint(
        base_url=server,
        ssl_context=tls.context if tls is not None else None,
        headers=_given_by(source),
        refused=_both(source, tls),
        unverified=tls.refused if tls is not None else nothing_to_renew,
        server_hostname=cluster.text("tls-server-name") or None,
        proxy=_checked_proxy(proxy, f"{cluster.where}.proxy-url") if proxy else _proxy_of_environment(server, environ),
        namespace=ctx.text("namespace") or "default",
        source=f"context {name} of {origin}",
    )


def _server(cluster: Section) -> tuple[str, str | None]:
    """Return the server's URL, and the user info in it as a header value. Raises KubeConfigError."""
    server = cluster.text("server").rstrip("/")
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        shown = without_user(server)
        raise KubeConfigError(f"{cluster.where}.server must be an http:// or https:// URL, not {shown!r}")
    server = parts.scheme + without_user(server)[len(parts.scheme) :]
    if parts.username is None:
        return server, None
    return server, basic(unquote(parts.username), unquote(parts.password or ""))


def _cluster_tls(cluster: Section) -> Tls:
    insecure = bool(cluster.values.get("insecure-skip-tls-verify"))
    data, file = cluster.data("certificate-authority"), cluster.file("certificate-authority")
    key = "certificate-authority-data" if data else "certificate-authority"
    if insecure and (data or file):
        raise KubeConfigError(f"{cluster.where}: insecure-skip-tls-verify and {key} exclude each other")
    try:
        return Tls(authority=data or file, insecure=insecure)
    except OSError as error:
        raise KubeConfigError(f"{cluster.where}.{key} holds no PEM certificates: {error}") from error


def _present_certificate(user: Section, tls: Tls | None) -> None:
    """Configure the user's client certificate, if it has one and the server uses TLS."""
    if tls is None:
        return
    certificate = user.data("client-certificate") or user.file("client-certificate")
    key = user.data("client-key") or user.file("client-key")
    if certificate is None and key is None:
        return
    if certificate is None:
        raise KubeConfigError(f"{user.where}.client-certificate is required beside client-key")
    if key is None:
        raise KubeConfigError(f"{user.where}.client-key is required beside client-certificate")
    try:
        tls.identify(certificate, key)
    except OSError as error:
        raise KubeConfigError(f"{user.where}.client-certificate and client-key cannot be loaded: {error}") from error


def _source(
    user: Section, cluster: Section, *, tls: Tls | None, files: Sequence[Path], context: str
) -> CredentialsSource:
    """Return the user's credentials other than a certificate. `files` and `context` are their origin."""
    for key in ("as", "as-uid", "as-groups", "as-user-extra"):
        if user.values.get(key):
            # Ignoring it would act with more permissions than the user intended.
            raise KubeConfigError(f"{user.where}.{key}: impersonation is not supported")
    spec = user.values.get("exec")
    if spec is not None:
        if not isinstance(spec, dict):
            raise KubeConfigError(f"{user.where}.exec must be a mapping")
        # Imported here because few users have a plugin, and it loads the modules that run programs.
        from kube_client.exec_plugin import ExecPlugin

        return ExecPlugin(spec, where=f"{user.where}.exec", folder=user.folder, tls=tls, cluster=_cluster_info(cluster))
    if user.values.get("auth-provider"):
        return _AuthProvider(user.where, files, context)
    # client-go prefers the file if both are set, because the file is rotated.
    token_file = user.text("tokenFile")
    if token_file:
        return _token_file(user.folder / token_file)
    token = user.text("token").strip()
    if token:
        try:
            return Fixed(bearer(token))
        except ValueError as error:
            raise KubeConfigError(f"{user.where}.token cannot be used: {error}") from None
    if user.text("username"):
        return Fixed({"Authorization": basic(user.text("username"), user.text("password"))})
    return Fixed({})


def _cluster_info(cluster: Section) -> dict[str, Any]:
    """Return the `spec.cluster` for a plugin with provideClusterInfo."""
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
    for extension in cluster.values.get("extensions") or []:
        if isinstance(extension, dict) and extension.get("name") == _EXEC_EXTENSION:
            info["config"] = extension.get("extension")
    return info


class _AuthProvider:
    """A legacy `auth-provider` user. The library gets and renews the token, and writes it back as kubectl does."""

    def __init__(self, where: str, files: Sequence[Path], context: str, *, clock: Clock = REAL.clock) -> None:
        self._where = where
        self._files = files
        #: The library's parsed files, from the first renewal on.
        self._merger: Any = None
        self._context = context
        self._clock = clock
        self._headers: Mapping[str, str] | None = None
        self._asked_at = float("-inf")
        self._failure: CredentialsUnavailable | None = None
        self._renewal = Renewal(self._renew)

    async def headers(self) -> Mapping[str, str]:
        if self._headers is None or self._clock() - self._asked_at >= _PROVIDER_SECONDS:
            self._renewal.begin()
            if self._headers is None:
                await self._renewal.ended()
        if self._headers is None:
            raise self._failure or CredentialsUnavailable(f"{self._where}.auth-provider: no token")
        return self._headers

    async def _renew(self) -> None:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

        def persist(_config: object) -> None:
            self._merger.save_changes()

        self._asked_at = self._clock()
        try:
            if self._merger is None:
                self._merger = KubeConfigMerger(os.pathsep.join(map(str, self._files)))
            loader = KubeConfigLoader(
                self._merger.config, active_context=self._context, config_base_path=None, config_persister=persist
            )
            configuration = Configuration()
            await loader.load_and_set(configuration)
            self._headers = {"Authorization": configuration.api_key["BearerToken"]}
        except Exception as error:
            # The library does not wrap errors of its HTTP client and parsers.
            self._failure = CredentialsUnavailable(f"{self._where}.auth-provider: {type(error).__name__}: {error}")
            self._failure.__cause__ = error

    def refused(self) -> None:
        if self._clock() - self._asked_at >= REFUSED_SECONDS:
            self._asked_at = float("-inf")
