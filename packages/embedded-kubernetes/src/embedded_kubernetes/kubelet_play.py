"""The simulated behavior of a pod's containers, defined by annotations, and the kubelet's restarts. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

from .resource import Object

#: Annotation: seconds until the containers exit; by default they run until the pod is deleted.
RUN_SECONDS = "agent-scheduler.io/run-seconds"
#: Annotation: exit codes of successive runs, separated by commas; the last one repeats. With it, the restart policy
#: applies; without it, containers exit with 0 and the pod has ended.
EXIT_CODE = "agent-scheduler.io/exit-code"
#: Annotation: seconds from the start until the containers are ready, or `never`.
READY_AFTER = "agent-scheduler.io/ready-after-seconds"
#: Annotation: seconds from the start until the kubelet evicts the pod, as under memory pressure.
EVICT_AFTER = "agent-scheduler.io/evict-after-seconds"

#: The back-off of restarts in seconds: none for the first, then doubling up to the limit. A run of the last duration
#: resets it (pkg/kubelet, `MaxContainerBackOff`).
_BACKOFF, _LONGEST, _FORGIVEN = 10.0, 300.0, 600.0


class BadAnnotation(ValueError):
    """The value of an annotation is malformed."""


class Play(NamedTuple):
    """The behavior of a pod's containers, in seconds. `ready_after` is None for never; `codes` may be empty."""

    life: float | None = None
    codes: tuple[int, ...] = ()
    ready_after: float | None = 0.0
    evict_after: float | None = None

    def code(self, run: int) -> int:
        """Return the exit code of a run, counted from 0."""
        return self.codes[min(run, len(self.codes) - 1)] if self.codes else 0

    def is_started_again(self, pod: Object, code: int) -> bool:
        policy = pod["spec"].get("restartPolicy", "Always")
        return bool(self.codes) and (policy == "Always" or (policy == "OnFailure" and code != 0))


#: The behavior of a pod without annotations.
NOTHING = Play()


def runs_of(pod: Object) -> int:
    """Return the number of exits of its containers."""
    reports = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((each.get("restartCount", 0) for each in reports), default=0)


def play_of(pod: Object) -> Play:
    """Parse the annotations of a pod. Raises `BadAnnotation`."""
    annotations = pod["metadata"].get("annotations") or {}
    ready = annotations.get(READY_AFTER)
    codes = _codes(annotations.get(EXIT_CODE))
    life = _seconds(annotations, RUN_SECONDS)
    return Play(
        # An exit code implies that the containers exit.
        0.0 if life is None and codes else life,
        codes,
        None if ready == "never" else _seconds(annotations, READY_AFTER, "never") or 0.0,
        _seconds(annotations, EVICT_AFTER),
    )


def pause(runs: int, last: float) -> float:
    """Return the back-off after `runs` exits, in seconds. `last` is the duration of the last run."""
    if runs <= 1 or last >= _FORGIVEN:
        return 0.0
    return min(_BACKOFF * 2.0 ** (runs - 2), _LONGEST)


def _codes(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) <= 255 for part in parts):
        raise BadAnnotation(
            f"annotation {EXIT_CODE}: expected exit codes of 0 to 255, separated by commas, found {text[:80]!r}"
        )
    return tuple(map(int, parts))


def _seconds(annotations: Object, name: str, *words: str) -> float | None:
    text = annotations.get(name)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        allowed = " or ".join(("seconds of at least 0", *words))
        raise BadAnnotation(f"annotation {name}: expected {allowed}, found {text[:80]!r}")
    return seconds
