"""GPUs that pods share, device by device, in thousandths of one.

A node offers `RESOURCE`, 1000 for each of its GPUs. A pod that asks for less than 1000 gets a share of one device; one
that asks for n times 1000 gets n devices for itself. What a device has free is known for each: a node with 500 left on
two devices has no room for 700.

A share is given the device with the least left that has room for it (best fit), and whole devices are the first that
nobody uses. Which ones stands in the pod's annotation `ANNOTATION`, as indices with commas between, in the form of
`NVIDIA_VISIBLE_DEVICES`; the Binding brings it, so that the API server writes node and devices at once.
"""

from __future__ import annotations

from typing import Final

RESOURCE: Final = "agent-scheduler.io/gpu-milli"
ANNOTATION: Final = "agent-scheduler.io/gpu-index"

#: A whole device.
WHOLE: Final = 1000

#: What a node can offer at most: each of its devices is known by itself.
NODE_LIMIT: Final = 256 * WHOLE

#: [device] thousandths that are free; below 0 where others than this scheduler have put more there than it has.
Free = tuple[int, ...]
#: Indices of devices, upwards.
Indices = tuple[int, ...]

NO_GPUS: Final[Free] = ()


def problem_with(amount: int) -> str:
    """Why no pod can ask for so many thousandths; empty where one can."""
    if amount <= WHOLE or amount % WHOLE == 0:
        return ""
    return (
        f"{RESOURCE}: {amount} is neither a share of one GPU nor a number of whole ones; "
        f"allowed: up to {WHOLE}, or a multiple of it"
    )


def all_free(offered: int) -> Free:
    """The devices of a node that offers so many thousandths; what is left of a whole one is none."""
    return (WHOLE,) * (offered // WHOLE)


def fits(free: Free, amount: int) -> bool:
    """Whether the devices have room for a pod that asks for so much."""
    if amount < WHOLE:
        return max(free, default=0) >= amount
    return free.count(WHOLE) >= amount // WHOLE


def choose(free: Free, amount: int) -> Indices:
    """The devices that a pod is given; none where it does not fit."""
    if amount < WHOLE:
        left = min((each for each in free if each >= amount), default=None)
        return () if left is None else (free.index(left),)
    wanted = amount // WHOLE
    chosen = [index for index, left in enumerate(free) if left == WHOLE][:wanted]
    return tuple(chosen) if len(chosen) == wanted else ()


def without(free: Free, given: Indices, amount: int) -> Free:
    """What is free beside a pod that was given these devices. One that the node does not have is left out."""
    each, left = min(amount, WHOLE), list(free)
    for index in given:
        if index < len(left):
            left[index] -= each
    return tuple(left)


def beside(free: Free, given: Indices, amount: int) -> Free:
    """What is free once a pod has left that `without` has counted."""
    each, left = min(amount, WHOLE), list(free)
    for index in given:
        if index < len(left):
            left[index] += each
    return tuple(left)


def text_of(given: Indices) -> str:
    """The value of `ANNOTATION`."""
    return ",".join(map(str, given))


def indices_in(text: str) -> Indices:
    """What the value of `ANNOTATION` says; nothing where it is not such a value."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 4 for part in parts):
        return ()
    return tuple(sorted({int(part) for part in parts}))


def after_best_fit(free: Free, amount: int) -> Free:
    """`free` beside one pod more, upwards. As it is where the pod does not fit."""
    return tuple(sorted(without(free, choose(free, amount), amount)))
