"""Finds the namespace of this process and its source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
#: The namespace of the manifests in config/, so that a process outside the cluster has the same lease as one inside.
FALLBACK = "agent-scheduler"
#: The source of `FALLBACK`.
OUTSIDE = "the default outside a cluster"


class OwnNamespace(NamedTuple):
    """The namespace, with `name` empty if unknown. `source` is where it was found, or the reason why it is unknown."""

    name: str
    source: str


def own_namespace(environ: Mapping[str, str] = os.environ, namespace_file: Path = NAMESPACE_FILE) -> OwnNamespace:
    """Return the namespace of the process's pod, or agent-scheduler outside a pod."""
    if environ.get("POD_NAMESPACE"):
        return OwnNamespace(environ["POD_NAMESPACE"], "$POD_NAMESPACE")
    try:
        name = namespace_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    if name:
        return OwnNamespace(name, str(namespace_file))
    if environ.get("KUBERNETES_SERVICE_HOST"):
        # Replicas with different guesses would all become leaders.
        return OwnNamespace("", f"this pod has neither $POD_NAMESPACE nor {namespace_file}")
    return OwnNamespace(FALLBACK, OUTSIDE)
