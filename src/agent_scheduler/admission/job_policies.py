"""Checks the policies of a job or a task: actions for events and exit codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from agent_scheduler.objects.job import LifecyclePolicy

#: Matches all events.
_EVERY: Final = "*"
_EVENTS: Final = (
    *(_EVERY, "JobUpdated", "PodEvicted", "PodFailed", "PodPending", "TaskCompleted", "TaskFailed"),
    "Unknown",
)
_ACTIONS: Final = (
    *("AbortJob", "CompleteJob", "RestartJob", "RestartPartition", "RestartPod", "RestartTask"),
    *("ResumeJob", "TerminateJob"),
)
_VALID_EVENTS: Final = f"valid events are [{' '.join(_EVENTS)}]"
_VALID_ACTIONS: Final = f"valid actions are [{' '.join(_ACTIONS)}]"


def problems(policies: Sequence[LifecyclePolicy], field: str) -> Iterator[str]:
    """Yield the problems of the list at `field`. Valid exit codes depend on the platform; only 0 is never a failure."""
    events: set[str] = set()
    codes: set[int] = set()
    for index, policy in enumerate(policies):
        at = f"{field}[{index}]"
        named = {*(policy.events or ()), *((policy.event,) if policy.event else ())}
        if named and policy.exit_code is not None:
            yield f"{at}: must not specify event and exitCode simultaneously"
            continue
        if not named and policy.exit_code is None:
            yield f"{at}: either event and exitCode should be specified"
            continue
        yield from _values(policy, sorted(named), at)
        for event in sorted(named & events):
            yield f"{at}.event: duplicate event {event}  across different policy"
        events |= named
        if policy.exit_code is None:
            continue
        if policy.exit_code == 0:
            yield f"{at}.exitCode: 0 is not a valid error code"
        elif policy.exit_code in codes:
            yield f"{at}.exitCode: duplicate exitCode {policy.exit_code}"
        codes.add(policy.exit_code)
    if _EVERY in events and len(events) > 1:
        yield f"{field}: if there's * here, no other policy should be here"


def _values(policy: LifecyclePolicy, events: Sequence[str], at: str) -> Iterator[str]:
    for event in events:
        if event not in _EVENTS:
            yield f'{at}.event: Invalid value: "{event}": invalid policy event, {_VALID_EVENTS}'
    if policy.action not in _ACTIONS:
        yield f'{at}.action: Invalid value: "{policy.action}": invalid policy action, {_VALID_ACTIONS}'
