"""What makes the embedded cluster resemble a real control plane, for `--like-real`.

The scheduler is installed as its manifests do, with the rights of its role, over TLS, with leader election; groups
start in the phase Pending, as Volcano's API server leaves them; all kinds are watched and all events written. The
cluster takes for its answers what a kube-apiserver takes: its own answers, from memory and without a consensus, come
earlier, so a scheduler beside it meets more changes in one turn of its loop than beside a real one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kube_client.transport import Transport

from .install import kubeconfig_of

#: The time of a write that takes at most this many seconds, with its share of the writes. kube-apiserver 1.36.2 with
#: etcd and TLS on two cores answered a bind within 5.6 ms in the median with 8 requests in flight, 17 with 32, and
#: 28 ms with 64; the longest of a hundred take four to five times as long.
WRITES: Final[tuple[tuple[float, float], ...]] = (
    (0.006, 0.3),
    (0.012, 0.3),
    (0.020, 0.25),
    (0.035, 0.12),
    (0.09, 0.03),
)
#: What a scheduler writes. Creating the load itself takes no longer than without the delays.
_WRITTEN: Final = (
    {"verbs": ["create"], "resource": "pods/binding"},
    {"verbs": ["create", "patch"], "resource": "events*"},
    {"verbs": ["patch", "update"], "resource": "pods*"},
    {"verbs": ["patch", "update"], "resource": "podgroups*"},
    {"verbs": ["patch", "update"], "resource": "queues*"},
    {"verbs": ["patch", "update"], "resource": "leases*"},
)


def delays(distribution: tuple[tuple[float, float], ...] = WRITES) -> dict[str, Any]:
    """Return a plan of faults that delays the scheduler's writes by this distribution."""
    rules: list[Mapping[str, Any]] = []
    for match in _WRITTEN:
        left = 1.0
        for seconds, share in distribution:
            chance = min(1.0, share / left)
            left -= share
            delay = {"delay": {"before": f"{seconds * 1000:g}ms"}}
            rules.append({"match": match, "fault": delay, **({"probability": chance} if left > 1e-9 else {})})
    return {"rules": rules}


def cluster_arguments(folder: Path) -> tuple[str, ...]:
    """Write the plan of delays into the folder, and return the flags of the embedded cluster."""
    file = folder / "real-plane.json"
    file.write_text(json.dumps(delays()))
    return ("--authorization-mode", "RBAC", "--faults", str(file))


async def install(transport: Transport, kubeconfig: Path) -> Path:
    """Install the scheduler's role, and return a kubeconfig of its account. Raises RequestFailed."""
    return await kubeconfig_of(transport, kubeconfig)
