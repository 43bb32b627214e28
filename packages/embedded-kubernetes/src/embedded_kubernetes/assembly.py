"""Assembles the embedded cluster: store, API, simulated nodes and kubelets, controllers and server.

Both the command `embedded-kubernetes` and `EmbeddedCluster` use it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from apimachinery.output import to_descriptor

from . import autoscaler, companion, controller_list, controllers, kubelet, loading
from .auth.audit import AuditedRequest, AuditLog, Observer
from .auth.authentication import read_tokens
from .auth.identity import User
from .auth.jwt import Keys
from .auth.options import ADMIN, ISSUER, OPEN_PATHS, Options
from .autoscaler import Autoscaler
from .builtin import ALPHA, BUILTIN
from .certificates import Certificates, are_valid, made_text, make_certificates, read_text, server_context
from .controllers import Controller
from .device_driver import DRIVER, DeviceAttacher, DeviceDriver
from .errors import ClusterError
from .handlers import Api
from .hosts import advertised
from .journal import Journal
from .requests import Disturb
from .resource import Object
from .server import Server
from .settings import File, SettingError, Settings
from .simulated_nodes import nodes
from .store import Store, random_uids


class Running(NamedTuple):
    """A cluster that serves at `url`.

    `authority` is the CA certificate in PEM, empty without TLS. `token` is the administrator's, empty without
    authentication. `loaded` counts the objects that were loaded at the start.
    """

    api: Api
    url: str
    authority: bytes
    token: str
    loaded: int

    def kubeconfig(self, token: str | None = None) -> Object:
        """Return a kubeconfig for the administrator or for the user of `token`."""
        return kubeconfig(self.url, authority=self.authority, token=self.token if token is None else token)


def kubeconfig(url: str, *, authority: bytes = b"", token: str = "") -> Object:
    """Return a kubeconfig with this cluster as its only context."""
    cluster: dict[str, str] = {"server": url}
    if authority:
        cluster["certificate-authority-data"] = b64encode(authority).decode()
    name = "embedded-kubernetes"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token} if token else {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def write_kubeconfig(file: File, config: Object) -> None:
    """Write the file atomically as JSON, which is also YAML, readable only by its owner because it may have a token.

    Raises `SettingError`.
    """
    target = Path(file)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as handle:
            handle.write(json.dumps(config, indent=2) + "\n")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise SettingError("kubeconfig_out", f"cannot be written: {error.strerror or error}", file) from None


def options_of(settings: Settings) -> Options:
    """Return the options of authentication and authorization. Raises `SettingError` for an unusable file."""
    tokens = {**_tokens(settings.token_auth_file), **settings.users}
    only_token = not settings.rbac and (settings.needs_token or not (settings.token_auth_file or settings.users))
    if settings.token:
        tokens[settings.token] = ADMIN
    return Options(
        asks=settings.rbac or bool(tokens),
        rbac=settings.rbac,
        tokens=tokens,
        anonymous=OPEN_PATHS if tokens and only_token else settings.anonymous_auth,
        issuer=settings.service_account_issuer or ISSUER,
        audiences=tuple(filter(None, settings.api_audiences.split(","))),
        keys=_keys(settings.service_account_signing_key_file),
    )


def _tokens(file: File | None) -> dict[str, User]:
    if file is None:
        return {}
    try:
        return read_tokens(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        raise SettingError("token_auth_file", why, file) from None
    except ValueError as error:
        raise SettingError("token_auth_file", str(error), file) from None


def _keys(file: File | None) -> Keys:
    if file is None:
        return Keys()
    try:
        return Keys.read(Path(file).read_bytes())
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
    except (ValueError, TypeError) as error:
        why = f"no PEM file with an RSA private key: {error}"
    raise SettingError("service_account_signing_key_file", why, file)


@asynccontextmanager
async def running(
    settings: Settings, *, observer: Observer | None = None, disturb: Disturb | None = None, grace: float = 2.0
) -> AsyncIterator[Running]:
    """Run the cluster of these settings until the block exits; write its kubeconfig if that is set.

    `observer` receives every request, in addition to the audit log. `disturb` decides on faults; the caller reads the
    setting `faults`. At the exit, responses may take `grace` seconds. An error of a controller ends the block. Raises
    `ClusterError` if the cluster cannot start.
    """
    journal = _journal(settings)
    try:
        async with _running(settings, journal, observer, disturb, grace) as found:
            yield found
    finally:
        if journal is not None:
            journal.close()


@asynccontextmanager
async def _running(
    settings: Settings, journal: Journal | None, observer: Observer | None, disturb: Disturb | None, grace: float
) -> AsyncIterator[Running]:
    options = options_of(settings)
    if journal is not None and settings.service_account_signing_key_file is None:
        options = replace(options, keys=Keys.read(journal.kept("sa.key", lambda: Keys().pem())))
    scaler_token = secrets.token_urlsafe(24)
    if settings.node_groups() and options.asks:
        options = replace(options, tokens={**options.tokens, scaler_token: autoscaler.USER})
    with ExitStack() as opened:
        if settings.audit_log_path is not None:
            log = AuditLog(to_descriptor(_audit_file(opened, settings.audit_log_path)), random_uids())
            observer = log if observer is None else _both(log, observer)
        asked_for = settings.versions()
        kinds = (*BUILTIN, *(each for each in ALPHA if f"{each.group}/{each.version}" in asked_for))
        store = Store(clock=time.time, uid=random_uids())
        restore = journal.restore if journal is not None else None
        api = Api(store, kinds, auth=options, observer=observer, restore=restore)
        api.registry.defaults_accounts, api.registry.has_kubelets = True, settings.kubelets
        loaded = _fill(api, settings) if journal is None or journal.is_new else 0
        if journal is not None and journal.is_new:
            journal.ready()
        authority, tls = b"", None
        if settings.serves_tls:
            hosts = (advertised(settings.host), "127.0.0.1", "::1", "localhost", socket.gethostname())
            certificates = _certificates(journal, hosts)
            authority, tls = certificates.authority, server_context(certificates)
            api.authority = authority
        server = Server(api, host=settings.host, port=settings.port, tls=tls, disturb=disturb)
        try:
            await server.start()
        except OSError as error:
            where = f"{settings.host}, port {settings.port}"
            raise ClusterError(f"cannot listen on {where}: {error.strerror or error}") from None
        found = Running(api, server.url, authority, settings.token, loaded)
        try:
            if settings.kubeconfig_out is not None:
                write_kubeconfig(settings.kubeconfig_out, found.kubeconfig())
            async with asyncio.TaskGroup() as group, _scheduler(settings, found) as scheduler:
                playing = [
                    group.create_task(controllers.run(controller, clock=api.store.clock))
                    for controller in (*_controllers(api, settings, scaler_token), *([journal] if journal else ()))
                ]
                if scheduler is not None:
                    playing.append(group.create_task(companion.watch(scheduler)))
                yield found
                for task in playing:
                    task.cancel()
        finally:
            await server.stop(grace=grace)


def _scheduler(settings: Settings, found: Running) -> AbstractAsyncContextManager[asyncio.Task[int] | None]:
    if not settings.with_scheduler:
        return nullcontext()
    return companion.scheduler(found.kubeconfig(), settings.scheduler_arg)


def _journal(settings: Settings) -> Journal | None:
    """Open the directory of the objects, and take the administrator's token from it unless one was given."""
    if settings.data_dir is None:
        return None
    journal = Journal(settings.data_dir)
    if settings.token_is_generated:
        settings.token = journal.kept("token", settings.token.encode).decode()
    return journal


def _fill(api: Api, settings: Settings) -> int:
    """Create the nodes and load the files; return the number of loaded objects."""
    for node in nodes(settings.nodes, settings.node_amounts(), kubelets=settings.kubelets):
        api.create(kubelet.NODES, node)
    return loading.create(api, settings.load)


def _certificates(journal: Journal | None, hosts: Sequence[str]) -> Certificates:
    """Make the certificates, or take those that an earlier start has kept."""
    now = time.time()
    if journal is None:
        return make_certificates(hosts, now=now)
    while True:
        kept = journal.kept("tls.json", lambda: made_text(make_certificates(hosts, now=now)))
        found = read_text(kept)
        if found is not None and are_valid(found, hosts, now=now):
            return found
        journal.drop("tls.json")


def _controllers(api: Api, settings: Settings, scaler_token: str) -> list[Controller]:
    """Return the controllers that a real cluster has besides its API server and scheduler."""
    started = controller_list.start(api, settings.controller_names(), kubelets=settings.kubelets)
    if settings.kubelets:
        started.append(kubelet.Kubelets(api.store))
    devices = settings.devices()
    if devices is not None:
        started.append(DeviceDriver(api, devices))
        if devices.attaching is not None:
            started.append(DeviceAttacher(api, DRIVER, devices.attaching))
    if groups := settings.node_groups():
        if settings.rbac:
            autoscaler.install_role(api)
        started.append(Autoscaler(api, groups, authorization=f"Bearer {scaler_token}", kubelets=settings.kubelets))
    return started


def _audit_file(opened: ExitStack, file: File) -> int:
    """Open the file for appending, readable only by its owner. `opened` closes it."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise SettingError("audit_log_path", f"cannot be written: {error.strerror or error}", file) from None
    opened.callback(os.close, descriptor)
    return descriptor


def _both(one: Observer, other: Observer) -> Callable[[AuditedRequest], None]:
    def observe(asked: AuditedRequest) -> None:
        one(asked)
        other(asked)

    return observe
