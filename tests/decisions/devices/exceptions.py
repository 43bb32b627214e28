"""Recorded decisions that ours differ from on purpose, because kube-scheduler 1.36.2 is wrong there.

Docs: `docs/decisions/0025-devices-where-kube-scheduler-errs.md`. A recorded allocation that gives devices which are
alike to a `distinctAttribute` needs no entry here: the plain reading says of it itself that it is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Recording -> id of a case -> why its scores differ.
SCORES: Final[Mapping[str, Mapping[int, str]]] = {
    "kube-scheduler-1.36.2-dra-2.jsonl": {
        102: "whether a device matches a class is kept there under the names of pool and device and not forgotten when "
        "the slice changes: devices are counted that had these names, in an earlier case, and were of the class",
    }
}

#: What the plain reading says of two devices that had to differ.
ALIKE: Final = "devices do not differ in "
