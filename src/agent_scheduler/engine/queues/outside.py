"""The room that pods and groups outside of the line want of queues, by the last session.

The line has the pods and groups that wait for room in their queue. Others wait for nodes, and need room when they get
one; groups that come last must leave it to them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..quotas.vector import Total, Vector, add_to, at_least, is_empty, minus, plus
from .entries import covers
from .room import QueueRoom
from .shortfall import Shortfall
from .wanting import WantingPods


class OutsideLine:
    """Owner of what the last session found about them."""

    def __init__(self, room: QueueRoom, wanting: WantingPods) -> None:
        self._room = room
        self._wanting = wanting
        #: The shortfalls of the last session, each with what its queue used at that time.
        self._lacking: list[tuple[Shortfall, Vector]] = []
        #: Queue -> what pods without a node and without kept room want in it and its children, by the last session.
        self.wanted: Mapping[str, Vector] = {}

    def set_lacking(self, lacking: Collection[Shortfall]) -> None:
        """Set the shortfalls that a session has found for pods and groups outside of the line.

        These are admitted or request nothing. Groups that come last are not among them.
        """
        used: dict[str, Vector] = {}
        for short in lacking:
            used.setdefault(short.queue, dict(self._room.book.used(short.queue)))
        self._lacking = [(short, used[short.queue]) for short in lacking]

    def leave_room(self, queue: str, wanted: Vector) -> bool:
        """Return whether the queue has room for `wanted` beside all pods that want nodes and have no room so far.

        It is also False if a pod or group outside of the line needs this room, since the next session may place it.
        """
        if self.need([(queue, wanted)], is_free=True):
            return False
        headroom = self._room.book.headroom(self.wanted)
        for each, vector in self._wanting.unreserved():
            headroom.count(each, vector)
        return is_empty(wanted) or headroom.shortfall(queue, wanted) is None

    def need(self, rooms: Sequence[tuple[str, Vector]], *, is_free: bool) -> bool:
        """Return whether a pod or group outside of the line needs these rooms of queues together.

        It does if they are all that it lacks. If the rooms are free (`is_free`), it also does if it has room now,
        because others have left the queue since a session refused it, and would not have it without these rooms.
        """
        book = self._room.book
        for short, used in self._lacking:
            room: Total = {}
            for queue, vector in rooms:
                if book.reaches(queue, (short.queue,)):
                    add_to(room, vector)
            if not short.missing or not room:
                continue
            came_free = minus(used, book.used(short.queue))
            most = at_least(came_free, room) if is_free else plus(came_free, room)
            least = minus(came_free, room) if is_free else came_free
            if covers(most, short.missing) and not covers(least, short.missing):
                return True
        return False
