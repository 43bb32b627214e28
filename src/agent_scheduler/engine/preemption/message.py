"""What preemption adds to the message of a refusal."""

from __future__ import annotations

from typing import Final

#: What kube-scheduler's DynamicResources says at the same point of a pod that has no claims to give back. It is said of
#: every refused pod; who compares messages compares the whole.
NO_CLAIMS: Final = "no new claims to deallocate"


def with_preemption(refusal: str, message: str, claims: str = NO_CLAIMS) -> str:
    """`refusal` as it is told when preemption came to `message`; unchanged where it found victims. `claims` is what
    came of the look for claims to give back."""
    return f"{refusal} {claims}, preemption: {message}" if message else refusal
