"""Answers of the embedded cluster that take as long as those of a real control plane, for `--like-real`.

The scheduler has the service account and the rights of its manifests, over TLS, and acquires a lease first. The cluster
answers its writes after the time that a kube-apiserver takes. The embedded one answers from memory, so without this a
scheduler would receive more changes in one turn of its loop than beside a real control plane, and each would cost less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

#: Seconds that a write takes, with the share of the writes that take them. Measured: kube-apiserver 1.36.2 with etcd,
#: over TLS on two cores, answered a bind in 5.6 ms in the median with 8 requests in flight, in 17 ms with 32 and in
#: 28 ms with 64, and one in a hundred took four to five times as long.
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
