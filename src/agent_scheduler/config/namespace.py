"""Which namespace this process runs in, and what says so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
#: Where kube-scheduler has its lease.
FALLBACK = "kube-system"


class OwnNamespace(NamedTuple):
    """`name` is empty where it cannot be told; `source` says what told it, or why nothing does."""

    name: str
    source: str


def own_namespace(
    environ: Mapping[str, str] = os.environ, namespace_file: Path = NAMESPACE_FILE
) -> OwnNamespace:
    """That of the pod that this process runs in, or kube-system if it runs in none."""
    if environ.get("POD_NAMESPACE"):
        return OwnNamespace(environ["POD_NAMESPACE"], "$POD_NAMESPACE")
    try:
        name = namespace_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    if name:
        return OwnNamespace(name, str(namespace_file))
    if environ.get("KUBERNETES_SERVICE_HOST"):
        # Replicas that guessed differently would all lead.
        return OwnNamespace("", f"this pod has neither $POD_NAMESPACE nor {namespace_file}")
    return OwnNamespace(FALLBACK, "the default outside a cluster")
