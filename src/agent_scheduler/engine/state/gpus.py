"""GPUs that pods share, tracked per device in thousandths of a GPU.

A node has 1000 of `RESOURCE` for each of its GPUs. A pod that requests less than 1000 gets a share of one device; a pod
that requests n times 1000 gets n devices exclusively. The free part is tracked per device, so a node with 500 free on
each of two devices has no room for 700.

A share goes to the device with the least free part that has room for it (best fit); whole devices are the first unused
ones. The pod's annotation `ANNOTATION` has their indices, separated by commas, in the format of
`NVIDIA_VISIBLE_DEVICES`. The Binding contains it, so the API server writes node and devices together.
"""

from __future__ import annotations

from typing import Final

RESOURCE: Final = "agent-scheduler.io/gpu-milli"
ANNOTATION: Final = "agent-scheduler.io/gpu-index"

#: A whole device.
WHOLE: Final = 1000

#: The maximum amount of a node, since each device is tracked separately.
NODE_LIMIT: Final = 256 * WHOLE

#: [device] free thousandths; negative if other schedulers have placed more on the device than it has.
Free = tuple[int, ...]
#: Indices of devices in ascending order.
Indices = tuple[int, ...]

NO_GPUS: Final[Free] = ()


def problem_with(amount: int) -> str:
    """Return why `amount`, in thousandths, is an invalid request; empty if it is valid."""
    if amount <= WHOLE or amount % WHOLE == 0:
        return ""
    return (
        f"{RESOURCE}: {amount} is neither a share of one GPU nor a number of whole ones; "
        f"allowed: up to {WHOLE}, or a multiple of it"
    )


def all_free(offered: int) -> Free:
    """Return the devices of a node with `offered` thousandths; a remainder below 1000 is no device."""
    return (WHOLE,) * (offered // WHOLE)


def fits(free: Free, amount: int) -> bool:
    """Return whether the devices have room for a request of `amount`."""
    if amount < WHOLE:
        return max(free, default=0) >= amount
    return free.count(WHOLE) >= amount // WHOLE


def choose(free: Free, amount: int) -> Indices:
    """Return the devices for a request of `amount`; empty if it does not fit."""
    if amount < WHOLE:
        left = min((each for each in free if each >= amount), default=None)
        return () if left is None else (free.index(left),)
    wanted = amount // WHOLE
    chosen = [index for index, left in enumerate(free) if left == WHOLE][:wanted]
    return tuple(chosen) if len(chosen) == wanted else ()


def without(free: Free, given: Indices, amount: int) -> Free:
    """Return what is free after a pod got these devices. Devices that the node does not have are ignored."""
    each, left = min(amount, WHOLE), list(free)
    for index in given:
        if index < len(left):
            left[index] -= each
    return tuple(left)


def beside(free: Free, given: Indices, amount: int) -> Free:
    """Return what is free after a pod with these devices has left; the inverse of `without`."""
    each, left = min(amount, WHOLE), list(free)
    for index in given:
        if index < len(left):
            left[index] += each
    return tuple(left)


def text_of(given: Indices) -> str:
    """Return the value of `ANNOTATION` for these devices."""
    return ",".join(map(str, given))


def indices_in(text: str, amount: int) -> Indices:
    """Parse a value of `ANNOTATION` of a pod that requests `amount`; empty if it is invalid.

    Users write annotations too. Of more devices than the request can hold, only the first ones are returned, so that a
    pod takes no device that it does not pay for.
    """
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 4 for part in parts):
        return ()
    return tuple(sorted({int(part) for part in parts})[: max(amount // WHOLE, 1)])


def after_best_fit(free: Free, amount: int) -> Free:
    """Return `free` after placing one more pod, sorted in ascending order; only sorted if the pod does not fit."""
    return tuple(sorted(without(free, choose(free, amount), amount)))
