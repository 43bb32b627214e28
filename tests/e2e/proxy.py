"""A way from a scheduler to the API server that a test can break."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.support.relay import Relay

_FILES = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}


@asynccontextmanager
async def relayed(kubeconfig: Path, through: Path) -> AsyncIterator[Relay]:
    """A relay to the control plane of `kubeconfig`; `through` becomes a kubeconfig that leads there by it."""
    document = _self_contained(kubeconfig)
    cluster = _cluster_of(document)
    target = urlsplit(cluster["server"])
    default = 443 if target.scheme == "https" else 80
    async with Relay(target.port or default, target.hostname or "") as relay:
        cluster["server"] = target._replace(netloc=f"127.0.0.1:{relay.port}").geturl()
        if target.scheme == "https":
            cluster.setdefault("tls-server-name", target.hostname)
        _write(document, through)
        yield relay


def _write(document: Any, file: Path) -> None:
    file.write_text(yaml.safe_dump(document))
    file.chmod(0o600)


def _cluster_of(document: dict[str, Any]) -> dict[str, Any]:
    """The current context's cluster."""
    contexts = {entry["name"]: entry["context"] for entry in document["contexts"]}
    wanted = contexts[document["current-context"]]["cluster"]
    cluster: dict[str, Any] = next(e["cluster"] for e in document["clusters"] if e["name"] == wanted)
    return cluster


def _self_contained(kubeconfig: Path) -> dict[str, Any]:
    """The document with its relative paths, which are relative to its folder, made absolute."""
    document: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    for kind, keys in _FILES.items():
        for entry in document.get(f"{kind}s") or ():
            for key in keys:
                if (entry.get(kind) or {}).get(key):
                    entry[kind][key] = str(kubeconfig.parent / entry[kind][key])
    return document
