"""Signals, by which an owner of state notifies others of changes without knowing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    """Calls its receivers, in the order in which they were connected."""

    __slots__ = ("_receivers",)

    def __init__(self) -> None:
        self._receivers: tuple[Callable[P, object], ...] = ()

    def connect(self, receiver: Callable[P, object]) -> None:
        """Call `receiver`, too, from now on."""
        self._receivers = (*self._receivers, receiver)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for receiver in self._receivers:
            receiver(*args, **kwargs)
