"""The demo's scheduler as it is installed: service account and roles of `config/default`, and a token of the account.

The manifests are those that users apply.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import yaml

from agent_scheduler.bench.manifest_files import manifest_file
from agent_scheduler.bench.requests import ask
from agent_scheduler.kube.transport import Transport

#: Of `config/default`, what says who the scheduler is and what it may do.
FILES = ("default/namespace.yaml", "default/service-account.yaml", "default/rbac.yaml")
ACCOUNT = NAMESPACE = "agent-scheduler"
#: Seconds: longer than any run.
_LIFETIME = 24 * 3600


def manifests() -> Iterator[dict[str, Any]]:
    """The objects, in the order in which they can be created. Raises FileNotFoundError."""
    for name in FILES:
        yield from yaml.safe_load_all(manifest_file(name).read_text(encoding="utf-8"))


async def install(transport: Transport) -> str:
    """Create the objects, and return a token of the scheduler's account. Raises `RequestFailed`."""
    for manifest in manifests():
        await ask(transport, "POST", _collection(manifest), body=orjson.dumps(manifest))
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    body = {"spec": {"expirationSeconds": _LIFETIME}}
    answer = orjson.loads(await ask(transport, "POST", path, body=orjson.dumps(body)))
    token: str = answer["status"]["token"]
    return token


def _collection(manifest: dict[str, Any]) -> str:
    group, _, version = manifest["apiVersion"].rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{scope}/{manifest['kind'].lower()}s"


async def kubeconfig_of(transport: Transport, admin: Path) -> Path:
    """Install the scheduler, and write a kubeconfig of its account beside the other. Raises `RequestFailed`."""
    file = admin.with_name("scheduler.kubeconfig")
    write_kubeconfig(admin, await install(transport), file)
    return file


def write_kubeconfig(admin: Path, token: str, file: Path) -> None:
    """Write the administrator's kubeconfig, which is JSON, with another token; only its owner may read the file."""
    config = json.loads(admin.read_text(encoding="utf-8"))
    for user in config["users"]:
        user["user"] = {"token": token}
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        json.dump(config, handle)
