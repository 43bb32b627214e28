"""What a pod's containers do, by the annotations of the pod, and what a kubelet does when they have ended. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

from .resource import Object

#: How many seconds the containers run before they exit; without it they run until the pod is deleted.
RUN_SECONDS = "agent-scheduler.io/run-seconds"
#: With what they exit, each time that they have run; the last one counts for all later times. With it the restart
#: policy counts; without it they exit with 0, and the pod has ended.
EXIT_CODE = "agent-scheduler.io/exit-code"
#: Seconds from their start until they are ready, or `never`.
READY_AFTER = "agent-scheduler.io/ready-after-seconds"
#: Seconds from their start until the kubelet evicts the pod, as where its node lacks memory.
EVICT_AFTER = "agent-scheduler.io/evict-after-seconds"

#: Seconds that a container waits which is started again: not the first time, then these, doubled up to the longest; a
#: run of this length makes it the first time again (pkg/kubelet, `MaxContainerBackOff`).
_BACKOFF, _LONGEST, _FORGIVEN = 10.0, 300.0, 600.0


class BadAnnotation(ValueError):
    """An annotation that says nothing that containers could do."""


class Play(NamedTuple):
    """Seconds as the annotations say; `ready_after` is None for never, `codes` empty where none is said."""

    life: float | None = None
    codes: tuple[int, ...] = ()
    ready_after: float | None = 0.0
    evict_after: float | None = None

    def code(self, run: int) -> int:
        """Of run number `run`, from 0."""
        return self.codes[min(run, len(self.codes) - 1)] if self.codes else 0

    def is_started_again(self, pod: Object, code: int) -> bool:
        policy = pod["spec"].get("restartPolicy", "Always")
        return bool(self.codes) and (policy == "Always" or (policy == "OnFailure" and code != 0))


#: Of a pod that says nothing.
NOTHING = Play()


def runs_of(pod: Object) -> int:
    """How often its containers have ended so far."""
    reports = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((each.get("restartCount", 0) for each in reports), default=0)


def play_of(pod: Object) -> Play:
    """Raises `BadAnnotation`."""
    annotations = pod["metadata"].get("annotations") or {}
    ready = annotations.get(READY_AFTER)
    codes = _codes(annotations.get(EXIT_CODE))
    life = _seconds(annotations, RUN_SECONDS)
    return Play(
        # What says how it ends, ends.
        0.0 if life is None and codes else life,
        codes,
        None if ready == "never" else _seconds(annotations, READY_AFTER, "never") or 0.0,
        _seconds(annotations, EVICT_AFTER),
    )


def pause(runs: int, last: float) -> float:
    """Seconds until containers that have ended `runs` times start again. `last`: how long the last run was."""
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
