"""What a fast path has to do with others that share the pods and the nodes of one cluster with it, each having a part.

A pod whose home is here and that fits on no node of the part here, but on one of another part, is lent to the process
which that node belongs to, for one bind to that node: it is that process alone that binds there. `lending` is the side
of the home, `guests` that of the process which binds.
"""

from __future__ import annotations

import enum
from typing import Protocol


class Ending(enum.StrEnum):
    """What became of a pod that was lent."""

    BOUND = "bound"
    #: The node has no room for it, or is not that process's.
    REFUSED = "refused"
    #: The bind came to nothing for another reason, which is told.
    FAILED = "failed"
    #: The pod waits no longer: it is gone, or has a node by now.
    GONE = "gone"


class Neighbours(Protocol):
    """The way to the other processes. Returns at once; what cannot be delivered is answered as refused."""

    def lend(self, uid: str, node_name: str) -> None:
        """Have a pod of ours bound by the process which has that node. `Lending.ended` is told what became of it, but
        not before this has returned."""

    def give_back(self, uid: str, ending: Ending, message: str) -> None:
        """What became of a pod that was lent to us."""


class Guests(Protocol):
    """The pods that others have lent to this process."""

    def ended(self, uid: str, ending: Ending, message: str = "") -> bool:
        """The attempt on a pod is over. False: it is no guest, and nothing was done."""


class NoGuests:
    """Of a scheduler that is alone."""

    def ended(self, uid: str, ending: Ending, message: str = "") -> bool:
        return False


NO_GUESTS = NoGuests()
