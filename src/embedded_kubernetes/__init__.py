"""A Kubernetes API server over real HTTP, for tests of clients, demos and benchmarks.

    with EmbeddedCluster(nodes=3) as cluster:
        ...  # a client of cluster.url or cluster.kubeconfig

docs/embedded-cluster.md says more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .auth.identity import User
    from .embedded import EmbeddedCluster
    from .errors import ClusterError

__all__ = ["ClusterError", "EmbeddedCluster", "User"]

_MODULES = {"ClusterError": "errors", "EmbeddedCluster": "embedded", "User": "auth.identity"}


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: who uses one module of this package, a command's flags for instance, does not need
    # the server and its libraries.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        library = (error.name or str(error)).partition(".")[0]
        if library in ("agent_scheduler", __name__):
            raise
        raise ImportError(
            f"{__name__}.{name}: the library {library} is not installed; install agent-scheduler[cluster]",
            name=error.name,
        ) from error
