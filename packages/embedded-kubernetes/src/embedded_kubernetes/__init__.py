"""A Kubernetes API server over HTTP, for tests of clients, demos and benchmarks.

    with EmbeddedCluster(nodes=3) as cluster:
        ...  # a client of cluster.url or cluster.kubeconfig

See the README of the distribution embedded-kubernetes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .auth.identity import User
    from .embedded import EmbeddedCluster
    from .errors import ClusterError

__all__ = ["ClusterError", "EmbeddedCluster", "User"]

#: Also of the distribution. All distributions of this repository have the same version.
__version__ = "0.1.0"

_MODULES = {"ClusterError": "errors", "EmbeddedCluster": "embedded", "User": "auth.identity"}


def __getattr__(name: str) -> Any:
    # Imported lazily, so that a user of one module, such as a command's flags, does not load the server and its
    # libraries.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
