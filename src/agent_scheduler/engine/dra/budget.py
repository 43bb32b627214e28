"""What a search for devices may cost before others have their turn.

A step is the trying of a device, some 2 microseconds. What is left undecided when a budget is used up is gone on with
when there is more of it, and never taken for a refusal.
"""

from __future__ import annotations

from typing import Final

#: Of what is asked about one node, where nobody says how many there may be; some 20 ms.
STEPS: Final = 10_000
#: Of what decisions ask about many nodes, before other work has its turn; some 10 ms.
PORTION: Final = 5_000
#: Seconds for which a pod's searches are gone on with, unless a profile's `DynamicResourcesArgs` say otherwise.
FILTER_TIMEOUT: Final = 10.0
#: More than anybody takes.
ENDLESS: Final = 1 << 62


class SearchBudget:
    """Steps that several searches have together."""

    __slots__ = ("left",)

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps
