"""Plays many worlds in several processes, and sums up their results.

`worlds` are those of a run of the tests, in two profiles selected by `HYPOTHESIS_PROFILE`, as for Hypothesis. commit:
some that are always the same, and some new ones whose seeds come from the commit. soak: many times as many of the
latter (`HYPOTHESIS_SOAK` times, by default 50).

`found` searches for a world in which a fault that a test has injected shows.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from .gang_load import USUAL
from .scenarios import DRAWN
from .world import Options, Verdict, run

#: Worlds that one process plays before it reports, and before it is replaced: a leak then appears as slowness, and not
#: as a machine out of memory.
_AT_A_TIME = 20
_WORLDS_A_PROCESS = 50


@dataclass
class Summary:
    """Sums over all worlds. `failed` are those with violations."""

    worlds: int = 0
    pods: int = 0
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    fired: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    scenarios: Counter[str] = field(default_factory=Counter)
    failed: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        self.worlds += 1
        self.pods += verdict.pods
        self.virtual_seconds += verdict.seconds
        self.fired.update(verdict.fired)
        self.states.update(verdict.states)
        self.checked.update(verdict.checked)
        self.scenarios[verdict.scenario] += 1
        if verdict.violations:
            self.failed.append(verdict)

    @staticmethod
    def counts(counter: Counter[str]) -> str:
        return ", ".join(f"{name} {counter[name]:,}" for name in sorted(counter)) or "none"

    def text(self, wanted: Sequence[str]) -> str:
        """Return the summary as text. `wanted` are the states that should have been reached."""
        missing = [state for state in wanted if not self.states[state]]
        rate = self.worlds / self.seconds if self.seconds else 0.0
        return "\n".join(
            (
                f"{self.worlds:,} worlds in {self.seconds:.1f} s ({rate:.1f} a second), {self.pods:,} pods, "
                f"{self.virtual_seconds / 3600:.1f} virtual hours, {len(self.failed)} failed",
                f"scenarios: {self.counts(self.scenarios)}",
                f"faults fired: {self.counts(self.fired)}",
                f"states reached: {self.counts(self.states)}",
                f"never reached: {', '.join(missing) or 'none of those wanted'}",
                f"invariants looked at: {self.counts(self.checked)}",
            )
        )


def _some(options: list[Options]) -> list[Verdict]:
    return [run(each) for each in options]


def run_many(
    options: Iterable[Options],
    *,
    jobs: int,
    until: float | None = None,
    failed: Callable[[Verdict], None] = lambda _: None,
) -> Summary:
    """Play all worlds, or those that begin before monotonic time `until`; call `failed` with each failure."""
    summary, began = Summary(), time.monotonic()
    source: Iterator[Options] = iter(options)
    # Spawned, not forked: a forked child would inherit the state of a test session.
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=gc.freeze, max_tasks_per_child=_WORLDS_A_PROCESS
    ) as pool:
        running: set[Future[list[Verdict]]] = set()
        while True:
            while len(running) < 2 * jobs and (until is None or time.monotonic() < until):
                batch = list(itertools.islice(source, _AT_A_TIME))
                if not batch:
                    break
                running.add(pool.submit(_some, batch))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                for verdict in future.result():
                    summary.add(verdict)
                    if verdict.violations:
                        failed(verdict)
    summary.seconds = time.monotonic() - began
    return summary


#: Number of worlds of each scenario that are always the same, and that are new.
_KEPT = {
    **dict.fromkeys(DRAWN, 6),
    "sharded": 8,
    "planned": 6,
    "batch": 10,
    "mixed-batch": 8,
    "batch-claims": 6,
    "gates": 8,
    "gates-slow": 2,
    "gates-native": 6,
    "gates-shards": 6,
    "jobs": 10,
    "gpus": 9,
    "gpus-batch": 5,
    "hostile": 8,
}
_NEW = dict.fromkeys(_KEPT, 1)
#: Scenarios, seeds of their worlds, and the only faults of these, which lead to rare states.
_RARE: tuple[tuple[str, Iterable[int], str], ...] = (
    ("churn", range(100, 103), "bound_elsewhere recreated gone deleting gated node_vanished sigterm stall"),
    ("churn", range(103, 106), "duplicate cut"),
    ("mixed", range(100, 103), "bound_elsewhere pod_deleted unfair stall sigterm lost_after gone_in_stream"),
    ("preempting", range(100, 106), "preemptor room_taken crash denied held_back bound_elsewhere"),
    ("devices", range(100, 114), "claim_taken claim_changed pool_changed class_changed crash lost_after not_attached"),
    ("replicas", range(100, 104), "rolled_back lost_after held_back slow cut"),
    (
        *("batch", range(100, 106)),
        "crash queue_changed members_deleted group_changed group_written groups_late denied lost_after failed",
    ),
    (
        *("gates", (108, 110, 112, 129, 150, 155)),
        "crash queue_changed webhook_down webhook_lies lost_after slow denied stop",
    ),
    ("gates-slow", range(100, 103), "webhook_slow queue_changed crash"),
    (
        *("gates-native", range(100, 106)),
        "crash queue_changed group_changed members_deleted webhook_down webhook_lies lost_after denied",
    ),
    (
        *("gates-shards", (104, 106, 109, 112, 116, 118, 122, 132)),
        "crash sigterm lease owner_gone shards_changed webhook_down lost_after stop",
    ),
    ("mixed-batch", (100, 115, 116, 117, 124, 125, 133, 155), "crash denied"),
    ("jobs", range(100, 104), "crash pod_failed job_commanded lost_after"),
    # Gangs preempt others, and some evictions fail.
    ("jobs", (37, 93, 123), "denied failed"),
    ("gpus", range(100, 106), "crash bound_elsewhere denied gpus_changed gpu_taken gpu_index_edited lost_after"),
    ("gpus-batch", range(100, 103), "crash gpus_changed gpu_taken lost_after"),
    ("planned", range(100, 103), "shard_edited plan_changed shard_written crash failed lost_after"),
)
#: Used if there is no commit.
_NOWHERE = "no commit"


def worlds() -> list[Options]:
    """Return the worlds of this run: the same in all its processes, unless a commit is made meanwhile."""
    return [*kept(), *_new(_commit())]


def kept() -> Iterator[Options]:
    """Yield the worlds that every run plays."""
    for scenario, count in _KEPT.items():
        for seed in range(count):
            yield Options(seed=seed, scenario=scenario)
    for scenario, seeds, faults in _RARE:
        for seed in seeds:
            yield Options(seed=seed, scenario=scenario, faults=tuple(faults.split()), set_up=USUAL)


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
        told = {"cwd": Path(__file__).parent, "stderr": subprocess.DEVNULL, "text": True}
        return str(subprocess.check_output(["git", "rev-parse", "HEAD"], **told)).strip()
    except (OSError, subprocess.CalledProcessError):
        return _NOWHERE


#: Maximum number of worlds that are tried.
_FEW = 30


def found(scenario: str, codes: tuple[str, ...], *, faults: Sequence[str] | None = (), first: int = 0) -> str:
    """Return the first violation of one of `codes` in a few worlds; empty for none.

    `faults`: the only faults, or None for those that a seed draws. `first`: a seed that is tried first.
    """
    for seed in dict.fromkeys((first, *range(_FEW))):
        drawn = None if faults is None else tuple(faults)
        options = Options(seed=seed, scenario=scenario, faults=drawn, set_up=USUAL)
        for violation in run(options).violations:
            if violation.startswith(codes):
                return violation
    return ""
