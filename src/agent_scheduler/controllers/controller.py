"""The interface of what a controllers' process runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Controller(Protocol):
    """A controller: run `watch` at all times, and `lead`, once, while this process may write."""

    @property
    def is_synced(self) -> bool: ...
    @property
    def stale(self) -> Sequence[str]:
        """The kinds whose watch has received nothing from the API server for too long."""

    @property
    def missing(self) -> Sequence[str]:
        """The required kinds that the API server does not serve."""

    async def watch(self) -> None:
        """Watch the cluster until cancelled."""

    async def synced(self) -> None:
        """Wait until all objects that existed at the start have been received."""

    async def lead(self) -> None:
        """Write until `stop` is called, or until cancelled. Requires `synced`."""

    def stop(self) -> None:
        """Make `lead` return after the current writes."""
