"""What pods ask for, as sessions count it."""

from __future__ import annotations

from collections.abc import Mapping

from ..quotas.vector import Vector, is_empty, of_requests
from ..state.podinfo import PodInfo


class Requests:
    """The vectors of what pods ask for, once for all pods of a class."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Mapping[str, int], Vector, bool]] = {}

    def of(self, pod: PodInfo) -> tuple[Vector, bool]:
        """What `pod` asks for, and whether that is nothing, devices counted."""
        requests = pod.cls.requests
        found = self._kept.get(id(requests))
        if found is None:
            vector = of_requests(requests)
            # The requests are held, so that no others get their identity.
            found = self._kept[id(requests)] = (requests, vector, is_empty(vector))
        return found[1], found[2] and not pod.claims
