"""The requests of pods as vectors of sessions."""

from __future__ import annotations

from collections.abc import Mapping

from ..quotas.vector import Vector, is_empty, of_requests
from ..state.podinfo import PodInfo


class Requests:
    """A cache of request vectors, one for all pods of a class."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Mapping[str, int], Vector, bool]] = {}

    def of(self, pod: PodInfo) -> tuple[Vector, bool]:
        """Return the pod's requests, and whether it is best-effort, that is, requests nothing and no devices."""
        requests = pod.cls.requests
        found = self._kept.get(id(requests))
        if found is None:
            vector = of_requests(requests)
            # The reference to the requests prevents that another object gets the same id.
            found = self._kept[id(requests)] = (requests, vector, is_empty(vector))
        return found[1], found[2] and not pod.claims
