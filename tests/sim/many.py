"""Many worlds over several processes, and what they were together."""

from __future__ import annotations

import gc
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context

from .world import Options, Verdict, run

#: Worlds that one process runs before it reports, and a process is made anew: what leaks is then seen as slowness,
#: not as a machine out of memory.
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
        """For people. `wanted` are the states that should have been reached."""
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
    """Run them all, or as many as begin before monotonic time `until`. `failed` is told of each that did, at once."""
    summary, began = Summary(), time.monotonic()
    source: Iterator[Options] = iter(options)
    # Spawned, not forked: a forked child would inherit what a test session holds.
    with ProcessPoolExecutor(
        jobs,
        mp_context=get_context("spawn"),
        initializer=gc.freeze,
        max_tasks_per_child=_WORLDS_A_PROCESS,
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
