"""What a process of controllers runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Controller(Protocol):
    """Run `watch` all the time, and `lead`, once, while this process may write."""

    @property
    def is_synced(self) -> bool: ...
    @property
    def stale(self) -> Sequence[str]:
        """Kinds whose watch has received nothing from the API server for too long."""

    @property
    def missing(self) -> Sequence[str]:
        """Kinds that it cannot do without, and that the API server does not have."""

    async def watch(self) -> None:
        """Watch the cluster until cancelled."""

    async def synced(self) -> None:
        """Returns once all that existed at the start has been seen."""

    async def lead(self) -> None:
        """Write until `stop` was called, or until cancelled. Needs `synced`."""

    def stop(self) -> None:
        """`lead` returns after the writes that are under way."""
