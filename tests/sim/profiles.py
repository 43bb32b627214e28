"""Which worlds a run of the tests plays, in two profiles that `HYPOTHESIS_PROFILE` chooses between, as for Hypothesis.

commit: some that are always the same, and some that no run before has played: their seeds come from the commit. soak:
many times as many of the latter (`HYPOTHESIS_SOAK` times, 50 if that is not set).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from .scenarios import DRAWN
from .world import Options

#: Worlds of each scenario that are always the same, and that are new.
_KEPT = {
    **dict.fromkeys(DRAWN, 6),
    "sharded": 8,
    "planned": 6,
    "batch": 10,
    "mixed-batch": 8,
    "gates": 8,
    "gates-slow": 2,
    "gates-native": 6,
    "gates-shards": 6,
    "batch-claims": 6,
    "jobs": 10,
    "gpus": 9,
    "gpus-batch": 5,
}
_NEW = {**dict.fromkeys(_KEPT, 1), "batch": 2, "gates": 2, "jobs": 2}
#: Scenario -> faults that lead there together to what few worlds reach, and the seeds of worlds that have them alone.
_RARE: dict[str, tuple[Iterable[int], tuple[str, ...]]] = {
    "churn": (
        range(100, 103),
        ("bound_elsewhere", "recreated", "gone", "deleting", "gated", "node_vanished", "sigterm", "stall"),
    ),
    "mixed": (
        range(100, 103),
        ("bound_elsewhere", "pod_deleted", "unfair", "stall", "sigterm", "lost_after", "gone_in_stream"),
    ),
    "preempting": (
        range(100, 106),
        ("preemptor", "room_taken", "crash", "denied", "held_back", "bound_elsewhere"),
    ),
    "devices": (
        range(100, 114),
        (
            "claim_taken",
            "claim_changed",
            "pool_changed",
            "class_changed",
            "crash",
            "lost_after",
            "not_attached",
        ),
    ),
    "replicas": (range(100, 104), ("rolled_back", "lost_after", "held_back", "slow", "cut")),
    "batch": (
        range(100, 106),
        (
            *("crash", "queue_changed", "members_deleted", "group_changed", "group_written", "groups_late"),
            *("denied", "lost_after", "failed"),
        ),
    ),
    "gates": (
        (108, 110, 112, 129, 150, 155),
        ("crash", "queue_changed", "webhook_down", "webhook_lies", "lost_after", "slow", "denied", "stop"),
    ),
    "gates-slow": (range(100, 103), ("webhook_slow", "queue_changed", "crash")),
    "gates-native": (
        range(100, 106),
        (
            *("crash", "queue_changed", "group_changed", "members_deleted", "webhook_down", "webhook_lies"),
            *("lost_after", "denied"),
        ),
    ),
    "gates-shards": (
        (106, 109, 112, 116, 118, 122),
        ("crash", "sigterm", "lease", "owner_gone", "shards_changed", "webhook_down", "lost_after", "stop"),
    ),
    "mixed-batch": ((100, 115, 116, 117, 124, 125, 133, 155), ("crash", "denied")),
    "jobs": (range(100, 104), ("crash", "pod_failed", "job_commanded", "lost_after")),
    "gpus": (
        range(100, 106),
        ("crash", "bound_elsewhere", "denied", "gpus_changed", "gpu_taken", "gpu_index_edited", "lost_after"),
    ),
    "gpus-batch": (range(100, 103), ("crash", "gpus_changed", "gpu_taken", "lost_after")),
    "planned": (
        range(100, 103),
        ("shard_edited", "plan_changed", "shard_written", "crash", "failed", "lost_after"),
    ),
}
#: Where there is no commit.
_NOWHERE = "no commit"


def worlds() -> list[Options]:
    """Those of this run. The same in all its processes, as long as nobody commits meanwhile."""
    return [*kept(), *_new(_commit())]


def kept() -> Iterator[Options]:
    """Those that every run plays."""
    for scenario, count in _KEPT.items():
        for seed in range(count):
            yield Options(seed=seed, scenario=scenario)
    for scenario, (seeds, faults) in _RARE.items():
        for seed in seeds:
            yield Options(seed=seed, scenario=scenario, faults=faults)


def _new(commit: str) -> Iterator[Options]:
    soaking = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
    times = int(os.environ.get("HYPOTHESIS_SOAK", "50")) if soaking else 1
    # Far from the seeds that are kept.
    first = 1_000_000 + int.from_bytes(hashlib.blake2b(commit.encode(), digest_size=4).digest(), "big")
    for scenario, count in _NEW.items():
        for seed in range(first, first + count * times):
            yield Options(seed=seed, scenario=scenario)


def _commit() -> str:
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return _NOWHERE
    return answer.stdout.strip()
