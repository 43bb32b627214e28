"""A pod on a node, as the ledger has it."""

from __future__ import annotations

from .podcounts import Countable


class Placement:
    """A pod on a node. `assumed` until the API server is known to have it there."""

    __slots__ = ("assumed", "cls", "node_name", "pod", "uid")

    def __init__(self, pod: Countable, node_name: str, assumed: bool) -> None:
        self.uid = pod.uid
        self.node_name = node_name
        #: As it was last seen.
        self.pod = pod
        #: What it is counted as.
        self.cls = pod.cls
        self.assumed = assumed
