"""Installs a run's processes like a user: service account and roles from `config`, and a token of the account.

The manifests are those that users apply.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from bench.harness.manifest_files import manifest_file
from bench.harness.requests import ask, retry
from kube_client.transport import Transport

NAMESPACE = "agent-scheduler"
_FILES = ("namespace.yaml", "service-account.yaml", "rbac.yaml")


class Component(NamedTuple):
    """A component: its folder in `config`, with the files of its account and rights, and its service account."""

    folder: str
    account: str
    files: tuple[str, ...] = _FILES


SCHEDULER = Component("default", "agent-scheduler", (*_FILES, "rbac-gates.yaml"))
CONTROLLERS = Component("controllers", "agent-scheduler-controllers")
#: Seconds: longer than any run.
_LIFETIME = 24 * 3600


def files(component: Component) -> Iterator[str]:
    """Yield the component's files, as paths for `manifest_file`."""
    return (f"{component.folder}/{name}" for name in component.files)


def manifests(component: Component = SCHEDULER) -> Iterator[dict[str, Any]]:
    """Yield the objects, in the order in which they can be created. Raises FileNotFoundError."""
    for name in files(component):
        yield from yaml.safe_load_all(manifest_file(name).read_text(encoding="utf-8"))


async def install(transport: Transport, component: Component = SCHEDULER) -> str:
    """Create the missing objects, and return a token of the component's account. Raises `RequestFailed`."""
    for manifest in manifests(component):
        await retry(transport, "POST", _collection(manifest), orjson.dumps(manifest), ignore=409)
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{component.account}/token"
    body = {"spec": {"expirationSeconds": _LIFETIME}}
    answer = orjson.loads(await ask(transport, "POST", path, body=orjson.dumps(body)))
    token: str = answer["status"]["token"]
    return token


def _collection(manifest: dict[str, Any]) -> str:
    group, _, version = manifest["apiVersion"].rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    scope = f"/namespaces/{namespace}" if namespace else ""
    kind = manifest["kind"].lower()
    return f"{root}{scope}/{kind[:-1] + 'ies' if kind.endswith('y') else kind + 's'}"


async def kubeconfig_of(transport: Transport, admin: Path, component: Component = SCHEDULER) -> Path:
    """Install the component, and write a kubeconfig of its account beside the other. Raises `RequestFailed`."""
    file = admin.with_name(f"{component.account}.kubeconfig")
    write_kubeconfig(admin, await install(transport, component), file)
    return file


def write_kubeconfig(admin: Path, token: str, file: Path) -> None:
    """Write the administrator's kubeconfig, which is JSON, with another token; only its owner may read the file."""
    config = json.loads(admin.read_text(encoding="utf-8"))
    for user in config["users"]:
        user["user"] = {"token": token}
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        json.dump(config, handle)
